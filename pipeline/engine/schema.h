/* Parameter tables at work: read YAML or --set text into a parameter struct, canonical text for
 * keys, help, JSON Schema. */
#ifndef ESPL_ENGINE_SCHEMA_H
#define ESPL_ENGINE_SCHEMA_H

#include "engine/param.h"
#include "engine/stage.h"
#include "engine/yaml_tree.h"

#include <jansson.h>

/** Where a parameter's value came from. */
enum espl_origin { ESPL_ORIGIN_DEFAULT, ESPL_ORIGIN_JOB, ESPL_ORIGIN_OVERRIDE };

struct espl_param_value {
    enum espl_origin origin;
    struct espl_srcpos at; /* place of the value in the job file (or "--set") */
    const char *text;      /* canonical text: equal values give equal texts */
};

/** Fills the struct at `out` from defaults and the mapping `with` (NULL = all defaults). `values`
 * has one entry a table row. what: "stage 'prune' (wanda-prune)" for messages. All problems go to
 * diags. */
void espl_schema_read(const struct espl_param *table, const struct espl_node *with,
                      const char *what, const char *help_verb, void *out,
                      struct espl_param_value *values, struct espl_arena *arena,
                      struct espl_diagnostics *diags, const struct espl_srcpos *stage_at);
/** Sets one parameter from `--set` text (YAML flow syntax for lists). */
void espl_schema_override(const struct espl_param *table, const char *name, const char *text,
                          const char *what, void *out, struct espl_param_value *values,
                          struct espl_arena *arena, struct espl_diagnostics *diags);
/** Number of rows before the NULL name. */
size_t espl_schema_count(const struct espl_param *table);
/** {"patterns": ["2:4"], ...} with canonical values, for provenance and reports. New reference. */
json_t *espl_schema_json(const struct espl_param *table, const struct espl_param_value *values);
/** JSON Schema (draft 2020-12) of job files for the given stages. New reference. */
json_t *espl_schema_job_schema(const struct espl_stage *const *stages);
/** Human help of one stage: parameters, defaults, ranges, ports. */
void espl_schema_help(const struct espl_stage *stage, struct espl_buf *out);

#endif

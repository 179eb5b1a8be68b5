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
    struct espl_srcpos at; /* of the value in the job file, of the stage's name for a default, or
                            * the words "--set <path>" as file with line 0 */
    const char *text; /* canonical: equal values give equal texts. Lists as JSON arrays; "" (scalar)
                       * or "[]" (list) for an absent optional value. NULL after an error */
};

/** Fills the struct at `out` from defaults and the mapping `with` (NULL = all defaults). `values`
 * has one entry a table row. what: "stage 'prune' (wanda-prune)" for messages; help_verb:
 * "espalier stages wanda-prune", or NULL. Nodes with line 0 count as overrides. All problems go to
 * diags. */
void espl_schema_read(const struct espl_param *table, const struct espl_node *with,
                      const char *what, const char *help_verb, void *out,
                      struct espl_param_value *values, struct espl_arena *arena,
                      struct espl_diagnostics *diags, const struct espl_srcpos *stage_at);
/** The right-hand side of `--set` as a node for a parameter: lists and quoted texts in YAML flow
 * syntax, all else as one plain scalar. param: NULL = scalar. NULL after an error went to diags. */
const struct espl_node *espl_schema_override_node(const struct espl_param *param, const char *text,
                                                  const struct espl_srcpos *at,
                                                  struct espl_arena *arena,
                                                  struct espl_diagnostics *diags);
/** Number of rows before the NULL name. */
size_t espl_schema_count(const struct espl_param *table);
/** The row of that name, or NULL. */
const struct espl_param *espl_schema_find(const struct espl_param *table, const char *name);
/** {"patterns": ["2:4"], ...} with canonical values, for provenance and reports: sizes ("5B"),
 * durations ("0.045s") and N:M stay texts, absent optional values are null. New reference. */
json_t *espl_schema_json(const struct espl_param *table, const struct espl_param_value *values);
/** JSON Schema (draft 2020-12) of job files for the given stages. New reference. */
json_t *espl_schema_job_schema(const struct espl_stage *const *stages);
/** Human help of one stage: parameters, defaults, ranges, ports. */
void espl_schema_help(const struct espl_stage *stage, struct espl_buf *out);
/** Checks the tables of all stages, for a start-up test: names unique and well formed, every
 * default parses, fields inside the parameter struct and apart from each other, enums have choices,
 * port kinds exist. INTERNAL names the first fault. */
enum espl_status espl_schema_check_stages(const struct espl_stage *const *stages,
                                          struct espl_error *err);

#endif

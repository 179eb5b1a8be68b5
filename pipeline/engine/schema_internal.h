/* Shared by the schema files: one value, and what is said about its type. */
#ifndef ESPL_ENGINE_SCHEMA_INTERNAL_H
#define ESPL_ENGINE_SCHEMA_INTERNAL_H

#include "engine/schema.h"

/** Bytes of one item of a parameter's type. */
size_t espl_schema_item_size(enum espl_param_type type);
/** Reads a node into a field and returns the canonical text; NULL after an error went to diags. */
const char *espl_schema_read_value(const struct espl_param *param, const struct espl_node *node,
                                   void *field, struct espl_arena *arena,
                                   struct espl_diagnostics *diags);
/** "an integer from 16 to 1024", "a list of N:M patterns". */
void espl_schema_describe_type(const struct espl_param *param, struct espl_buf *out);
/** The parameter's default as a user would write it, or an example of its type. */
const char *espl_schema_example(const struct espl_param *param);
/** Does min or max of a table row limit anything? Bounds beyond 1e15 do not. */
bool espl_schema_has_min(const struct espl_param *param);
bool espl_schema_has_max(const struct espl_param *param);
/** Double-quoted text that YAML and JSON read back to the same characters. */
void espl_schema_quote(const char *text, struct espl_buf *out);

enum { ESPL_VALUE_TEXT_LIMIT = 4 * ESPL_YAML_MAX_BYTES, ESPL_TYPE_TEXT_LIMIT = 4096 };

#endif

/* JSON Schema (draft 2020-12) of job files, for completion and checks in editors. What needs more
 * than one place of the file (ids, connections) is left to `espalier plan`. */
#include "engine/schema.h"
#include "engine/schema_internal.h"

#include <math.h>
#include <string.h>

#define NAME_PATTERN     "^[a-z][a-z0-9_-]*$"
#define SIZE_PATTERN     "^[0-9]+([.][0-9]+)? *(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)$"
#define DURATION_PATTERN "^[0-9.]+([eE][+-]?[0-9]+)? *(us|ms|s|min|h)$"

/* A bound as JSON writes it: whole numbers without a fraction. */
static json_t *bound_json(double bound)
{
    return bound == floor(bound) ? json_integer((json_int_t)bound) : json_real(bound);
}

/* Schema of one item of a parameter. */
static json_t *item_schema(const struct espl_param *param)
{
    json_t *schema = NULL;
    switch (param->type) {
    case ESPL_PARAM_BOOL:
        return json_pack("{s:s}", "type", "boolean");
    case ESPL_PARAM_INT:
    case ESPL_PARAM_REAL:
        schema = json_pack("{s:s}", "type", param->type == ESPL_PARAM_INT ? "integer" : "number");
        if (espl_schema_has_min(param)) {
            (void)json_object_set_new(schema, "minimum", bound_json(param->min));
        }
        if (espl_schema_has_max(param)) {
            (void)json_object_set_new(schema, "maximum", bound_json(param->max));
        }
        if ((param->flags & ESPL_PARAM_AUTO_INT) != 0) {
            schema = json_pack("{s:[o, {s:s}]}", "anyOf", schema, "const", "auto");
        }
        return schema;
    case ESPL_PARAM_STRING:
    case ESPL_PARAM_PATH:
        return json_pack("{s:s}", "type", "string");
    case ESPL_PARAM_ENUM: {
        json_t *choices = json_array();
        for (size_t i = 0; param->choices[i] != NULL; i++) {
            (void)json_array_append_new(choices, json_string(param->choices[i]));
        }
        return json_pack("{s:o}", "enum", choices);
    }
    case ESPL_PARAM_DURATION:
        return json_pack("{s:s, s:s}", "type", "string", "pattern", DURATION_PATTERN);
    case ESPL_PARAM_SIZE:
        return json_pack("{s:s, s:s}", "type", "string", "pattern", SIZE_PATTERN);
    case ESPL_PARAM_NM:
        return json_pack("{s:s, s:s}", "type", "string", "pattern",
                         (param->flags & ESPL_PARAM_NULLABLE_NM) != 0
                             ? "^([1-9][0-9]?:[1-9][0-9]?|none)$"
                             : "^[1-9][0-9]?:[1-9][0-9]?$");
    case ESPL_PARAM_GRID: {
        json_t *side = json_pack("{s:s, s:i, s:i}", "type", "integer", "minimum", 1, "maximum", 64);
        json_t *mapping =
            json_pack("{s:s, s:{s:O, s:o}, s:b, s:i}", "type", "object", "properties", "rows", side,
                      "cols", side, "additionalProperties", 0, "minProperties", 1);
        return json_pack("{s:[{s:s, s:s}, o]}", "anyOf", "type", "string", "pattern",
                         "^([1-9][0-9]?x[1-9][0-9]?|none)$", mapping);
    }
    }
    return json_object();
}

/* The default as a JSON value: the same reading as at run time. NULL when there is none. */
static json_t *default_json(const struct espl_param *param)
{
    struct espl_param table[2] = {*param, {0}};
    struct espl_param_value value = {0};
    struct espl_diagnostics diags = {0};
    const struct espl_srcpos nowhere = {0};
    json_t *result = NULL;
    struct espl_arena *arena = espl_arena_create(1 << 16);
    void *field = NULL;
    if (param->default_text == NULL || arena == NULL ||
        espl_diagnostics_init(&diags, NULL) != ESPL_OK ||
        (field = espl_arena_alloc(arena, sizeof(struct espl_list) + sizeof(double))) == NULL) {
        goto cleanup;
    }
    table[0].offset = 0;
    espl_schema_read(table, NULL, "", NULL, field, &value, arena, &diags, &nowhere);
    if (value.text != NULL) {
        json_t *object = espl_schema_json(table, &value);
        result = json_incref(json_object_get(object, param->name));
        json_decref(object);
    }
cleanup:
    espl_diagnostics_free(&diags);
    espl_arena_destroy(arena);
    return result;
}

static json_t *param_schema(const struct espl_param *param)
{
    json_t *schema = item_schema(param);
    if ((param->flags & ESPL_PARAM_LIST) != 0) {
        json_t *list = json_pack("{s:s, s:O}", "type", "array", "items", schema);
        schema = json_pack("{s:[o, o]}", "anyOf", schema, list);
    }
    struct espl_buf text;
    espl_buf_init(&text, ESPL_TYPE_TEXT_LIMIT);
    espl_buf_puts(&text, param->help);
    if (param->unit != NULL && param->unit[0] != '\0') {
        espl_buf_printf(&text, " (%s)", param->unit);
    }
    (void)json_object_set_new(schema, "description", json_string(espl_buf_text(&text)));
    espl_buf_free(&text);
    json_t *fallback = default_json(param);
    if (fallback != NULL) {
        (void)json_object_set_new(schema, "default", fallback);
    }
    return schema;
}

/* A connection: stage id, id.port, or a file. */
static json_t *source_schema(void)
{
    return json_pack("{s:[{s:s, s:s}, {s:s, s:{s:{s:s, s:s}}, s:[s], s:b}]}", "anyOf", "type",
                     "string", "pattern", "^[a-z][a-z0-9_-]*([.][a-z][a-z0-9_-]*)?$", "type",
                     "object", "properties", "file", "type", "string", "description",
                     "artifact made elsewhere", "required", "file", "additionalProperties", 0);
}

static json_t *inputs_schema(const struct espl_stage *stage)
{
    json_t *ports = json_object();
    json_t *required = json_array();
    for (const struct espl_port *port = stage->inputs; port->name != NULL; port++) {
        json_t *source = source_schema();
        if (port->help != NULL) {
            (void)json_object_set_new(source, "description", json_string(port->help));
        }
        (void)json_object_set_new(ports, port->name, source);
        if ((port->flags & ESPL_PORT_OPTIONAL) == 0) {
            (void)json_array_append_new(required, json_string(port->name));
        }
    }
    return json_pack("{s:[o, {s:s, s:o, s:o, s:b}]}", "anyOf", source_schema(), "type", "object",
                     "properties", ports, "required", required, "additionalProperties", 0);
}

/* What holds for a stage item when its `use` is this stage. */
static json_t *stage_rule(const struct espl_stage *stage)
{
    json_t *params = json_object();
    json_t *required_params = json_array();
    json_t *required_keys = json_array();
    for (const struct espl_param *param = stage->params; param->name != NULL; param++) {
        (void)json_object_set_new(params, param->name, param_schema(param));
        if (param->default_text == NULL && (param->flags & ESPL_PARAM_OPTIONAL) == 0) {
            (void)json_array_append_new(required_params, json_string(param->name));
        }
    }
    if (json_array_size(required_params) > 0) {
        (void)json_array_append_new(required_keys, json_string("with"));
    }
    for (const struct espl_port *port = stage->inputs; port->name != NULL; port++) {
        if ((port->flags & ESPL_PORT_OPTIONAL) == 0) {
            (void)json_array_append_new(required_keys, json_string("in"));
            break;
        }
    }
    json_t *with =
        json_pack("{s:s, s:s, s:o, s:o, s:b}", "type", "object", "description", stage->summary,
                  "properties", params, "required", required_params, "additionalProperties", 0);
    json_t *properties = json_pack("{s:o}", "with", with);
    if (stage->inputs->name != NULL) {
        (void)json_object_set_new(properties, "in", inputs_schema(stage));
    } else {
        (void)json_object_set_new(properties, "in", json_false());
    }
    return json_pack("{s:{s:{s:{s:s}}, s:[s]}, s:{s:o, s:o}}", "if", "properties", "use", "const",
                     stage->name, "required", "use", "then", "properties", properties, "required",
                     required_keys);
}

static json_t *expect_schema(void)
{
    json_t *bound = json_pack("{s:[s, s], s:s}", "type", "number", "string", "description",
                              "a number, a duration or a size");
    json_t *limits =
        json_pack("{s:s, s:{s:O, s:o}, s:b, s:i}", "type", "object", "properties", "min", bound,
                  "max", bound, "additionalProperties", 0, "minProperties", 1);
    return json_pack("{s:s, s:s, s:o}", "type", "object", "description",
                     "thresholds of this stage's metrics; a run that misses one exits with 7",
                     "additionalProperties", limits);
}

static json_t *stage_schema(const struct espl_stage *const *stages)
{
    json_t *names = json_array();
    json_t *rules = json_array();
    for (size_t i = 0; stages[i] != NULL; i++) {
        (void)json_array_append_new(names, json_string(stages[i]->name));
        (void)json_array_append_new(rules, stage_rule(stages[i]));
    }
    json_t *properties = json_object();
    (void)json_object_set_new(properties, "id",
                              json_pack("{s:s, s:s, s:s}", "type", "string", "pattern",
                                        NAME_PATTERN, "description",
                                        "name of this stage in the job"));
    (void)json_object_set_new(
        properties, "use",
        json_pack("{s:o, s:s}", "enum", names, "description", "which stage this is"));
    (void)json_object_set_new(properties, "in",
                              json_pack("{s:s}", "description", "where the inputs come from"));
    (void)json_object_set_new(
        properties, "with",
        json_pack("{s:s, s:s}", "type", "object", "description", "parameters of the stage"));
    (void)json_object_set_new(properties, "expect", expect_schema());
    return json_pack("{s:s, s:o, s:[s, s], s:b, s:o}", "type", "object", "properties", properties,
                     "required", "id", "use", "additionalProperties", 0, "allOf", rules);
}

json_t *espl_schema_job_schema(const struct espl_stage *const *stages)
{
    json_t *size = json_pack("{s:s, s:s}", "type", "string", "pattern", SIZE_PATTERN);
    json_t *limits = json_pack("{s:s, s:s, s:{s:O, s:o}, s:b}", "type", "object", "description",
                               "a run does not start when a stage needs more", "properties",
                               "host_memory", size, "scratch", size, "additionalProperties", 0);
    json_t *properties = json_object();
    (void)json_object_set_new(
        properties, "version",
        json_pack("{s:i, s:s}", "const", 1, "description", "version of the job format"));
    (void)json_object_set_new(properties, "name",
                              json_pack("{s:s, s:s, s:s}", "type", "string", "pattern",
                                        NAME_PATTERN, "description",
                                        "results are found under results/by-name/<name>"));
    (void)json_object_set_new(properties, "seed",
                              json_pack("{s:s, s:i, s:i, s:s}", "type", "integer", "minimum", 0,
                                        "default", 0, "description",
                                        "all random numbers of the job come from it"));
    (void)json_object_set_new(properties, "device",
                              json_pack("{s:s, s:s, s:s, s:s}", "type", "string", "pattern",
                                        "^(auto|cpu|cuda:[0-9]{1,3})$", "default", "auto",
                                        "description", "auto, cpu or cuda:N"));
    (void)json_object_set_new(properties, "limits", limits);
    (void)json_object_set_new(properties, "stages",
                              json_pack("{s:s, s:i, s:o}", "type", "array", "minItems", 1, "items",
                                        stage_schema(stages)));
    return json_pack("{s:s, s:s, s:s, s:[s, s, s], s:b, s:o}", "$schema",
                     "https://json-schema.org/draft/2020-12/schema", "title", "espalier job",
                     "type", "object", "required", "version", "name", "stages",
                     "additionalProperties", 0, "properties", properties);
}

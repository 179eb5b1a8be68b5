/* Are the tables of the stages sound? A mistake in one is a bug of ours that a start-up test finds.
 */
#include "artifact/kinds.h"
#include "engine/schema.h"
#include "engine/schema_internal.h"

#include <stdio.h>
#include <string.h>

static bool good_name(const char *name, char separator)
{
    if (name[0] < 'a' || name[0] > 'z') {
        return false;
    }
    for (const char *c = name; *c != '\0'; c++) {
        if (!((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == separator)) {
            return false;
        }
    }
    return true;
}

static size_t field_size(const struct espl_param *param)
{
    return (param->flags & ESPL_PARAM_LIST) != 0 ? sizeof(struct espl_list)
                                                 : espl_schema_item_size(param->type);
}

/* What is wrong with the row, NULL when nothing is. */
static const char *row_fault(const struct espl_param *param, size_t params_size)
{
    const unsigned flags = param->flags;
    const bool number = param->type == ESPL_PARAM_INT || param->type == ESPL_PARAM_REAL ||
                        param->type == ESPL_PARAM_DURATION || param->type == ESPL_PARAM_SIZE;
    if (!good_name(param->name, '_')) {
        return "its name is not snake_case";
    }
    if (param->help == NULL || param->help[0] == '\0') {
        return "it has no help";
    }
    if (param->type == ESPL_PARAM_ENUM && (param->choices == NULL || param->choices[0] == NULL)) {
        return "an enum needs choices";
    }
    if (param->type != ESPL_PARAM_ENUM && param->choices != NULL) {
        return "only an enum has choices";
    }
    if (param->min > param->max || (!number && (param->min != 0.0 || param->max != 0.0))) {
        return "its limits make no sense";
    }
    if ((flags & ESPL_PARAM_OPTIONAL) != 0 && param->default_text != NULL) {
        return "an optional parameter has no default";
    }
    if ((flags & ESPL_PARAM_OPTIONAL) != 0 && (flags & ESPL_PARAM_LIST) == 0 &&
        (param->type == ESPL_PARAM_ENUM || param->type == ESPL_PARAM_BOOL)) {
        return "an optional enum or bool cannot tell absent from its first value";
    }
    if ((flags & ESPL_PARAM_NULLABLE_NM) != 0 && param->type != ESPL_PARAM_NM) {
        return "only an N:M parameter takes none";
    }
    if ((flags & ESPL_PARAM_AUTO_INT) != 0 &&
        (param->type != ESPL_PARAM_INT || (flags & ESPL_PARAM_LIST) != 0 || param->min < 0.0 ||
         param->max <= param->min)) {
        return "only an integer with limits above 0 takes auto";
    }
    if ((flags & ESPL_PARAM_INPUT_PATH) != 0 && param->type != ESPL_PARAM_PATH) {
        return "only a path names input files";
    }
    if (param->offset > params_size || params_size - param->offset < field_size(param)) {
        return "its field lies outside the parameter struct";
    }
    return NULL;
}

/* Reads the default of one row into scratch memory. */
static bool default_is_good(const struct espl_param *param, struct espl_error *err)
{
    struct espl_param table[2] = {*param, {0}};
    struct espl_param_value value = {0};
    struct espl_diagnostics diags = {0};
    const struct espl_srcpos nowhere = {0};
    bool good = false;
    struct espl_arena *arena = espl_arena_create(1 << 16);
    if (arena != NULL && espl_diagnostics_init(&diags, err) == ESPL_OK) {
        table[0].offset = 0;
        void *field = espl_arena_alloc(arena, field_size(param));
        if (field != NULL) {
            espl_schema_read(table, NULL, "a stage", NULL, field, &value, arena, &diags, &nowhere);
        }
        good = value.text != NULL && diags.count == 0;
    }
    espl_diagnostics_free(&diags);
    espl_arena_destroy(arena);
    return good;
}

static enum espl_status check_params(const struct espl_stage *stage, struct espl_error *err)
{
    for (const struct espl_param *param = stage->params; param->name != NULL; param++) {
        const char *fault = row_fault(param, stage->params_size);
        if (fault != NULL) {
            return espl_fail(err, ESPL_E_INTERNAL, "stage '%s', parameter '%s': %s", stage->name,
                             param->name, fault);
        }
        if (param->default_text != NULL && !default_is_good(param, err)) {
            return espl_fail(err, ESPL_E_INTERNAL, "stage '%s', parameter '%s': bad default '%s'",
                             stage->name, param->name, param->default_text);
        }
        for (const struct espl_param *other = stage->params; other != param; other++) {
            if (strcmp(other->name, param->name) == 0) {
                return espl_fail(err, ESPL_E_INTERNAL, "stage '%s': two parameters '%s'",
                                 stage->name, param->name);
            }
            if (other->offset < param->offset + field_size(param) &&
                param->offset < other->offset + field_size(other)) {
                return espl_fail(err, ESPL_E_INTERNAL,
                                 "stage '%s': parameters '%s' and '%s' share a field", stage->name,
                                 other->name, param->name);
            }
        }
    }
    return ESPL_OK;
}

/* Every kind in "a/1|b/1" must be in the table of kinds. */
static bool kinds_exist(const char *accepted)
{
    char name[ESPL_KIND_TEXT];
    for (const char *start = accepted;;) {
        const size_t len = strcspn(start, "|");
        if (len == 0 || len >= sizeof name) {
            return false;
        }
        memcpy(name, start, len);
        name[len] = '\0';
        if (espl_kind_find(name) == NULL) {
            return false;
        }
        if (start[len] == '\0') {
            return true;
        }
        start += len + 1;
    }
}

static enum espl_status check_ports(const struct espl_stage *stage, const struct espl_port *ports,
                                    struct espl_error *err)
{
    for (const struct espl_port *port = ports; port->name != NULL; port++) {
        if (!good_name(port->name, '_')) {
            return espl_fail(err, ESPL_E_INTERNAL, "stage '%s': bad port name '%s'", stage->name,
                             port->name);
        }
        if (!kinds_exist(port->kind)) {
            return espl_fail(err, ESPL_E_INTERNAL, "stage '%s', port '%s': unknown kind '%s'",
                             stage->name, port->name, port->kind);
        }
        for (const struct espl_port *other = ports; other != port; other++) {
            if (strcmp(other->name, port->name) == 0) {
                return espl_fail(err, ESPL_E_INTERNAL, "stage '%s': two ports '%s'", stage->name,
                                 port->name);
            }
        }
    }
    return ESPL_OK;
}

static enum espl_status check_stage(const struct espl_stage *stage, struct espl_error *err)
{
    if (!good_name(stage->name, '-')) {
        return espl_fail(err, ESPL_E_INTERNAL, "bad stage name '%s'", stage->name);
    }
    if (stage->summary == NULL || stage->summary[0] == '\0' || stage->params == NULL ||
        stage->inputs == NULL || stage->outputs == NULL || stage->run == NULL ||
        stage->cache_version == 0) {
        return espl_fail(err, ESPL_E_INTERNAL,
                         "stage '%s': summary, cache_version, params, inputs, outputs and run are "
                         "needed",
                         stage->name);
    }
    if (stage->outputs->name == NULL) {
        return espl_fail(err, ESPL_E_INTERNAL, "stage '%s' has no output", stage->name);
    }
    enum espl_status status = check_params(stage, err);
    if (status == ESPL_OK) {
        status = check_ports(stage, stage->inputs, err);
    }
    if (status == ESPL_OK) {
        status = check_ports(stage, stage->outputs, err);
    }
    return status;
}

enum espl_status espl_schema_check_stages(const struct espl_stage *const *stages,
                                          struct espl_error *err)
{
    for (size_t i = 0; stages[i] != NULL; i++) {
        const enum espl_status status = check_stage(stages[i], err);
        if (status != ESPL_OK) {
            return status;
        }
        for (size_t j = 0; j < i; j++) {
            if (strcmp(stages[i]->name, stages[j]->name) == 0) {
                return espl_fail(err, ESPL_E_INTERNAL, "two stages '%s'", stages[i]->name);
            }
        }
    }
    return ESPL_OK;
}

#include "stages/prune_common/model_plan.h"

#include <stdbool.h>
#include <string.h>

/* Sets a member to a borrowed value that may be absent. */
static bool copy_member(json_t *to, const json_t *from, const char *name)
{
    json_t *value = json_object_get(from, name);
    return value == NULL || json_object_set(to, name, value) == 0;
}

enum espl_status espl_model_plan_output(struct espl_plan_ctx *ctx, const json_t *model,
                                        const char *name, json_t *value, struct espl_error *err)
{
    json_t *description = json_object();
    const bool keeps_pruning = strcmp(name, "pruning") != 0;
    if (!copy_member(description, model, "architecture") ||
        !copy_member(description, model, "config") ||
        (keeps_pruning && !copy_member(description, model, "pruning")) ||
        json_object_set(description, name, value) != 0) {
        json_decref(description);
        json_decref(value);
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the description of the output");
    }
    json_decref(value);
    espl_plan_set_output(ctx, "model", description);
    return ESPL_OK;
}

json_t *espl_json_join(json_t *object, json_t *more)
{
    const bool joined = object != NULL && more != NULL && json_object_update(object, more) == 0;
    json_decref(more);
    if (!joined) {
        json_decref(object);
        return NULL;
    }
    return object;
}

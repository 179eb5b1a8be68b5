#include "engine/explain.h"

#include "engine/plan_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* by-name/<job>/<stage id>[.<port>].h5, the first output's. */
static enum espl_status link_path_of(const struct espl_plan *plan,
                                     const struct espl_plan_stage *stage,
                                     const struct espl_store *store, char out[ESPL_PATH_MAX],
                                     struct espl_error *err)
{
    const char *port = espl_plan_store_port(stage->job_stage->stage, 0);
    char name[3 * ESPL_JOB_NAME_MAX + 64];
    (void)snprintf(name, sizeof name, "by-name/%s/%s%s%s.h5", plan->job->name, stage->job_stage->id,
                   port != NULL ? "." : "", port != NULL ? port : "");
    return espl_fs_join(out, store->root, name, err);
}

/* The key in the name of a stored artifact: ".../<64 hex digits>[.<port>].h5". */
static bool key_of_target(const char *target, char key[ESPL_SHA256_HEX])
{
    const char *slash = strrchr(target, '/');
    const char *name = slash != NULL ? slash + 1 : target;
    if (strspn(name, "0123456789abcdef") != ESPL_SHA256_HEX - 1) {
        return false;
    }
    memcpy(key, name, ESPL_SHA256_HEX - 1);
    key[ESPL_SHA256_HEX - 1] = '\0';
    return true;
}

static bool valid_fields(const json_t *fields)
{
    if (!json_is_array(fields)) {
        return false;
    }
    for (size_t i = 0; i < json_array_size(fields); i++) {
        const json_t *field = json_array_get(fields, i);
        if (!json_is_string(json_array_get(field, 0)) ||
            !json_is_string(json_array_get(field, 1))) {
            return false;
        }
    }
    return true;
}

static enum espl_status read_fields(const char *path, json_t **fields, struct espl_error *err)
{
    struct espl_artifact *artifact = NULL;
    char *text = NULL;
    enum espl_status status = espl_artifact_open(path, &artifact, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_artifact_provenance(artifact, "hash_fields", &text, err);
    if (status == ESPL_OK) {
        *fields = json_loads(text, 0, NULL);
        if (!valid_fields(*fields)) {
            json_decref(*fields);
            *fields = NULL;
            status = espl_fail(err, ESPL_E_CORRUPT,
                               "the fields of the key in '%s' are not readable", path);
        }
    }
    free(text);
    espl_artifact_close(artifact);
    return status;
}

enum espl_status espl_explain_previous(const struct espl_plan *plan,
                                       const struct espl_plan_stage *stage,
                                       const struct espl_store *store,
                                       struct espl_previous *previous, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char target[ESPL_PATH_MAX];
    *previous = (struct espl_previous){0};
    const enum espl_status status = link_path_of(plan, stage, store, path, err);
    if (status != ESPL_OK) {
        return status;
    }
    const ssize_t len = readlink(path, target, sizeof target - 1);
    if (len < 0) {
        return ESPL_OK; /* no link: never run */
    }
    target[len] = '\0';
    previous->known = key_of_target(target, previous->key);
    previous->stored = previous->known && espl_fs_exists(path);
    return previous->stored ? read_fields(path, &previous->fields, err) : ESPL_OK;
}

static const char *now_value(const struct espl_plan_stage *stage, const char *label)
{
    for (size_t i = 0; i < stage->field_count; i++) {
        if (strcmp(stage->fields[i].label, label) == 0) {
            return stage->fields[i].value;
        }
    }
    return NULL;
}

static const char *before_value(const json_t *fields, const char *label)
{
    for (size_t i = 0; i < json_array_size(fields); i++) {
        const json_t *field = json_array_get(fields, i);
        if (strcmp(json_string_value(json_array_get(field, 0)), label) == 0) {
            return json_string_value(json_array_get(field, 1));
        }
    }
    return NULL;
}

/* Takes copies into the plan's arena: the JSON is freed. NULL stays NULL. */
static bool add_difference(struct espl_plan *plan, struct espl_explanation *out, const char *label,
                           const char *before, const char *now)
{
    if (out->difference_count == ESPL_MAX_DIFFERENCES) {
        return true;
    }
    struct espl_difference *difference = &out->differences[out->difference_count++];
    difference->label = espl_arena_strdup(plan->arena, label);
    difference->before = before != NULL ? espl_arena_strdup(plan->arena, before) : NULL;
    difference->now = now;
    return difference->label != NULL && (before == NULL || difference->before != NULL);
}

enum espl_status espl_explain(struct espl_plan *plan, size_t index, const struct espl_store *store,
                              struct espl_explanation *out, struct espl_error *err)
{
    const struct espl_plan_stage *stage = &plan->stages[index];
    struct espl_previous previous;
    *out = (struct espl_explanation){0};
    enum espl_status status = espl_explain_previous(plan, stage, store, &previous, err);
    out->has_previous = previous.known;
    (void)snprintf(out->previous_key, sizeof out->previous_key, "%s", previous.key);
    if (status != ESPL_OK || previous.fields == NULL) {
        return status;
    }
    bool good = true;
    for (size_t i = 0; i < stage->field_count; i++) {
        const struct espl_hash_field *field = &stage->fields[i];
        const char *before = before_value(previous.fields, field->label);
        if (before != NULL && strcmp(before, field->value) == 0) {
            out->same_count++;
        } else {
            good = add_difference(plan, out, field->label, before, field->value) && good;
        }
    }
    for (size_t i = 0; i < json_array_size(previous.fields); i++) {
        const json_t *field = json_array_get(previous.fields, i);
        const char *label = json_string_value(json_array_get(field, 0));
        if (now_value(stage, label) == NULL) {
            const char *before = json_string_value(json_array_get(field, 1));
            good = add_difference(plan, out, label, before, NULL) && good;
        }
    }
    json_decref(previous.fields);
    return good ? ESPL_OK : espl_fail(err, ESPL_E_NOMEM, "out of memory for an explanation");
}

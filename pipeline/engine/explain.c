#include "engine/explain.h"

#include "engine/plan_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LINKS = 1 << 16 };

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

/* ---- the last source of an input ---- */

/* Key of input `port` in the provenance of the artifact at `path`. False when it is not known. */
static bool last_input_key(const char *path, const char *port, char key[ESPL_SHA256_HEX])
{
    struct espl_artifact *artifact = NULL;
    char *text = NULL;
    bool found = false;
    if (espl_artifact_open(path, &artifact, NULL) != ESPL_OK) {
        return false;
    }
    if (espl_artifact_provenance(artifact, "inputs", &text, NULL) == ESPL_OK) {
        size_t index = 0;
        json_t *input = NULL;
        json_t *inputs = json_loads(text, 0, NULL);
        json_array_foreach(inputs, index, input)
        {
            const char *name = json_string_value(json_object_get(input, "port"));
            const char *value = json_string_value(json_object_get(input, "key"));
            if (!found && name != NULL && strcmp(name, port) == 0 && value != NULL &&
                strlen(value) == ESPL_SHA256_HEX - 1) {
                memcpy(key, value, ESPL_SHA256_HEX);
                found = true;
            }
        }
        json_decref(inputs);
        free(text);
    }
    espl_artifact_close(artifact);
    return found;
}

/* Is `name` a link of stage `id`: "<id>.h5" or "<id>.<port>.h5"? */
static bool is_link_of(const char *name, const char *id)
{
    const size_t len = strlen(id);
    const size_t name_len = strlen(name);
    return strncmp(name, id, len) == 0 && name[len] == '.' && name_len > 3 &&
           strcmp(name + name_len - 3, ".h5") == 0;
}

void espl_explain_last_source(const struct espl_store *store, const char *job, const char *id,
                              const char *port, char out[ESPL_JOB_NAME_MAX + 1])
{
    char dir[ESPL_PATH_MAX];
    char rest[ESPL_JOB_NAME_MAX + 16];
    char path[ESPL_PATH_MAX];
    char key[ESPL_SHA256_HEX];
    char **names = NULL;
    size_t count = 0;
    bool known = false;
    out[0] = '\0';
    (void)snprintf(rest, sizeof rest, "by-name/%s", job);
    if (espl_fs_join(dir, store->root, rest, NULL) != ESPL_OK ||
        espl_fs_list(dir, MAX_LINKS, &names, &count, NULL) != ESPL_OK) {
        return;
    }
    for (size_t i = 0; i < count && !known; i++) {
        known = is_link_of(names[i], id) && espl_fs_join(path, dir, names[i], NULL) == ESPL_OK &&
                last_input_key(path, port, key);
    }
    for (size_t i = 0; i < count && known && out[0] == '\0'; i++) {
        char target[ESPL_PATH_MAX];
        char target_key[ESPL_SHA256_HEX];
        const size_t len = strcspn(names[i], ".");
        const ssize_t got = espl_fs_join(path, dir, names[i], NULL) == ESPL_OK
                                ? readlink(path, target, sizeof target - 1)
                                : -1;
        if (got > 0 && len <= ESPL_JOB_NAME_MAX) {
            target[got] = '\0';
            if (key_of_target(target, target_key) && strcmp(target_key, key) == 0) {
                memcpy(out, names[i], len);
                out[len] = '\0';
            }
        }
    }
    espl_fs_free_names(names, count);
}

#include "cli/gc_roots.h"

#include "engine/run_record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Keys found but not yet followed: an array used as a stack. */
struct roots {
    const struct espl_store *store;
    const struct espl_log *log;
    json_t *keys;
    json_t *pending;
};

bool espl_gc_key_of(const char *name, char key[ESPL_SHA256_HEX])
{
    const size_t len = ESPL_SHA256_HEX - 1;
    if (strspn(name, "0123456789abcdef") != len || (name[len] != '.' && name[len] != '\0')) {
        return false;
    }
    memcpy(key, name, len);
    key[len] = '\0';
    return true;
}

static enum espl_status add_key(struct roots *roots, const char *text, struct espl_error *err)
{
    char key[ESPL_SHA256_HEX];
    if (text == NULL || !espl_gc_key_of(text, key) || json_object_get(roots->keys, key) != NULL) {
        return ESPL_OK;
    }
    if (json_object_set_new(roots->keys, key, json_true()) != 0 ||
        json_array_append_new(roots->pending, json_string(key)) != 0) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the keys in use");
    }
    return ESPL_OK;
}

/* ---- by-name/<job>/<stage>.h5 ---- */

static enum espl_status add_links(struct roots *roots, const char *dir, struct espl_error *err)
{
    char **names = NULL;
    size_t count = 0;
    enum espl_status status = espl_fs_list(dir, ESPL_GC_MAX_NAMES, &names, &count, err);
    for (size_t i = 0; i < count && status == ESPL_OK; i++) {
        char path[ESPL_PATH_MAX];
        char target[ESPL_PATH_MAX];
        status = espl_fs_join(path, dir, names[i], err);
        const ssize_t len = status == ESPL_OK ? readlink(path, target, sizeof target - 1) : -1;
        if (len > 0) {
            target[len] = '\0';
            const char *slash = strrchr(target, '/');
            status = add_key(roots, slash != NULL ? slash + 1 : target, err);
        }
    }
    espl_fs_free_names(names, count);
    return status;
}

static enum espl_status add_by_name(struct roots *roots, struct espl_error *err)
{
    char dir[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    enum espl_status status = espl_fs_join(dir, roots->store->root, "by-name", err);
    if (status != ESPL_OK || !espl_fs_is_dir(dir)) {
        return status;
    }
    status = espl_fs_list(dir, ESPL_GC_MAX_NAMES, &names, &count, err);
    for (size_t i = 0; i < count && status == ESPL_OK; i++) {
        char job[ESPL_PATH_MAX];
        status = espl_fs_join(job, dir, names[i], err);
        if (status == ESPL_OK && espl_fs_is_dir(job)) {
            status = add_links(roots, job, err);
        }
    }
    espl_fs_free_names(names, count);
    return status;
}

/* ---- run records ---- */

static enum espl_status add_stages(struct roots *roots, const json_t *record,
                                   struct espl_error *err)
{
    size_t index = 0;
    json_t *stage = NULL;
    enum espl_status status = ESPL_OK;
    json_array_foreach(json_object_get(record, "stages"), index, stage)
    {
        if (status == ESPL_OK) {
            status = add_key(roots, json_string_value(json_object_get(stage, "key")), err);
        }
    }
    return status;
}

/* A run whose record is damaged: its plan names the same keys. */
static enum espl_status add_plan(struct roots *roots, const char *run_id, const char *problem,
                                 struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char *text = NULL;
    size_t len = 0;
    enum espl_status status = espl_run_path(roots->store, run_id, "plan.json", path, err);
    if (status != ESPL_OK) {
        return status;
    }
    json_t *plan = espl_fs_read_file(path, ESPL_RUN_RECORD_MAX_BYTES, &text, &len, NULL) == ESPL_OK
                       ? json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL)
                       : NULL;
    free(text);
    espl_log(roots->log, ESPL_LOG_WARN, "the record of run '%s' cannot be used: %s; %s", run_id,
             problem,
             plan != NULL ? "the results that its plan names are kept"
                          : "results that only this run refers to can go");
    status = add_stages(roots, plan, err);
    json_decref(plan);
    return status;
}

/* A run that goes on keeps its results whatever its age. */
static enum espl_status add_runs(struct roots *roots, size_t keep_runs, struct espl_error *err)
{
    struct espl_run_list list = {NULL, 0};
    enum espl_status status = espl_run_list_read(roots->store, NULL, 0, &list, err);
    for (size_t i = 0; i < list.count && status == ESPL_OK; i++) {
        struct espl_error problem;
        json_t *record = NULL;
        const enum espl_status loaded = espl_run_load(roots->store, list.ids[i], &record, &problem);
        if (loaded == ESPL_E_NOTFOUND) { /* a run that just begins or died while it began */
            continue;
        }
        if (loaded != ESPL_OK && i < keep_runs) {
            status = add_plan(roots, list.ids[i], problem.message, err);
        } else if (loaded == ESPL_OK &&
                   (i < keep_runs || strcmp(espl_run_status(record), "running") == 0)) {
            status = add_stages(roots, record, err);
        }
        json_decref(record);
    }
    espl_run_list_free(&list);
    return status;
}

/* ---- inputs and parents of artifacts ---- */

static enum espl_status follow_inputs(struct roots *roots, struct espl_artifact *artifact,
                                      struct espl_error *err)
{
    char *text = NULL;
    size_t index = 0;
    json_t *input = NULL;
    enum espl_status status = espl_artifact_provenance(artifact, "inputs", &text, err);
    if (status == ESPL_E_NOTFOUND) { /* made elsewhere */
        espl_error_clear(err);
        return ESPL_OK;
    }
    if (status != ESPL_OK) {
        return status;
    }
    json_t *inputs = json_loads(text, 0, NULL);
    free(text);
    json_array_foreach(inputs, index, input)
    {
        if (status == ESPL_OK) {
            status = add_key(roots, json_string_value(json_object_get(input, "key")), err);
        }
    }
    json_decref(inputs);
    return status;
}

static enum espl_status follow_artifact(struct roots *roots, const char *path,
                                        struct espl_error *err)
{
    struct espl_artifact *artifact = NULL;
    enum espl_status status = espl_artifact_open(path, &artifact, err);
    if (status != ESPL_OK) {
        return espl_hint(err, "nothing was deleted: what this file refers to is not known");
    }
    status = add_key(roots, espl_artifact_attribute(artifact, "parent_key"), err);
    if (status == ESPL_OK) {
        status = follow_inputs(roots, artifact, err);
    }
    espl_artifact_close(artifact);
    return status;
}

/* Every artifact file of a key: store/ab/<key>.h5 and store/ab/<key>.<port>.h5. */
static enum espl_status follow_key(struct roots *roots, const char *key, struct espl_error *err)
{
    char dir[ESPL_PATH_MAX];
    char rest[16];
    char **names = NULL;
    size_t count = 0;
    (void)snprintf(rest, sizeof rest, "store/%.2s", key);
    enum espl_status status = espl_fs_join(dir, roots->store->root, rest, err);
    if (status != ESPL_OK || !espl_fs_is_dir(dir)) {
        return status;
    }
    status = espl_fs_list(dir, ESPL_GC_MAX_NAMES, &names, &count, err);
    for (size_t i = 0; i < count && status == ESPL_OK; i++) {
        char path[ESPL_PATH_MAX];
        const size_t len = strlen(names[i]);
        if (strncmp(names[i], key, strlen(key)) != 0 || len < 3 ||
            strcmp(names[i] + len - 3, ".h5") != 0) {
            continue;
        }
        status = espl_fs_join(path, dir, names[i], err);
        if (status == ESPL_OK) {
            status = follow_artifact(roots, path, err);
        }
    }
    espl_fs_free_names(names, count);
    return status;
}

enum espl_status espl_gc_collect_keys(const struct espl_store *store, size_t keep_runs,
                                      const struct espl_log *log, json_t *keys,
                                      struct espl_error *err)
{
    struct roots roots = {.store = store, .log = log, .keys = keys, .pending = json_array()};
    if (roots.pending == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the keys in use");
    }
    enum espl_status status = add_by_name(&roots, err);
    if (status == ESPL_OK) {
        status = add_runs(&roots, keep_runs, err);
    }
    while (status == ESPL_OK && json_array_size(roots.pending) > 0) {
        const size_t last = json_array_size(roots.pending) - 1;
        char key[ESPL_SHA256_HEX];
        (void)snprintf(key, sizeof key, "%s",
                       json_string_value(json_array_get(roots.pending, last)));
        (void)json_array_remove(roots.pending, last);
        status = follow_key(&roots, key, err);
    }
    json_decref(roots.pending);
    return status;
}

#include "cli/gc_scan.h"

#include "cli/gc_cache.h"
#include "cli/gc_roots.h"
#include "core/lock.h"
#include "engine/run_record.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIDE_FILE_BYTES = 16 << 20 };

struct scan {
    const struct espl_store *store;
    const json_t *keys;
    struct espl_gc_list *list;
};

const char *espl_gc_type_name(enum espl_gc_type type)
{
    static const char *const names[] = {
        [ESPL_GC_ARTIFACT] = "artifact", [ESPL_GC_SIDE] = "side file",
        [ESPL_GC_UNITS] = "units",       [ESPL_GC_PRIVATE] = "temporary",
        [ESPL_GC_LOCK] = "lock",         [ESPL_GC_BLOB] = "fetched file",
        [ESPL_GC_SET] = "old set",       [ESPL_GC_DOWNLOAD] = "download",
    };
    return names[type];
}

static bool has_ending(const char *name, const char *ending)
{
    const size_t len = strlen(name);
    const size_t ending_len = strlen(ending);
    return len >= ending_len && strcmp(name + len - ending_len, ending) == 0;
}

struct espl_gc_item *espl_gc_list_add(struct espl_gc_list *list, enum espl_gc_type type,
                                      const char *path, struct espl_error *err)
{
    /* Full at every power of two from the first size on. */
    enum { FIRST = 16 };
    if (list->count == 0 || (list->count >= FIRST && (list->count & (list->count - 1)) == 0)) {
        const size_t capacity = list->count > 0 ? list->count * 2 : FIRST;
        struct espl_gc_item *grown = realloc(list->items, capacity * sizeof *grown);
        if (grown == NULL) {
            (void)espl_fail(err, ESPL_E_NOMEM, "no memory for the list of what can go");
            return NULL;
        }
        list->items = grown;
    }
    struct espl_gc_item *item = &list->items[list->count++];
    memset(item, 0, sizeof *item);
    item->type = type;
    (void)snprintf(item->path, sizeof item->path, "%s", path);
    return item;
}

uint64_t espl_gc_bytes_of(const char *path)
{
    struct stat info;
    char **names = NULL;
    size_t count = 0;
    uint64_t bytes = 0;
    if (lstat(path, &info) != 0) {
        return 0;
    }
    if (!S_ISDIR(info.st_mode)) {
        return (uint64_t)info.st_size;
    }
    if (espl_fs_list(path, ESPL_GC_MAX_NAMES, &names, &count, NULL) != ESPL_OK) {
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        char file[ESPL_PATH_MAX];
        if (espl_fs_join(file, path, names[i], NULL) == ESPL_OK && lstat(file, &info) == 0) {
            bytes += (uint64_t)info.st_size;
        }
    }
    espl_fs_free_names(names, count);
    return bytes;
}

/* "<path>.h5" -> "<path>.json" */
static bool side_path(const char *path, char out[ESPL_PATH_MAX])
{
    const int n = snprintf(out, ESPL_PATH_MAX, "%.*s.json", (int)(strlen(path) - 3), path);
    return n > 0 && n < ESPL_PATH_MAX;
}

/* What people want to know of an artifact before it goes. A damaged one has no kind. */
static void describe_artifact(struct espl_gc_item *item)
{
    struct espl_artifact *artifact = NULL;
    char path[ESPL_PATH_MAX];
    char *text = NULL;
    size_t len = 0;
    if (espl_artifact_open(item->path, &artifact, NULL) == ESPL_OK) {
        (void)snprintf(item->kind, sizeof item->kind, "%s", espl_artifact_kind(artifact));
        (void)snprintf(item->stage, sizeof item->stage, "%s",
                       espl_artifact_attribute(artifact, "stage"));
        espl_artifact_close(artifact);
    }
    if (!side_path(item->path, path) ||
        espl_fs_read_file(path, SIDE_FILE_BYTES, &text, &len, NULL) != ESPL_OK) {
        return;
    }
    json_t *side = json_loadb(text, len, 0, NULL);
    const char *created = json_string_value(json_object_get(side, "created_utc"));
    (void)snprintf(item->created_utc, sizeof item->created_utc, "%s",
                   created != NULL ? created : "");
    json_decref(side);
    free(text);
    item->bytes += len;
}

/* ---- store/ ---- */

/* Can a file of store/ go, and as what? Files that are not ours stay. */
static bool classify_store_file(const struct scan *scan, const char *path, const char *name,
                                const char *key, enum espl_gc_type *type)
{
    char artifact[ESPL_PATH_MAX];
    *type = ESPL_GC_PRIVATE;
    if (espl_fs_is_abandoned(name)) {
        return true;
    }
    if (key[0] == '\0' || json_object_get(scan->keys, key) != NULL) {
        return false;
    }
    *type = has_ending(name, ".h5") ? ESPL_GC_ARTIFACT : ESPL_GC_SIDE;
    (void)snprintf(artifact, sizeof artifact, "%.*s.h5", (int)(strlen(path) - 5), path);
    return *type == ESPL_GC_ARTIFACT || (has_ending(name, ".json") && !espl_fs_exists(artifact));
}

static enum espl_status scan_store_file(struct scan *scan, const char *dir, const char *name,
                                        struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char key[ESPL_SHA256_HEX] = "";
    enum espl_gc_type type = ESPL_GC_PRIVATE;
    const enum espl_status status = espl_fs_join(path, dir, name, err);
    if (status != ESPL_OK) {
        return status;
    }
    (void)espl_gc_key_of(name, key); /* else it stays "" */
    if (!classify_store_file(scan, path, name, key, &type)) {
        if (key[0] != '\0' && has_ending(name, ".h5")) {
            scan->list->kept_artifacts++;
            scan->list->kept_bytes += espl_gc_bytes_of(path);
        }
        return ESPL_OK;
    }
    struct espl_gc_item *item = espl_gc_list_add(scan->list, type, path, err);
    if (item == NULL) {
        return ESPL_E_NOMEM;
    }
    item->bytes = espl_gc_bytes_of(path);
    if (type != ESPL_GC_PRIVATE) {
        memcpy(item->key, key, sizeof key);
    }
    if (type == ESPL_GC_ARTIFACT) {
        describe_artifact(item);
    }
    return ESPL_OK;
}

/* ---- partial/ ---- */

/* Units are kept while a run that can use them is remembered and its result is not there. */
static bool units_are_stale(const struct scan *scan, const char *key)
{
    return json_object_get(scan->keys, key) == NULL || espl_store_has(scan->store, key, NULL);
}

static enum espl_status scan_partial_file(struct scan *scan, const char *dir, const char *name,
                                          struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char key[ESPL_SHA256_HEX] = "";
    struct espl_gc_item *item = NULL;
    enum espl_status status = espl_fs_join(path, dir, name, err);
    if (status != ESPL_OK) {
        return status;
    }
    const bool has_key = espl_gc_key_of(name, key);
    if (espl_fs_is_abandoned(name)) {
        item = espl_gc_list_add(scan->list, ESPL_GC_PRIVATE, path, err);
    } else if (has_key && has_ending(name, ".units") && units_are_stale(scan, key)) {
        item = espl_gc_list_add(scan->list, ESPL_GC_UNITS, path, err);
    } else if (has_key && has_ending(name, ".lock") && !espl_lock_is_held(path)) {
        item = espl_gc_list_add(scan->list, ESPL_GC_LOCK, path, err);
    } else if (has_key && has_ending(name, ".lock.guard")) {
        item = espl_gc_list_add(scan->list, ESPL_GC_LOCK, path, err);
    } else {
        return ESPL_OK;
    }
    if (item == NULL) {
        return ESPL_E_NOMEM;
    }
    item->bytes = espl_gc_bytes_of(path);
    if (item->type != ESPL_GC_PRIVATE) {
        memcpy(item->key, key, sizeof key);
    }
    return ESPL_OK;
}

typedef enum espl_status (*visit_fn)(struct scan *scan, const char *dir, const char *name,
                                     struct espl_error *err);

static enum espl_status visit_folder(struct scan *scan, const char *dir, visit_fn visit,
                                     struct espl_error *err)
{
    char **names = NULL;
    size_t count = 0;
    if (!espl_fs_is_dir(dir)) {
        return ESPL_OK;
    }
    enum espl_status status = espl_fs_list(dir, ESPL_GC_MAX_NAMES, &names, &count, err);
    for (size_t i = 0; i < count && status == ESPL_OK; i++) {
        status = visit(scan, dir, names[i], err);
    }
    espl_fs_free_names(names, count);
    return status;
}

static enum espl_status visit_shard(struct scan *scan, const char *dir, const char *name,
                                    struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    const enum espl_status status = espl_fs_join(path, dir, name, err);
    return status == ESPL_OK ? visit_folder(scan, path, scan_store_file, err) : status;
}

/* A living owner keeps its lock, and everything of that key with it. */
static bool is_locked(const struct espl_store *store, const char *key)
{
    char path[ESPL_PATH_MAX];
    return key[0] != '\0' && espl_store_lock_path(store, key, path, NULL) == ESPL_OK &&
           espl_lock_is_held(path);
}

static void drop_locked(struct espl_gc_list *list, const struct espl_store *store)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (!is_locked(store, list->items[i].key)) {
            list->items[kept++] = list->items[i];
        }
    }
    list->count = kept;
}

enum espl_status espl_gc_scan(const struct espl_store *store, size_t keep_runs,
                              const struct espl_log *log, struct espl_gc_list *out,
                              struct espl_error *err)
{
    char dir[ESPL_PATH_MAX];
    json_t *keys = json_object();
    struct scan scan = {.store = store, .keys = keys, .list = out};
    memset(out, 0, sizeof *out);
    if (keys == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the keys in use");
    }
    enum espl_status status = espl_gc_collect_keys(store, keep_runs, log, keys, err);
    if (status == ESPL_OK) {
        status = espl_fs_join(dir, store->root, "store", err);
    }
    if (status == ESPL_OK) {
        status = visit_folder(&scan, dir, visit_shard, err);
    }
    if (status == ESPL_OK) {
        status = espl_fs_join(dir, store->root, "partial", err);
    }
    if (status == ESPL_OK) {
        status = visit_folder(&scan, dir, scan_partial_file, err);
    }
    json_decref(keys);
    if (status == ESPL_OK) {
        drop_locked(out, store);
    } else {
        espl_gc_list_free(out);
    }
    return status;
}

void espl_gc_list_free(struct espl_gc_list *list)
{
    if (list != NULL) {
        free(list->items);
        memset(list, 0, sizeof *list);
    }
}

static enum espl_status delete_files(const struct espl_gc_item *item, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    const enum espl_status status = espl_fs_remove_tree(item->path, err);
    if (status == ESPL_OK && item->type == ESPL_GC_ARTIFACT && side_path(item->path, path)) {
        return espl_fs_remove_tree(path, err);
    }
    return status;
}

enum espl_status espl_gc_delete(const struct espl_store *store, const struct espl_gc_item *item,
                                bool *deleted, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    struct espl_lock lock = {.held = false};
    bool taken = true;
    enum espl_status status = ESPL_OK;
    *deleted = false;
    if (item->type >= ESPL_GC_BLOB) {
        return espl_gc_cache_delete(item, deleted, err);
    }
    if (item->type == ESPL_GC_LOCK && has_ending(item->path, ".guard")) {
        return espl_lock_remove_guard(item->path, deleted, err);
    }
    if (item->key[0] != '\0') {
        status = espl_store_lock_path(store, item->key, path, err);
        if (status == ESPL_OK) {
            status = espl_lock_try(&lock, path, &taken, NULL, err);
        }
    }
    if (status == ESPL_OK && taken) {
        /* A lock itself goes when it is released. */
        status = item->type == ESPL_GC_LOCK ? ESPL_OK : delete_files(item, err);
        *deleted = status == ESPL_OK;
    }
    espl_lock_release(&lock);
    return status;
}

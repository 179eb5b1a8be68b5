#include "cli/gc_cache.h"

#include "cli/gc_roots.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { SET_LIMIT = 16 << 20 };

struct cache_scan {
    const struct espl_cache *cache;
    struct espl_gc_list *list;
    json_t *used; /* hashes that a set names */
};

typedef enum espl_status (*visit_fn)(struct cache_scan *scan, const char *dir, const char *name,
                                     struct espl_error *err);

/* Calls visit for every name in <cache>/<folder>; a folder that is not there is empty. */
static enum espl_status visit_folder(struct cache_scan *scan, const char *folder, visit_fn visit,
                                     struct espl_error *err)
{
    char dir[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    enum espl_status status = espl_fs_join(dir, scan->cache->root, folder, err);
    if (status != ESPL_OK || !espl_fs_is_dir(dir)) {
        return status;
    }
    status = espl_fs_list(dir, ESPL_GC_MAX_NAMES, &names, &count, err);
    for (size_t i = 0; i < count && status == ESPL_OK; i++) {
        status = visit(scan, dir, names[i], err);
    }
    espl_fs_free_names(names, count);
    return status;
}

/* Does a fetch go on? */
static bool is_active(const struct espl_cache *cache)
{
    char dir[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    bool active = false;
    if (espl_fs_join(dir, cache->root, "active", NULL) != ESPL_OK || !espl_fs_is_dir(dir) ||
        espl_fs_list(dir, ESPL_GC_MAX_NAMES, &names, &count, NULL) != ESPL_OK) {
        return false;
    }
    for (size_t i = 0; i < count && !active; i++) {
        char path[ESPL_PATH_MAX];
        active = espl_fs_join(path, dir, names[i], NULL) == ESPL_OK && espl_lock_is_held(path);
    }
    espl_fs_free_names(names, count);
    return active;
}

enum espl_status espl_gc_cache_announce(const struct espl_cache *cache, struct espl_lock *lock,
                                        struct espl_error *err)
{
    char dir[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    char name[64];
    bool taken = false;
    (void)snprintf(name, sizeof name, "%lld.lock", (long long)getpid());
    enum espl_status status = espl_fs_join(dir, cache->root, "active", err);
    if (status == ESPL_OK) {
        status = espl_fs_make_dirs(dir, err);
    }
    if (status == ESPL_OK) {
        status = espl_fs_join(path, dir, name, err);
    }
    /* Not taken: a process of another host with this number; then that one holds gc off. */
    return status == ESPL_OK ? espl_lock_try(lock, path, &taken, NULL, err) : status;
}

/* Notes the hashes of a set. */
static void note_used(struct cache_scan *scan, const char *folder)
{
    char path[ESPL_PATH_MAX];
    char *text = NULL;
    size_t len = 0;
    size_t index = 0;
    const json_t *file = NULL;
    if (espl_fs_join(path, folder, "set.json", NULL) != ESPL_OK ||
        espl_fs_read_file(path, SET_LIMIT, &text, &len, NULL) != ESPL_OK) {
        return;
    }
    json_t *const root = json_loadb(text, len, 0, NULL);
    json_array_foreach(json_object_get(root, "files"), index, file)
    {
        const char *const sha256 = json_string_value(json_object_get(file, "sha256"));
        if (sha256 != NULL) {
            (void)json_object_set_new(scan->used, sha256, json_true());
        }
    }
    json_decref(root);
    free(text);
}

static enum espl_status visit_set_name(struct cache_scan *scan, const char *dir, const char *name,
                                       struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char target[512];
    if (strchr(name, '@') != NULL) {
        return ESPL_OK;
    }
    const enum espl_status status = espl_fs_join(path, dir, name, err);
    const ssize_t len = status == ESPL_OK ? readlink(path, target, sizeof target - 1) : -1;
    if (len > 0) {
        target[len] = '\0';
        note_used(scan, path);
        (void)json_object_set_new(scan->used, target, json_true()); /* the folder's name */
    }
    return status;
}

static enum espl_status add_file(struct cache_scan *scan, enum espl_gc_type type, const char *dir,
                                 const char *name, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    const enum espl_status status = espl_fs_join(path, dir, name, err);
    struct espl_gc_item *const item =
        status == ESPL_OK ? espl_gc_list_add(scan->list, type, path, err) : NULL;
    if (item == NULL) {
        return status == ESPL_OK ? ESPL_E_NOMEM : status;
    }
    item->bytes = espl_gc_bytes_of(path);
    return ESPL_OK;
}

/* Folders that no name leads to, and those that a killed fetch left half-made. */
static enum espl_status visit_set_folder(struct cache_scan *scan, const char *dir, const char *name,
                                         struct espl_error *err)
{
    return strchr(name, '@') == NULL || json_object_get(scan->used, name) != NULL
               ? ESPL_OK
               : add_file(scan, ESPL_GC_SET, dir, name, err);
}

static enum espl_status visit_blob(struct cache_scan *scan, const char *dir, const char *name,
                                   struct espl_error *err)
{
    return json_object_get(scan->used, name) != NULL ? ESPL_OK
                                                     : add_file(scan, ESPL_GC_BLOB, dir, name, err);
}

static enum espl_status visit_blob_folder(struct cache_scan *scan, const char *dir,
                                          const char *name, struct espl_error *err)
{
    char folder[64];
    (void)dir;
    if (strlen(name) != 2) {
        return ESPL_OK;
    }
    (void)snprintf(folder, sizeof folder, "blobs/%s", name);
    return visit_folder(scan, folder, visit_blob, err);
}

static enum espl_status visit_download(struct cache_scan *scan, const char *dir, const char *name,
                                       struct espl_error *err)
{
    return add_file(scan, ESPL_GC_DOWNLOAD, dir, name, err);
}

enum espl_status espl_gc_cache_scan(struct espl_gc_list *list, struct espl_error *err)
{
    struct espl_cache cache;
    struct cache_scan scan = {.cache = &cache, .list = list};
    enum espl_status status = espl_cache_locate(NULL, &cache, err);
    if (status != ESPL_OK || is_active(&cache)) {
        return status;
    }
    scan.used = json_object();
    if (scan.used == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the list of what can go");
    }
    status = visit_folder(&scan, "sets", visit_set_name, err);
    if (status == ESPL_OK) {
        status = visit_folder(&scan, "sets", visit_set_folder, err);
    }
    if (status == ESPL_OK) {
        status = visit_folder(&scan, "blobs", visit_blob_folder, err);
    }
    if (status == ESPL_OK) {
        status = visit_folder(&scan, "partial", visit_download, err);
    }
    json_decref(scan.used);
    return status;
}

enum espl_status espl_gc_cache_delete(const struct espl_gc_item *item, bool *deleted,
                                      struct espl_error *err)
{
    struct espl_cache cache;
    enum espl_status status = espl_cache_locate(NULL, &cache, err);
    *deleted = false;
    if (status != ESPL_OK || is_active(&cache)) {
        return status;
    }
    status = espl_fs_remove_tree(item->path, err);
    *deleted = status == ESPL_OK;
    return status;
}

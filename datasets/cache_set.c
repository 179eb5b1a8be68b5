/* Sets: the files of one registry entry under their names. */
#include "datasets/cache.h"

#include "core/suggest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SET_LIMIT = 16 << 20, MAX_SETS = 10000, SHORT_HASH = 12 };

static enum espl_status sets_path(const struct espl_cache *cache, const char *name,
                                  char out[ESPL_PATH_MAX], struct espl_error *err)
{
    char relative[512];
    if (!espl_cache_name_is_safe(name) || strpbrk(name, "/@") != NULL || name[0] == '.') {
        return espl_fail(err, ESPL_E_USAGE, "'%s' is no name of a data set or model", name);
    }
    (void)snprintf(relative, sizeof relative, "sets/%s", name);
    return espl_fs_join(out, cache->root, relative, err);
}

/* One link folder/name -> the blob, relative so that the cache can be moved. */
static enum espl_status link_file(const char *folder, const json_t *file, struct espl_error *err)
{
    const char *const name = json_string_value(json_object_get(file, "name"));
    const char *const sha256 = json_string_value(json_object_get(file, "sha256"));
    char path[ESPL_PATH_MAX];
    char parent[ESPL_PATH_MAX];
    char target[ESPL_PATH_MAX];
    if (name == NULL || sha256 == NULL || !espl_cache_name_is_safe(name) ||
        !espl_sha256_is_hex(sha256)) {
        return espl_fail(err, ESPL_E_INTERNAL, "a file of the set has no name or no hash");
    }
    size_t used = (size_t)snprintf(target, sizeof target, "../..");
    for (const char *c = name; *c != '\0'; c++) {
        used += *c == '/' ? (size_t)snprintf(target + used, sizeof target - used, "/..") : 0;
    }
    (void)snprintf(target + used, sizeof target - used, "/blobs/%.2s/%s", sha256, sha256);
    enum espl_status status = espl_fs_join(path, folder, name, err);
    if (status == ESPL_OK) {
        (void)snprintf(parent, sizeof parent, "%s", path);
        *strrchr(parent, '/') = '\0';
        status = espl_fs_make_dirs(parent, err);
    }
    return status == ESPL_OK ? espl_fs_refresh_link(target, path, err) : status;
}

/* Fills a private folder; it is renamed when whole. */
static enum espl_status fill_folder(const char *folder, const json_t *description, const char *text,
                                    struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    size_t index = 0;
    const json_t *file = NULL;
    enum espl_status status = espl_fs_make_dirs(folder, err);
    json_array_foreach(json_object_get(description, "files"), index, file)
    {
        if (status == ESPL_OK) {
            status = link_file(folder, file, err);
        }
    }
    if (status == ESPL_OK) {
        status = espl_fs_join(path, folder, "set.json", err);
    }
    return status == ESPL_OK ? espl_fs_write_file(path, text, strlen(text), err) : status;
}

static enum espl_status publish_folder(const char *private_folder, const char *folder,
                                       struct espl_error *err)
{
    if (rename(private_folder, folder) == 0) {
        return ESPL_OK;
    }
    const int reason = errno;
    /* Another process may have made the same folder meanwhile: then ours is not needed. */
    return espl_fs_is_dir(folder) ? ESPL_OK
                                  : espl_fail_errno(err, reason, "cannot publish '%s'", folder);
}

enum espl_status espl_cache_publish_set(const struct espl_cache *cache, const char *name,
                                        const json_t *description, struct espl_error *err)
{
    char link_path[ESPL_PATH_MAX];
    char folder[ESPL_PATH_MAX];
    char private_folder[ESPL_PATH_MAX];
    char target[512];
    char hash[ESPL_SHA256_HEX];
    char *const text = json_dumps(description, JSON_INDENT(1) | JSON_SORT_KEYS);
    if (text == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the description of '%s'", name);
    }
    enum espl_status status = sets_path(cache, name, link_path, err);
    if (status == ESPL_OK) {
        status = espl_sha256_bytes(text, strlen(text), hash, err);
    }
    if (status == ESPL_OK) {
        (void)snprintf(target, sizeof target, "%s@%.*s", name, (int)SHORT_HASH, hash);
        char relative[600];
        (void)snprintf(relative, sizeof relative, "sets/%s", target);
        status = espl_fs_join(folder, cache->root, relative, err);
    }
    if (status == ESPL_OK && !espl_fs_is_dir(folder)) {
        status = espl_fs_temporary_name(private_folder, folder, err);
        if (status == ESPL_OK) {
            status = espl_fs_remove_tree(private_folder, err);
        }
        if (status == ESPL_OK) {
            status = fill_folder(private_folder, description, text, err);
        }
        if (status == ESPL_OK) {
            status = publish_folder(private_folder, folder, err);
        }
        (void)espl_fs_remove_tree(private_folder, NULL); /* gone already after the rename */
    }
    if (status == ESPL_OK) {
        status = espl_fs_refresh_link(target, link_path, err);
    }
    free(text);
    return status;
}

/* "did you mean" over what was fetched. */
static enum espl_status fail_unknown(const struct espl_cache *cache, const char *name,
                                     struct espl_error *err)
{
    char folder[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    (void)espl_fail(err, ESPL_E_NOTFOUND, "'%s' is not among the fetched data sets and models",
                    name);
    (void)espl_hint(err, "`espalier fetch %s` fetches it", name);
    if (espl_fs_join(folder, cache->root, "sets", NULL) == ESPL_OK &&
        espl_fs_list(folder, MAX_SETS, &names, &count, NULL) == ESPL_OK) {
        size_t kept = 0;
        for (size_t i = 0; i < count; i++) { /* links only, not the folders they lead to */
            if (strchr(names[i], '@') == NULL && names[i][0] != '.') {
                char *const other = names[kept];
                names[kept++] = names[i];
                names[i] = other;
            }
        }
        const char *const near = espl_suggest(name, (const char *const *)names, kept);
        if (near != NULL) {
            (void)espl_hint(err, "did you mean '%s'?  `espalier fetch --list` lists all", near);
        }
        espl_fs_free_names(names, count);
    }
    return ESPL_E_NOTFOUND;
}

/* Reads and checks set.json. */
static enum espl_status read_description(const char *folder, json_t **out, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char *text = NULL;
    size_t len = 0;
    enum espl_status status = espl_fs_join(path, folder, "set.json", err);
    if (status == ESPL_OK) {
        status = espl_fs_read_file(path, SET_LIMIT, &text, &len, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    json_t *const root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    const char *const schema = json_string_value(json_object_get(root, "schema"));
    free(text);
    if (schema == NULL || strcmp(schema, "espalier.set/1") != 0 ||
        !json_is_array(json_object_get(root, "files"))) {
        json_decref(root);
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' does not describe a fetched set", path);
    }
    *out = root;
    return ESPL_OK;
}

static enum espl_status check_files(const struct espl_cache *cache, const char *name,
                                    const json_t *description, struct espl_error *err)
{
    size_t index = 0;
    const json_t *file = NULL;
    json_array_foreach(json_object_get(description, "files"), index, file)
    {
        const char *const sha256 = json_string_value(json_object_get(file, "sha256"));
        const char *const file_name = json_string_value(json_object_get(file, "name"));
        const json_int_t size = json_integer_value(json_object_get(file, "size"));
        uint64_t found = 0;
        if (sha256 == NULL || file_name == NULL || !espl_sha256_is_hex(sha256) ||
            !espl_cache_has_blob(cache, sha256, &found) || (json_int_t)found != size) {
            (void)espl_fail(err, ESPL_E_CORRUPT, "'%s' of the fetched set '%s' is missing or cut",
                            file_name != NULL ? file_name : "a file", name);
            return espl_hint(err, "`espalier fetch %s` fetches what is missing", name);
        }
    }
    return ESPL_OK;
}

enum espl_status espl_cache_find_set(const struct espl_cache *cache, const char *name,
                                     char folder[ESPL_PATH_MAX], json_t **description,
                                     struct espl_error *err)
{
    json_t *root = NULL;
    enum espl_status status = sets_path(cache, name, folder, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (!espl_fs_is_dir(folder)) {
        return fail_unknown(cache, name, err);
    }
    status = read_description(folder, &root, err);
    if (status == ESPL_OK) {
        status = check_files(cache, name, root, err);
    }
    if (status == ESPL_OK && description != NULL) {
        *description = root;
        return ESPL_OK;
    }
    json_decref(root);
    return status;
}

enum espl_status espl_cache_remove_set(const struct espl_cache *cache, const char *name,
                                       struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    const enum espl_status status = sets_path(cache, name, path, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (unlink(path) != 0) {
        return errno == ENOENT ? fail_unknown(cache, name, err)
                               : espl_fail_errno(err, errno, "cannot remove '%s'", path);
    }
    return ESPL_OK;
}

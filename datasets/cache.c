/* Where the cache is, blobs and records of addresses. */
#include "datasets/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { RECORD_LIMIT = 64 << 10, NAME_LIMIT = 256 };

enum espl_status espl_cache_locate(const char *folder, struct espl_cache *out,
                                   struct espl_error *err)
{
    const char *own = getenv("ESPALIER_CACHE");
    const char *base = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (folder != NULL || (own != NULL && own[0] != '\0')) {
        return espl_fs_join(out->root, folder != NULL ? folder : own, "", err);
    }
    if (base != NULL && base[0] == '/') { /* the specification: relative ones are ignored */
        return espl_fs_join(out->root, base, "espalier", err);
    }
    if (home != NULL && home[0] != '\0') {
        return espl_fs_join(out->root, home, ".cache/espalier", err);
    }
    (void)espl_fail(err, ESPL_E_MACHINE, "no folder for fetched files: HOME is not set");
    return espl_hint(err, "set ESPALIER_CACHE or give --cache DIR");
}

bool espl_cache_name_is_safe(const char *name)
{
    const size_t len = strlen(name);
    if (len == 0 || len >= NAME_LIMIT || name[0] == '/' || name[len - 1] == '/') {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f || name[i] == '\\') {
            return false;
        }
    }
    for (const char *part = name; part != NULL;) {
        const size_t part_len = strcspn(part, "/");
        if (part_len == 0 || (part_len == 1 && part[0] == '.') ||
            (part_len == 2 && part[0] == '.' && part[1] == '.')) {
            return false;
        }
        part = part[part_len] == '/' ? part + part_len + 1 : NULL;
    }
    return true;
}

enum espl_status espl_cache_blob_path(const struct espl_cache *cache, const char *sha256,
                                      char out[ESPL_PATH_MAX], struct espl_error *err)
{
    char name[ESPL_SHA256_HEX + 16];
    (void)snprintf(name, sizeof name, "blobs/%.2s/%.64s", sha256, sha256);
    return espl_fs_join(out, cache->root, name, err);
}

bool espl_cache_has_blob(const struct espl_cache *cache, const char *sha256, uint64_t *size)
{
    char path[ESPL_PATH_MAX];
    struct stat info;
    if (espl_cache_blob_path(cache, sha256, path, NULL) != ESPL_OK || stat(path, &info) != 0 ||
        !S_ISREG(info.st_mode)) {
        return false;
    }
    if (size != NULL) {
        *size = (uint64_t)info.st_size;
    }
    return true;
}

/* <root>/<folder>/<id><suffix>, with the folder made. */
static enum espl_status path_in(const struct espl_cache *cache, const char *folder, const char *id,
                                const char *suffix, char out[ESPL_PATH_MAX], struct espl_error *err)
{
    char dir[ESPL_PATH_MAX];
    char name[256];
    enum espl_status status = espl_fs_join(dir, cache->root, folder, err);
    if (status == ESPL_OK) {
        status = espl_fs_make_dirs(dir, err);
    }
    (void)snprintf(name, sizeof name, "%s%s", id, suffix);
    return status == ESPL_OK ? espl_fs_join(out, dir, name, err) : status;
}

enum espl_status espl_cache_partial_path(const struct espl_cache *cache, const char *id,
                                         const char *suffix, char out[ESPL_PATH_MAX],
                                         struct espl_error *err)
{
    return path_in(cache, "partial", id, suffix, out, err);
}

enum espl_status espl_cache_publish_blob(const struct espl_cache *cache, const char *path,
                                         const char *sha256, struct espl_error *err)
{
    char folder[16];
    char final_path[ESPL_PATH_MAX];
    (void)snprintf(folder, sizeof folder, "blobs/%.2s", sha256);
    const enum espl_status status = path_in(cache, folder, sha256, "", final_path, err);
    if (status != ESPL_OK) {
        return status;
    }
    /* Others read it through links: it is nobody's to change. */
    (void)chmod(path, S_IRUSR | S_IRGRP | S_IROTH); /* a file system without modes is fine too */
    return espl_fs_publish(path, final_path, err);
}

void espl_cache_sweep(const struct espl_cache *cache)
{
    enum { MAX_NAMES = 1 << 20 };
    static const char *const folders[] = {"partial", "urls", "sets"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        char dir[ESPL_PATH_MAX];
        char path[ESPL_PATH_MAX];
        char **names = NULL;
        size_t count = 0;
        if (espl_fs_join(dir, cache->root, folders[i], NULL) != ESPL_OK ||
            espl_fs_list(dir, MAX_NAMES, &names, &count, NULL) != ESPL_OK) {
            continue; /* not made yet */
        }
        for (size_t j = 0; j < count; j++) {
            if (espl_fs_is_abandoned(names[j]) &&
                espl_fs_join(path, dir, names[j], NULL) == ESPL_OK) {
                (void)espl_fs_remove_tree(path, NULL); /* at worst the next sweep gets it */
            }
        }
        espl_fs_free_names(names, count);
    }
}

static enum espl_status record_path(const struct espl_cache *cache, const char *key,
                                    char out[ESPL_PATH_MAX], struct espl_error *err)
{
    char id[ESPL_SHA256_HEX];
    const enum espl_status status = espl_sha256_bytes(key, strlen(key), id, err);
    return status == ESPL_OK ? path_in(cache, "urls", id, ".json", out, err) : status;
}

enum espl_status espl_cache_read_record(const struct espl_cache *cache, const char *key,
                                        struct espl_cache_record *out, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char *text = NULL;
    size_t len = 0;
    enum espl_status status = record_path(cache, key, path, err);
    if (status == ESPL_OK) {
        status = espl_fs_read_file(path, RECORD_LIMIT, &text, &len, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    json_t *const root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    const char *url = NULL;
    const char *sha256 = NULL;
    const char *commit = "";
    json_int_t size = -1;
    int absent = 0;
    int hub = 0;
    uint64_t real_size = 0;
    *out = (struct espl_cache_record){.size = 0};
    if (root != NULL &&
        json_unpack(root, "{s:s, s:s, s:I, s?s, s?b, s?b}", "of", &url, "sha256", &sha256, "size",
                    &size, "commit", &commit, "absent", &absent, "hub_checked", &hub) == 0 &&
        strcmp(url, key) == 0 && (absent != 0 || espl_sha256_is_hex(sha256)) && size >= 0 &&
        strlen(commit) < sizeof out->commit) {
        (void)snprintf(out->sha256, sizeof out->sha256, "%s", sha256);
        (void)snprintf(out->commit, sizeof out->commit, "%s", commit);
        out->size = (uint64_t)size;
        out->absent = absent != 0;
        out->hub_checked = hub != 0;
        out->present = !out->absent && espl_cache_has_blob(cache, sha256, &real_size) &&
                       real_size == out->size;
    } else {
        status = espl_fail(err, ESPL_E_NOTFOUND, "the cache has no record of '%s'", key);
    }
    json_decref(root);
    free(text);
    return status;
}

enum espl_status espl_cache_write_record(const struct espl_cache *cache, const char *key,
                                         const struct espl_cache_record *record,
                                         struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    enum espl_status status = record_path(cache, key, path, err);
    if (status != ESPL_OK) {
        return status;
    }
    json_t *const root =
        json_pack("{s:s, s:s, s:I, s:s, s:b, s:b}", "of", key, "sha256", record->sha256, "size",
                  (json_int_t)record->size, "commit", record->commit, "absent",
                  record->absent ? 1 : 0, "hub_checked", record->hub_checked ? 1 : 0);
    char *const text = root != NULL ? json_dumps(root, JSON_INDENT(1)) : NULL;
    status = text != NULL ? espl_fs_write_file(path, text, strlen(text), err)
                          : espl_fail(err, ESPL_E_NOMEM, "no memory for a record of the cache");
    free(text);
    json_decref(root);
    return status;
}

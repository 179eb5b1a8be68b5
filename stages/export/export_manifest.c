#include "stages/export/export_manifest.h"

#include "core/fs.h"
#include "core/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FOLDER_LIMIT = 100000, MANIFEST_LIMIT = 16 << 20 };

static const char schema[] = "espalier.export/1";

static enum espl_status add_file(const char *folder, const char *name, json_t *files,
                                 struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char hex[ESPL_SHA256_HEX];
    uint64_t size = 0;
    enum espl_status status = espl_fs_join(path, folder, name, err);
    if (status == ESPL_OK) {
        status = espl_fs_file_size(path, &size, err);
    }
    if (status == ESPL_OK) {
        status = espl_sha256_file(path, hex, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    json_t *file = json_object();
    (void)json_object_set_new(file, "name", json_string(name));
    (void)json_object_set_new(file, "bytes", json_integer((json_int_t)size));
    (void)json_object_set_new(file, "sha256", json_string(hex));
    if (json_array_append_new(files, file) != 0) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a manifest");
    }
    return ESPL_OK;
}

enum espl_status espl_export_manifest_fill(const char *folder, json_t *manifest,
                                           struct espl_error *err)
{
    char **names = NULL;
    size_t count = 0;
    json_t *files = json_array();

    enum espl_status status = espl_fs_list(folder, FOLDER_LIMIT, &names, &count, err);
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        status = add_file(folder, names[i], files, err);
    }
    (void)json_object_set_new(manifest, "schema", json_string(schema));
    (void)json_object_set_new(manifest, "files", files);
    if (names != NULL) {
        espl_fs_free_names(names, count);
    }
    return status;
}

/* One file against its entry. */
static enum espl_status check_file(const struct espl_store *store, bool rehash, const char *folder,
                                   const json_t *file, bool *valid, char stale[160],
                                   struct espl_error *err)
{
    const char *name = json_string_value(json_object_get(file, "name"));
    const char *expected = json_string_value(json_object_get(file, "sha256"));
    char path[ESPL_PATH_MAX];
    char hex[ESPL_SHA256_HEX];
    uint64_t size = 0;

    *valid = false;
    if (name == NULL || expected == NULL || strchr(name, '/') != NULL) {
        (void)snprintf(stale, 160, "the manifest is damaged");
        return ESPL_OK;
    }
    enum espl_status status = espl_fs_join(path, folder, name, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (!espl_fs_exists(path) || espl_fs_file_size(path, &size, NULL) != ESPL_OK) {
        (void)snprintf(stale, 160, "'%.100s' is gone", name);
        return ESPL_OK;
    }
    if ((json_int_t)size != json_integer_value(json_object_get(file, "bytes"))) {
        (void)snprintf(stale, 160, "'%.100s' has another size", name);
        return ESPL_OK;
    }
    status = espl_store_file_hash(store, path, rehash, hex, err);
    if (status == ESPL_OK) {
        *valid = strcmp(hex, expected) == 0;
        if (!*valid) {
            (void)snprintf(stale, 160, "'%.100s' has other content", name);
        }
    }
    return status;
}

/* The manifest of the folder, or NULL when there is none of ours. */
static json_t *read_manifest(const char *folder)
{
    char path[ESPL_PATH_MAX];
    char *text = NULL;
    size_t len = 0;
    if (espl_fs_join(path, folder, ESPL_EXPORT_MANIFEST, NULL) != ESPL_OK ||
        espl_fs_read_file(path, MANIFEST_LIMIT, &text, &len, NULL) != ESPL_OK) {
        return NULL;
    }
    json_t *manifest = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    const char *said = json_string_value(json_object_get(manifest, "schema"));
    if (said == NULL || strcmp(said, schema) != 0) {
        json_decref(manifest);
        return NULL;
    }
    return manifest;
}

/* Has a later export taken the place of the one in `manifest`? */
static bool was_replaced(const char *folder, const json_t *manifest)
{
    json_t *there = read_manifest(folder);
    const bool replaced = there != NULL && json_equal(there, manifest) == 0;
    json_decref(there);
    return replaced;
}

enum espl_status espl_export_manifest_check(const struct espl_store *store, bool rehash,
                                            const char *folder, const json_t *manifest, bool *valid,
                                            char stale[160], struct espl_error *err)
{
    const json_t *files = json_object_get(manifest, "files");
    char path[ESPL_PATH_MAX];
    enum espl_status status = espl_fs_join(path, folder, ESPL_EXPORT_MANIFEST, err);

    *valid = status == ESPL_OK && json_array_size(files) > 0 && espl_fs_exists(path);
    if (status == ESPL_OK && !*valid) {
        (void)snprintf(stale, 160, "%s",
                       espl_fs_is_dir(folder) ? "the folder is no longer this export"
                                              : "the folder is gone");
    }
    for (size_t i = 0; status == ESPL_OK && *valid && i < json_array_size(files); i++) {
        status = check_file(store, rehash, folder, json_array_get(files, i), valid, stale, err);
    }
    if (status == ESPL_OK && !*valid && was_replaced(folder, manifest)) {
        (void)snprintf(stale, 160, "another export has replaced this one in its folder");
    }
    return status;
}

bool espl_export_is_there(const char *folder)
{
    json_t *manifest = read_manifest(folder);
    json_decref(manifest);
    return manifest != NULL;
}

static bool lists(const json_t *manifest, const char *name)
{
    const json_t *files = json_object_get(manifest, "files");
    for (size_t i = 0; i < json_array_size(files); i++) {
        const char *listed = json_string_value(json_object_get(json_array_get(files, i), "name"));
        if (listed != NULL && strcmp(listed, name) == 0) {
            return true;
        }
    }
    return strcmp(name, ESPL_EXPORT_MANIFEST) == 0;
}

static enum espl_status refuse(struct espl_error *err)
{
    (void)espl_blame(err, "param:folder");
    return espl_hint(err, "name another folder, or move what is in this one");
}

enum espl_status espl_export_check_target(const char *folder, struct espl_error *err)
{
    char **names = NULL;
    size_t count = 0;
    const char *foreign = NULL;

    if (!espl_fs_exists(folder)) {
        return ESPL_OK;
    }
    if (!espl_fs_is_dir(folder)) {
        (void)espl_fail(err, ESPL_E_KIND, "'%s' is there and is not a folder", folder);
        return refuse(err);
    }
    enum espl_status status = espl_fs_list(folder, FOLDER_LIMIT, &names, &count, err);
    if (status != ESPL_OK) {
        return status;
    }
    json_t *manifest = read_manifest(folder);
    if (count > 0 && manifest == NULL) {
        (void)espl_fail(err, ESPL_E_KIND, "folder '%s' is there and was not written by export",
                        folder);
        status = refuse(err);
    }
    for (size_t i = 0; status == ESPL_OK && foreign == NULL && i < count; i++) {
        foreign = lists(manifest, names[i]) ? NULL : names[i];
    }
    if (foreign != NULL) {
        (void)espl_fail(err, ESPL_E_KIND,
                        "folder '%s' is an older export, but '%s' in it was not written by export",
                        folder, foreign);
        status = refuse(err);
    }
    json_decref(manifest);
    espl_fs_free_names(names, count);
    return status;
}

#include "artifact/store.h"

#include "core/fs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STORE_MAX_ENTRIES = 1 << 20, KEY_LEAST = 6, KEY_MOST = 64 };

static const char *const folders[] = {"store", "partial", "runs", "by-name", "index"};

/* Keys and ports become file names: nothing in them may lead elsewhere. */
static bool is_hex(const char *text, size_t len)
{
    return strspn(text, "0123456789abcdef") >= len;
}

static bool key_is_good(const char *key)
{
    const size_t len = strlen(key);
    return len >= KEY_LEAST && len <= KEY_MOST && is_hex(key, len);
}

static bool word_is_good(const char *word)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_-.";
    return word[0] != '\0' && word[0] != '.' && strlen(word) < 128 &&
           strspn(word, allowed) == strlen(word);
}

static enum espl_status check_key(const char *key, const char *word, struct espl_error *err)
{
    if (!key_is_good(key)) {
        return espl_fail(err, ESPL_E_INTERNAL, "'%.80s' is not a key (%d to %d hex digits)", key,
                         KEY_LEAST, KEY_MOST);
    }
    if (word != NULL && word[0] != '\0' && !word_is_good(word)) {
        return espl_fail(err, ESPL_E_INTERNAL, "'%.80s' cannot be part of a file name", word);
    }
    return ESPL_OK;
}

static enum espl_status store_path(const struct espl_store *store, const char *rest,
                                   char out[ESPL_PATH_MAX], struct espl_error *err)
{
    return espl_fs_join(out, store->root, rest, err);
}

/* Removes temporaries of dead processes in one folder. Folders, and files of live processes or of
 * other hosts, stay. A folder that cannot be listed now is left for the next run. */
static void clean_folder(const char *dir)
{
    char path[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    if (espl_fs_list(dir, STORE_MAX_ENTRIES, &names, &count, NULL) != ESPL_OK) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (espl_fs_is_abandoned(names[i]) && espl_fs_join(path, dir, names[i], NULL) == ESPL_OK) {
            (void)unlink(path); /* refused or gone: nothing depends on it */
        }
    }
    espl_fs_free_names(names, count);
}

/* Cleans a folder and the folders in it. */
static void clean_tree(const char *dir)
{
    char path[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    clean_folder(dir);
    if (espl_fs_list(dir, STORE_MAX_ENTRIES, &names, &count, NULL) != ESPL_OK) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (espl_fs_join(path, dir, names[i], NULL) == ESPL_OK && espl_fs_is_dir(path)) {
            clean_folder(path);
        }
    }
    espl_fs_free_names(names, count);
}

enum espl_status espl_store_open(const char *root, struct espl_store *store, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char absolute[PATH_MAX];
    enum espl_status status = espl_fs_make_dirs(root, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (realpath(root, absolute) == NULL) {
        return espl_fail_errno(err, errno, "cannot use results folder '%s'", root);
    }
    memset(store, 0, sizeof *store);
    status = espl_fs_join(store->root, absolute, "", err);
    for (size_t i = 0; status == ESPL_OK && i < sizeof folders / sizeof folders[0]; i++) {
        status = store_path(store, folders[i], path, err);
        if (status == ESPL_OK) {
            status = espl_fs_make_dirs(path, err);
        }
        if (status == ESPL_OK && strcmp(folders[i], "runs") != 0) {
            clean_tree(path);
        }
    }
    return status;
}

enum espl_status espl_store_open_readonly(const char *root, struct espl_store *store,
                                          struct espl_error *err)
{
    char absolute[PATH_MAX];
    memset(store, 0, sizeof *store);
    store->readonly = true;
    if (realpath(root, absolute) != NULL) {
        return espl_fs_join(store->root, absolute, "", err);
    }
    if (errno != ENOENT) {
        return espl_fail_errno(err, errno, "cannot use results folder '%s'", root);
    }
    if (root[0] == '/') {
        return espl_fs_join(store->root, root, "", err);
    }
    if (getcwd(absolute, sizeof absolute) == NULL) {
        return espl_fail_errno(err, errno, "cannot find the working folder");
    }
    return espl_fs_join(store->root, absolute, root, err);
}

/* store/ab/<key>[.<port>]<ending> */
static enum espl_status artifact_path(const struct espl_store *store, const char *key,
                                      const char *port, char out[ESPL_PATH_MAX],
                                      struct espl_error *err)
{
    char rest[512];
    const enum espl_status status = check_key(key, port, err);
    if (status != ESPL_OK) {
        return status;
    }
    const bool has_port = port != NULL && port[0] != '\0';
    (void)snprintf(rest, sizeof rest, "store/%.2s/%s%s%s.h5", key, key, has_port ? "." : "",
                   has_port ? port : "");
    return store_path(store, rest, out, err);
}

enum espl_status espl_store_artifact_path(const struct espl_store *store, const char *key,
                                          const char *port, char out[ESPL_PATH_MAX],
                                          struct espl_error *err)
{
    return artifact_path(store, key, port, out, err);
}

bool espl_store_has(const struct espl_store *store, const char *key, const char *port)
{
    char path[ESPL_PATH_MAX];
    uint64_t size = 0;
    return artifact_path(store, key, port, path, NULL) == ESPL_OK &&
           espl_fs_file_size(path, &size, NULL) == ESPL_OK;
}

enum espl_status espl_store_private_path(const struct espl_store *store, const char *key,
                                         const char *name, char out[ESPL_PATH_MAX],
                                         struct espl_error *err)
{
    char rest[512];
    char path[ESPL_PATH_MAX];
    enum espl_status status = check_key(key, name, err);
    if (status != ESPL_OK) {
        return status;
    }
    (void)snprintf(rest, sizeof rest, "partial/%s.%s", key, name);
    status = store_path(store, rest, path, err);
    if (status != ESPL_OK) {
        return status;
    }
    return espl_fs_temporary_name(out, path, err);
}

enum espl_status espl_store_publish(const struct espl_store *store, const char *private_path,
                                    const char *key, const char *port, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char dir[ESPL_PATH_MAX];
    enum espl_status status = artifact_path(store, key, port, path, err);
    if (status == ESPL_OK) {
        (void)snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
        status = espl_fs_make_dirs(dir, err);
    }
    if (status != ESPL_OK) {
        (void)unlink(private_path); /* the first error is the one to report */
        return status;
    }
    /* Another process was faster: equal key, equal content. (A process that comes between this look
     * and the rename is harmless for the same reason.) */
    if (espl_store_has(store, key, port)) {
        if (unlink(private_path) != 0 && errno != ENOENT) {
            return espl_fail_errno(err, errno, "cannot remove '%s'", private_path);
        }
        return ESPL_OK;
    }
    return espl_fs_publish(private_path, path, err);
}

enum espl_status espl_store_units_dir(const struct espl_store *store, const char *key, bool create,
                                      char out[ESPL_PATH_MAX], struct espl_error *err)
{
    char rest[512];
    enum espl_status status = check_key(key, NULL, err);
    if (status == ESPL_OK) {
        (void)snprintf(rest, sizeof rest, "partial/%s.units", key);
        status = store_path(store, rest, out, err);
    }
    if (status == ESPL_OK && create) {
        status = espl_fs_make_dirs(out, err);
    }
    return status;
}

enum espl_status espl_store_lock_path(const struct espl_store *store, const char *key,
                                      char out[ESPL_PATH_MAX], struct espl_error *err)
{
    char rest[512];
    const enum espl_status status = check_key(key, NULL, err);
    if (status != ESPL_OK) {
        return status;
    }
    (void)snprintf(rest, sizeof rest, "partial/%s.lock", key);
    return store_path(store, rest, out, err);
}

/* Does the file name "<key>[.<port>].h5" start with prefix? */
static bool name_matches(const char *name, const char *prefix)
{
    const size_t len = strlen(name);
    return len > 3 && strcmp(name + len - 3, ".h5") == 0 &&
           strncmp(name, prefix, strlen(prefix)) == 0;
}

enum espl_status espl_store_find(const struct espl_store *store, const char *prefix,
                                 char out_path[ESPL_PATH_MAX], struct espl_error *err)
{
    char rest[16];
    char dir[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    size_t matches = 0;
    size_t first = 0;
    const size_t digits = strcspn(prefix, ".");
    if (digits < KEY_LEAST || !is_hex(prefix, digits) || strchr(prefix, '/') != NULL) {
        return espl_fail(err, ESPL_E_USAGE,
                         "'%.80s' is not a key: write at least %d of its hex digits", prefix,
                         KEY_LEAST);
    }
    (void)snprintf(rest, sizeof rest, "store/%.2s", prefix);
    enum espl_status status = store_path(store, rest, dir, err);
    if (status == ESPL_OK) {
        status = espl_fs_list(dir, STORE_MAX_ENTRIES, &names, &count, err);
    }
    if (status != ESPL_OK && status != ESPL_E_NOTFOUND) {
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        if (name_matches(names[i], prefix)) {
            first = matches == 0 ? i : first;
            matches++;
        }
    }
    if (matches == 0) {
        status =
            espl_fail(err, ESPL_E_NOTFOUND, "no artifact in '%s' has a key that starts with '%s'",
                      store->root, prefix);
    } else if (matches > 1) {
        (void)espl_fail(err, ESPL_E_KIND, "%zu artifacts have keys that start with '%s'", matches,
                        prefix);
        (void)espl_hint(err, "write more of the key; the first two are '%.80s' and '%.80s'",
                        names[first], names[first + 1]);
        status = ESPL_E_KIND;
    } else {
        status = espl_fs_join(out_path, dir, names[first], err);
    }
    espl_fs_free_names(names, count);
    return status;
}

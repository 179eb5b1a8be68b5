#include "artifact/store.h"

#include "core/fs.h"
#include "core/lock.h"

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

static bool is_guard(const char *name)
{
    static const char ending[] = ".lock.guard";
    const size_t len = strlen(name);
    return len > sizeof ending - 1 && strcmp(name + len - (sizeof ending - 1), ending) == 0;
}

/* Removes temporaries of dead processes and guards of locks that nobody holds in one folder.
 * Folders, and files of live processes or of other hosts, stay. A folder that cannot be listed now
 * is left for the next run. */
static void clean_folder(const char *dir)
{
    char path[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    if (espl_fs_list(dir, STORE_MAX_ENTRIES, &names, &count, NULL) != ESPL_OK) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        /* Refused or gone already: nothing depends on it. */
        bool removed = false;
        if (espl_fs_join(path, dir, names[i], NULL) != ESPL_OK) {
            continue;
        }
        if (espl_fs_is_abandoned(names[i])) {
            (void)unlink(path);
        } else if (is_guard(names[i])) {
            (void)espl_lock_remove_guard(path, &removed, NULL);
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

static enum espl_status check_root(const char *root, struct espl_error *err)
{
    if (espl_fs_exists(root) && !espl_fs_is_dir(root)) {
        return espl_fail(err, ESPL_E_IO, "results folder '%s' is not a folder", root);
    }
    return ESPL_OK;
}

const char espl_store_write_hint[] =
    "every run writes its record there: `espalier plan`, `status` and `report` only read; or use "
    "--store with a folder that you can write to";

/* Advice where permission, not space or a name, is what is missing. */
static enum espl_status advise_writable(struct espl_error *err, enum espl_status status)
{
    if (err != NULL && (err->sys_errno == EACCES || err->sys_errno == EROFS)) {
        (void)espl_hint(err, "%s", espl_store_write_hint);
    }
    return status;
}

enum espl_status espl_store_open(const char *root, struct espl_store *store, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char absolute[PATH_MAX];
    enum espl_status status = check_root(root, err);
    if (status == ESPL_OK) {
        status = advise_writable(err, espl_fs_make_dirs(root, err));
    }
    if (status != ESPL_OK) {
        return status;
    }
    if (realpath(root, absolute) == NULL) {
        return espl_fail_errno(err, errno, "cannot use results folder '%s'", root);
    }
    if (access(absolute, W_OK | X_OK) != 0) {
        (void)espl_fail_errno(err, errno, "cannot write to results folder '%s'", root);
        (void)espl_hint(err, "%s", espl_store_write_hint);
        return ESPL_E_IO;
    }
    memset(store, 0, sizeof *store);
    status = espl_fs_join(store->root, absolute, "", err);
    for (size_t i = 0; status == ESPL_OK && i < sizeof folders / sizeof folders[0]; i++) {
        status = store_path(store, folders[i], path, err);
        if (status == ESPL_OK) {
            status = advise_writable(err, espl_fs_make_dirs(path, err));
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
    const enum espl_status status = check_root(root, err);
    if (status != ESPL_OK) {
        return status;
    }
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

bool espl_store_of_file(const char *path, struct espl_store *store)
{
    char real[PATH_MAX];
    memset(store, 0, sizeof *store);
    store->readonly = true;
    if (realpath(path, real) == NULL) {
        return false;
    }
    char *parts[3] = {NULL, NULL, NULL}; /* file name, its shard, "store" */
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char *slash = strrchr(real, '/');
        if (slash == NULL) {
            return false;
        }
        *slash = '\0';
        parts[i] = slash + 1;
    }
    return strcmp(parts[2], "store") == 0 && strlen(parts[1]) == 2 &&
           strncmp(parts[0], parts[1], 2) == 0 && is_hex(parts[1], 2) &&
           espl_fs_join(store->root, real[0] != '\0' ? real : "/", "", NULL) == ESPL_OK;
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

enum espl_status espl_store_open_artifact(const struct espl_store *store, const char *key,
                                          const char *port, struct espl_artifact **out,
                                          struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    struct espl_artifact *artifact = NULL;
    enum espl_status status = artifact_path(store, key, port, path, err);
    if (status == ESPL_OK) {
        status = espl_artifact_open(path, &artifact, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    const char *own_key = espl_artifact_attribute(artifact, "key");
    const char *own_port = espl_artifact_attribute(artifact, "port");
    /* The only output of a stage has no port in its file name. */
    const bool same_port = port == NULL || port[0] == '\0' || strcmp(port, own_port) == 0;
    if (strcmp(key, own_key) == 0 && same_port) {
        *out = artifact;
        return ESPL_OK;
    }
    (void)espl_fail(err, ESPL_E_CORRUPT,
                    "'%s' holds another result: it was made under key %.12s%s%s", path,
                    own_key[0] != '\0' ? own_key : "(none)", same_port ? "" : ", port ",
                    same_port ? "" : own_port);
    espl_artifact_close(artifact);
    return espl_hint(err, "files of the store must keep their names; delete this one");
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

/* Hashes of external files, remembered by what the file system says about them. One small JSON file
 * each, index/file-hashes/<hash of the path>.json, so that concurrent writers never meet; a damaged
 * or stale one is simply not believed. */
#include "artifact/store.h"

#include "core/fs.h"
#include "core/hash.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { RECORD_LIMIT = 32768 };

/* A file changed this recently may change again within one tick of its time stamp. */
static const int64_t settle_ns = INT64_C(2000000000);

struct file_identity {
    char path[PATH_MAX]; /* real path */
    int64_t size;
    int64_t mtime_ns;
    int64_t inode;
};

static enum espl_status identify(const char *path, struct file_identity *identity,
                                 struct espl_error *err)
{
    struct stat info;
    if (realpath(path, identity->path) == NULL || stat(identity->path, &info) != 0) {
        return espl_fail_errno(err, errno, "cannot open '%s'", path);
    }
    identity->size = (int64_t)info.st_size;
    identity->mtime_ns =
        (int64_t)info.st_mtim.tv_sec * INT64_C(1000000000) + (int64_t)info.st_mtim.tv_nsec;
    identity->inode = (int64_t)info.st_ino;
    return ESPL_OK;
}

static bool same_identity(const struct file_identity *a, const struct file_identity *b)
{
    return strcmp(a->path, b->path) == 0 && a->size == b->size && a->mtime_ns == b->mtime_ns &&
           a->inode == b->inode;
}

static int64_t now_ns(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
    return (int64_t)now.tv_sec * INT64_C(1000000000) + (int64_t)now.tv_nsec;
}

static enum espl_status record_path(const struct espl_store *store, const char *file,
                                    char out[ESPL_PATH_MAX], struct espl_error *err)
{
    char hex[ESPL_SHA256_HEX];
    char rest[128];
    const enum espl_status status = espl_sha256_bytes(file, strlen(file), hex, err);
    if (status != ESPL_OK) {
        return status;
    }
    (void)snprintf(rest, sizeof rest, "index/file-hashes/%.32s.json", hex);
    return espl_fs_join(out, store->root, rest, err);
}

static bool member_is(const json_t *object, const char *name, int64_t value)
{
    const json_t *member = json_object_get(object, name);
    return json_is_integer(member) && json_integer_value(member) == value;
}

/* True when the record is about exactly this file. */
static bool recall(const char *record, const struct file_identity *identity,
                   char hex[ESPL_SHA256_HEX])
{
    char *data = NULL;
    size_t len = 0;
    bool found = false;
    if (espl_fs_read_file(record, RECORD_LIMIT, &data, &len, NULL) != ESPL_OK) {
        return false;
    }
    json_t *object = json_loadb(data, len, JSON_REJECT_DUPLICATES, NULL);
    const char *path = json_string_value(json_object_get(object, "path"));
    const char *sha256 = json_string_value(json_object_get(object, "sha256"));
    if (path != NULL && strcmp(path, identity->path) == 0 && sha256 != NULL &&
        espl_sha256_is_hex(sha256) && member_is(object, "size", identity->size) &&
        member_is(object, "mtime_ns", identity->mtime_ns) &&
        member_is(object, "inode", identity->inode)) {
        memcpy(hex, sha256, ESPL_SHA256_HEX);
        found = true;
    }
    json_decref(object);
    free(data);
    return found;
}

/* Writes the record. The memory only saves time: when it cannot be kept (full disk, a path that is
 * no UTF-8), the hash is still right and the next run reads the file again. */
static void remember(const struct espl_store *store, const char *record,
                     const struct file_identity *identity, const char *hex)
{
    char dir[ESPL_PATH_MAX];
    json_t *object =
        json_pack("{s:s, s:I, s:I, s:I, s:s}", "path", identity->path, "size",
                  (json_int_t)identity->size, "mtime_ns", (json_int_t)identity->mtime_ns, "inode",
                  (json_int_t)identity->inode, "sha256", hex);
    char *text = object != NULL ? json_dumps(object, JSON_SORT_KEYS | JSON_INDENT(1)) : NULL;
    if (text != NULL && espl_fs_join(dir, store->root, "index/file-hashes", NULL) == ESPL_OK &&
        espl_fs_make_dirs(dir, NULL) == ESPL_OK) {
        (void)espl_fs_write_file(record, text, strlen(text), NULL);
    }
    free(text);
    json_decref(object);
}

enum espl_status espl_store_file_hash(const struct espl_store *store, const char *path, bool rehash,
                                      char hex[ESPL_SHA256_HEX], struct espl_error *err)
{
    struct file_identity before;
    struct file_identity after;
    char record[ESPL_PATH_MAX];
    if (store == NULL) {
        return espl_sha256_file(path, hex, err);
    }
    enum espl_status status = identify(path, &before, err);
    if (status == ESPL_OK) {
        status = record_path(store, before.path, record, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    if (!rehash && recall(record, &before, hex)) {
        return ESPL_OK;
    }
    const int64_t started_ns = now_ns();
    status = espl_sha256_file(path, hex, err);
    if (status == ESPL_OK) {
        status = identify(path, &after, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    if (!same_identity(&before, &after)) {
        (void)espl_fail(err, ESPL_E_CORRUPT, "'%s' changed while it was read", path);
        (void)espl_hint(err, "wait until the file is complete and run the same command again");
        return ESPL_E_CORRUPT;
    }
    if (!store->readonly && started_ns - before.mtime_ns >= settle_ns) {
        remember(store, record, &before, hex);
    }
    return ESPL_OK;
}

#include "datasets/fetch/partial.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { META_LIMIT = 4096, PIECE = 1 << 20 };

/* The validator of an earlier download; "" when the meta file is missing or damaged. */
static void read_meta(struct espl_partial *partial)
{
    char *text = NULL;
    size_t len = 0;
    partial->validator[0] = '\0';
    if (espl_fs_read_file(partial->meta_path, META_LIMIT, &text, &len, NULL) != ESPL_OK) {
        return;
    }
    json_t *const root = json_loadb(text, len, 0, NULL);
    const char *const validator = json_string_value(json_object_get(root, "validator"));
    if (validator != NULL && strlen(validator) < sizeof partial->validator) {
        (void)snprintf(partial->validator, sizeof partial->validator, "%s", validator);
    }
    json_decref(root);
    free(text);
}

static enum espl_status write_meta(const struct espl_partial *partial, struct espl_error *err)
{
    json_t *const root = json_pack("{s:s}", "validator", partial->validator);
    char *const text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    const enum espl_status status =
        text != NULL ? espl_fs_write_file(partial->meta_path, text, strlen(text), err)
                     : espl_fail(err, ESPL_E_NOMEM, "no memory for a download's description");
    free(text);
    json_decref(root);
    return status;
}

static enum espl_status new_hash(struct espl_partial *partial, struct espl_error *err)
{
    espl_sha256_destroy(partial->hash);
    partial->hash = espl_sha256_create();
    partial->size = 0;
    return partial->hash != NULL ? ESPL_OK
                                 : espl_fail(err, ESPL_E_NOMEM, "no memory for a running hash");
}

/* Hashes what an earlier download left. */
static enum espl_status hash_existing(struct espl_partial *partial, struct espl_error *err)
{
    char *const piece = malloc(PIECE);
    if (piece == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory to read '%s'", partial->path);
    }
    enum espl_status status = ESPL_OK;
    for (;;) {
        const ssize_t got = read(partial->fd, piece, PIECE);
        if (got > 0) {
            espl_sha256_update(partial->hash, piece, (size_t)got);
            partial->size += (uint64_t)got;
        } else if (got == 0) {
            break;
        } else if (errno != EINTR) {
            status = espl_fail_errno(err, errno, "cannot read '%s'", partial->path);
            break;
        }
    }
    free(piece);
    return status;
}

enum espl_status espl_partial_open(struct espl_partial *partial, const struct espl_cache *cache,
                                   const char *id, struct espl_error *err)
{
    espl_partial_close(partial);
    enum espl_status status = espl_cache_partial_path(cache, id, "", partial->path, err);
    if (status == ESPL_OK) {
        status = espl_cache_partial_path(cache, id, ".json", partial->meta_path, err);
    }
    if (status == ESPL_OK) {
        status = new_hash(partial, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    partial->fd = open(partial->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (partial->fd < 0) {
        return espl_fail_errno(err, errno, "cannot write '%s'", partial->path);
    }
    read_meta(partial);
    return hash_existing(partial, err);
}

enum espl_status espl_partial_restart(struct espl_partial *partial, const char *validator,
                                      struct espl_error *err)
{
    /* First empty, then renamed meta: at no moment does old content carry the new validator. */
    if (ftruncate(partial->fd, 0) != 0 || lseek(partial->fd, 0, SEEK_SET) != 0) {
        return espl_fail_errno(err, errno, "cannot empty '%s'", partial->path);
    }
    (void)snprintf(partial->validator, sizeof partial->validator, "%s", validator);
    const enum espl_status status = new_hash(partial, err);
    return status == ESPL_OK ? write_meta(partial, err) : status;
}

enum espl_status espl_partial_append(struct espl_partial *partial, const void *bytes, size_t len,
                                     struct espl_error *err)
{
    const char *next = bytes;
    size_t left = len;
    while (left > 0) {
        const ssize_t wrote = write(partial->fd, next, left);
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            (void)espl_fail_errno(err, wrote < 0 ? errno : ENOSPC, "cannot write '%s'",
                                  partial->path);
            return espl_hint(err,
                             err->code == ESPL_E_NOSPACE
                                 ? "free space and run the same command again: it continues "
                                   "after the %llu bytes that are there"
                                 : "%llu bytes were written",
                             (unsigned long long)partial->size);
        }
        espl_sha256_update(partial->hash, next, (size_t)wrote);
        partial->size += (uint64_t)wrote;
        next += wrote;
        left -= (size_t)wrote;
    }
    return ESPL_OK;
}

void espl_partial_hash(struct espl_partial *partial, char hex[ESPL_SHA256_HEX])
{
    espl_sha256_finish(partial->hash, hex);
}

enum espl_status espl_partial_publish(struct espl_partial *partial, const struct espl_cache *cache,
                                      const char *sha256, struct espl_error *err)
{
    espl_partial_close(partial);
    const enum espl_status status = espl_cache_publish_blob(cache, partial->path, sha256, err);
    if (status == ESPL_OK) {
        (void)unlink(partial->meta_path); /* without its file it says nothing */
    }
    return status;
}

void espl_partial_close(struct espl_partial *partial)
{
    if (partial->fd >= 0) {
        (void)close(partial->fd); /* publication syncs and reports what failed */
    }
    partial->fd = -1;
    espl_sha256_destroy(partial->hash);
    partial->hash = NULL;
}

void espl_partial_discard(struct espl_partial *partial)
{
    espl_partial_close(partial);
    (void)unlink(partial->path); /* at worst the next attempt finds and checks it */
    (void)unlink(partial->meta_path);
}

#include "core/hash.h"

#include "core/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HASH_PIECE_BYTES = 1 << 20 };

struct espl_sha256 {
    EVP_MD_CTX *context;
    bool failed;
};

struct espl_sha256 *espl_sha256_create(void)
{
    struct espl_sha256 *hash = calloc(1, sizeof *hash);
    if (hash == NULL) {
        return NULL;
    }
    hash->context = EVP_MD_CTX_new();
    if (hash->context == NULL || EVP_DigestInit_ex(hash->context, EVP_sha256(), NULL) != 1) {
        espl_sha256_destroy(hash);
        return NULL;
    }
    return hash;
}

void espl_sha256_destroy(struct espl_sha256 *hash)
{
    if (hash == NULL) {
        return;
    }
    EVP_MD_CTX_free(hash->context);
    free(hash);
}

void espl_sha256_update(struct espl_sha256 *hash, const void *bytes, size_t len)
{
    if (len > 0 && EVP_DigestUpdate(hash->context, bytes, len) != 1) {
        hash->failed = true;
    }
}

void espl_sha256_update_field(struct espl_sha256 *hash, const void *bytes, size_t len)
{
    unsigned char length[8];
    for (size_t i = 0; i < sizeof length; i++) {
        length[i] = (unsigned char)(((uint64_t)len >> (8 * i)) & 0xffu);
    }
    espl_sha256_update(hash, length, sizeof length);
    espl_sha256_update(hash, bytes, len);
}

void espl_sha256_finish(struct espl_sha256 *hash, char hex[ESPL_SHA256_HEX])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    hex[0] = '\0';
    if (EVP_DigestFinal_ex(hash->context, digest, &len) != 1 || len != ESPL_SHA256_BYTES ||
        hash->failed) {
        return;
    }
    for (size_t i = 0; i < ESPL_SHA256_BYTES; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15u];
    }
    hex[2 * (size_t)ESPL_SHA256_BYTES] = '\0';
}

static enum espl_status finish_checked(struct espl_sha256 *hash, char hex[ESPL_SHA256_HEX],
                                       struct espl_error *err)
{
    espl_sha256_finish(hash, hex);
    if (hex[0] == '\0') {
        return espl_fail(err, ESPL_E_INTERNAL, "libcrypto failed to compute a SHA-256 hash");
    }
    return ESPL_OK;
}

enum espl_status espl_sha256_bytes(const void *bytes, size_t len, char hex[ESPL_SHA256_HEX],
                                   struct espl_error *err)
{
    struct espl_sha256 *hash = espl_sha256_create();
    if (hash == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a SHA-256 hash");
    }
    espl_sha256_update(hash, bytes, len);
    const enum espl_status status = finish_checked(hash, hex, err);
    espl_sha256_destroy(hash);
    return status;
}

static enum espl_status hash_descriptor(struct espl_sha256 *hash, int fd, unsigned char *piece,
                                        const char *path, struct espl_error *err)
{
    off_t position = 0;
    for (;;) {
        const ssize_t got = read(fd, piece, HASH_PIECE_BYTES);
        if (got < 0) {
            if (errno == EINTR) {
                continue;
            }
            return espl_fail_errno(err, errno, "cannot read '%s'", path);
        }
        if (got == 0) {
            return ESPL_OK;
        }
        espl_sha256_update(hash, piece, (size_t)got);
        /* A checkpoint may be larger than the memory: its pages must not push others out. */
        (void)posix_fadvise(fd, position, got, POSIX_FADV_DONTNEED);
        position += got;
    }
}

enum espl_status espl_sha256_file(const char *path, char hex[ESPL_SHA256_HEX],
                                  struct espl_error *err)
{
    struct espl_sha256 *hash = NULL;
    unsigned char *piece = NULL;
    int fd = -1;
    enum espl_status status = espl_fs_open_file(path, &fd, NULL, err);
    if (status != ESPL_OK) {
        return status;
    }
    hash = espl_sha256_create();
    piece = malloc(HASH_PIECE_BYTES);
    if (hash == NULL || piece == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory while hashing '%s'", path);
        goto cleanup;
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    status = hash_descriptor(hash, fd, piece, path, err);
    if (status == ESPL_OK) {
        status = finish_checked(hash, hex, err);
    }

cleanup:
    free(piece);
    espl_sha256_destroy(hash);
    (void)close(fd); /* only read from */
    return status;
}

bool espl_sha256_is_hex(const char *text)
{
    return strlen(text) == ESPL_SHA256_HEX - 1 &&
           strspn(text, "0123456789abcdef") == ESPL_SHA256_HEX - 1;
}

/* SHA-256 (OpenSSL libcrypto) for identity: keys, content hashes, checks against `sha256sum`. */
#ifndef ESPL_CORE_HASH_H
#define ESPL_CORE_HASH_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ESPL_SHA256_BYTES = 32, ESPL_SHA256_HEX = 65 /* with the NUL */ };

struct espl_sha256; /* opaque running hash */

/** NULL when out of memory. */
struct espl_sha256 *espl_sha256_create(void);
void espl_sha256_destroy(struct espl_sha256 *hash);
void espl_sha256_update(struct espl_sha256 *hash, const void *bytes, size_t len);
/** Adds `len` as 8 little-endian bytes and then the bytes, so that field borders cannot move. */
void espl_sha256_update_field(struct espl_sha256 *hash, const void *bytes, size_t len);
/** Ends the hash and writes lower-case hex; the object can only be destroyed afterwards. "" when
 * libcrypto failed, which equals no hash. */
void espl_sha256_finish(struct espl_sha256 *hash, char hex[ESPL_SHA256_HEX]);
/** One call for a block in memory. */
enum espl_status espl_sha256_bytes(const void *bytes, size_t len, char hex[ESPL_SHA256_HEX],
                                   struct espl_error *err);
/** Hash of a whole file, read in 1 MiB pieces without keeping its pages resident.
 *  Errors: ESPL_E_NOTFOUND, ESPL_E_IO. */
enum espl_status espl_sha256_file(const char *path, char hex[ESPL_SHA256_HEX],
                                  struct espl_error *err);
/** 64 lower-case hexadecimal digits and nothing else? */
bool espl_sha256_is_hex(const char *text);

#endif

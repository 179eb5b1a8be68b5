#include "datasets/image_idx.h"

#include "core/checked.h"
#include "datasets/text.h"

#include <stdlib.h>
#include <string.h>

/* Two zero bytes, the element type, the rank; then a big-endian size for each dimension. */
enum { MAGIC_BYTES = 4, SIZE_BYTES = 4, TYPE_UNSIGNED_BYTE = 8 };

static uint32_t big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static enum espl_status check_magic(const uint8_t *bytes, size_t len, struct espl_error *err)
{
    if (len < MAGIC_BYTES || bytes[0] != 0 || bytes[1] != 0) {
        return espl_fail(err, ESPL_E_CORRUPT, "it does not begin as an idx file does");
    }
    if (bytes[2] != TYPE_UNSIGNED_BYTE) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "its elements are of idx type 0x%02x, expected unsigned bytes (0x08)",
                         bytes[2]);
    }
    if (bytes[3] < 1 || bytes[3] > ESPL_IDX_MAX_RANK) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "it has %u dimensions, expected 1 to %d",
                         bytes[3], (int)ESPL_IDX_MAX_RANK);
    }
    return ESPL_OK;
}

enum espl_status espl_idx_parse(const uint8_t *bytes, size_t len, struct espl_idx *idx,
                                struct espl_error *err)
{
    memset(idx, 0, sizeof *idx);
    const enum espl_status status = check_magic(bytes, len, err);
    if (status != ESPL_OK) {
        return status;
    }
    const unsigned rank = bytes[3];
    const size_t header = MAGIC_BYTES + rank * SIZE_BYTES;
    size_t count = 1;
    bool fits = len >= header;
    for (unsigned d = 0; fits && d < rank; d++) {
        idx->shape[d] = big_endian(bytes + MAGIC_BYTES + d * SIZE_BYTES);
        fits = espl_mul_size(count, (size_t)idx->shape[d], &count);
    }
    if (!fits || count != len - header) {
        return espl_fail(err, ESPL_E_CORRUPT, "the sizes in its header do not fit its %zu bytes",
                         len);
    }
    idx->rank = rank;
    idx->values = bytes + header;
    return ESPL_OK;
}

enum espl_status espl_idx_read(const char *path, size_t limit, char **bytes, struct espl_idx *idx,
                               struct espl_error *err)
{
    size_t len = 0;
    enum espl_status status = espl_text_read(path, limit, bytes, &len, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_idx_parse((const uint8_t *)*bytes, len, idx, err);
    if (status != ESPL_OK) {
        free(*bytes);
        *bytes = NULL;
        return espl_context(err, "while reading '%s'", path);
    }
    return ESPL_OK;
}

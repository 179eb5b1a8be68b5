/* Dense weights of 2, 3 or 4 bits in the order in which a warp of a GPU reads them: the dense case
 * of the device layout (docs/formats/ie-bme.md), and its form for fewer bits. */
#ifndef ESPALIER_DENSE_DEVICE_H
#define ESPALIER_DENSE_DEVICE_H

#include "core/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ESPL_DENSE_UNIT_ROWS = 16,
    ESPL_DENSE_UNIT_COLS = 256, /* a unit: 16 x 256 weights, 512 bytes a bit */
    ESPL_DENSE_UNIT_BYTES = 512 /* for each bit of a code */
};

struct espl_dense_device {
    size_t rows;
    size_t cols;
    unsigned bits;  /* of a code: 2, 3 or 4 */
    size_t stripes; /* ceil(rows / 16) */
    size_t depth;   /* units of a stripe: ceil(cols / 256) */
    uint8_t *data;  /* (stripes, depth, bits * 512), 128-byte aligned */
    size_t data_bytes;
};

/** codes (rows, cols), each fitting `bits`. Allocates *device; espl_dense_device_free() frees.
 *  Errors: UNSUPPORTED for other bits or an empty matrix, CORRUPT for a code that does not fit,
 *  NOMEM. */
enum espl_status espl_dense_device_encode(const int8_t *codes, size_t rows, size_t cols,
                                          unsigned bits, struct espl_dense_device *device,
                                          struct espl_error *err);
/** codes (rows, cols) <- the weights of a layout made by espl_dense_device_encode(). */
void espl_dense_device_decode(const struct espl_dense_device *device, int8_t *codes);
void espl_dense_device_free(struct espl_dense_device *device);

#ifdef __cplusplus
}
#endif

#endif

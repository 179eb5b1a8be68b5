/* Dense weights in units of 16 x 256, in the order in which a warp reads them. Where a weight lies
 * is said once, in places_of(), and used by both directions. */
#include "espalier/dense_device.h"
#include "core/checked.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 128, BLOCK_COLS = 32, LANE_COLS = 8, GROUP_BYTES = 512 };

/* Where the bits of one weight are: `high` holds all bits of a code but, with 3 bits, the lowest,
 * which is at `low`. Bytes count from the start of the unit. */
struct places {
    size_t high;
    unsigned high_shift;
    size_t low;
    unsigned low_shift;
};

/* The weight at (row, col) of a unit belongs to lane 4 g + t, block col / 32; g = row % 8,
 * t = col % 32 / 8. Every lane reads 16 bytes at a time: four words. Byte i of a word of 4-bit
 * codes holds one column in rows g (low nibble) and g + 8 (high nibble); of 2-bit codes the columns
 * i and 4 + i in both rows. Words of low bits hold two blocks. */
static struct places places_of(unsigned bits, size_t row, size_t col)
{
    const size_t block = col / BLOCK_COLS;
    const size_t lane = row % 8 * 4 + col % BLOCK_COLS / LANE_COLS;
    const unsigned half = row >= 8 ? 1 : 0;
    const unsigned late = col % LANE_COLS >= 4 ? 1 : 0;
    const size_t byte = 16 * lane + col % 4;
    struct places places = {.low = 0};
    if (bits == 4) {
        places.high = GROUP_BYTES * (block / 2) + byte + 4 * (block % 2 * 2 + late);
        places.high_shift = 4 * half;
        return places;
    }
    places.high = GROUP_BYTES * (block / 4) + byte + 4 * (block % 4);
    places.high_shift = 4 * half + 2 * late;
    if (bits == 3) {
        places.low = 2 * (size_t)GROUP_BYTES + byte + 4 * (block / 2);
        places.low_shift = (unsigned)(block % 2) * 4 + 2 * half + late;
    }
    return places;
}

/* Low nibbles are stored as code + 8, so that a byte read as a signed number is 16 x the code of
 * row g + 8 plus a known positive part: an MMA can take it as it is. */
static unsigned bias_of(unsigned bits, size_t row)
{
    return bits == 4 && row < 8 ? 8 : 0;
}

/* Bytes of a unit of zeros. */
static int empty_byte(unsigned bits)
{
    return bits == 4 ? 8 : 0;
}

static size_t unit_bytes(unsigned bits)
{
    return (size_t)bits * ESPL_DENSE_UNIT_BYTES;
}

static void put(uint8_t *unit, unsigned bits, size_t row, size_t col, int8_t code)
{
    const struct places at = places_of(bits, row, col);
    const unsigned word = ((unsigned)code & ((1u << bits) - 1u)) ^ bias_of(bits, row);
    const unsigned low_bits = bits == 3 ? 1 : 0;
    const unsigned mask = (bits == 4 ? 15u : 3u) << at.high_shift;
    unit[at.high] = (uint8_t)((unit[at.high] & ~mask) | (word >> low_bits) << at.high_shift);
    if (low_bits != 0) {
        unit[at.low] = (uint8_t)(unit[at.low] | (word & 1u) << at.low_shift);
    }
}

static int8_t get(const uint8_t *unit, unsigned bits, size_t row, size_t col)
{
    const struct places at = places_of(bits, row, col);
    const unsigned high_bits = bits == 4 ? 4 : 2;
    unsigned word = (unsigned)unit[at.high] >> at.high_shift & ((1u << high_bits) - 1u);
    if (bits == 3) {
        word = word << 1 | ((unsigned)unit[at.low] >> at.low_shift & 1u);
    }
    word ^= bias_of(bits, row);
    const unsigned sign = 1u << (bits - 1u);
    return (int8_t)((int)(word ^ sign) - (int)sign);
}

static uint8_t *unit_of(const struct espl_dense_device *device, size_t row, size_t col)
{
    const size_t unit = row / ESPL_DENSE_UNIT_ROWS * device->depth + col / ESPL_DENSE_UNIT_COLS;
    return device->data + unit * unit_bytes(device->bits);
}

enum espl_status espl_dense_device_encode(const int8_t *codes, size_t rows, size_t cols,
                                          unsigned bits, struct espl_dense_device *device,
                                          struct espl_error *err)
{
    struct espl_dense_device made = {.rows = rows, .cols = cols, .bits = bits};
    size_t units = 0;
    if (bits < 2 || bits > 4 || rows == 0 || cols == 0) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "no dense device layout for %zu x %zu codes of %u bits", rows, cols, bits);
    }
    const int limit = 1 << (bits - 1u);
    made.stripes = espl_ceil_div(rows, ESPL_DENSE_UNIT_ROWS);
    made.depth = espl_ceil_div(cols, ESPL_DENSE_UNIT_COLS);
    if (!espl_mul_size(made.stripes, made.depth, &units) ||
        !espl_mul_size(units, unit_bytes(bits), &made.data_bytes)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "%zu x %zu codes are too many to lay out", rows,
                         cols);
    }
    made.data = aligned_alloc(ALIGNMENT, made.data_bytes);
    if (made.data == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a device layout of %zu bytes",
                         made.data_bytes);
    }
    memset(made.data, empty_byte(bits), made.data_bytes);
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < cols; c++) {
            const int8_t code = codes[r * cols + c];
            if (code < -limit || code >= limit) {
                espl_dense_device_free(&made);
                return espl_fail(err, ESPL_E_CORRUPT,
                                 "code %d at row %zu, column %zu does not fit in %u bits", code, r,
                                 c, bits);
            }
            put(unit_of(&made, r, c), bits, r % ESPL_DENSE_UNIT_ROWS, c % ESPL_DENSE_UNIT_COLS,
                code);
        }
    }
    *device = made;
    return ESPL_OK;
}

void espl_dense_device_decode(const struct espl_dense_device *device, int8_t *codes)
{
    for (size_t r = 0; r < device->rows; r++) {
        for (size_t c = 0; c < device->cols; c++) {
            codes[r * device->cols + c] = get(unit_of(device, r, c), device->bits,
                                              r % ESPL_DENSE_UNIT_ROWS, c % ESPL_DENSE_UNIT_COLS);
        }
    }
}

void espl_dense_device_free(struct espl_dense_device *device)
{
    if (device == NULL) {
        return;
    }
    free(device->data);
    *device = (struct espl_dense_device){.data = NULL};
}

/* The device layout: chunks in the order in which a warp reads them. Addresses inside a chunk are
 * said once, in the small functions below, and used by both directions. */
#include "core/checked.h"
#include "kernels/formats/iebme_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    LANES = ESPL_IEBME_DEVICE_LANES,
    WORD_ROW = LANES * 4, /* bytes of one stream word of every lane */
    LANE_COLS = 8,        /* consecutive columns that a lane owns in a block */
    BLOCK_COLS = 32,
    SLICE_LONG = 512,
    SLICE_SHORT = 256
};

/* What follows from unit and slice. A segment is the 8 mask positions of one lane in one block; a
 * lane has two of them a block, of rows g and g + 8, numbered 2 * block + (row g + 8 ? 1 : 0), or
 * one where a position stands for both rows. */
struct chunk_shape {
    enum espl_iebme_areas unit;
    size_t slice;
    size_t stripes;
    size_t slices;
    size_t chunks;
    unsigned row_areas; /* 2: a mask position stands for rows g and g + 8 */
    unsigned col_areas; /* 2: and for columns k and k + 32 of a block of 64 */
    unsigned members;   /* weights of a mask position */
    unsigned streams;   /* of a lane: two weights of a position are a byte, four are one in each */
    unsigned segments;  /* of a lane */
    size_t mask_bytes;  /* 0 when dense */
};

/* The shapes that chunks of a layout can have: one, or of a mixed layout all, the ones that decode
 * with fewer steps first. */
enum { UNITS = 5 };
struct chunk_shapes {
    struct chunk_shape of[UNITS];
    size_t count;
    bool mixed;
};

static const enum espl_iebme_areas mixed_units[UNITS] = {
    ESPL_IEBME_DENSE, ESPL_IEBME_2X2, ESPL_IEBME_2X1, ESPL_IEBME_1X2, ESPL_IEBME_1X1};

static size_t best_slice(size_t cols)
{
    const size_t padded = espl_ceil_div(cols, SLICE_SHORT) * SLICE_SHORT;
    return padded % SLICE_LONG == 0 ? SLICE_LONG : SLICE_SHORT;
}

/* What is wrong with a layout; NULL = nothing, and *shape is filled. */
static const char *make_shape(size_t rows, size_t cols, enum espl_iebme_areas unit, size_t slice,
                              struct chunk_shape *shape)
{
    size_t bytes = 0;
    if (unit != ESPL_IEBME_1X1 && unit != ESPL_IEBME_1X2 && unit != ESPL_IEBME_2X1 &&
        unit != ESPL_IEBME_2X2 && unit != ESPL_IEBME_DENSE) {
        return "areas are 1x1, 1x2, 2x1, 2x2, dense or mixed";
    }
    if (slice != SLICE_LONG && slice != SLICE_SHORT) {
        return "slices have 512 or 256 columns";
    }
    shape->unit = unit;
    shape->slice = slice;
    shape->stripes = espl_ceil_div(rows, ESPL_IEBME_TILE_ROWS);
    shape->slices = espl_ceil_div(cols, slice);
    if (shape->stripes == 0 || shape->slices == 0) {
        return "there is nothing to store";
    }
    shape->row_areas = unit == ESPL_IEBME_2X1 || unit == ESPL_IEBME_2X2 ? 2 : 1;
    shape->col_areas = unit == ESPL_IEBME_1X2 || unit == ESPL_IEBME_2X2 ? 2 : 1;
    shape->members = shape->row_areas * shape->col_areas;
    shape->streams = shape->members == 4 ? 2 : 1;
    shape->segments = (unsigned)(2 * slice / (BLOCK_COLS * shape->members));
    shape->mask_bytes = unit == ESPL_IEBME_DENSE ? 0 : (size_t)shape->segments * LANES;
    /* A byte a weight is more than a chunk takes; 2^32 units of 128 bytes hold it all. */
    if (!espl_mul_size(shape->stripes, shape->slices, &shape->chunks) ||
        !espl_mul_size(shape->chunks, ESPL_IEBME_TILE_ROWS * slice, &bytes) ||
        bytes / ESPL_IEBME_DEVICE_UNIT > UINT32_MAX) {
        return "32-bit starts cannot reach it all";
    }
    return NULL;
}

static const char *make_shapes(size_t rows, size_t cols, enum espl_iebme_areas unit, size_t slice,
                               struct chunk_shapes *shapes)
{
    const char *wrong = NULL;
    shapes->mixed = unit == ESPL_IEBME_MIXED;
    shapes->count = shapes->mixed ? UNITS : 1;
    for (size_t u = 0; wrong == NULL && u < shapes->count; u++) {
        wrong =
            make_shape(rows, cols, shapes->mixed ? mixed_units[u] : unit, slice, &shapes->of[u]);
    }
    return wrong;
}

/* Of a chunk with this second word in the index; NULL: there is no such shape in the layout. */
static const struct chunk_shape *shape_of(const struct chunk_shapes *shapes, uint32_t length)
{
    const uint32_t code = length >> ESPL_IEBME_DEVICE_LENGTH_BITS;
    for (size_t u = 0; u < shapes->count; u++) {
        if (code == (shapes->mixed ? (uint32_t)shapes->of[u].unit : 0)) {
            return &shapes->of[u];
        }
    }
    return NULL;
}

static enum espl_status fail_shape(size_t rows, size_t cols, const char *wrong,
                                   struct espl_error *err)
{
    return espl_fail(err, ESPL_E_UNSUPPORTED, "no device layout for a matrix of %zu x %zu: %s",
                     rows, cols, wrong);
}

/* Word n of a lane where words of all lanes lie in groups of four (or of all, when fewer). */
static size_t grouped_word(unsigned words, unsigned lane, unsigned n)
{
    const unsigned group = words < 4 ? words : 4;
    return 4 * ((size_t)(n / group) * LANES * group + (size_t)lane * group + n % group);
}

/* Byte of a segment's mask: four segments a word. */
static size_t mask_at(const struct chunk_shape *shape, unsigned lane, unsigned segment)
{
    return grouped_word(shape->segments / 4, lane, segment / 4) + segment % 4;
}

/* Member p of a lane's active position behind the masks: byte, and shift in it. Words of two
 * streams alternate. */
static size_t stream_at(const struct chunk_shape *shape, unsigned lane, size_t position, unsigned p,
                        unsigned *shift)
{
    const unsigned width = shape->members / shape->streams; /* nibbles of a position in a stream */
    const size_t nibble = position * width + p % width;
    const size_t row = nibble / 8 * shape->streams + p / width;
    *shift = nibble % 2 != 0 ? 4 : 0;
    return shape->mask_bytes + row * WORD_ROW + 4 * (size_t)lane + nibble % 8 / 2;
}

/* Rows of words that hold so many active positions of every lane. */
static size_t stream_rows(const struct chunk_shape *shape, size_t positions)
{
    return espl_ceil_div(positions * shape->members / shape->streams, 8) * shape->streams;
}

/* Nibble of column i (0..7) of a segment in a dense chunk. */
static size_t dense_at(const struct chunk_shape *shape, unsigned lane, unsigned segment, unsigned i,
                       unsigned *shift)
{
    *shift = i >= 4 ? 4 : 0;
    return grouped_word(shape->segments, lane, segment) + i % 4;
}

/* Place of column i, member p of its position, of a segment in the chunk's panel (16, stride). */
static size_t panel_at(const struct chunk_shape *shape, unsigned lane, unsigned segment, unsigned i,
                       unsigned p, size_t stride)
{
    const bool both_rows = shape->row_areas == 2;
    const size_t half = both_rows ? p % 2 : segment % 2;
    const size_t block = both_rows ? segment : segment / 2;
    const size_t right = both_rows ? p / 2 : p;
    const size_t row = lane / 4 + 8 * half;
    const size_t col =
        (block * shape->col_areas + right) * BLOCK_COLS + (size_t)(lane % 4) * LANE_COLS + i;
    return row * stride + col;
}

/* ---- encoding ---- */

/* Active positions of a segment, bit i = column i. */
static unsigned segment_mask(const struct chunk_shape *shape, const int8_t *panel, size_t stride,
                             unsigned lane, unsigned segment)
{
    unsigned mask = 0;
    for (unsigned p = 0; p < shape->members; p++) {
        mask |= espl_iebme_nonzero_bits(panel + panel_at(shape, lane, segment, 0, p, stride));
    }
    return mask;
}

/* Active positions of the longest lane. */
static size_t longest_lane(const struct chunk_shape *shape, const int8_t *panel, size_t stride)
{
    size_t longest = 0;
    for (unsigned lane = 0; lane < LANES; lane++) {
        size_t active = 0;
        for (unsigned s = 0; s < shape->segments; s++) {
            active += (unsigned)__builtin_popcount(segment_mask(shape, panel, stride, lane, s));
        }
        longest = active > longest ? active : longest;
    }
    return longest;
}

static size_t chunk_units(const struct chunk_shape *shape, const int8_t *panel, size_t stride)
{
    if (shape->unit == ESPL_IEBME_DENSE) {
        return ESPL_IEBME_TILE_ROWS * shape->slice / 2 / ESPL_IEBME_DEVICE_UNIT;
    }
    return shape->mask_bytes / ESPL_IEBME_DEVICE_UNIT +
           stream_rows(shape, longest_lane(shape, panel, stride));
}

static void put_nibble(uint8_t *chunk, size_t at, unsigned shift, int8_t code)
{
    chunk[at] = (uint8_t)(chunk[at] | ((unsigned)code & 15u) << shift);
}

/* chunk is zero-filled. */
static void write_dense_lane(const struct chunk_shape *shape, const int8_t *panel, size_t stride,
                             unsigned lane, uint8_t *chunk)
{
    unsigned shift = 0;
    for (unsigned s = 0; s < shape->segments; s++) {
        for (unsigned i = 0; i < LANE_COLS; i++) {
            const size_t at = dense_at(shape, lane, s, i, &shift);
            put_nibble(chunk, at, shift, panel[panel_at(shape, lane, s, i, 0, stride)]);
        }
    }
}

static void write_lane(const struct chunk_shape *shape, const int8_t *panel, size_t stride,
                       unsigned lane, uint8_t *chunk)
{
    size_t position = 0;
    unsigned shift = 0;
    for (unsigned s = 0; s < shape->segments; s++) {
        const unsigned mask = segment_mask(shape, panel, stride, lane, s);
        chunk[mask_at(shape, lane, s)] = (uint8_t)mask;
        for (unsigned left = mask; left != 0; left &= left - 1) {
            const unsigned i = (unsigned)__builtin_ctz(left);
            for (unsigned p = 0; p < shape->members; p++) {
                const size_t at = stream_at(shape, lane, position, p, &shift);
                put_nibble(chunk, at, shift, panel[panel_at(shape, lane, s, i, p, stride)]);
            }
            position++;
        }
    }
}

/* The second word of a chunk's index entry: the smallest shape, of equal ones the first. */
static uint32_t length_word(const struct chunk_shapes *shapes, const int8_t *panel, size_t stride)
{
    const struct chunk_shape *best = &shapes->of[0];
    size_t units = chunk_units(best, panel, stride);
    for (size_t u = 1; u < shapes->count; u++) {
        const size_t other = chunk_units(&shapes->of[u], panel, stride);
        if (other < units) {
            units = other;
            best = &shapes->of[u];
        }
    }
    return (uint32_t)units |
           (shapes->mixed ? (uint32_t)best->unit << ESPL_IEBME_DEVICE_LENGTH_BITS : 0);
}

static void write_chunk(const struct chunk_shape *shape, const int8_t *panel, size_t stride,
                        uint8_t *chunk)
{
    for (unsigned lane = 0; lane < LANES; lane++) {
        if (shape->unit == ESPL_IEBME_DENSE) {
            write_dense_lane(shape, panel, stride, lane, chunk);
        } else {
            write_lane(shape, panel, stride, lane, chunk);
        }
    }
}

/* Walks over all chunks; with data == NULL it only fills the index. Returns units in all. */
static size_t walk_chunks(const struct espl_iebme_matrix *matrix, const struct chunk_shapes *shapes,
                          const size_t *starts, int8_t *panel, uint32_t *index, uint8_t *data)
{
    const struct chunk_shape *any = &shapes->of[0];
    const size_t decoded = espl_iebme_tile_cols(&matrix->layout) * ESPL_IEBME_TILE_COLS;
    const size_t stride = any->slices * any->slice;
    int8_t *stripe_codes = panel + stride * ESPL_IEBME_TILE_ROWS;
    size_t units = 0;
    memset(panel, 0, stride * ESPL_IEBME_TILE_ROWS);
    for (size_t stripe = 0; stripe < any->stripes; stripe++) {
        espl_iebme_decode_stripe(matrix, stripe, starts[stripe], stripe_codes);
        for (size_t r = 0; r < ESPL_IEBME_TILE_ROWS; r++) {
            memcpy(panel + r * stride, stripe_codes + r * decoded, decoded);
        }
        for (size_t c = 0; c < any->slices; c++) {
            const int8_t *corner = panel + c * any->slice;
            uint32_t *entry = index + 2 * (stripe * any->slices + c);
            entry[0] = (uint32_t)units;
            if (data == NULL) {
                entry[1] = length_word(shapes, corner, stride);
            } else {
                write_chunk(shape_of(shapes, entry[1]), corner, stride,
                            data + units * ESPL_IEBME_DEVICE_UNIT);
            }
            units += espl_iebme_device_length(entry[1]);
        }
    }
    return units;
}

enum espl_status espl_iebme_device_encode(const struct espl_iebme_matrix *matrix,
                                          enum espl_iebme_areas unit, size_t slice,
                                          struct espl_iebme_device *device, struct espl_error *err)
{
    const struct espl_iebme_layout *layout = &matrix->layout;
    struct espl_iebme_device made = {.rows = layout->rows, .cols = layout->cols, .unit = unit};
    struct chunk_shapes shapes = {.count = 0};
    size_t *starts = NULL;
    int8_t *panel = NULL;
    const char *wrong = NULL;
    enum espl_status status = espl_iebme_check(matrix, err);
    if (status == ESPL_OK && layout->bits != 4) {
        status = espl_fail(err, ESPL_E_UNSUPPORTED, "the device layout holds 4-bit codes, not %u",
                           layout->bits);
    }
    made.slice = slice != 0 ? slice : best_slice(layout->cols);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    wrong = make_shapes(layout->rows, layout->cols, unit, made.slice, &shapes);
    if (wrong != NULL) {
        status = fail_shape(layout->rows, layout->cols, wrong, err);
        goto cleanup;
    }
    made.chunks = shapes.of[0].chunks;
    starts = malloc(shapes.of[0].stripes * sizeof *starts);
    made.index = malloc(made.chunks * 2 * sizeof *made.index);
    panel = malloc(2 * ESPL_IEBME_TILE_ROWS * shapes.of[0].slices * made.slice);
    if (starts == NULL || made.index == NULL || panel == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for a device layout");
        goto cleanup;
    }
    espl_iebme_stripe_starts(matrix, starts);
    made.data_bytes =
        walk_chunks(matrix, &shapes, starts, panel, made.index, NULL) * ESPL_IEBME_DEVICE_UNIT +
        ESPL_IEBME_DEVICE_TAIL;
    made.data = aligned_alloc(ESPL_IEBME_DEVICE_UNIT, made.data_bytes);
    if (made.data == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for a device layout of %zu bytes",
                           made.data_bytes);
        goto cleanup;
    }
    memset(made.data, 0, made.data_bytes);
    (void)walk_chunks(matrix, &shapes, starts, panel, made.index, made.data); /* size known */
    *device = made;
    made = (struct espl_iebme_device){.index = NULL};

cleanup:
    espl_iebme_device_free(&made);
    free(panel);
    free(starts);
    return status;
}

/* ---- decoding ---- */

static int8_t get_nibble(const uint8_t *chunk, size_t at, unsigned shift)
{
    const int code = (chunk[at] >> shift) & 15;
    return (int8_t)((code ^ 8) - 8);
}

/* Active positions that the masks of a lane announce. */
static size_t lane_positions(const struct chunk_shape *shape, const uint8_t *chunk, unsigned lane)
{
    size_t positions = 0;
    for (unsigned s = 0; s < shape->segments; s++) {
        positions += (unsigned)__builtin_popcount(chunk[mask_at(shape, lane, s)]);
    }
    return positions;
}

/* panel is zero-filled and the chunk long enough. */
static void read_lane(const struct chunk_shape *shape, const uint8_t *chunk, unsigned lane,
                      int8_t *panel)
{
    size_t position = 0;
    unsigned shift = 0;
    for (unsigned s = 0; s < shape->segments; s++) {
        for (unsigned i = 0; i < LANE_COLS; i++) {
            if (shape->unit == ESPL_IEBME_DENSE) {
                const size_t at = dense_at(shape, lane, s, i, &shift);
                panel[panel_at(shape, lane, s, i, 0, shape->slice)] = get_nibble(chunk, at, shift);
                continue;
            }
            if (((unsigned)chunk[mask_at(shape, lane, s)] >> i & 1u) == 0) {
                continue;
            }
            for (unsigned p = 0; p < shape->members; p++) {
                const size_t at = stream_at(shape, lane, position, p, &shift);
                panel[panel_at(shape, lane, s, i, p, shape->slice)] = get_nibble(chunk, at, shift);
            }
            position++;
        }
    }
}

static enum espl_status fail_chunk(size_t chunk, const char *what, struct espl_error *err)
{
    return espl_fail(err, ESPL_E_CORRUPT, "chunk %zu of the device layout %s", chunk, what);
}

static enum espl_status read_chunk(const struct espl_iebme_device *device,
                                   const struct chunk_shapes *shapes, size_t c, int8_t *panel,
                                   struct espl_error *err)
{
    const uint32_t word = device->index[2 * c + 1];
    const struct chunk_shape *shape = shape_of(shapes, word);
    if (shape == NULL) {
        return fail_chunk(c, "has unknown areas", err);
    }
    const size_t start = (size_t)device->index[2 * c] * ESPL_IEBME_DEVICE_UNIT;
    const size_t length = (size_t)espl_iebme_device_length(word) * ESPL_IEBME_DEVICE_UNIT;
    const size_t limit = device->data_bytes - ESPL_IEBME_DEVICE_TAIL;
    const size_t smallest = shape->unit == ESPL_IEBME_DENSE
                                ? ESPL_IEBME_TILE_ROWS * shape->slice / 2
                                : shape->mask_bytes;
    if (start > limit || length > limit - start) {
        return fail_chunk(c, "lies outside the data", err);
    }
    if (length < smallest) {
        return fail_chunk(c, "is shorter than its masks", err);
    }
    const uint8_t *chunk = device->data + start;
    for (unsigned lane = 0; lane < LANES; lane++) {
        if (shape->mask_bytes > 0 &&
            stream_rows(shape, lane_positions(shape, chunk, lane)) * WORD_ROW > length - smallest) {
            return fail_chunk(c, "is shorter than its longest lane", err);
        }
    }
    memset(panel, 0, ESPL_IEBME_TILE_ROWS * shape->slice);
    for (unsigned lane = 0; lane < LANES; lane++) {
        read_lane(shape, chunk, lane, panel);
    }
    return ESPL_OK;
}

enum espl_status espl_iebme_device_decode(const struct espl_iebme_device *device, int8_t *codes,
                                          struct espl_error *err)
{
    struct chunk_shapes shapes = {.count = 0};
    int8_t panel[ESPL_IEBME_TILE_ROWS * SLICE_LONG];
    const char *wrong =
        make_shapes(device->rows, device->cols, device->unit, device->slice, &shapes);
    const struct chunk_shape *any = &shapes.of[0];
    if (wrong != NULL) {
        return fail_shape(device->rows, device->cols, wrong, err);
    }
    if (device->chunks != any->chunks || device->data_bytes < ESPL_IEBME_DEVICE_TAIL) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "%zu chunks and %zu bytes are no device layout of %zu x %zu",
                         device->chunks, device->data_bytes, device->rows, device->cols);
    }
    for (size_t c = 0; c < device->chunks; c++) {
        const enum espl_status status = read_chunk(device, &shapes, c, panel, err);
        if (status != ESPL_OK) {
            return status;
        }
        const size_t first_row = c / any->slices * ESPL_IEBME_TILE_ROWS;
        const size_t first_col = c % any->slices * any->slice;
        const size_t left = device->cols - first_col;
        const size_t width = left < any->slice ? left : any->slice;
        for (size_t r = 0; r < ESPL_IEBME_TILE_ROWS && first_row + r < device->rows; r++) {
            memcpy(codes + (first_row + r) * device->cols + first_col, panel + r * any->slice,
                   width);
        }
    }
    return ESPL_OK;
}

void espl_iebme_device_free(struct espl_iebme_device *device)
{
    if (device == NULL) {
        return;
    }
    free(device->index);
    free(device->data);
    *device = (struct espl_iebme_device){.index = NULL};
}

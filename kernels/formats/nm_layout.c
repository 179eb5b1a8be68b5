/* N:M weights in fragment order: sizes, and where everything lies. */
#include "kernels/formats/nm_internal.h"

#include "core/checked.h"

#include <stdbool.h>
#include <string.h>

const unsigned espl_nm_shared_rows[ESPL_NM_SHARED_COUNT] = {64, 32, 16, 8, 1};

enum espl_status espl_nm_check_layout(const struct espl_nm_layout *layout, struct espl_error *err)
{
    bool known = false;
    for (size_t i = 0; i < ESPL_NM_SHARED_COUNT; i++) {
        known = known || layout->v == espl_nm_shared_rows[i];
    }
    if ((layout->m != 4 && layout->m != 8 && layout->m != 16) || layout->n < 1 ||
        layout->n > layout->m) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "cannot pack %u of %u weights, expected 1 to M of M = 4, 8 or 16",
                         layout->n, layout->m);
    }
    if (!known) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "cannot share patterns of %u rows, expected 1, 8, 16, 32 or 64",
                         layout->v);
    }
    if (layout->rows < 1 || layout->cols < 1 || layout->cols > ESPL_NM_MAX_COLS) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "cannot pack a matrix of %zu x %zu, expected up to %d columns",
                         layout->rows, layout->cols, (int)ESPL_NM_MAX_COLS);
    }
    return ESPL_OK;
}

/* Bytes of one group's patterns in one block. */
static size_t pattern_unit(const struct espl_nm_layout *layout, const struct espl_nm_sizes *sizes)
{
    if (espl_nm_is_dense(layout)) {
        return 0;
    }
    return espl_nm_has_selectors(layout) ? ESPL_NM_QUAD * 2 * sizes->registers
                                         : ESPL_NM_QUAD * ESPL_NM_LANE_MASKS;
}

enum espl_status espl_nm_sizes_of(const struct espl_nm_layout *layout, struct espl_nm_sizes *sizes,
                                  struct espl_error *err)
{
    size_t units = 0;
    enum espl_status status = espl_nm_check_layout(layout, err);
    if (status != ESPL_OK) {
        return status;
    }
    memset(sizes, 0, sizeof *sizes);
    sizes->stripes = espl_ceil_div(layout->rows, ESPL_NM_STRIPE);
    sizes->blocks = espl_ceil_div(layout->cols, ESPL_NM_BLOCK);
    sizes->registers = espl_ceil_div(8u * (size_t)layout->n, layout->m);
    bool fits = true;
    if (espl_nm_has_selectors(layout)) {
        sizes->groups = espl_ceil_div(layout->rows, layout->v);
    } else {
        fits = espl_mul_size(sizes->stripes, ESPL_NM_STRIPE / layout->v, &sizes->groups);
    }
    fits = fits && espl_mul_size(sizes->groups, sizes->blocks, &units) &&
           espl_mul_size(units, pattern_unit(layout, sizes), &sizes->pattern_bytes) &&
           espl_mul_size(sizes->stripes, sizes->blocks, &units) &&
           espl_mul_size(units, ESPL_NM_STRIPE * ESPL_NM_QUAD * ESPL_NM_WORD * sizes->registers,
                         &sizes->value_bytes);
    return fits ? ESPL_OK
                : espl_fail(err, ESPL_E_UNSUPPORTED, "a packed matrix of %zu x %zu is too large",
                            layout->rows, layout->cols);
}

struct espl_nm_place espl_nm_place_of(unsigned m, size_t window)
{
    const size_t per_block = ESPL_NM_BLOCK / m;
    const size_t column = window % per_block * m;
    const struct espl_nm_place place = {.block = window / per_block,
                                        .lane = column % ESPL_NM_HALF / ESPL_NM_LANE_COLS,
                                        .index = column / ESPL_NM_HALF * (ESPL_NM_LANE_COLS / m) +
                                                 column % ESPL_NM_LANE_COLS / m};
    return place;
}

/* Byte of `values` that holds byte `at` of a row's stream in a block. */
size_t espl_nm_stream_at(const struct espl_nm_sizes *sizes, size_t row, size_t block, size_t lane,
                         size_t at)
{
    const size_t channel = row % ESPL_NM_STRIPE;
    const size_t tile = channel / 2 % 2;
    const size_t warp_lane = ESPL_NM_QUAD * (channel / 4 * 2 + channel % 2) + lane;
    const size_t word = at / ESPL_NM_WORD;
    const size_t unit = ESPL_NM_STRIPE * ESPL_NM_QUAD * ESPL_NM_WORD * sizes->registers;
    const size_t start = (row / ESPL_NM_STRIPE * sizes->blocks + block) * unit + word / 2 * 512;
    if (word + 1 == sizes->registers && word % 2 == 0) { /* the last word of an odd number */
        return start + 8 * warp_lane + 4 * tile + at % ESPL_NM_WORD;
    }
    return start + 16 * warp_lane + 8 * (word % 2) + 4 * tile + at % ESPL_NM_WORD;
}

size_t espl_nm_value_at(const struct espl_nm_layout *layout, const struct espl_nm_sizes *sizes,
                        size_t row, size_t window, unsigned slot)
{
    const struct espl_nm_place place = espl_nm_place_of(layout->m, window);
    return espl_nm_stream_at(sizes, row, place.block, place.lane, place.index * layout->n + slot);
}

/* Byte of `patterns` with the mask of columns that start `column` columns into a block's window. */
size_t espl_nm_mask_at(const struct espl_nm_layout *layout, const struct espl_nm_sizes *sizes,
                       size_t group, const struct espl_nm_place *place, size_t byte)
{
    const size_t index = place->index * layout->m / ESPL_NM_MASK_COLS + byte;
    const size_t channel = group % ESPL_NM_STRIPE;
    if (layout->v != 1) {
        const size_t unit = group * sizes->blocks + place->block;
        return (unit * ESPL_NM_QUAD + place->lane) * ESPL_NM_LANE_MASKS + index;
    }
    const size_t unit = group / ESPL_NM_STRIPE * sizes->blocks + place->block;
    const size_t warp_lane = ESPL_NM_QUAD * (channel / 4 * 2 + channel % 2) + place->lane;
    return unit * ESPL_NM_STRIPE * ESPL_NM_QUAD * ESPL_NM_LANE_MASKS + 8 * warp_lane +
           4 * (channel / 2 % 2) + index;
}

/* Nibble `at` of a lane's stream: byte of `patterns` and shift. */
size_t espl_nm_selector_at(const struct espl_nm_sizes *sizes, size_t group,
                           const struct espl_nm_place *place, size_t at, unsigned *shift)
{
    const size_t unit = group * sizes->blocks + place->block;
    *shift = at % 2 * 4;
    return (unit * ESPL_NM_QUAD + place->lane) * 2 * sizes->registers + at / 2;
}

/* Places of selectors count from the window of 8 (M = 16: of 16) that holds the window. */
unsigned espl_nm_selector_base(unsigned m, const struct espl_nm_place *place)
{
    return m == 4 ? (unsigned)(place->index % 2) * 4 : 0;
}

/* The places of a window in the order of its slots; false when they do not ascend inside it. */
static bool read_selectors(const struct espl_nm_matrix *matrix, const struct espl_nm_sizes *sizes,
                           size_t group, const struct espl_nm_place *place, unsigned *kept)
{
    const struct espl_nm_layout *layout = &matrix->layout;
    const unsigned base = espl_nm_selector_base(layout->m, place);
    unsigned next = base;
    *kept = 0;
    for (unsigned slot = 0; slot < layout->n; slot++) {
        unsigned shift = 0;
        const size_t at =
            espl_nm_selector_at(sizes, group, place, place->index * layout->n + slot, &shift);
        const unsigned position = (unsigned)matrix->patterns[at] >> shift & 15u;
        if (position < next || position >= base + layout->m) {
            return false;
        }
        *kept |= 1u << (position - base);
        next = position + 1;
    }
    return true;
}

/* false when a window does not have N places. */
bool espl_nm_read_kept(const struct espl_nm_matrix *matrix, const struct espl_nm_sizes *sizes,
                       size_t group, size_t window, unsigned *kept)
{
    const struct espl_nm_layout *layout = &matrix->layout;
    const struct espl_nm_place place = espl_nm_place_of(layout->m, window);
    if (espl_nm_is_dense(layout)) {
        *kept = (1u << layout->m) - 1;
        return true;
    }
    if (espl_nm_has_selectors(layout)) {
        return read_selectors(matrix, sizes, group, &place, kept);
    }
    *kept = matrix->patterns[espl_nm_mask_at(layout, sizes, group, &place, 0)];
    if (layout->m == 16) {
        *kept |= (unsigned)matrix->patterns[espl_nm_mask_at(layout, sizes, group, &place, 1)] << 8;
    } else if (layout->m == 4) {
        *kept = *kept >> (place.index % 2 * 4) & 15u;
    }
    return (unsigned)__builtin_popcount(*kept) == layout->n;
}

unsigned espl_nm_kept(const struct espl_nm_matrix *matrix, const struct espl_nm_sizes *sizes,
                      size_t group, size_t window)
{
    unsigned kept = 0;
    (void)espl_nm_read_kept(matrix, sizes, group, window, &kept);
    return kept;
}

/* Rows of a group that have room in `values`. */
size_t espl_nm_group_end(const struct espl_nm_layout *layout, const struct espl_nm_sizes *sizes,
                         size_t group)
{
    const size_t padded = sizes->stripes * ESPL_NM_STRIPE;
    const size_t first = group * layout->v;
    return padded - first < layout->v ? padded : first + layout->v;
}

/* N:M weights in fragment order: finding what rows share, and packing. */
#include "kernels/formats/nm_internal.h"

#include "core/checked.h"

#include <stdlib.h>
#include <string.h>

/* Columns of a window in which any of the rows [first, end) has a nonzero code. */
static unsigned used_places(const int8_t *codes, const struct espl_nm_layout *layout, size_t first,
                            size_t end, size_t window)
{
    const size_t start = window * layout->m;
    unsigned used = 0;
    for (size_t row = first; row < end; row++) {
        for (size_t p = 0; p < layout->m && start + p < layout->cols; p++) {
            used |= codes[row * layout->cols + start + p] != 0 ? 1u << p : 0;
        }
    }
    return used;
}

/* First window in which v rows from `first` on need more than N places; the number of windows when
 * there is none. */
static size_t crowded_window(const int8_t *codes, const struct espl_nm_layout *layout, size_t first,
                             unsigned v)
{
    const size_t end = layout->rows - first < v ? layout->rows : first + v;
    const size_t windows = espl_ceil_div(layout->cols, layout->m);
    for (size_t w = 0; w < windows; w++) {
        const unsigned used = used_places(codes, layout, first, end, w);
        if ((unsigned)__builtin_popcount(used) > layout->n) {
            return w;
        }
    }
    return windows;
}

static enum espl_status fail_crowded(const int8_t *codes, const struct espl_nm_layout *layout,
                                     size_t row, unsigned v, size_t window, struct espl_error *err)
{
    const size_t end = layout->rows - row < v ? layout->rows : row + v;
    const unsigned used = used_places(codes, layout, row, end, window);
    espl_fail(err, ESPL_E_KIND,
              "rows %zu to %zu have nonzero weights in %d of columns %zu to %zu, expected at most "
              "%u",
              row, end - 1, __builtin_popcount(used), window * layout->m,
              window * layout->m + layout->m - 1, layout->n);
    return v > 1 ? espl_hint(err, "their patterns differ: pack with a smaller V")
                 : espl_hint(err, "prune the matrix to %u of %u first", layout->n, layout->m);
}

/* ESPL_E_KIND when v rows somewhere do not share N places. */
static enum espl_status require_shared(const int8_t *codes, const struct espl_nm_layout *layout,
                                       unsigned v, struct espl_error *err)
{
    const size_t windows = espl_ceil_div(layout->cols, layout->m);
    for (size_t row = 0; row < layout->rows; row += v) {
        const size_t window = crowded_window(codes, layout, row, v);
        if (window < windows) {
            return fail_crowded(codes, layout, row, v, window, err);
        }
        if (layout->rows - row <= v) {
            break;
        }
    }
    return ESPL_OK;
}

enum espl_status espl_nm_detect(const int8_t *codes, const struct espl_nm_layout *layout,
                                unsigned *v, struct espl_error *err)
{
    struct espl_nm_layout known = *layout;
    known.v = 1;
    enum espl_status status = espl_nm_check_layout(&known, err);
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t i = 0; i < ESPL_NM_SHARED_COUNT; i++) {
        status = require_shared(codes, layout, espl_nm_shared_rows[i], err);
        if (status == ESPL_OK) {
            *v = espl_nm_shared_rows[i];
            espl_error_clear(err);
            return ESPL_OK;
        }
    }
    return status; /* that of V = 1 */
}

/* N places: those that are used and the lowest of the others. */
static unsigned fill_places(unsigned used, unsigned n)
{
    for (unsigned p = 0; (unsigned)__builtin_popcount(used) < n; p++) {
        used |= 1u << p;
    }
    return used;
}

static void write_kept(struct espl_nm_matrix *matrix, const struct espl_nm_sizes *sizes,
                       size_t group, size_t window, unsigned kept)
{
    const struct espl_nm_layout *layout = &matrix->layout;
    const struct espl_nm_place place = espl_nm_place_of(layout->m, window);
    if (espl_nm_is_dense(layout)) {
        return;
    }
    if (!espl_nm_has_selectors(layout)) {
        const unsigned shift = layout->m == 4 ? (unsigned)(place.index % 2) * 4 : 0;
        for (size_t byte = 0; byte < (layout->m == 16 ? 2 : 1); byte++) {
            matrix->patterns[espl_nm_mask_at(layout, sizes, group, &place, byte)] |=
                (uint8_t)(kept >> (8 * byte) << shift);
        }
        return;
    }
    unsigned slot = 0;
    for (unsigned p = 0; p < layout->m; p++) {
        unsigned shift = 0;
        if ((kept >> p & 1u) == 0) {
            continue;
        }
        const size_t at =
            espl_nm_selector_at(sizes, group, &place, place.index * layout->n + slot, &shift);
        matrix->patterns[at] |= (uint8_t)((p + espl_nm_selector_base(layout->m, &place)) << shift);
        slot++;
    }
}

static void write_group(const int8_t *codes, struct espl_nm_matrix *matrix,
                        const struct espl_nm_sizes *sizes, size_t group)
{
    const struct espl_nm_layout *layout = &matrix->layout;
    const size_t windows = espl_nm_windows(layout, sizes);
    const size_t first = group * layout->v;
    size_t end = espl_nm_group_end(layout, sizes, group);
    end = end < layout->rows ? end : layout->rows;
    for (size_t w = 0; w < windows; w++) {
        const unsigned kept = fill_places(used_places(codes, layout, first, end, w), layout->n);
        write_kept(matrix, sizes, group, w, kept);
        unsigned slot = 0;
        for (size_t p = 0; p < layout->m && w * layout->m + p < layout->cols; p++) {
            if ((kept >> p & 1u) == 0) {
                continue;
            }
            for (size_t row = first; row < end; row++) {
                matrix->values[espl_nm_value_at(layout, sizes, row, w, slot)] =
                    (uint8_t)codes[row * layout->cols + w * layout->m + p];
            }
            slot++;
        }
    }
}

enum espl_status espl_nm_encode(const int8_t *codes, const struct espl_nm_layout *layout,
                                struct espl_nm_matrix *matrix, struct espl_error *err)
{
    struct espl_nm_sizes sizes;
    memset(matrix, 0, sizeof *matrix);
    struct espl_nm_layout wanted = *layout;
    enum espl_status status =
        wanted.v == 0 ? espl_nm_detect(codes, layout, &wanted.v, err) : ESPL_OK;
    if (status == ESPL_OK) {
        status = espl_nm_sizes_of(&wanted, &sizes, err);
    }
    if (status == ESPL_OK) {
        status = require_shared(codes, &wanted, wanted.v, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    matrix->layout = wanted;
    matrix->pattern_bytes = sizes.pattern_bytes;
    matrix->value_bytes = sizes.value_bytes;
    matrix->values = calloc(sizes.value_bytes, 1);
    matrix->patterns = sizes.pattern_bytes > 0 ? calloc(sizes.pattern_bytes, 1) : NULL;
    if (matrix->values == NULL || (sizes.pattern_bytes > 0 && matrix->patterns == NULL)) {
        espl_nm_free(matrix);
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a packed matrix of %zu x %zu",
                         layout->rows, layout->cols);
    }
    for (size_t group = 0; group < sizes.groups; group++) {
        write_group(codes, matrix, &sizes, group);
    }
    return ESPL_OK;
}

void espl_nm_free(struct espl_nm_matrix *matrix)
{
    free(matrix->patterns);
    free(matrix->values);
    memset(matrix, 0, sizeof *matrix);
}

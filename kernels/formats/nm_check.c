/* N:M weights in fragment order: checks of what comes from a file, and decoding. */
#include "kernels/formats/nm_internal.h"

#include <string.h>

/* Beyond the matrix all values are zero. */
static enum espl_status check_padding(const struct espl_nm_matrix *matrix,
                                      const struct espl_nm_sizes *sizes, size_t row, size_t window,
                                      unsigned kept, struct espl_error *err)
{
    const struct espl_nm_layout *layout = &matrix->layout;
    unsigned slot = 0;
    for (size_t p = 0; p < layout->m; p++) {
        if ((kept >> p & 1u) == 0) {
            continue;
        }
        const size_t column = window * layout->m + p;
        if ((row >= layout->rows || column >= layout->cols) &&
            matrix->values[espl_nm_value_at(layout, sizes, row, window, slot)] != 0) {
            return espl_fail(err, ESPL_E_CORRUPT,
                             "a packed matrix of %zu x %zu has a weight at row %zu, column %zu",
                             layout->rows, layout->cols, row, column);
        }
        slot++;
    }
    return ESPL_OK;
}

/* M = 16 with odd N: half of a stream's last word is not used. */
static enum espl_status check_stream_end(const struct espl_nm_matrix *matrix,
                                         const struct espl_nm_sizes *sizes, struct espl_error *err)
{
    const struct espl_nm_layout *layout = &matrix->layout;
    const size_t used = 2u * ESPL_NM_LANE_COLS / layout->m * layout->n;
    for (size_t at = used; at < ESPL_NM_WORD * sizes->registers; at++) {
        for (size_t i = 0; i < sizes->blocks * ESPL_NM_QUAD; i++) {
            const struct espl_nm_place place = {i / ESPL_NM_QUAD, i % ESPL_NM_QUAD, 0};
            unsigned bits = 0;
            for (size_t row = 0; row < sizes->stripes * ESPL_NM_STRIPE; row++) {
                bits |= matrix->values[espl_nm_stream_at(sizes, row, place.block, place.lane, at)];
            }
            for (size_t g = 0; espl_nm_has_selectors(layout) && g < sizes->groups; g++) {
                unsigned shift = 0;
                const size_t byte = espl_nm_selector_at(sizes, g, &place, at, &shift);
                bits |= (unsigned)matrix->patterns[byte] >> shift & 15u;
            }
            if (bits != 0) {
                return espl_fail(err, ESPL_E_CORRUPT,
                                 "unused places of a packed matrix are not zero");
            }
        }
    }
    return ESPL_OK;
}

static enum espl_status check_group(const struct espl_nm_matrix *matrix,
                                    const struct espl_nm_sizes *sizes, size_t group,
                                    struct espl_error *err)
{
    const struct espl_nm_layout *layout = &matrix->layout;
    const size_t windows = espl_nm_windows(layout, sizes);
    enum espl_status status = ESPL_OK;
    for (size_t w = 0; w < windows; w++) {
        unsigned kept = 0;
        if (!espl_nm_read_kept(matrix, sizes, group, w, &kept)) {
            return espl_fail(err, ESPL_E_CORRUPT,
                             "the pattern of rows %zu on in window %zu is not %u of %u",
                             group * layout->v, w, layout->n, layout->m);
        }
        const size_t end = espl_nm_group_end(layout, sizes, group);
        for (size_t row = group * layout->v; status == ESPL_OK && row < end; row++) {
            status = check_padding(matrix, sizes, row, w, kept, err);
        }
    }
    return status;
}

enum espl_status espl_nm_check(const struct espl_nm_matrix *matrix, struct espl_error *err)
{
    struct espl_nm_sizes sizes;
    enum espl_status status = espl_nm_sizes_of(&matrix->layout, &sizes, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (matrix->pattern_bytes != sizes.pattern_bytes || matrix->value_bytes != sizes.value_bytes ||
        matrix->values == NULL || (matrix->patterns == NULL && sizes.pattern_bytes > 0)) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "a packed matrix has %zu bytes of patterns and %zu of values, expected "
                         "%zu and %zu",
                         matrix->pattern_bytes, matrix->value_bytes, sizes.pattern_bytes,
                         sizes.value_bytes);
    }
    for (size_t group = 0; status == ESPL_OK && group < sizes.groups; group++) {
        status = check_group(matrix, &sizes, group, err);
    }
    return status == ESPL_OK ? check_stream_end(matrix, &sizes, err) : status;
}

enum espl_status espl_nm_decode(const struct espl_nm_matrix *matrix, int8_t *codes,
                                struct espl_error *err)
{
    const struct espl_nm_layout *layout = &matrix->layout;
    struct espl_nm_sizes sizes;
    const enum espl_status status = espl_nm_check(matrix, err);
    if (status != ESPL_OK) {
        return status;
    }
    (void)espl_nm_sizes_of(layout, &sizes, err); /* the check has done it without an error */
    memset(codes, 0, layout->rows * layout->cols);
    for (size_t row = 0; row < layout->rows; row++) {
        for (size_t w = 0; w * layout->m < layout->cols; w++) {
            const unsigned kept = espl_nm_kept(matrix, &sizes, row / layout->v, w);
            unsigned slot = 0;
            for (size_t p = 0; p < layout->m && w * layout->m + p < layout->cols; p++) {
                if ((kept >> p & 1u) != 0) {
                    codes[row * layout->cols + w * layout->m + p] =
                        (int8_t)matrix->values[espl_nm_value_at(layout, &sizes, row, w, slot)];
                    slot++;
                }
            }
        }
    }
    return ESPL_OK;
}

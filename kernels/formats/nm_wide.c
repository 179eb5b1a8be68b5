#include "kernels/formats/nm_wide.h"

#include "core/checked.h"
#include "kernels/formats/nm_internal.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CHUNK = 32, EIGHT = 8, CORE = 128 /* bytes of a matrix of 8 x 16 */ };

bool espl_nm_wide_exists(const struct espl_nm_layout *layout)
{
    return layout->m == 8 && (layout->n == 2 || layout->n == 4) &&
           (layout->v == 16 || layout->v == 32 || layout->v == 64);
}

/* R = N: 16 R bytes a row, 8 R a group. */
size_t espl_nm_wide_unit(const struct espl_nm_layout *layout, size_t rows)
{
    return rows * 16 * layout->n + rows / layout->v * (size_t)8 * layout->n;
}

/* Byte of a unit with byte `at` of the stream of a row and lane. */
static size_t wide_at(const struct espl_nm_layout *layout, size_t row, size_t lane, size_t at)
{
    const size_t chunk = layout->v < MOST_CHUNK ? layout->v : MOST_CHUNK;
    const size_t of_lane = 2 * chunk / EIGHT; /* rows of a chunk whose outputs a lane gets */
    const size_t in_group = row % layout->v;
    const size_t in_chunk = in_group % chunk;
    const size_t eight = in_group / chunk * (chunk / EIGHT) + in_chunk % of_lane / 2;
    const size_t in_eight = in_chunk / of_lane * 2 + in_chunk % 2;
    const size_t word = at / ESPL_NM_WORD;
    const size_t group_bytes = (size_t)layout->v * 16 * layout->n;
    const size_t pair_bytes = (size_t)layout->v * 32;
    return row / layout->v * group_bytes + word / 2 * pair_bytes + eight * 2 * CORE +
           word % 2 * CORE + in_eight * 16 + lane * ESPL_NM_WORD + at % ESPL_NM_WORD;
}

static void fill_unit(const struct espl_nm_matrix *matrix, const struct espl_nm_sizes *sizes,
                      size_t rows, size_t first_row, size_t block, uint8_t *unit)
{
    const struct espl_nm_layout *layout = &matrix->layout;
    const size_t padded = sizes->stripes * ESPL_NM_STRIPE;
    for (size_t row = 0; row < rows && first_row + row < padded; row++) {
        for (size_t i = 0; i < (size_t)ESPL_NM_QUAD * ESPL_NM_WORD * layout->n; i++) {
            const size_t lane = i % ESPL_NM_QUAD;
            const size_t at = i / ESPL_NM_QUAD;
            unit[wide_at(layout, row, lane, at)] =
                matrix->values[espl_nm_stream_at(sizes, first_row + row, block, lane, at)];
        }
    }
    const size_t group_bytes = (size_t)8 * layout->n;
    uint8_t *selectors = unit + rows * 16 * layout->n;
    for (size_t i = 0; i < rows / layout->v; i++) {
        const size_t group = first_row / layout->v + i;
        if (group < sizes->groups) {
            memcpy(selectors + i * group_bytes,
                   matrix->patterns + (group * sizes->blocks + block) * group_bytes, group_bytes);
        }
    }
}

enum espl_status espl_nm_wide_encode(const struct espl_nm_matrix *matrix, size_t rows,
                                     uint8_t **units, size_t *bytes, struct espl_error *err)
{
    struct espl_nm_sizes sizes;
    const struct espl_nm_layout *layout = &matrix->layout;
    enum espl_status status = espl_nm_sizes_of(layout, &sizes, err);
    if (status == ESPL_OK && !espl_nm_wide_exists(layout)) {
        status = espl_fail(err, ESPL_E_UNSUPPORTED, "no wide order for %u of %u, V = %u", layout->n,
                           layout->m, layout->v);
    }
    if (status != ESPL_OK) {
        return status;
    }
    const size_t unit = espl_nm_wide_unit(layout, rows);
    const size_t row_blocks = espl_ceil_div(layout->rows, rows);
    *bytes = row_blocks * sizes.blocks * unit; /* at most 16 times the values of the first order */
    *units = calloc(*bytes, 1);
    if (*units == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a packed matrix of %zu x %zu",
                         layout->rows, layout->cols);
    }
    for (size_t i = 0; i < row_blocks * sizes.blocks; i++) {
        fill_unit(matrix, &sizes, rows, i / sizes.blocks * rows, i % sizes.blocks,
                  *units + i * unit);
    }
    return ESPL_OK;
}

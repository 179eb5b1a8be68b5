/* Pruning ops: statistics by column panels, scores and masks by rows. Same bits as the reference
 * for any thread count. */
#include "core/checked.h"
#include "kernels/backend_internal.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/vectormath.h"

#include <math.h>

/* Columns of a statistics panel: four cache lines of x, eight of sums. */
enum { PANEL_COLUMNS = 64 };

ESPL_CPU_CLONES
static void add_squares(const float *restrict x, double *restrict sums, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sums[i] += (double)x[i] * (double)x[i];
    }
}

enum espl_status espl_cpu_column_sumsq(struct espl_backend *backend, size_t tokens, size_t width,
                                       const float *x, double *sums, struct espl_error *err)
{
    (void)err;
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (width > PANEL_COLUMNS)
    for (size_t first = 0; first < width; first += PANEL_COLUMNS) {
        const size_t count = width - first < PANEL_COLUMNS ? width - first : PANEL_COLUMNS;
        for (size_t t = 0; t < tokens; t++) {
            add_squares(x + t * width + first, sums + first, count);
        }
    }
    return ESPL_OK;
}

ESPL_CPU_CLONES
static void score_row(const float *restrict w, const float *restrict norm, float *restrict score,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        score[i] = fabsf(w[i]) * norm[i];
    }
}

enum espl_status espl_cpu_wanda_score(struct espl_backend *backend,
                                      const struct espl_matrix_shape *shape, const float *w,
                                      const float *norm, float *score, struct espl_error *err)
{
    (void)err;
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (shape->rows > 1)
    for (size_t i = 0; i < shape->rows; i++) {
        score_row(w + i * shape->cols, norm, score + i * shape->cols, shape->cols);
    }
    return ESPL_OK;
}

/* Unsigned integer in the order of the float: -0 equals +0. */
static inline uint32_t ordered(float value)
{
    const uint32_t bits = espl_float_to_bits(value + 0.0F);
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

static inline void set_bit(uint8_t *mask, size_t column)
{
    mask[column / 8] = (uint8_t)(mask[column / 8] | (1u << (column % 8)));
}

/* The key at position `rank` (0-based) of the row in ascending order; *below = keys under it.
 * Radix selection: 11, 11 and 10 bits from the top, counting only the keys that match so far. */
static uint32_t select_key(const float *score, size_t count, size_t rank, size_t *below)
{
    enum { BINS = 2048 };
    static const unsigned shifts[] = {21, 10, 0};
    static const uint32_t digits[] = {0x7FFu, 0x7FFu, 0x3FFu};
    uint32_t bins[BINS];
    uint32_t prefix = 0;
    uint32_t prefix_mask = 0;
    size_t under = 0;
    for (size_t pass = 0; pass < 3; pass++) {
        memset(bins, 0, sizeof bins);
        for (size_t i = 0; i < count; i++) {
            const uint32_t key = ordered(score[i]);
            if ((key & prefix_mask) == prefix) {
                bins[(key >> shifts[pass]) & digits[pass]]++;
            }
        }
        uint32_t digit = 0;
        while (under + bins[digit] <= rank) {
            under += bins[digit];
            digit++;
        }
        prefix |= digit << shifts[pass];
        prefix_mask |= digits[pass] << shifts[pass];
    }
    *below = under;
    return prefix;
}

static void row_mask(const float *score, size_t cols, size_t prune, uint8_t *mask)
{
    memset(mask, 0, espl_mask_stride(cols));
    if (prune == cols) {
        return;
    }
    size_t below = 0;
    const uint32_t threshold = select_key(score, cols, prune, &below);
    size_t ties_removed =
        prune - below; /* of the keys equal to the threshold, the lowest columns */
    for (size_t j = 0; j < cols; j++) {
        const uint32_t key = ordered(score[j]);
        if (key == threshold && ties_removed > 0) {
            ties_removed--;
        } else if (key >= threshold) {
            set_bit(mask, j);
        }
    }
}

enum espl_status espl_cpu_row_mask(struct espl_backend *backend,
                                   const struct espl_matrix_shape *shape, const float *score,
                                   size_t prune, uint8_t *mask, struct espl_error *err)
{
    if (prune > shape->cols || shape->cols > UINT32_MAX) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "cannot remove %zu of %zu columns", prune,
                         shape->cols);
    }
    const size_t stride = espl_mask_stride(shape->cols);
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (shape->rows > 1)
    for (size_t i = 0; i < shape->rows; i++) {
        row_mask(score + i * shape->cols, shape->cols, prune, mask + i * stride);
    }
    return ESPL_OK;
}

/* Keeps the columns of a window that have at least m - n others under them. */
static inline void window_mask(const float *score, size_t first, size_t n, size_t m, uint8_t *mask)
{
    for (size_t i = 0; i < m; i++) {
        size_t under = 0;
        for (size_t j = 0; j < m; j++) {
            under += score[first + j] < score[first + i] ||
                     (j < i && !(score[first + j] > score[first + i]));
        }
        const size_t column = first + i;
        const unsigned keep = under >= m - n ? 1u : 0u;
        mask[column / 8] = (uint8_t)(mask[column / 8] | (keep << (column % 8)));
    }
}

/* All whole windows of a row; the first column after them comes back. The usual sizes are constants
 * to the compiler, which then unrolls the comparisons. */
static size_t nm_row(const float *score, size_t cols, size_t n, size_t m, uint8_t *mask)
{
    size_t first = 0;
    if (m == 4) {
        for (; first + 4 <= cols; first += 4) {
            window_mask(score, first, n, 4, mask);
        }
    } else if (m == 8) {
        for (; first + 8 <= cols; first += 8) {
            window_mask(score, first, n, 8, mask);
        }
    } else {
        for (; first + m <= cols; first += m) {
            window_mask(score, first, n, m, mask);
        }
    }
    return first;
}

enum espl_status espl_cpu_nm_mask(struct espl_backend *backend,
                                  const struct espl_matrix_shape *shape, const float *score,
                                  size_t n, size_t m, bool keep_tail, uint8_t *mask,
                                  struct espl_error *err)
{
    const enum espl_status status = espl_nm_mask_check(shape, n, m, keep_tail, err);
    if (status != ESPL_OK) {
        return status;
    }
    const size_t cols = shape->cols;
    const size_t stride = espl_mask_stride(cols);
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (shape->rows > 1)
    for (size_t i = 0; i < shape->rows; i++) {
        uint8_t *row = mask + i * stride;
        memset(row, 0, stride);
        for (size_t j = nm_row(score + i * cols, cols, n, m, row); j < cols; j++) {
            set_bit(row, j);
        }
    }
    return ESPL_OK;
}

ESPL_CPU_CLONES
static void apply_row(const uint8_t *restrict mask, float *restrict w, size_t cols)
{
    size_t j = 0;
    for (; j + 8 <= cols; j += 8) {
        const uint32_t bits = mask[j / 8];
        for (uint32_t b = 0; b < 8; b++) {
            w[j + b] = (bits >> b & 1u) != 0 ? w[j + b] : 0.0F;
        }
    }
    for (; j < cols; j++) {
        w[j] = (mask[j / 8] >> (j % 8) & 1) != 0 ? w[j] : 0.0F;
    }
}

enum espl_status espl_cpu_apply_mask(struct espl_backend *backend,
                                     const struct espl_matrix_shape *shape, const uint8_t *mask,
                                     float *w, struct espl_error *err)
{
    (void)err;
    const size_t cols = shape->cols;
    const size_t stride = espl_mask_stride(cols);
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (shape->rows > 1)
    for (size_t i = 0; i < shape->rows; i++) {
        apply_row(mask + i * stride, w + i * cols, cols);
    }
    return ESPL_OK;
}

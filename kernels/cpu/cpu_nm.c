/* Products with packed N:M weights: a stripe of rows is expanded once, all tokens are multiplied
 * with it. Stripes are independent, and sums are integers: any number of threads gives the same. */
#include "kernels/backend_internal.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/vectormath.h"
#include "kernels/nm_epilogue.h"

#include <string.h>

/* dense (16, cols) <- rows of a stripe; those beyond the matrix are not written. */
static void expand_stripe(const struct espl_nm_matrix *w, const struct espl_nm_sizes *sizes,
                          size_t first, size_t end, int8_t *dense)
{
    const struct espl_nm_layout *layout = &w->layout;
    memset(dense, 0, ESPL_NM_STRIPE * layout->cols);
    for (size_t window = 0; window * layout->m < layout->cols; window++) {
        for (size_t row = first; row < end; row++) {
            const unsigned kept = espl_nm_kept(w, sizes, row / layout->v, window);
            unsigned slot = 0;
            for (size_t p = 0; p < layout->m && window * layout->m + p < layout->cols; p++) {
                if ((kept >> p & 1u) != 0) {
                    dense[(row - first) * layout->cols + window * layout->m + p] =
                        (int8_t)w->values[espl_nm_value_at(layout, sizes, row, window, slot)];
                    slot++;
                }
            }
        }
    }
}

ESPL_CPU_CLONES
static int32_t dot(const int8_t *a, const int8_t *b, size_t count)
{
    int32_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += (int32_t)a[i] * (int32_t)b[i];
    }
    return sum;
}

enum espl_status espl_cpu_spmm_nm_int8(struct espl_backend *backend, const struct espl_nm_matrix *w,
                                       const int8_t *x, size_t tokens,
                                       const struct espl_nm_epilogue *epilogue, void *y,
                                       struct espl_error *err)
{
    struct espl_nm_sizes sizes;
    void *panels = NULL;
    const size_t rows = w->layout.rows;
    const size_t cols = w->layout.cols;
    enum espl_status status = espl_nm_sizes_of(&w->layout, &sizes, err);
    if (status == ESPL_OK) { /* one a stripe: a thread takes that of its stripe */
        status =
            espl_backend_scratch_array(backend, sizes.stripes * ESPL_NM_STRIPE, cols, &panels, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
#pragma omp parallel for num_threads(backend->threads) schedule(dynamic, 1)
    for (size_t stripe = 0; stripe < sizes.stripes; stripe++) {
        const size_t first = stripe * ESPL_NM_STRIPE;
        const size_t end = rows - first < ESPL_NM_STRIPE ? rows : first + ESPL_NM_STRIPE;
        int8_t *dense = (int8_t *)panels + first * cols;
        expand_stripe(w, &sizes, first, end, dense);
        for (size_t t = 0; t < tokens; t++) {
            for (size_t row = first; row < end; row++) {
                espl_nm_store(epilogue, rows, t, row,
                              dot(x + t * cols, dense + (row - first) * cols, cols), y);
            }
        }
    }
    return ESPL_OK;
}

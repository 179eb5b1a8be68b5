/* Reference product with packed N:M weights: it walks over the stored values one by one. */
#include "kernels/nm_epilogue.h"
#include "kernels/ref/ref_ops.h"

/* Sum of a token's products with the stored values of a row. */
static int32_t dot(const struct espl_nm_matrix *w, const struct espl_nm_sizes *sizes, size_t row,
                   const int8_t *x)
{
    const struct espl_nm_layout *layout = &w->layout;
    int32_t sum = 0;
    for (size_t window = 0; window * layout->m < layout->cols; window++) {
        const unsigned kept = espl_nm_kept(w, sizes, row / layout->v, window);
        unsigned slot = 0;
        for (unsigned p = 0; p < layout->m; p++) {
            const size_t column = window * layout->m + p;
            if ((kept >> p & 1u) == 0) {
                continue;
            }
            if (column < layout->cols) {
                const size_t at = espl_nm_value_at(layout, sizes, row, window, slot);
                sum += (int32_t)(int8_t)w->values[at] * x[column];
            }
            slot++;
        }
    }
    return sum;
}

enum espl_status espl_ref_spmm_nm_int8(struct espl_backend *backend, const struct espl_nm_matrix *w,
                                       const int8_t *x, size_t tokens,
                                       const struct espl_nm_epilogue *epilogue, void *y,
                                       struct espl_error *err)
{
    struct espl_nm_sizes sizes;
    (void)backend;
    const enum espl_status status = espl_nm_sizes_of(&w->layout, &sizes, err);
    for (size_t t = 0; status == ESPL_OK && t < tokens; t++) {
        for (size_t row = 0; row < w->layout.rows; row++) {
            espl_nm_store(epilogue, w->layout.rows, t, row,
                          dot(w, &sizes, row, x + t * w->layout.cols), y);
        }
    }
    return status;
}

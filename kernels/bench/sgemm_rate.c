/* The yardstick: what the linked BLAS does on one large product. */
#include "core/checked.h"
#include "kernels/backend_internal.h"
#include "kernels/bench/cases.h"

#include <cblas.h>
#include <omp.h>
#include <stdlib.h>

static double multiply_once(size_t n, const float *a, const float *b, float *c)
{
    const int order = (int)n;
    const double start = omp_get_wtime();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, order, order, order, 1.0F, a, order, b,
                order, 0.0F, c, order);
    return omp_get_wtime() - start;
}

enum espl_status espl_blas_sgemm_rate(unsigned threads, size_t n, unsigned repeats, double *flops,
                                      struct espl_error *err)
{
    size_t count = 0;
    size_t bytes = 0;
    int order = 0;
    if (n == 0 || !espl_size_to_int(n, &order) || !espl_mul_size(n, n, &count) ||
        !espl_mul_size(count, 3 * sizeof(float), &bytes)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "a product of order %zu cannot be measured", n);
    }
    float *a = malloc(bytes);
    if (a == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a product of order %zu", n);
    }
    float *b = a + count;
    float *c = b + count;
    for (size_t i = 0; i < 2 * count; i++) {
        a[i] = (float)(i % 251) * 0x1p-8F - 0.5F;
    }
    openblas_set_num_threads((int)threads);
    omp_set_num_threads((int)threads); /* what an OpenBLAS built on OpenMP goes by */
    double best = multiply_once(n, a, b, c);
    for (unsigned r = 0; r < repeats; r++) {
        const double seconds = multiply_once(n, a, b, c);
        best = seconds < best ? seconds : best;
    }
    espl_blas_make_single_threaded();
    free(a);
    *flops = 2.0 * (double)n * (double)n * (double)n / best;
    return ESPL_OK;
}

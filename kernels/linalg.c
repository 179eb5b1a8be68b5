/* Double precision linear algebra of second-order compression on OpenBLAS's BLAS and LAPACK. */
#include "espalier/linalg.h"

#include "core/checked.h"
#include "kernels/backend_internal.h"

#include <cblas.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* LAPACK's Fortran interface. Compilers pass the length of a character argument last, by value. */
void dpotrf_(const char *uplo, const int *n, double *a, const int *lda, int *info, size_t uplo_len);
void dpotri_(const char *uplo, const int *n, double *a, const int *lda, int *info, size_t uplo_len);

enum { ERROR_ROWS = 32, ERROR_COLUMNS = 256 };

/* Column-major "lower" is row-major "upper". Both triangles of one matrix are then U^T and U:
 * a = L L^T with L stored by columns is a = U^T U with U stored by rows. */
static const char UPPER_BY_ROWS[] = "L";

void espl_blas_use_one_thread(void)
{
    espl_blas_make_single_threaded();
}

static enum espl_status fail_too_large(size_t n, struct espl_error *err)
{
    return espl_fail(err, ESPL_E_UNSUPPORTED, "a matrix of order %zu is too large for LAPACK", n);
}

enum espl_status espl_cholesky_of_inverse(size_t n, double *a, int *info, struct espl_error *err)
{
    int order = 0;
    *info = 0;
    if (!espl_size_to_int(n, &order)) {
        return fail_too_large(n, err);
    }
    if (n == 0) {
        return ESPL_OK;
    }
    espl_blas_use_one_thread();
    dpotrf_(UPPER_BY_ROWS, &order, a, &order, info, 1);
    if (*info == 0) {
        dpotri_(UPPER_BY_ROWS, &order, a, &order, info, 1);
    }
    if (*info == 0) {
        dpotrf_(UPPER_BY_ROWS, &order, a, &order, info, 1);
    }
    if (*info < 0) {
        return espl_fail(err, ESPL_E_INTERNAL, "LAPACK refused argument %d of a factorisation",
                         -*info);
    }
    for (size_t r = 1; r < n; r++) {
        memset(a + r * n, 0, r * sizeof *a);
    }
    return ESPL_OK;
}

void espl_subtract_outer(size_t rows, size_t cols, const double *column, size_t column_stride,
                         const double *row, double *a, size_t lda)
{
    if (rows != 0 && cols != 0) {
        cblas_dger(CblasRowMajor, (int)rows, (int)cols, -1.0, column, (int)column_stride, row, 1, a,
                   (int)lda);
    }
}

void espl_subtract_product(size_t rows, size_t cols, size_t inner, const double *a, size_t lda,
                           const double *b, size_t ldb, double *c, size_t ldc)
{
    if (rows != 0 && cols != 0 && inner != 0) {
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)cols, (int)inner,
                    -1.0, a, (int)lda, b, (int)ldb, 1.0, c, (int)ldc);
    }
}

/* sum of d H d^T over some rows, H taken in panels of columns. product: (rows, ERROR_COLUMNS). */
static double error_of_rows(size_t rows, size_t n, const double *d, const double *h,
                            double *product)
{
    double sum = 0.0;
    for (size_t first = 0; first < n; first += ERROR_COLUMNS) {
        const size_t count = n - first < ERROR_COLUMNS ? n - first : ERROR_COLUMNS;
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)count, (int)n, 1.0,
                    d, (int)n, h + first, (int)n, 0.0, product, ERROR_COLUMNS);
        for (size_t r = 0; r < rows; r++) {
            sum += cblas_ddot((int)count, product + r * ERROR_COLUMNS, 1, d + r * n + first, 1);
        }
    }
    return sum;
}

enum espl_status espl_quadratic_error(size_t rows, size_t n, const double *d, const double *h,
                                      unsigned threads, double *sum, struct espl_error *err)
{
    int checked = 0;
    const size_t pieces = espl_ceil_div(rows, ERROR_ROWS);
    *sum = 0.0;
    if (!espl_size_to_int(n, &checked)) {
        return fail_too_large(n, err);
    }
    if (pieces == 0 || n == 0) {
        return ESPL_OK;
    }
    double *sums = calloc(pieces, sizeof *sums);
    double *products = malloc((size_t)threads * ERROR_ROWS * ERROR_COLUMNS * sizeof *products);
    if (sums == NULL || products == NULL) {
        free(sums);
        free(products);
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for an output error of %zu rows", rows);
    }
    espl_blas_use_one_thread();
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (pieces > 1)
    for (size_t p = 0; p < pieces; p++) {
        const size_t first = p * ERROR_ROWS;
        const size_t count = rows - first < ERROR_ROWS ? rows - first : ERROR_ROWS;
        sums[p] =
            error_of_rows(count, n, d + first * n, h,
                          products + (size_t)omp_get_thread_num() * ERROR_ROWS * ERROR_COLUMNS);
    }
    for (size_t p = 0; p < pieces; p++) {
        *sum += sums[p];
    }
    free(sums);
    free(products);
    return ESPL_OK;
}

/* Sums of x x^T: the upper triangle of the sum is cut into square tiles; a tile is one sgemm for
 * every run of tokens, added up in double. */
#include "core/checked.h"
#include "espalier/linalg.h"
#include "kernels/backend_internal.h"

#include <cblas.h>
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>

/* Runs of 512 tokens keep the float32 sums short; 128 columns give a matrix of 256 three tiles. */
enum { RUN_TOKENS = 512, TILE = 128 };

struct espl_hessian {
    size_t width;
    uint64_t windows;
    double *sum; /* (width, width); of tiles below the diagonal nothing is stored */
};

uint64_t espl_hessian_bytes(size_t width)
{
    size_t count = 0;
    size_t bytes = 0;
    return espl_mul_size(width, width, &count) && espl_mul_size(count, sizeof(double), &bytes)
               ? (uint64_t)bytes
               : UINT64_MAX;
}

enum espl_status espl_hessian_create(size_t width, struct espl_hessian **out,
                                     struct espl_error *err)
{
    int checked = 0;
    if (!espl_size_to_int(width, &checked)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "%zu channels are too many for BLAS", width);
    }
    const uint64_t bytes = espl_hessian_bytes(width);
    struct espl_hessian *hessian = calloc(1, sizeof *hessian);
    double *sum = bytes <= SIZE_MAX ? calloc(1, bytes != 0 ? (size_t)bytes : 1) : NULL;
    if (hessian == NULL || sum == NULL) {
        free(hessian);
        free(sum);
        return espl_fail(err, ESPL_E_NOMEM,
                         "out of memory for the Hessian of %zu channels (%" PRIu64 " bytes)", width,
                         bytes);
    }
    hessian->width = width;
    hessian->sum = sum;
    *out = hessian;
    return ESPL_OK;
}

void espl_hessian_destroy(struct espl_hessian *hessian)
{
    if (hessian != NULL) {
        free(hessian->sum);
        free(hessian);
    }
}

static void add_tile(struct espl_hessian *hessian, size_t row, size_t column, size_t windows,
                     size_t tokens, const float *x, float *product)
{
    const size_t width = hessian->width;
    const size_t rows = width - row < TILE ? width - row : TILE;
    const size_t columns = width - column < TILE ? width - column : TILE;
    for (size_t first = 0; first < windows * tokens;) {
        const size_t left = tokens - first % tokens; /* a run stays inside its window */
        const size_t count = left < RUN_TOKENS ? left : RUN_TOKENS;
        const float *run = x + first * width;
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)rows, (int)columns, (int)count,
                    1.0F, run + row, (int)width, run + column, (int)width, 0.0F, product, TILE);
        for (size_t r = 0; r < rows; r++) {
            double *sum = hessian->sum + (row + r) * width + column;
            for (size_t c = 0; c < columns; c++) {
                sum[c] += (double)product[r * TILE + c];
            }
        }
        first += count;
    }
}

/* Tile number p of the upper triangle, row by row. */
static void find_tile(size_t p, size_t side, size_t *row, size_t *column)
{
    size_t r = 0;
    while (p >= side - r) {
        p -= side - r;
        r++;
    }
    *row = r * TILE;
    *column = (r + p) * TILE;
}

static enum espl_status check_finite(const struct espl_hessian *hessian,
                                     struct espl_backend *backend, size_t windows, size_t tokens,
                                     const float *x, struct espl_error *err)
{
    size_t index = 0;
    const size_t count = windows * tokens * hessian->width;
    const enum espl_status status =
        espl_backend_ops(backend)->find_nonfinite(backend, count, x, &index, err);
    if (status != ESPL_OK || index == count) {
        return status;
    }
    const size_t token = index / hessian->width;
    return espl_fail(err, ESPL_E_NUMERIC,
                     "activation of window %" PRIu64 ", token %zu, channel %zu is not finite",
                     hessian->windows + token / tokens, token % tokens, index % hessian->width);
}

/* Squares of finite activations may leave float32. An entry off the diagonal is at most as large as
 * the larger of its two on the diagonal, so these are looked at alone. */
static enum espl_status check_overflow(const struct espl_hessian *hessian, size_t windows,
                                       size_t tokens, const float *x, struct espl_error *err)
{
    const size_t width = hessian->width;
    size_t channel = 0;
    while (channel < width && isfinite(hessian->sum[channel * width + channel])) {
        channel++;
    }
    if (channel == width) {
        return ESPL_OK;
    }
    size_t largest = 0;
    for (size_t token = 1; token < windows * tokens; token++) {
        if (fabsf(x[token * width + channel]) > fabsf(x[largest * width + channel])) {
            largest = token;
        }
    }
    return espl_fail(err, ESPL_E_NUMERIC,
                     "activation of window %" PRIu64
                     ", token %zu, channel %zu is %g: its square is too large for float32",
                     hessian->windows + largest / tokens, largest % tokens, channel,
                     (double)x[largest * width + channel]);
}

enum espl_status espl_hessian_add(struct espl_hessian *hessian, struct espl_backend *backend,
                                  size_t windows, size_t tokens, const float *x,
                                  struct espl_error *err)
{
    const unsigned threads = espl_backend_threads(backend);
    const size_t side = espl_ceil_div(hessian->width, TILE);
    const size_t tiles = side * (side + 1) / 2;
    const enum espl_status status = check_finite(hessian, backend, windows, tokens, x, err);
    if (status != ESPL_OK) {
        return status;
    }
    float *products = malloc((size_t)threads * TILE * TILE * sizeof *products);
    if (products == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %u tiles of a Hessian", threads);
    }
    espl_blas_use_one_thread();
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (tiles > 1)
    for (size_t p = 0; p < tiles; p++) {
        size_t row = 0;
        size_t column = 0;
        find_tile(p, side, &row, &column);
        add_tile(hessian, row, column, windows, tokens, x,
                 products + (size_t)omp_get_thread_num() * TILE * TILE);
    }
    free(products);
    const enum espl_status finite = check_overflow(hessian, windows, tokens, x, err);
    hessian->windows += windows;
    return finite;
}

size_t espl_hessian_width(const struct espl_hessian *hessian)
{
    return hessian->width;
}

uint64_t espl_hessian_windows(const struct espl_hessian *hessian)
{
    return hessian->windows;
}

static double factor_of(const struct espl_hessian *hessian)
{
    return hessian->windows == 0 ? 0.0 : 2.0 / (double)hessian->windows;
}

void espl_hessian_diagonal(const struct espl_hessian *hessian, double *diagonal)
{
    for (size_t c = 0; c < hessian->width; c++) {
        diagonal[c] = factor_of(hessian) * hessian->sum[c * hessian->width + c];
    }
}

void espl_hessian_matrix(const struct espl_hessian *hessian, const int32_t *order, double *full)
{
    const size_t width = hessian->width;
    const double factor = factor_of(hessian);
    for (size_t r = 0; r < width; r++) {
        const size_t from_row = order != NULL ? (size_t)order[r] : r;
        for (size_t c = 0; c < width; c++) {
            const size_t from_column = order != NULL ? (size_t)order[c] : c;
            const size_t low = from_row < from_column ? from_row : from_column;
            const size_t high = from_row < from_column ? from_column : from_row;
            full[r * width + c] = factor * hessian->sum[low * width + high];
        }
    }
}

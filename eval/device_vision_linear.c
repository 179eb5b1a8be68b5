#include "eval/device_vision_linear.h"

#include "core/checked.h"
#include "espalier/cuda_memory.h"
#include "espalier/cuda_vision.h"
#include "eval/device_memory.h"
#include "eval/forward_internal.h"
#include "model/element.h"

#include <stdlib.h>
#include <string.h>

enum {
    HALVES = 8,          /* of 16 bytes */
    MANY_TOKENS = 1024,  /* from here on a product takes longer than a launch */
    MOST_SMALL_ROWS = 64 /* of a tile of the kernels that read operands through the first cache */
};

size_t espl_device_vision_half_stride(size_t cols)
{
    return espl_ceil_div(cols, HALVES) * HALVES;
}

size_t espl_device_vision_code_stride(size_t cols)
{
    return espl_ceil_div(cols, ESPL_CUDA_NM_ALIGN) * ESPL_CUDA_NM_ALIGN;
}

/* A copy of values (rows, cols) as FP16 rows of `stride` values, zeros behind them. */
static enum espl_status upload_halves(const float *values, size_t rows, size_t cols, size_t stride,
                                      uint16_t **device, struct espl_error *err)
{
    struct espl_element_loss loss = {0};
    void *memory = NULL;
    uint16_t *halves = calloc(rows, stride * sizeof *halves);
    if (halves == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu x %zu halves", rows, stride);
    }
    for (size_t row = 0; row < rows; row++) {
        espl_element_from_f32(ESPL_DTYPE_F16, values + row * cols, cols, halves + row * stride,
                              &loss);
    }
    const enum espl_status status =
        loss.overflow == 0
            ? espl_device_upload(halves, rows * stride, sizeof *halves, &memory, err)
            : espl_fail(err, ESPL_E_NUMERIC, "%llu of %zu x %zu weights do not fit FP16",
                        (unsigned long long)loss.overflow, rows, cols);
    free(halves);
    *device = memory;
    return status;
}

void espl_device_vision_linear_free(struct espl_device_vision_linear *linear)
{
    espl_cuda_nm_destroy(linear->product);
    espl_cuda_nm_matrix_destroy(linear->matrix);
    espl_cuda_free(linear->scales);
    espl_cuda_free(linear->bias);
    espl_cuda_free(linear->halves);
    espl_cuda_free(linear->bytes);
    memset(linear, 0, sizeof *linear);
}

uint64_t espl_device_vision_linear_bytes(const struct espl_device_vision_linear *linear)
{
    return linear->library != NULL  ? (uint64_t)linear->out * linear->in
           : linear->matrix != NULL ? espl_cuda_nm_matrix_bytes(linear->matrix)
                                    : sizeof(uint16_t) * linear->out * linear->half_stride;
}

/* *changed <- the same codes with n of every m stored. */
static enum espl_status pack_again(const struct espl_nm_matrix *packed, unsigned n,
                                   struct espl_nm_matrix *changed, struct espl_error *err)
{
    struct espl_nm_layout layout = packed->layout;
    int8_t *codes = espl_eval_allocate(layout.rows, layout.cols, sizeof *codes);
    if (codes == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a matrix of %zu x %zu", layout.rows,
                         layout.cols);
    }
    layout.n = n;
    enum espl_status status = espl_nm_decode(packed, codes, err);
    if (status == ESPL_OK) {
        status = espl_nm_encode(codes, &layout, changed, err);
    }
    free(codes);
    return status;
}

enum espl_status espl_device_vision_linear_replace(struct espl_device_vision_linear *linear,
                                                   struct espl_cuda_nm_matrix *matrix,
                                                   size_t tokens, struct espl_error *err)
{
    struct espl_cuda_nm *product = NULL;
    const enum espl_status status = espl_cuda_nm_create(matrix, tokens, NULL, &product, err);
    if (status != ESPL_OK) {
        return status;
    }
    espl_cuda_nm_destroy(linear->product);
    espl_cuda_nm_matrix_destroy(linear->matrix);
    linear->product = product;
    linear->matrix = matrix;
    return ESPL_OK;
}

enum espl_status espl_device_vision_linear_pack(const struct espl_quant_linear *packed, unsigned n,
                                                size_t tokens,
                                                struct espl_device_vision_linear *linear,
                                                struct espl_error *err)
{
    struct espl_nm_matrix changed = {0};
    struct espl_cuda_nm_matrix *matrix = NULL;
    const struct espl_nm_matrix *from = packed->nm;
    enum espl_status status = ESPL_OK;
    memset(linear, 0, sizeof *linear);
    linear->out = packed->out;
    linear->in = packed->in;
    if (n > packed->nm->layout.n) {
        status = pack_again(packed->nm, n, &changed, err);
        from = &changed;
    }
    if (status == ESPL_OK) {
        status = espl_cuda_nm_matrix_create(from, &matrix, err);
    }
    if (status == ESPL_OK) {
        status = espl_device_vision_linear_replace(linear, matrix, tokens, err);
        if (status != ESPL_OK) {
            espl_cuda_nm_matrix_destroy(matrix);
        }
    }
    if (status == ESPL_OK) {
        status = espl_device_upload_floats(packed->scales, packed->out, &linear->scales, err);
    }
    if (status == ESPL_OK) {
        status = espl_device_upload_floats(packed->bias, packed->out, &linear->bias, err);
    }
    espl_nm_free(&changed);
    return status;
}

enum espl_status espl_device_vision_linear_halve(const float *weights, const float *bias,
                                                 size_t out, size_t in,
                                                 struct espl_device_vision_linear *linear,
                                                 struct espl_error *err)
{
    memset(linear, 0, sizeof *linear);
    linear->out = out;
    linear->in = in;
    linear->half_stride = espl_device_vision_half_stride(in);
    const enum espl_status status =
        upload_halves(weights, out, in, linear->half_stride, &linear->halves, err);
    return status == ESPL_OK ? espl_device_upload_floats(bias, out, &linear->bias, err) : status;
}

/* May a product start while the kernel before it ends? A launch saved is a microsecond. But long
 * products by the kernels of small tiles must not: started on multiprocessors that the kernel
 * before still uses, they took up to 10 % longer in passes that also have large tiles, which want
 * most of the memory that is the first cache otherwise (docs/kernels/md-spmm.md). */
static bool starts_early(const struct espl_cuda_nm *product, size_t tokens)
{
    return tokens < MANY_TOKENS || espl_cuda_nm_chosen(product).tile_rows > MOST_SMALL_ROWS;
}

static enum espl_status run_by_library(const struct espl_device_vision_linear *linear,
                                       const int8_t *codes, const float *scales, size_t tokens,
                                       uint16_t *y, void *stream, struct espl_error *err)
{
    const struct espl_cuda_vision_sums sums = {.sums = linear->sums,
                                               .rows = tokens,
                                               .width = linear->out,
                                               .column_scales = linear->scales,
                                               .row_scales = scales,
                                               .bias = linear->bias,
                                               .y = y};
    const enum espl_status status = espl_cuda_blaslt_run(
        linear->library, linear->algorithm, linear->bytes, codes, linear->sums, stream, err);
    return status == ESPL_OK ? espl_cuda_vision_scale(&sums, stream, err) : status;
}

enum espl_status espl_device_vision_linear_run(const struct espl_device_vision_linear *linear,
                                               const int8_t *codes, const float *scales,
                                               size_t tokens, uint16_t *y, void *stream,
                                               struct espl_error *err)
{
    if (linear->library != NULL) {
        return run_by_library(linear, codes, scales, tokens, y, stream, err);
    }
    const struct espl_cuda_nm_operands operands = {
        .x = codes,
        .x_stride = espl_device_vision_code_stride(linear->in),
        .y = y,
        .y_stride = linear->out,
        .tokens = tokens,
        .epilogue = {.output = ESPL_NM_FP16,
                     .activation = ESPL_NM_LINEAR,
                     .row_scales = linear->scales,
                     .token_scales = scales,
                     .bias = linear->bias},
    };
    return espl_cuda_nm_run(linear->product, NULL, &operands, starts_early(linear->product, tokens),
                            stream, err);
}

enum espl_status espl_device_vision_linear_multiply(const struct espl_device_vision_linear *linear,
                                                    struct espl_cuda_blas *blas, const uint16_t *x,
                                                    size_t x_stride, size_t tokens,
                                                    bool float_result, void *y, void *stream,
                                                    struct espl_error *err)
{
    const struct espl_cuda_blas_product product = {
        .x = x,
        .w = linear->halves,
        .y = y,
        .tokens = tokens,
        .in = linear->in,
        .out = linear->out,
        .x_stride = x_stride,
        .w_stride = linear->half_stride,
        .y_stride = linear->out,
        .batch = 1,
        .scale = 1.0F,
        .float_result = float_result,
    };
    return espl_cuda_blas_run(blas, &product, stream, err);
}

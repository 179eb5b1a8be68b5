#include "kernels/cuda_product.h"

#include "core/codes.h"
#include "espalier/cuda_memory.h"
#include "espalier/kernels.h"
#include "kernels/cuda_device.h"
#include "kernels/iebme_fixture.h"

#include <stdlib.h>

enum { Y_PAD = 3 };

size_t cuda_product_bytes(const struct cuda_product *p)
{
    return p->tokens * p->operands.y_stride * sizeof *p->y;
}

/* With all scales 1: the backend's floats hold these integers exactly, since cols * 8 * 8 is below
 * 2^24. */
void cuda_product_compute(struct cuda_product *p)
{
    struct espl_error err;
    struct espl_backend *ref = NULL;
    const struct espl_quant_shape shape = {p->tokens, p->cols, p->rows, 0, 0, 1, 4, 4};
    uint8_t *packed = malloc(p->rows * espl_codes_stride(p->cols, 4));
    float *ones = malloc((p->rows + p->tokens) * sizeof *ones);
    float *y = malloc(p->tokens * p->rows * sizeof *y);
    assert_non_null(packed);
    assert_non_null(ones);
    assert_non_null(y);
    for (size_t i = 0; i < p->rows + p->tokens; i++) {
        ones[i] = 1.0F;
    }
    espl_codes_pack(p->codes, p->rows, p->cols, 4, packed);
    cuda_check(espl_backend_open("ref", 1, &ref, &err), &err);
    const struct espl_quant_activations a = {p->x, ones, NULL, NULL};
    const struct espl_quant_weights w = {packed, ones, NULL, NULL, NULL};
    cuda_check(espl_backend_ops(ref)->gemm_w4a4(ref, &shape, &a, &w, y, &err), &err);
    for (size_t i = 0; i < p->tokens * p->rows; i++) {
        p->expected[i] = (int32_t)y[i];
    }
    espl_backend_close(ref);
    free(packed);
    free(ones);
    free(y);
}

static void upload_activations(struct cuda_product *p)
{
    struct espl_error err;
    void *codes = NULL;
    cuda_check(espl_cuda_alloc(p->tokens * p->cols, &codes, &err), &err);
    cuda_check(espl_cuda_alloc(espl_cuda_activation_bytes(p->tokens, p->cols), &p->device_x, &err),
               &err);
    cuda_check(espl_cuda_upload(codes, p->x, p->tokens * p->cols, &err), &err);
    cuda_check(espl_cuda_pack_activations(codes, p->tokens, p->cols, p->device_x, NULL, &err),
               &err);
    cuda_check(espl_cuda_synchronize(&err), &err);
    espl_cuda_free(codes);
    p->operands.x = p->device_x;
}

void cuda_product_make(struct espl_rng *rng, size_t rows, size_t cols, size_t tokens, unsigned bits,
                       double sparsity, struct cuda_product *p)
{
    struct espl_error err;
    *p = (struct cuda_product){.rows = rows, .cols = cols, .tokens = tokens};
    p->codes = fixture_codes(rng, rows, cols, bits, sparsity);
    p->x = fixture_codes(rng, tokens, cols, 4, 0.1);
    p->expected = malloc(tokens * rows * sizeof *p->expected);
    p->y = malloc(tokens * (rows + Y_PAD) * sizeof *p->y);
    assert_non_null(p->expected);
    assert_non_null(p->y);
    cuda_product_compute(p);
    cuda_check(espl_cuda_alloc(tokens * (rows + Y_PAD) * sizeof *p->y, &p->device_y, &err), &err);
    p->operands = (struct espl_cuda_spmm_operands){
        .y = p->device_y, .y_stride = rows + Y_PAD, .tokens = tokens};
    upload_activations(p);
}

void cuda_product_free(struct cuda_product *p)
{
    free(p->codes);
    free(p->x);
    free(p->expected);
    free(p->y);
    espl_cuda_free(p->device_x);
    espl_cuda_free(p->device_y);
}

void cuda_product_expect(const struct cuda_product *p, size_t tokens, const char *what)
{
    for (size_t t = 0; t < p->tokens; t++) {
        for (size_t r = 0; r < p->operands.y_stride; r++) {
            const int32_t got = p->y[t * p->operands.y_stride + r];
            const int32_t wanted =
                t < tokens && r < p->rows ? p->expected[t * p->rows + r] : CUDA_POISON_WORD;
            if (got != wanted) {
                fail_msg("%s, %zu x %zu, %zu tokens: y[%zu][%zu] is %d, not %d", what, p->rows,
                         p->cols, tokens, t, r, got, wanted);
            }
        }
    }
}

void cuda_product_run(struct cuda_product *p, const struct espl_cuda_spmm *spmm, size_t tokens,
                      const char *what)
{
    struct espl_error err;
    p->operands.tokens = tokens;
    cuda_check(espl_cuda_fill(p->device_y, CUDA_POISON, cuda_product_bytes(p), &err), &err);
    cuda_check(espl_cuda_spmm_run(spmm, NULL, &p->operands, false, NULL, &err), &err);
    cuda_check(espl_cuda_download(p->y, p->device_y, cuda_product_bytes(p), &err), &err);
    cuda_product_expect(p, tokens, what);
}

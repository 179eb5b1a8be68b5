#include "kernels/cuda_nm_product.h"

#include "espalier/cuda_memory.h"
#include "espalier/kernels.h"
#include "kernels/cuda_arrays.h"
#include "kernels/cuda_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    Y_PAD = 4,
    WIDE_Y_PAD = 16,
    MUCH = 40000000 /* products of codes */
};

void nm_product_upload(struct espl_rng *rng, struct nm_product *p)
{
    const size_t cols = p->packed.layout.cols;
    const size_t stride = (cols + 15) / 16 * 16 + (cols % 3 == 0 ? 16 : 0);
    int8_t *rows = nm_fixture_bytes(rng, p->tokens * stride, NM_FULL_RANGE);
    for (size_t t = 0; t < p->tokens; t++) {
        memcpy(rows + t * stride, p->x + t * cols, cols);
    }
    p->device_x = cuda_array(rows, p->tokens * stride);
    p->operands.x = p->device_x;
    p->operands.x_stride = stride;
    free(rows);
}

static void make_scales(struct espl_rng *rng, struct nm_product *p)
{
    const size_t rows = p->packed.layout.rows;
    const size_t padded = (rows + 3) / 4 * 4;
    p->floats = calloc(2 * padded + p->tokens, sizeof *p->floats);
    assert_non_null(p->floats);
    for (size_t i = 0; i < 2 * padded + p->tokens; i++) {
        const float unit = (float)espl_rng_unit(rng);
        p->floats[i] = i < padded ? unit * 1e-3F : i < 2 * padded ? unit * 8.0F - 4.0F : unit;
    }
    p->device_floats = cuda_array(p->floats, (2 * padded + p->tokens) * sizeof *p->floats);
}

/* What lies between rows of y: nothing, as much as the kernels of large products can take, or less.
 */
static size_t y_pad(size_t rows, size_t tokens)
{
    return rows % 3 != 0 ? 0 : rows % 16 == 0 && tokens > 20 ? WIDE_Y_PAD : Y_PAD;
}

void nm_product_make(struct espl_rng *rng, const struct espl_nm_layout *layout, size_t tokens,
                     enum nm_fixture_fill fill, struct nm_product *p)
{
    struct espl_error err;
    *p = (struct nm_product){.tokens = tokens};
    int8_t *codes = nm_fixture_codes(rng, layout, fill);
    nm_fixture_encode(codes, layout, &p->packed);
    cuda_check(espl_cuda_nm_matrix_create(&p->packed, &p->matrix, &err), &err);
    p->x = nm_fixture_bytes(rng, tokens * layout->cols, fill);
    p->operands.tokens = tokens;
    p->operands.y_stride = layout->rows + y_pad(layout->rows, tokens);
    p->y_bytes = tokens * p->operands.y_stride * sizeof(int32_t);
    p->y = malloc(p->y_bytes);
    p->expected = malloc(p->y_bytes);
    assert_non_null(p->y);
    assert_non_null(p->expected);
    cuda_check(espl_cuda_alloc(p->y_bytes, &p->device_y, &err), &err);
    p->operands.y = p->device_y;
    nm_product_upload(rng, p);
    make_scales(rng, p);
    free(codes);
}

void nm_product_free(struct nm_product *p)
{
    espl_nm_free(&p->packed);
    espl_cuda_nm_matrix_destroy(p->matrix);
    free(p->x);
    free(p->floats);
    free(p->y);
    free(p->expected);
    espl_cuda_free(p->device_x);
    espl_cuda_free(p->device_y);
    espl_cuda_free(p->device_floats);
}

/* Outputs of ref, spread over the strides of y and poisoned elsewhere. Where it would take seconds,
 * those of the CPU's kernels, which test_nm_spmm.c compares with ref. */
void nm_product_expect(struct nm_product *p, enum espl_nm_output output,
                       enum espl_nm_activation what, bool all_terms)
{
    struct espl_error err;
    struct espl_backend *ref = NULL;
    const size_t rows = p->packed.layout.rows;
    const size_t padded = (rows + 3) / 4 * 4;
    const size_t bytes = espl_nm_output_bytes(output);
    const bool is_much = p->tokens * rows * p->packed.layout.cols > MUCH;
    uint8_t *dense = malloc(p->tokens * rows * bytes);
    assert_non_null(dense);
    struct espl_nm_epilogue epilogue = {output,
                                        what,
                                        p->floats,
                                        all_terms ? p->floats + 2 * padded : NULL,
                                        all_terms ? p->floats + padded : NULL,
                                        11.0F};
    cuda_check(espl_backend_open(is_much ? "cpu" : "ref", is_much ? 4 : 1, &ref, &err), &err);
    cuda_check(espl_backend_ops(ref)->spmm_nm_int8(ref, &p->packed, p->x, p->tokens, &epilogue,
                                                   dense, &err),
               &err);
    espl_backend_close(ref);
    memset(p->expected, NM_PRODUCT_POISON, p->y_bytes);
    for (size_t t = 0; t < p->tokens; t++) {
        memcpy(p->expected + t * p->operands.y_stride * bytes, dense + t * rows * bytes,
               rows * bytes);
    }
    free(dense);
    float *on_device = p->device_floats;
    epilogue.row_scales = on_device;
    epilogue.token_scales = all_terms ? on_device + 2 * padded : NULL;
    epilogue.bias = all_terms ? on_device + padded : NULL;
    p->operands.epilogue = epilogue;
}

/* An element of y as an integer that counts steps of its type. */
static int step_of(enum espl_nm_output output, const uint8_t *y, size_t i)
{
    if (output == ESPL_NM_FP16) {
        uint16_t half = 0;
        memcpy(&half, y + 2 * i, 2);
        return (half & 0x8000) != 0 ? -(half & 0x7FFF) : half;
    }
    return ((const int8_t *)y)[i];
}

void nm_product_compare(const struct nm_product *p, const uint8_t *y, const char *what)
{
    const struct espl_nm_layout *layout = &p->packed.layout;
    const enum espl_nm_output output = p->operands.epilogue.output;
    const size_t bytes = espl_nm_output_bytes(output);
    const bool steps = p->operands.epilogue.activation == ESPL_NM_GELU && bytes < 4;
    if (memcmp(y, p->expected, p->y_bytes) == 0) {
        return;
    }
    for (size_t i = 0; i < p->y_bytes / bytes; i++) {
        const bool same = memcmp(y + i * bytes, p->expected + i * bytes, bytes) == 0;
        if (!same &&
            !(steps && abs(step_of(output, y, i) - step_of(output, p->expected, i)) <= 1)) {
            fail_msg("%s: %u:%u V=%u, %zu x %zu, %zu tokens, output %d: element %zu of row %zu is "
                     "wrong",
                     what, layout->n, layout->m, layout->v, layout->rows, layout->cols, p->tokens,
                     (int)output, i % p->operands.y_stride, i / p->operands.y_stride);
        }
    }
}

void nm_product_run(struct nm_product *p, const struct espl_cuda_nm_choice *wanted, bool overlap)
{
    struct espl_error err;
    struct espl_cuda_nm *nm = NULL;
    char what[80];
    cuda_check(espl_cuda_nm_create(p->matrix, p->tokens, wanted, &nm, &err), &err);
    const struct espl_cuda_nm_choice c = espl_cuda_nm_chosen(nm);
    cuda_check(espl_cuda_fill(p->device_y, NM_PRODUCT_POISON, p->y_bytes, &err), &err);
    cuda_check(espl_cuda_nm_run(nm, NULL, &p->operands, overlap, NULL, &err), &err);
    cuda_check(espl_cuda_download(p->y, p->device_y, p->y_bytes, &err), &err);
    (void)snprintf(what, sizeof what, "tile %ux%u, %u splits, %u tiles", c.tile_tokens, c.tile_rows,
                   c.splits, c.tiles);
    nm_product_compare(p, p->y, what);
    espl_cuda_nm_destroy(nm);
}

void nm_product_run_all(struct nm_product *p)
{
    struct espl_cuda_nm_choice choices[NM_PRODUCT_CHOICES];
    const size_t count = espl_cuda_nm_choices(p->matrix, choices, NM_PRODUCT_CHOICES);
    assert_in_range(count, 1, NM_PRODUCT_CHOICES);
    nm_product_run(p, NULL, false);
    for (size_t i = 0; i < count; i++) {
        if (!cuda_small() || i % 7 == 0 || i + 1 == count) {
            nm_product_run(p, &choices[i], i % 2 != 0);
        }
    }
}

bool nm_product_has(const struct nm_product *p, const struct espl_cuda_nm_choice *wanted)
{
    struct espl_cuda_nm_choice choices[NM_PRODUCT_CHOICES];
    const size_t count = espl_cuda_nm_choices(p->matrix, choices, NM_PRODUCT_CHOICES);
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&choices[i], wanted, sizeof *wanted) == 0) {
            return true;
        }
    }
    return false;
}

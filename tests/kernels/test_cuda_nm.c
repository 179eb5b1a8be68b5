/* The N:M kernels on the CUDA device against the reference backend: every N, M and V, tails, cuts
 * of the work that the rule would not choose, all outputs. Skipped on machines without a CUDA
 * device. */
#include "espalier/cuda_memory.h"
#include "espalier/cuda_vision.h"
#include "kernels/cuda_arrays.h"
#include "kernels/cuda_device.h"
#include "kernels/cuda_nm_product.h"

#include <string.h>

static const unsigned shared[] = {1, 8, 16, 32, 64};

static void test_sums__all_patterns_and_tails(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{1, 1, 1},      {16, 128, 16}, {64, 256, 33},
                                       {100, 391, 70}, {131, 72, 18}, {208, 520, 150}};
    static const unsigned windows[] = {8, 4, 16};
    struct espl_rng rng = espl_rng_stream(51, "cuda-nm", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (size_t k = 0; k < 15; k++) {
            const unsigned m = windows[k % 3];
            if (cuda_small() && (i % 3 != 2 || m != 8)) {
                continue;
            }
            for (unsigned n = 1; n <= m; n += m == 16 ? 5 : 1) {
                struct nm_product p;
                const struct espl_nm_layout layout = {shapes[i][0], shapes[i][1], n, m,
                                                      shared[k / 3]};
                nm_product_make(&rng, &layout, shapes[i][2], n % 2 == 0 ? NM_SPARSE : NM_FULL_RANGE,
                                &p);
                nm_product_expect(&p, ESPL_NM_INT32, ESPL_NM_LINEAR, false);
                nm_product_run_all(&p);
                nm_product_free(&p);
            }
        }
    }
}

static void test_sums__extremes(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(52, "cuda-nm", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (unsigned n = 1; n <= 8; n++) {
        struct nm_product p;
        const size_t cols = cuda_small() ? 512 : 4096;
        const struct espl_nm_layout layout = {48, cols, n, 8, n % 2 == 0 ? 16 : 1};
        nm_product_make(&rng, &layout, 20, NM_EXTREME, &p);
        nm_product_expect(&p, ESPL_NM_INT32, ESPL_NM_LINEAR, false);
        nm_product_run_all(&p);
        nm_product_free(&p);
    }
}

/* As many columns as there may be, every product 128 x 128. */
static void test_sums__most_columns(void **state)
{
    (void)state;
    struct espl_error err;
    struct nm_product p;
    struct espl_rng rng = espl_rng_stream(53, "cuda-nm", 0);
    const struct espl_nm_layout layout = {16, ESPL_NM_MAX_COLS, 8, 8, 64};
    if (!cuda_has_device() || cuda_small()) {
        skip();
    }
    nm_product_make(&rng, &layout, 16, NM_EXTREME, &p);
    memset(p.packed.values, 0x80, p.packed.value_bytes);
    struct espl_nm_sizes sizes;
    cuda_check(espl_nm_sizes_of(&layout, &sizes, &err), &err);
    for (size_t row = 0; row < 16; row++) { /* the one column beyond the matrix */
        p.packed.values[espl_nm_value_at(&layout, &sizes, row, 131071 / 8, 7)] = 0;
    }
    memset(p.x, 0x80, 16 * layout.cols);
    espl_cuda_nm_matrix_destroy(p.matrix);
    cuda_check(espl_cuda_nm_matrix_create(&p.packed, &p.matrix, &err), &err);
    espl_cuda_free(p.device_x);
    nm_product_upload(&rng, &p);
    nm_product_expect(&p, ESPL_NM_INT32, ESPL_NM_LINEAR, false);
    int32_t first = 0;
    memcpy(&first, p.expected, sizeof first);
    assert_int_equal(first, 2147467264);
    nm_product_run_all(&p);
    nm_product_free(&p);
}

static void run_epilogues(struct nm_product *p)
{
    for (unsigned k = 0; k < 12; k++) {
        nm_product_expect(p, k % 2 == 0 ? ESPL_NM_FP16 : ESPL_NM_INT8,
                          (enum espl_nm_activation)(k / 2 % 3), k / 6 == 0);
        nm_product_run(p, NULL, k % 4 == 0);
        if (k < 2) {
            nm_product_run_all(p);
        }
    }
}

static void test_outputs__every_epilogue(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{64, 256, 33}, {101, 200, 17}, {384, 768, 20}};
    struct espl_rng rng = espl_rng_stream(54, "cuda-nm", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < (cuda_small() ? 2 : sizeof shapes / sizeof shapes[0]); i++) {
        for (unsigned n = 1; n <= 8; n++) {
            struct nm_product p;
            const struct espl_nm_layout layout = {shapes[i][0], shapes[i][1], n, 8,
                                                  shared[(i + n) % 5]};
            nm_product_make(&rng, &layout, shapes[i][2], NM_FULL_RANGE, &p);
            run_epilogues(&p);
            nm_product_free(&p);
        }
    }
}

/* Sums of a dense product by a library, scaled by the kernel of image models: the bits of a
 * product.
 */
static void test_outputs__of_scaled_sums(void **state)
{
    (void)state;
    static const size_t shapes[][2] = {{8, 1}, {40, 13}, {1600, 5}, {8, 1500}}; /* rows, tokens */
    struct espl_rng rng = espl_rng_stream(58, "cuda-nm", 0);
    struct espl_error err;
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < 2 * (sizeof shapes / sizeof shapes[0]); i++) {
        const struct espl_nm_layout layout = {shapes[i / 2][0], 96, 8, 8, 64};
        struct nm_product p;
        nm_product_make(&rng, &layout, shapes[i / 2][1], NM_FULL_RANGE, &p);
        nm_product_expect(&p, ESPL_NM_INT32, ESPL_NM_LINEAR, false);
        int32_t *sums = cuda_array(p.expected, p.y_bytes);
        nm_product_expect(&p, ESPL_NM_FP16, ESPL_NM_LINEAR, true);
        const float *terms = p.device_floats;
        const struct espl_cuda_vision_sums scaled = {
            .sums = sums,
            .rows = p.tokens,
            .width = layout.rows,
            .column_scales = terms,
            .row_scales = p.operands.epilogue.token_scales,
            .bias = i % 2 == 0 ? p.operands.epilogue.bias : NULL,
            .y = p.device_y,
        };
        if (i % 2 != 0) { /* without a bias: one of zeros */
            memset(p.floats + layout.rows, 0, layout.rows * sizeof *p.floats);
            nm_product_expect(&p, ESPL_NM_FP16, ESPL_NM_LINEAR, true);
        }
        cuda_check(espl_cuda_fill(p.device_y, NM_PRODUCT_POISON, p.y_bytes, &err), &err);
        cuda_check(espl_cuda_vision_scale(&scaled, NULL, &err), &err);
        cuda_check(espl_cuda_download(p.y, p.device_y, p.y_bytes, &err), &err);
        nm_product_compare(&p, p.y, "scaled sums");
        espl_cuda_free(sums);
        nm_product_free(&p);
    }
    const struct espl_cuda_vision_sums uneven = {.rows = 1, .width = 12};
    assert_int_equal(espl_cuda_vision_scale(&uneven, NULL, &err), ESPL_E_UNSUPPORTED);
}

static void test_operands__refused(void **state)
{
    (void)state;
    struct espl_error err;
    struct nm_product p;
    struct espl_cuda_nm *nm = NULL;
    struct espl_rng rng = espl_rng_stream(55, "cuda-nm", 0);
    const struct espl_nm_layout layout = {64, 250, 2, 8, 16};
    if (!cuda_has_device()) {
        skip();
    }
    nm_product_make(&rng, &layout, 16, NM_FULL_RANGE, &p);
    nm_product_expect(&p, ESPL_NM_FP16, ESPL_NM_LINEAR, true);
    cuda_check(espl_cuda_nm_create(p.matrix, 16, NULL, &nm, &err), &err);
    for (unsigned k = 0; k < 8; k++) {
        struct espl_cuda_nm_operands wrong = p.operands;
        wrong.tokens = k == 0 ? 0 : k == 1 ? 17 : wrong.tokens;
        wrong.x_stride = k == 2 ? 240 : k == 3 ? 264 : wrong.x_stride;
        wrong.y_stride = k == 4 ? 63 : wrong.y_stride;
        wrong.x += k == 5 ? 8 : 0;
        wrong.y = k == 6 ? (uint8_t *)wrong.y + 1 : wrong.y;
        wrong.epilogue.row_scales = k == 7 ? NULL : wrong.epilogue.row_scales;
        assert_int_equal(espl_cuda_nm_run(nm, NULL, &wrong, false, NULL, &err), ESPL_E_UNSUPPORTED);
    }
    espl_cuda_nm_destroy(nm);
    static const struct espl_cuda_nm_choice wrong[] = {
        {16, 32, 3, 1}, {16, 32, 8, 2}, {48, 32, 1, 1}, {16, 24, 1, 1}, {16, 32, 0, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(espl_cuda_nm_create(p.matrix, 16, &wrong[i], &nm, &err),
                         ESPL_E_UNSUPPORTED);
    }
    nm_product_free(&p);
}

static void test_overlap__waits_for_activations(void **state)
{
    (void)state;
    const size_t rounds = cuda_launches();
    struct espl_error err;
    struct nm_product first;
    struct nm_product second;
    struct espl_cuda_nm *nm[2] = {NULL, NULL};
    struct espl_rng rng = espl_rng_stream(57, "cuda-nm", 0);
    const struct espl_nm_layout wide = {512, 1024, 4, 8, 16};
    const struct espl_nm_layout narrow = {128, 512, 2, 8, 16};
    if (!cuda_has_device()) {
        skip();
    }
    nm_product_make(&rng, &wide, 200, NM_FULL_RANGE, &first);
    nm_product_make(&rng, &narrow, 200, NM_FULL_RANGE, &second);
    first.operands.y_stride = 512;
    nm_product_expect(&first, ESPL_NM_INT8, ESPL_NM_LINEAR, true);
    memcpy(second.x, first.expected, (size_t)200 * 512);
    nm_product_expect(&second, ESPL_NM_INT32, ESPL_NM_LINEAR, false);
    second.operands.x = first.device_y;
    second.operands.x_stride = 512;
    cuda_check(espl_cuda_nm_create(first.matrix, 200, NULL, &nm[0], &err), &err);
    cuda_check(espl_cuda_nm_create(second.matrix, 200, NULL, &nm[1], &err), &err);
    for (unsigned round = 0; round < rounds; round++) {
        cuda_check(espl_cuda_fill(first.device_y, NM_PRODUCT_POISON, first.y_bytes, &err), &err);
        cuda_check(espl_cuda_fill(second.device_y, NM_PRODUCT_POISON, second.y_bytes, &err), &err);
        cuda_check(espl_cuda_nm_run(nm[0], NULL, &first.operands, true, NULL, &err), &err);
        cuda_check(espl_cuda_nm_run(nm[1], NULL, &second.operands, true, NULL, &err), &err);
        cuda_check(espl_cuda_download(second.y, second.device_y, second.y_bytes, &err), &err);
        nm_product_compare(&second, second.y, "second of two");
    }
    espl_cuda_nm_destroy(nm[0]);
    espl_cuda_nm_destroy(nm[1]);
    nm_product_free(&first);
    nm_product_free(&second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums__all_patterns_and_tails),
        cmocka_unit_test(test_sums__extremes),
        cmocka_unit_test(test_sums__most_columns),
        cmocka_unit_test(test_outputs__every_epilogue),
        cmocka_unit_test(test_outputs__of_scaled_sums),
        cmocka_unit_test(test_operands__refused),
        cmocka_unit_test(test_overlap__waits_for_activations),
    };
    cuda_filter_tests(); /* for compute-sanitizer: all of them take too long there */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

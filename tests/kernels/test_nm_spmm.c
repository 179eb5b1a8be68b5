/* Products with packed N:M weights on the backends in host memory: sums against a plain loop over
 * the dense codes, epilogues against hand-worked numbers and formulas in double. */
#include "espalier/kernels.h"
#include "kernels/nm_fixture.h"
#include "support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"ref", "cpu"};

static void run(const char *name, const struct espl_nm_matrix *w, const int8_t *x, size_t tokens,
                const struct espl_nm_epilogue *epilogue, void *y)
{
    struct espl_error err;
    struct espl_backend *backend = NULL;
    assert_int_equal(espl_backend_open(name, 2, &backend, &err), ESPL_OK);
    if (espl_backend_ops(backend)->spmm_nm_int8(backend, w, x, tokens, epilogue, y, &err) !=
        ESPL_OK) {
        fail_msg("%s: %s", name, err.message);
    }
    espl_backend_close(backend);
}

static void try_sums(struct espl_rng *rng, const struct espl_nm_layout *layout, size_t tokens,
                     enum nm_fixture_fill fill)
{
    const struct espl_nm_epilogue sums = {.output = ESPL_NM_INT32};
    const size_t rows = layout->rows;
    const size_t cols = layout->cols;
    struct espl_nm_matrix w;
    int8_t *codes = nm_fixture_codes(rng, layout, fill);
    int8_t *x = nm_fixture_bytes(rng, tokens * cols, fill);
    int32_t *y = malloc(tokens * rows * sizeof *y);
    assert_non_null(y);
    nm_fixture_encode(codes, layout, &w);
    for (size_t b = 0; b < 2; b++) {
        memset(y, 0x5A, tokens * rows * sizeof *y);
        run(names[b], &w, x, tokens, &sums, y);
        for (size_t i = 0; i < tokens * rows; i++) {
            int64_t sum = 0;
            for (size_t c = 0; c < cols; c++) {
                sum += (int64_t)codes[i % rows * cols + c] * x[i / rows * cols + c];
            }
            assert_int_equal(y[i], sum);
        }
    }
    espl_nm_free(&w);
    free(codes);
    free(x);
    free(y);
}

static void test_sums__equal_to_dense_loop(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{1, 1, 1}, {16, 128, 8}, {37, 300, 5}, {70, 129, 3}};
    static const unsigned shared[] = {1, 8, 16, 32, 64};
    static const unsigned windows[] = {4, 8, 16};
    struct espl_rng rng = espl_rng_stream(41, "nm-spmm", 0);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (size_t k = 0; k < 15; k++) {
            for (unsigned n = 1; n <= windows[k % 3]; n++) {
                const struct espl_nm_layout layout = {shapes[i][0], shapes[i][1], n, windows[k % 3],
                                                      shared[k / 3]};
                try_sums(&rng, &layout, shapes[i][2], n % 2 == 0 ? NM_SPARSE : NM_FULL_RANGE);
            }
        }
    }
}

static void test_sums__most_columns_of_extremes(void **state)
{
    (void)state;
    const struct espl_nm_layout layout = {2, ESPL_NM_MAX_COLS, 8, 8, 64};
    const struct espl_nm_epilogue sums = {.output = ESPL_NM_INT32};
    struct espl_nm_matrix w;
    int8_t *codes = malloc(2 * ESPL_NM_MAX_COLS);
    assert_non_null(codes);
    memset(codes, INT8_MIN, 2 * ESPL_NM_MAX_COLS);
    memset(codes + ESPL_NM_MAX_COLS, INT8_MAX, ESPL_NM_MAX_COLS);
    nm_fixture_encode(codes, &layout, &w);
    for (size_t b = 0; b < 2; b++) { /* x = the first row, -128 everywhere */
        int32_t y[2] = {0, 0};
        run(names[b], &w, codes, 1, &sums, y);
        assert_int_equal(y[0], 2147467264);
        assert_int_equal(y[1], -2130690176);
    }
    espl_nm_free(&w);
    free(codes);
}

/* One row, one column: the sum is w * x, the scales and the bias are chosen. */
static void try_value(int8_t weight, float row_scale, float bias, enum espl_nm_activation what,
                      float multiplier, uint16_t half, int8_t code)
{
    struct espl_nm_matrix w;
    const struct espl_nm_layout layout = {1, 1, 8, 8, 64};
    const int8_t x = 2;
    const float token_scale = 0.5F;
    nm_fixture_encode(&weight, &layout, &w);
    for (size_t b = 0; b < 2; b++) {
        uint16_t y16 = 0;
        int8_t y8 = 0;
        struct espl_nm_epilogue epilogue = {ESPL_NM_FP16, what,  &row_scale,
                                            &token_scale, &bias, multiplier};
        run(names[b], &w, &x, 1, &epilogue, &y16);
        epilogue.output = ESPL_NM_INT8;
        run(names[b], &w, &x, 1, &epilogue, &y8);
        assert_int_equal(y16, half);
        assert_int_equal(y8, code);
    }
    espl_nm_free(&w);
}

static void test_epilogue__hand_worked(void **state)
{
    (void)state;
    try_value(3, 1.0F, 0.0F, ESPL_NM_LINEAR, 1.0F, 0x4200, 3);
    try_value(-3, 1.0F, 0.0F, ESPL_NM_LINEAR, 1.0F, 0xC200, -3);
    try_value(-3, 1.0F, 0.0F, ESPL_NM_RELU, 1.0F, 0x0000, 0);
    try_value(-3, 1.0F, 7.5F, ESPL_NM_RELU, 1.0F, 0x4480, 4);         /* 4.5 to even */
    try_value(3, 1.0F, 2.5F, ESPL_NM_LINEAR, 1.0F, 0x4580, 6);        /* 5.5 to even */
    try_value(100, 655.2F, 0.0F, ESPL_NM_LINEAR, 0.01F, 0x7C00, 127); /* 65520: infinite */
    try_value(-100, 655.19F, 0.0F, ESPL_NM_LINEAR, 0.01F, 0xFBFF, -128);
    try_value(1, 0x1p-24F, 0.0F, ESPL_NM_LINEAR, 0x1p31F, 0x0001, 127);  /* smallest subnormal */
    try_value(3, 0x1p-25F, 0.0F, ESPL_NM_LINEAR, 1.0F, 0x0002, 0);       /* 1.5 steps to even */
    try_value(1, 1.0F, 0.00048828125F, ESPL_NM_LINEAR, 1.0F, 0x3C00, 1); /* 1 + 2^-11 to even */
    try_value(1, 1.0F, 0.0014648438F, ESPL_NM_LINEAR, 1.0F, 0x3C02, 1);  /* 1 + 3 x 2^-11 */
    try_value(1, 1.0F, 0.0F, ESPL_NM_GELU, 100.0F, 0x3ABB, 84);          /* 0.841345 */
    try_value(-1, 1.0F, 0.0F, ESPL_NM_GELU, 100.0F, 0xB114, -16);        /* -0.158655 */
}

static void test_epilogue__both_backends_same_bytes(void **state)
{
    (void)state;
    enum { ROWS = 40, COLS = 200, TOKENS = 9 };
    struct espl_rng rng = espl_rng_stream(43, "nm-spmm", 0);
    const struct espl_nm_layout layout = {ROWS, COLS, 3, 8, 8};
    struct espl_nm_matrix w;
    float row_scales[ROWS];
    float bias[ROWS];
    float token_scales[TOKENS];
    int8_t *codes = nm_fixture_codes(&rng, &layout, NM_FULL_RANGE);
    int8_t *x = nm_fixture_bytes(&rng, (size_t)TOKENS * COLS, NM_FULL_RANGE);
    nm_fixture_encode(codes, &layout, &w);
    for (size_t i = 0; i < ROWS; i++) {
        row_scales[i] = (float)espl_rng_unit(&rng) * 1e-3F;
        bias[i] = (float)espl_rng_normal(&rng);
    }
    for (size_t i = 0; i < TOKENS; i++) {
        token_scales[i] = (float)espl_rng_unit(&rng) * 0.1F;
    }
    for (unsigned k = 0; k < 12; k++) {
        uint16_t y[2][ROWS * TOKENS];
        const struct espl_nm_epilogue epilogue = {
            k % 2 == 0 ? ESPL_NM_FP16 : ESPL_NM_INT8, (enum espl_nm_activation)(k / 4), row_scales,
            k / 2 % 2 == 0 ? token_scales : NULL,     k % 3 == 0 ? NULL : bias,         20.0F};
        memset(y, 0, sizeof y);
        for (size_t b = 0; b < 2; b++) {
            run(names[b], &w, x, TOKENS, &epilogue, y[b]);
        }
        assert_memory_equal(y[0], y[1], sizeof y[0]);
    }
    espl_nm_free(&w);
    free(codes);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums__equal_to_dense_loop),
        cmocka_unit_test(test_sums__most_columns_of_extremes),
        cmocka_unit_test(test_epilogue__hand_worked),
        cmocka_unit_test(test_epilogue__both_backends_same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Codes and scales of an independent PyTorch implementation: tests/data/golden/quant/README.md. */
#include "golden_data.h"
#include "quant_oracle.h"
#include "stages/quant_common/gptq.h"
#include "support/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 37, TOKENS = 96, DEAD = 5 };

static const struct golden_case {
    const char *name;
    size_t cols;
    struct espl_quantiser quantiser;
    bool gptq, pruned;
} golden_cases[] = {
    {"rtn-half-4", 288, {4, 128, 32, 2, ESPL_QUANT_SCALE_HALF, 0.85F}, false, false},
    {"rtn-full-3", 192, {3, 64, 0, 2, ESPL_QUANT_SCALE_FULL, 0.85F}, false, true},
    {"rtn-half-8", 200, {8, 0, 0, 1, ESPL_QUANT_SCALE_HALF, 1.0F}, false, false},
    {"gptq-full-4", 288, {4, 128, 32, 2, ESPL_QUANT_SCALE_FULL, 0.85F}, true, false},
    {"gptq-full-4-pruned", 288, {4, 128, 32, 2, ESPL_QUANT_SCALE_FULL, 0.85F}, true, true},
    {"gptq-half-2", 320, {2, 64, 64, 1, ESPL_QUANT_SCALE_HALF, 0.9F}, true, false},
    {"gptq-full-3-channel", 200, {3, 0, 0, 1, ESPL_QUANT_SCALE_FULL, 1.0F}, true, true},
    {"gptq-half-8", 160, {8, 32, 32, 2, ESPL_QUANT_SCALE_HALF, 1.0F}, true, false},
};
enum { CASES = sizeof golden_cases / sizeof golden_cases[0] };

static void quantise(const struct golden_case *item, uint64_t index, struct espl_quantised *out)
{
    struct espl_error err = {0};
    struct espl_inverse_factor factor = {0};
    const struct espl_matrix_shape shape = {ROWS, item->cols};
    float *w = oracle_weights(ROWS, item->cols, 1000 + index);
    float *x = oracle_activations(TOKENS, item->cols, 2000 + index);
    uint8_t *mask = oracle_mask(ROWS, item->cols, 3000 + index);
    double *hessian = oracle_hessian(x, TOKENS, item->cols, DEAD);
    enum espl_status status = espl_quantised_create(&item->quantiser, &shape, out, &err);
    if (status == ESPL_OK && item->gptq) {
        status = espl_inverse_factor_create(hessian, item->cols, 0.01, &factor, &err);
    }
    if (status == ESPL_OK && item->gptq) {
        const struct espl_gptq_task task = {.shape = shape,
                                            .w = w,
                                            .mask = item->pruned ? mask : NULL,
                                            .factor = &factor,
                                            .quantiser = item->quantiser,
                                            .threads = 2};
        status = espl_gptq(&task, out, NULL, &err);
    } else if (status == ESPL_OK) {
        status = espl_rtn(&item->quantiser, w, item->pruned ? mask : NULL, 2, out, &err);
    }
    if (status != ESPL_OK) {
        fail_msg("%s: %s", item->name, err.message);
    }
    espl_inverse_factor_free(&factor);
    free(w);
    free(x);
    free(mask);
    free(hessian);
}

static size_t differing(const int8_t *got, const char *expected, size_t count)
{
    size_t different = 0;
    for (size_t i = 0; i < count; i++) {
        different += got[i] != (int8_t)expected[i];
    }
    return different;
}

/* Scales come from sums in another order: the last bits may differ where weights were updated. */
static void check_scales(const char *name, const float *got, const char *bytes, size_t count,
                         bool exact)
{
    for (size_t i = 0; i < count; i++) {
        float expected = 0.0F;
        memcpy(&expected, bytes + i * sizeof expected, sizeof expected);
        const double error = ((double)got[i] - (double)expected) / (double)expected;
        if (exact ? got[i] != expected : !(error < 1e-6 && error > -1e-6)) {
            fail_msg("%s: scale %zu is %.9g, not %.9g", name, i, (double)got[i], (double)expected);
        }
    }
}

static void test_golden__codes_equal(void **state)
{
    (void)state;
    size_t different = 0;
    size_t codes = 0;
    for (size_t i = 0; i < CASES; i++) {
        const struct golden_case *item = &golden_cases[i];
        char name[64], path[GOLDEN_PATH];
        size_t bytes = 0;
        struct espl_quantised got;
        (void)snprintf(name, sizeof name, "golden/quant/%s.bin", item->name);
        golden_path(name, path);
        char *data = golden_read(path, &bytes);
        quantise(item, i, &got);
        const size_t normal = ROWS * got.normal;
        const size_t scales = got.scale_rows * got.groups;
        const size_t outliers = ROWS * got.outliers;
        const size_t tail = outliers > 0 ? outliers + ROWS * sizeof(float) : 0;
        assert_int_equal(bytes, normal + scales * sizeof(float) + tail);
        different += differing(got.codes, data, normal);
        check_scales(item->name, got.scales, data + normal, scales, !item->gptq);
        if (outliers > 0) {
            const char *at = data + normal + scales * sizeof(float);
            different += differing(got.outlier_codes, at, outliers);
            check_scales(item->name, got.outlier_scales, at + outliers, ROWS, !item->gptq);
        }
        codes += normal + outliers;
        free(data);
        espl_quantised_free(&got);
    }
    print_message("%zu of %zu codes differ\n", different, codes);
    assert_int_equal(different, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden__codes_equal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The CPU's half of the SpMM bench: every form multiplies by the same weights, whichever copy it
 * reads; cases come with times, bytes and the choice by bytes. */
#include "support/cmocka_all.h"

#include "kernels/bench/spmm_cpu.h"
#include "kernels/bench/spmm_cpu_forms.h"
#include "kernels/bench/spmm_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 37, COLS = 130, TOKENS = 3 };

static const char *const names[] = {"dense", "1x1", "1x2", "2x1", "2x2", ESPL_SPMM_SGEMM};
enum { NAMES = sizeof names / sizeof names[0] };

static struct espl_spmm_weights random_weights(unsigned bits, double sparsity, int8_t **codes)
{
    struct espl_error err;
    assert_int_equal(espl_spmm_weights_codes(ROWS, COLS, bits, sparsity, 3, codes, &err), ESPL_OK);
    return (struct espl_spmm_weights){ROWS, COLS, bits, sparsity, *codes, NULL};
}

/* y[t][r] = sum of integer products, which floats hold exactly. */
static void expect_product(const struct espl_spmm_weights *weights,
                           const struct espl_spmm_cpu_operands *operands)
{
    for (size_t t = 0; t < TOKENS; t++) {
        for (size_t r = 0; r < ROWS; r++) {
            int64_t sum = 0;
            for (size_t c = 0; c < COLS; c++) {
                sum += weights->codes[r * COLS + c] * operands->a.codes[t * COLS + c];
            }
            assert_float_equal(operands->y[t * ROWS + r], (float)sum, 0.0);
        }
    }
}

static void check_forms(struct espl_backend *backend, const struct espl_spmm_weights *weights)
{
    struct espl_spmm_cpu_operands operands;
    struct espl_error err;
    assert_int_equal(espl_spmm_cpu_operands_make(&operands, ROWS, COLS, weights->bits, &err),
                     ESPL_OK);
    for (size_t i = 0; i < NAMES; i++) {
        struct espl_spmm_cpu_form form;
        assert_int_equal(
            espl_spmm_cpu_form_make(&form, names[i], weights, 50000, (size_t)1 << 20, &err),
            ESPL_OK);
        assert_true(form.cold);
        assert_int_equal(form.count, 50000 / form.stride + 1);
        for (size_t copy = 0; copy < 2 * form.count; copy += form.count - 1) {
            memset(operands.y, 0x7f, TOKENS * ROWS * sizeof *operands.y);
            assert_int_equal(
                espl_spmm_cpu_product(backend, &form, weights, TOKENS, &operands, copy, &err),
                ESPL_OK);
            expect_product(weights, &operands);
        }
        espl_spmm_cpu_form_free(&form);
    }
    espl_spmm_cpu_operands_free(&operands);
}

static void test_forms__multiply_by_the_same_weights(void **state)
{
    (void)state;
    static const double sparsities[] = {0.0, 0.6, 1.0};
    struct espl_backend *backend = NULL;
    struct espl_error err;
    assert_int_equal(espl_backend_open("cpu", 1, &backend, &err), ESPL_OK);
    for (size_t i = 0; i < sizeof sparsities / sizeof sparsities[0]; i++) {
        int8_t *codes = NULL;
        const struct espl_spmm_weights weights = random_weights(4, sparsities[i], &codes);
        check_forms(backend, &weights);
        free(codes);
    }
    int8_t *codes = NULL;
    const struct espl_spmm_weights wide = random_weights(8, 0.5, &codes);
    check_forms(backend, &wide);
    free(codes);
    espl_backend_close(backend);
}

static void test_forms__fewer_copies_than_cold_caches_need(void **state)
{
    (void)state;
    int8_t *codes = NULL;
    const struct espl_spmm_weights weights = random_weights(4, 0.5, &codes);
    struct espl_spmm_cpu_form form;
    struct espl_error err;
    assert_int_equal(espl_spmm_cpu_form_make(&form, "1x1", &weights, 50000, 10000, &err), ESPL_OK);
    assert_false(form.cold);
    assert_int_equal(form.count, 10000 / form.stride);
    espl_spmm_cpu_form_free(&form);
    assert_int_equal(espl_spmm_cpu_form_make(&form, "dense", &weights, 50000, 1, &err), ESPL_OK);
    assert_int_equal(form.count, 1);
    assert_int_equal(form.bytes, ROWS * COLS / 2);
    espl_spmm_cpu_form_free(&form);
    assert_int_equal(espl_spmm_cpu_form_make(&form, "mixed", &weights, 1, 1, &err), ESPL_E_USAGE);
    free(codes);
}

struct seen {
    size_t count;
    size_t tokens[4];
    struct espl_spmm_case last;
};

static enum espl_status see(const struct espl_spmm_case *item, void *self, struct espl_error *err)
{
    struct seen *seen = self;
    (void)err;
    assert_true(seen->count < 4);
    seen->tokens[seen->count++] = item->tokens;
    seen->last = *item;
    return ESPL_OK;
}

static void test_bench__cases_with_times_and_choice(void **state)
{
    (void)state;
    static const size_t tokens[] = {1, 3};
    int8_t *codes = NULL;
    const struct espl_spmm_weights weights = random_weights(4, 0.9, &codes);
    const struct espl_spmm_ceiling ceiling = {1e9, 4096};
    struct espl_spmm_cpu_options options = {.repeats = 3,
                                            .launches = 2,
                                            .forms = {"dense", "2x2", "1x1"},
                                            .form_count = 3,
                                            .sgemm = true,
                                            .most_bytes = (size_t)1 << 20};
    struct seen *seen = calloc(1, sizeof *seen);
    struct espl_error err;
    assert_non_null(seen);
    assert_int_equal(espl_backend_open("cpu", 1, &options.backend, &err), ESPL_OK);
    assert_int_equal(espl_spmm_cpu_matrix(&options, &ceiling, &weights, tokens, 2, see, seen, &err),
                     ESPL_OK);
    assert_int_equal(seen->count, 2);
    assert_int_equal(seen->tokens[0], 1);
    assert_int_equal(seen->tokens[1], 3);
    assert_int_equal(seen->last.count, 4);
    assert_int_equal(seen->last.usual, ESPL_SPMM_EAGER);
    for (size_t i = 0; i < 4; i++) {
        const struct espl_spmm_result *r = &seen->last.results[i];
        assert_true(r->measured && r->times[ESPL_SPMM_EAGER].median > 0.0);
        assert_true(r->times[ESPL_SPMM_EAGER_WARM].median > 0.0);
        assert_true(r->times[ESPL_SPMM_EAGER].p95 >= r->times[ESPL_SPMM_EAGER].median);
        assert_float_equal(r->times[ESPL_SPMM_GRAPH].median, 0.0, 0.0);
        assert_int_equal(r->ours, i < 3);
    }
    /* 37 x 130 with 90 % zeros: 2x2 has the fewest bytes (three stripes of three tiles of padding
     * favour large areas), dense the most */
    assert_string_equal(seen->last.results[seen->last.chosen].name, "2x2");
    assert_true(seen->last.results[1].bytes < seen->last.results[2].bytes);
    assert_true(seen->last.results[2].bytes < seen->last.results[0].bytes);
    free(seen);
    free(codes);
    espl_backend_close(options.backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms__multiply_by_the_same_weights),
        cmocka_unit_test(test_forms__fewer_copies_than_cold_caches_need),
        cmocka_unit_test(test_bench__cases_with_times_and_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Quantising one linear: on which rows the error of a large rounded matrix is measured. */
#include "core/codes.h"
#include "stages/atom_quantize/atom_linear.h"

#include "support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 700, COLS = 64, WORK = 600 * COLS * COLS }; /* 600 of the rows */

static void test_error_rows__all_unless_large(void **state)
{
    (void)state;
    const struct {
        size_t rows, cols, expected;
    } cases[] = {
        {4096, 1024, 4096}, {1024, 4096, 1024}, {14336, 4096, 1024},
        {4096, 14336, 256}, {100, 14336, 100},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(espl_atom_error_rows(cases[i].rows, cases[i].cols, ESPL_ATOM_ERROR_WORK),
                         cases[i].expected);
    }
    assert_int_equal(espl_atom_error_rows(ROWS, COLS, WORK), 600);
}

/* A row has the weight 7, which is code 7 of scale 1, in all columns but the last; what is there
 * becomes 0. It differs from row to row, so that it matters which rows count. */
static float last_weight(size_t row)
{
    return 0.4f * (float)row / (float)ROWS;
}

static double expected_error(const double *diagonal)
{
    double error = 0.0;
    double all = 0.0;
    const size_t count = espl_atom_error_rows(ROWS, COLS, WORK);
    for (size_t i = 0; i < count; i++) {
        const double last = (double)last_weight(i * ROWS / count);
        error += last * last * diagonal[COLS - 1];
        all += last * last * diagonal[COLS - 1];
        for (size_t c = 0; c < COLS - 1; c++) {
            all += 49.0 * diagonal[c];
        }
    }
    return error / all;
}

static void test_quantise__large_matrix(void **state)
{
    (void)state;
    float *w = malloc((size_t)ROWS * COLS * sizeof *w);
    double *hessian = calloc((size_t)COLS * COLS, sizeof *hessian);
    double *diagonal = malloc(COLS * sizeof *diagonal);
    assert_non_null(w);
    assert_non_null(hessian);
    assert_non_null(diagonal);
    for (size_t c = 0; c < COLS; c++) {
        diagonal[c] = 1.0 + (double)(c % 3) + (c == COLS - 1 ? 1e5 : 0.0);
        hessian[c * COLS + c] = diagonal[c];
    }
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < COLS; c++) {
            w[r * COLS + c] = c == COLS - 1 ? last_weight(r) : 7.0f;
        }
    }
    const struct espl_atom_task task = {.rows = ROWS,
                                        .cols = COLS,
                                        .w = w,
                                        .hessian = hessian,
                                        .quantiser = {.bits = 4, .rows_per_scale = 1, .clip = 1.0f},
                                        .error_work = WORK,
                                        .threads = 1};
    struct espl_atom_result result;
    struct espl_error err;
    if (espl_atom_quantise(&task, &result, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    assert_true(fabs(result.error / expected_error(diagonal) - 1.0) < 1e-9);
    /* What moved to be measured is stored where it was. */
    int8_t *codes = malloc((size_t)ROWS * COLS);
    assert_non_null(codes);
    espl_codes_unpack(result.linear.codes, ROWS, COLS, 4, codes);
    for (size_t i = 0; i < (size_t)ROWS * COLS; i++) {
        assert_int_equal(codes[i], i % COLS == COLS - 1 ? 0 : 7);
    }
    free(codes);
    espl_quant_linear_free(&result.linear);
    free(diagonal);
    free(hessian);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_rows__all_unless_large),
        cmocka_unit_test(test_quantise__large_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

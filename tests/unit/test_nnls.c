/* Non-negative least squares against its optimality conditions, hand-worked cases and brute force
 * over all supports. */
#include "support/cmocka_all.h"

#include "core/rng.h"
#include "search/least_squares.h"
#include "search/nnls.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 24, MOST_COLS = 16, PROBLEMS = 1000 };

struct problem {
    size_t rows, cols;
    double a[MOST_ROWS * MOST_COLS];
    double y[MOST_ROWS];
};

/* Kinds of matrices in turn: full rank, product of two thin factors, repeated columns, zero
 * columns, badly scaled columns, wide. */
static void make_problem(size_t number, struct problem *p)
{
    struct espl_rng rng = espl_rng_stream(11, "nnls", number);
    const size_t kind = number % 6;
    p->rows = 1 + (size_t)espl_rng_below(&rng, MOST_ROWS);
    p->cols = 1 + (size_t)espl_rng_below(&rng, MOST_COLS);
    if (kind == 5 && p->rows > p->cols) {
        p->rows = 1 + p->cols / 2;
    }
    const size_t rank = 1 + (size_t)espl_rng_below(&rng, 4);
    double left[MOST_ROWS * 4];
    double right[4 * MOST_COLS];
    for (size_t i = 0; i < MOST_ROWS * 4; i++) {
        left[i] = espl_rng_normal(&rng);
    }
    for (size_t i = 0; i < 4 * MOST_COLS; i++) {
        right[i] = espl_rng_normal(&rng);
    }
    for (size_t r = 0; r < p->rows; r++) {
        for (size_t c = 0; c < p->cols; c++) {
            double value = espl_rng_normal(&rng);
            if (kind == 1) {
                value = 0.0;
                for (size_t k = 0; k < rank; k++) {
                    value += left[r * 4 + k] * right[k * MOST_COLS + c];
                }
            } else if (kind == 2 && c % 3 == 2) {
                value = 2.5 * p->a[r * p->cols + c - 1];
            } else if (kind == 3 && c % 4 == 1) {
                value = 0.0;
            } else if (kind == 4) {
                value *= pow(10.0, (double)(c % 9) - 4.0);
            }
            p->a[r * p->cols + c] = value;
        }
        p->y[r] = espl_rng_normal(&rng);
    }
}

static double column_norm(const struct problem *p, size_t c)
{
    double sum = 0.0;
    for (size_t r = 0; r < p->rows; r++) {
        sum += p->a[r * p->cols + c] * p->a[r * p->cols + c];
    }
    return sqrt(sum);
}

/* x >= 0; gradient w = A^T (y - A x) <= tolerance, and x_c w_c = 0, all for columns of length 1. */
static void require_kkt(const struct problem *p, const double *x, size_t number)
{
    double residual[MOST_ROWS];
    double y_norm = 0.0;
    for (size_t r = 0; r < p->rows; r++) {
        residual[r] = p->y[r];
        y_norm += p->y[r] * p->y[r];
        for (size_t c = 0; c < p->cols; c++) {
            residual[r] -= p->a[r * p->cols + c] * x[c];
        }
    }
    y_norm = sqrt(y_norm);
    for (size_t c = 0; c < p->cols; c++) {
        const double length = column_norm(p, c);
        double gradient = 0.0;
        assert_true(x[c] >= 0.0);
        for (size_t r = 0; length > 0.0 && r < p->rows; r++) {
            gradient += p->a[r * p->cols + c] * residual[r] / length;
        }
        const double limit = 1e-8 * (y_norm > 1.0 ? y_norm : 1.0);
        if (gradient > limit || (x[c] > 0.0 && fabs(gradient) > limit)) {
            fail_msg("problem %zu (%zu x %zu), column %zu: x %g, gradient %g", number, p->rows,
                     p->cols, c, x[c], gradient);
        }
    }
}

static void test_nnls__meets_the_optimality_conditions(void **state)
{
    (void)state;
    for (size_t number = 0; number < PROBLEMS; number++) {
        struct problem p;
        double x[MOST_COLS];
        struct espl_nnls_info info;
        struct espl_error err;
        make_problem(number, &p);
        assert_int_equal(espl_nnls_solve(p.rows, p.cols, p.a, p.y, x, &info, &err), ESPL_OK);
        assert_true(info.converged);
        require_kkt(&p, x, number);
    }
}

/* Least residual over all supports, by normal equations on tiny well-conditioned problems: x must
 * be non-negative on the support. */
static double best_by_brute_force(const struct problem *p)
{
    double best = INFINITY;
    for (unsigned support = 0; support < 1u << p->cols; support++) {
        double factor[MOST_ROWS * MOST_COLS];
        double rhs[MOST_ROWS];
        double diagonal[MOST_COLS];
        double z[MOST_COLS] = {0};
        size_t count = 0;
        for (size_t c = 0; c < p->cols; c++) {
            for (size_t r = 0; (support >> c & 1u) != 0 && r < p->rows; r++) {
                factor[count * p->rows + r] = p->a[r * p->cols + c];
            }
            count += support >> c & 1u;
        }
        memcpy(rhs, p->y, sizeof rhs);
        espl_qr_factor(p->rows, count, factor, rhs, diagonal);
        espl_qr_solve(p->rows, count, factor, diagonal, rhs, z);
        double sum = 0.0;
        for (size_t r = count; r < p->rows; r++) {
            sum += rhs[r] * rhs[r]; /* what Q^T y leaves outside the span */
        }
        bool good = true;
        for (size_t i = 0; i < count; i++) {
            good = good && z[i] >= 0.0;
        }
        best = good && sqrt(sum) < best ? sqrt(sum) : best;
    }
    return best;
}

static void test_nnls__finds_the_best_support(void **state)
{
    (void)state;
    for (size_t number = 0; number < 60; number++) {
        struct espl_rng rng = espl_rng_stream(3, "brute", number);
        struct problem p = {.rows = 9, .cols = 6};
        double x[MOST_COLS];
        struct espl_nnls_info info;
        for (size_t i = 0; i < p.rows * p.cols; i++) {
            p.a[i] = espl_rng_normal(&rng);
        }
        for (size_t r = 0; r < p.rows; r++) {
            p.y[r] = espl_rng_normal(&rng);
        }
        assert_int_equal(espl_nnls_solve(p.rows, p.cols, p.a, p.y, x, &info, NULL), ESPL_OK);
        assert_true(fabs(info.residual - best_by_brute_force(&p)) < 1e-10);
    }
}

/* min |x1 (1,1) + x2 (1,-1) - (0,2)|: free solution (1,-1); with x2 = 0: x1 = 1, residual sqrt 2.
 */
static void test_nnls__hand_worked(void **state)
{
    (void)state;
    const double a[] = {1, 1, 1, -1};
    const double y[] = {0, 2};
    double x[2];
    struct espl_nnls_info info;
    assert_int_equal(espl_nnls_solve(2, 2, a, y, x, &info, NULL), ESPL_OK);
    assert_true(fabs(x[0] - 1.0) < 1e-15);
    assert_true(x[1] == 0.0);
    assert_int_equal(info.zeros, 1);
    assert_true(fabs(info.residual - sqrt(2.0)) < 1e-15);
}

static void test_nnls__all_columns_point_away(void **state)
{
    (void)state;
    const double a[] = {-1, -2, -3, 0};
    const double y[] = {1, 1};
    double x[2] = {7, 7};
    struct espl_nnls_info info;
    assert_int_equal(espl_nnls_solve(2, 2, a, y, x, &info, NULL), ESPL_OK);
    assert_true(x[0] == 0.0 && x[1] == 0.0);
    assert_int_equal(info.zeros, 2);
    assert_true(info.converged);
}

static void test_nnls__refuses_values_that_are_not_finite(void **state)
{
    (void)state;
    struct espl_error err;
    double x[1];
    const double bad_a[] = {1, (double)NAN};
    const double y[] = {1, 2};
    assert_int_equal(espl_nnls_solve(2, 1, bad_a, y, x, NULL, &err), ESPL_E_NUMERIC);
    assert_non_null(strstr(err.message, "row 1"));
    const double a[] = {1, 1};
    const double bad_y[] = {INFINITY, 2};
    assert_int_equal(espl_nnls_solve(2, 1, a, bad_y, x, NULL, &err), ESPL_E_NUMERIC);
}

/* Columns (1,0) and (c,s): singular values of the unit columns are sqrt(1 +- c). */
static void test_condition__hand_worked(void **state)
{
    (void)state;
    const double c = 0.6;
    const double s = 0.8;
    const double a[] = {1000.0, c, 0.0, s, 0.0, 0.0};
    double condition = 0.0;
    assert_int_equal(espl_condition_number(3, 2, a, &condition, NULL), ESPL_OK);
    assert_true(fabs(condition - 2.0) < 1e-14); /* sqrt(1.6 / 0.4) */
}

static void test_condition__deficient_is_infinite(void **state)
{
    (void)state;
    const double repeated[] = {1, 2, 2, 4, 3, 6};
    const double zero[] = {1, 0, 2, 0};
    const double wide[] = {1, 2};
    double condition = 0.0;
    assert_int_equal(espl_condition_number(3, 2, repeated, &condition, NULL), ESPL_OK);
    assert_true(isinf(condition));
    assert_int_equal(espl_condition_number(2, 2, zero, &condition, NULL), ESPL_OK);
    assert_true(isinf(condition));
    assert_int_equal(espl_condition_number(1, 2, wide, &condition, NULL), ESPL_OK);
    assert_true(isinf(condition));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nnls__meets_the_optimality_conditions),
        cmocka_unit_test(test_nnls__finds_the_best_support),
        cmocka_unit_test(test_nnls__hand_worked),
        cmocka_unit_test(test_nnls__all_columns_point_away),
        cmocka_unit_test(test_nnls__refuses_values_that_are_not_finite),
        cmocka_unit_test(test_condition__hand_worked),
        cmocka_unit_test(test_condition__deficient_is_infinite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

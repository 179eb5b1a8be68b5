/* Hessians, the Cholesky factor of an inverse, and the updates, against loops in double. */
#include "espalier/linalg.h"
#include "support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct espl_backend *open_cpu(unsigned threads)
{
    struct espl_error err;
    struct espl_backend *backend = NULL;
    if (espl_backend_open("cpu", threads, &backend, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return backend;
}

static uint64_t random_state = 5;

static double next_value(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(random_state >> 11) * 0x1p-52 - 1.0;
}

static void *room(size_t count, size_t bytes)
{
    void *memory = calloc(count + 1, bytes);
    assert_non_null(memory);
    return memory;
}

static double *hessian_of(size_t width, size_t windows, size_t tokens, const float *x,
                          size_t windows_a_call, unsigned threads)
{
    struct espl_error err;
    struct espl_backend *backend = open_cpu(threads);
    struct espl_hessian *hessian = NULL;
    double *full = room(width * width, sizeof *full);
    assert_int_equal(espl_hessian_create(width, &hessian, &err), ESPL_OK);
    for (size_t w = 0; w < windows; w += windows_a_call) {
        const size_t count = windows - w < windows_a_call ? windows - w : windows_a_call;
        assert_int_equal(
            espl_hessian_add(hessian, backend, count, tokens, x + w * tokens * width, &err),
            ESPL_OK);
    }
    assert_int_equal(espl_hessian_windows(hessian), windows);
    assert_int_equal(espl_hessian_width(hessian), width);
    espl_hessian_matrix(hessian, NULL, full);
    espl_hessian_destroy(hessian);
    espl_backend_close(backend);
    return full;
}

/* Sizes around a tile (128) and a run of tokens (512). */
static void test_hessian__equals_double_loops(void **state)
{
    (void)state;
    static const size_t sizes[][3] = {
        {1, 1, 1}, {5, 3, 7}, {128, 1, 33}, {131, 2, 40}, {9, 2, 517}};
    for (size_t i = 0; i < 5; i++) {
        const size_t width = sizes[i][0];
        const size_t rows = sizes[i][1] * sizes[i][2];
        float *x = room(rows * width, sizeof *x);
        for (size_t k = 0; k < rows * width; k++) {
            x[k] = (float)next_value();
        }
        double *got = hessian_of(width, sizes[i][1], sizes[i][2], x, 1, 2);
        for (size_t r = 0; r < width; r++) {
            for (size_t c = 0; c < width; c++) {
                double sum = 0.0;
                for (size_t t = 0; t < rows; t++) {
                    sum += (double)x[t * width + r] * (double)x[t * width + c];
                }
                sum *= 2.0 / (double)sizes[i][1];
                assert_true(fabs(got[r * width + c] - sum) <= 1e-5 * (double)rows);
                assert_true(got[r * width + c] == got[c * width + r]);
            }
        }
        free(x);
        free(got);
    }
}

static void test_hessian__does_not_depend_on_threads_or_batches(void **state)
{
    (void)state;
    enum { WIDTH = 300, WINDOWS = 5, TOKENS = 70 };
    float *x = room((size_t)WIDTH * WINDOWS * TOKENS, sizeof *x);
    for (size_t k = 0; k < (size_t)WIDTH * WINDOWS * TOKENS; k++) {
        x[k] = (float)next_value();
    }
    double *first = hessian_of(WIDTH, WINDOWS, TOKENS, x, 1, 1);
    for (unsigned threads = 1; threads <= 3; threads++) {
        double *got = hessian_of(WIDTH, WINDOWS, TOKENS, x, threads + 1, threads);
        assert_memory_equal(got, first, (size_t)WIDTH * WIDTH * sizeof *got);
        free(got);
    }
    free(first);
    free(x);
}

static void test_hessian__order_and_diagonal(void **state)
{
    (void)state;
    static const float x[6] = {1.0F, 2.0F, 3.0F, 0.0F, 1.0F, -1.0F}; /* two tokens of one window */
    static const int32_t order[3] = {2, 0, 1};
    static const double expected[9] = {20.0, 6.0, 10.0, 6.0, 2.0, 4.0, 10.0, 4.0, 10.0};
    struct espl_error err;
    struct espl_backend *backend = open_cpu(1);
    struct espl_hessian *hessian = NULL;
    double diagonal[3], full[9];
    assert_int_equal(espl_hessian_create(3, &hessian, &err), ESPL_OK);
    espl_hessian_diagonal(hessian, diagonal);
    assert_true(diagonal[0] == 0.0 && diagonal[2] == 0.0);
    assert_int_equal(espl_hessian_add(hessian, backend, 1, 2, x, &err), ESPL_OK);
    espl_hessian_diagonal(hessian, diagonal);
    assert_true(diagonal[0] == 2.0 && diagonal[1] == 10.0 && diagonal[2] == 20.0);
    espl_hessian_matrix(hessian, order, full);
    assert_memory_equal(full, expected, sizeof full);
    espl_hessian_destroy(hessian);
    espl_backend_close(backend);
}

static void test_hessian__names_what_is_not_finite(void **state)
{
    (void)state;
    float x[24] = {0};
    struct espl_error err;
    struct espl_backend *backend = open_cpu(2);
    struct espl_hessian *hessian = NULL;
    assert_int_equal(espl_hessian_create(3, &hessian, &err), ESPL_OK);
    assert_int_equal(espl_hessian_add(hessian, backend, 2, 4, x, &err), ESPL_OK);
    x[3 * 4 + 2 * 3 + 1] = -INFINITY;
    assert_int_equal(espl_hessian_add(hessian, backend, 2, 4, x, &err), ESPL_E_NUMERIC);
    assert_non_null(strstr(err.message, "window 3, token 2, channel 1 "));
    espl_hessian_destroy(hessian);
    espl_backend_close(backend);
}

/* U^T U times the matrix must be the identity. */
static void test_hessian__names_what_overflows(void **state)
{
    (void)state;
    float x[24] = {0};
    struct espl_error err;
    struct espl_backend *backend = open_cpu(2);
    struct espl_hessian *hessian = NULL;
    assert_int_equal(espl_hessian_create(3, &hessian, &err), ESPL_OK);
    x[3 * 1 + 2] = 1e18F; /* its square is still a float */
    assert_int_equal(espl_hessian_add(hessian, backend, 2, 4, x, &err), ESPL_OK);
    x[3 * 4 + 2 * 3 + 1] = -1e20F;
    assert_int_equal(espl_hessian_add(hessian, backend, 2, 4, x, &err), ESPL_E_NUMERIC);
    assert_string_equal(err.message, "activation of window 3, token 2, channel 1 is -1e+20: its "
                                     "square is too large for float32");
    espl_hessian_destroy(hessian);
    espl_backend_close(backend);
}

static void test_cholesky__is_a_factor_of_the_inverse(void **state)
{
    (void)state;
    static const size_t orders[] = {1, 2, 17, 150};
    struct espl_error err;
    for (size_t i = 0; i < 4; i++) {
        const size_t n = orders[i];
        double *a = room(n * n, sizeof *a);
        double *u = room(n * n, sizeof *u);
        double *inverse = room(n * n, sizeof *inverse);
        double *basis = room(n * n, sizeof *basis);
        int info = 9;
        for (size_t k = 0; k < n * n; k++) {
            basis[k] = next_value();
        }
        for (size_t r = 0; r < n; r++) {
            for (size_t c = 0; c < n; c++) {
                a[r * n + c] = r == c ? 2.0 : 0.0;
                for (size_t k = 0; k < n; k++) {
                    a[r * n + c] += basis[k * n + r] * basis[k * n + c];
                }
                u[r * n + c] = r <= c ? a[r * n + c] : NAN; /* the lower triangle is not read */
            }
        }
        assert_int_equal(espl_cholesky_of_inverse(n, u, &info, &err), ESPL_OK);
        assert_int_equal(info, 0);
        for (size_t r = 0; r < n; r++) {
            assert_true(u[r * n + r] > 0.0);
            for (size_t c = 0; c < n; c++) {
                assert_true(r <= c || u[r * n + c] == 0.0);
                for (size_t k = 0; k < n; k++) {
                    inverse[r * n + c] += u[k * n + r] * u[k * n + c];
                }
            }
        }
        for (size_t r = 0; r < n; r++) {
            for (size_t c = 0; c < n; c++) {
                double sum = 0.0;
                for (size_t k = 0; k < n; k++) {
                    sum += inverse[r * n + k] * a[k * n + c];
                }
                assert_true(fabs(sum - (r == c ? 1.0 : 0.0)) < 1e-9);
            }
        }
        free(a);
        free(u);
        free(inverse);
        free(basis);
    }
}

static void test_cholesky__reports_what_is_not_positive(void **state)
{
    (void)state;
    double indefinite[9] = {1.0, 2.0, 0.0, 2.0, 1.0, 0.0, 0.0, 0.0, 1.0};
    double zero[1] = {0.0};
    struct espl_error err;
    int info = 0;
    assert_int_equal(espl_cholesky_of_inverse(3, indefinite, &info, &err), ESPL_OK);
    assert_int_equal(info, 2);
    assert_int_equal(espl_cholesky_of_inverse(1, zero, &info, &err), ESPL_OK);
    assert_int_equal(info, 1);
    assert_int_equal(espl_cholesky_of_inverse(0, NULL, &info, &err), ESPL_OK);
    assert_int_equal(info, 0);
}

static void test_updates__equal_loops(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 5, INNER = 2, STRIDE = 7 };
    const double a[ROWS * INNER] = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0};
    double b[INNER * STRIDE], c[ROWS * STRIDE], expected[ROWS * STRIDE];
    for (size_t i = 0; i < (size_t)INNER * STRIDE; i++) {
        b[i] = (double)i;
    }
    for (size_t i = 0; i < (size_t)ROWS * STRIDE; i++) {
        c[i] = expected[i] = 100.0 + (double)i;
    }
    for (size_t i = 0; i < ROWS; i++) {
        for (size_t j = 0; j < COLS; j++) {
            expected[i * STRIDE + j] -= a[i * 2] * b[j] + a[i * 2 + 1] * b[STRIDE + j];
        }
    }
    espl_subtract_product(ROWS, COLS, INNER, a, INNER, b, STRIDE, c, STRIDE);
    assert_memory_equal(c, expected, sizeof c);
    for (size_t i = 0; i < ROWS; i++) {
        for (size_t j = 0; j < COLS; j++) {
            expected[i * STRIDE + j] -= a[i * 2 + 1] * b[j + 1];
        }
    }
    espl_subtract_outer(ROWS, COLS, a + 1, INNER, b + 1, c, STRIDE);
    assert_memory_equal(c, expected, sizeof c);
    espl_subtract_outer(ROWS, 0, a, INNER, b, c, STRIDE);
    espl_subtract_product(ROWS, 0, INNER, a, INNER, b, STRIDE, c, STRIDE);
    assert_memory_equal(c, expected, sizeof c);
}

static void test_quadratic_error__equals_loops_for_any_thread_count(void **state)
{
    (void)state;
    enum { ROWS = 67, N = 270 };
    struct espl_error err;
    double *d = room((size_t)ROWS * N, sizeof *d);
    double *h = room((size_t)N * N, sizeof *h);
    double expected = 0.0;
    double first = 0.0;
    for (size_t i = 0; i < (size_t)ROWS * N; i++) {
        d[i] = next_value();
    }
    for (size_t r = 0; r < N; r++) {
        for (size_t c = r; c < N; c++) {
            h[r * N + c] = h[c * N + r] = next_value() + (r == c ? 20.0 : 0.0);
        }
    }
    for (size_t i = 0; i < ROWS; i++) {
        for (size_t r = 0; r < N; r++) {
            for (size_t c = 0; c < N; c++) {
                expected += d[i * N + r] * h[r * N + c] * d[i * N + c];
            }
        }
    }
    for (unsigned threads = 1; threads <= 3; threads++) {
        double sum = 0.0;
        assert_int_equal(espl_quadratic_error(ROWS, N, d, h, threads, &sum, &err), ESPL_OK);
        assert_true(fabs(sum - expected) <= 1e-9 * fabs(expected));
        first = threads == 1 ? sum : first;
        assert_true(sum == first);
    }
    free(d);
    free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hessian__equals_double_loops),
        cmocka_unit_test(test_hessian__does_not_depend_on_threads_or_batches),
        cmocka_unit_test(test_hessian__order_and_diagonal),
        cmocka_unit_test(test_hessian__names_what_is_not_finite),
        cmocka_unit_test(test_hessian__names_what_overflows),
        cmocka_unit_test(test_cholesky__is_a_factor_of_the_inverse),
        cmocka_unit_test(test_cholesky__reports_what_is_not_positive),
        cmocka_unit_test(test_updates__equal_loops),
        cmocka_unit_test(test_quadratic_error__equals_loops_for_any_thread_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

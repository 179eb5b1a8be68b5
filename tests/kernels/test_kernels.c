/* Every case of kernels/bench/cases.c: the reference against formulas in double, the CPU backend
 * against the reference, and the CPU backend against itself with 1, 2 and 3 threads. Then what the
 * table does not reach: accuracy over whole ranges, special values, long windows, refusals. */
#include "kernels/bench/cases.h"
#include "kernels/kernel_oracle.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct espl_backend *open_backend(const char *name, unsigned threads)
{
    struct espl_error err;
    struct espl_backend *backend = NULL;
    if (espl_backend_open(name, threads, &backend, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return backend;
}

static struct espl_kernel_problem *make_problem(const struct espl_kernel_case *item)
{
    struct espl_error err;
    struct espl_kernel_problem *problem = NULL;
    if (espl_kernel_problem_create(item, &problem, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return problem;
}

static void run_problem(struct espl_kernel_problem *problem, struct espl_backend *backend)
{
    struct espl_error err;
    espl_kernel_problem_reset(problem);
    if (espl_kernel_problem_run(problem, backend, &err) != ESPL_OK) {
        fail_msg("%s: %s", problem->item->op, err.message);
    }
}

static void compare(const struct espl_kernel_problem *problem, const double *got,
                    const double *expected, double norm_limit, double largest_limit)
{
    double difference = 0.0;
    double square = 0.0;
    double largest = 0.0;
    char text[128];
    for (size_t i = 0; i < problem->output_count; i++) {
        if (isnan(expected[i]) && isnan(got[i])) {
            continue;
        }
        if (expected[i] == got[i]) { /* infinities too */
            square += isfinite(got[i]) ? got[i] * got[i] : 0.0;
            continue;
        }
        const double error = fabs(got[i] - expected[i]);
        difference += error * error;
        square += expected[i] * expected[i];
        /* A NaN error must not get lost in the comparison. */
        largest = error <= largest ? largest : error;
    }
    const double mean_square = square / (double)problem->output_count;
    const bool good = difference <= norm_limit * norm_limit * square &&
                      largest <= largest_limit * sqrt(mean_square);
    if (!good) {
        espl_kernel_case_describe(problem->item, text);
        fail_msg("%s: norm error %.3g (limit %.3g), largest %.3g of rms (limit %.3g)", text,
                 sqrt(difference / square), norm_limit, largest / sqrt(mean_square), largest_limit);
    }
}

/* A tied score (0 for instance) is equal in both, so the zero difference passes; masks are exact.
 */
static void test_ref__equals_formulas_in_double(void **state)
{
    (void)state;
    struct espl_backend *ref = open_backend("ref", 0);
    size_t checked = 0;
    for (const struct espl_kernel_case *item = espl_kernel_cases; item->op != NULL; item++) {
        if ((item->flags & (ESPL_CASE_BIG | ESPL_CASE_TIMED)) != 0) {
            continue;
        }
        struct espl_kernel_problem *problem = make_problem(item);
        double *expected = kernel_oracle(problem);
        run_problem(problem, ref);
        double *got = kernel_output_as_double(problem);
        /* The reference rounds its double result once: half a unit in the last place. Rotation is
         * done in float32: a few. */
        const bool float_arithmetic = strcmp(item->op, "rope") == 0;
        compare(problem, got, expected, float_arithmetic ? 2e-7 : 7e-8,
                float_arithmetic ? 1e-6 : 6e-7);
        free(got);
        free(expected);
        espl_kernel_problem_destroy(problem);
        checked++;
    }
    assert_true(checked > 50);
    espl_backend_close(ref);
}

static void test_cpu__is_within_tolerance_of_ref(void **state)
{
    (void)state;
    struct espl_backend *ref = open_backend("ref", 0);
    struct espl_backend *cpu = open_backend("cpu", 2);
    for (const struct espl_kernel_case *item = espl_kernel_cases; item->op != NULL; item++) {
        if ((item->flags & ESPL_CASE_BIG) != 0) {
            continue;
        }
        struct espl_kernel_problem *problem = make_problem(item);
        run_problem(problem, ref);
        double *expected = kernel_output_as_double(problem);
        void *bytes = malloc(problem->output_bytes);
        assert_non_null(bytes);
        memcpy(bytes, problem->output, problem->output_bytes);
        run_problem(problem, cpu);
        if (problem->tolerance.exact) {
            if (memcmp(bytes, problem->output, problem->output_bytes) != 0) {
                char text[128];
                espl_kernel_case_describe(item, text);
                fail_msg("%s: cpu and ref differ", text);
            }
        } else {
            double *got = kernel_output_as_double(problem);
            compare(problem, got, expected, problem->tolerance.norm, problem->tolerance.largest);
            free(got);
        }
        free(bytes);
        free(expected);
        espl_kernel_problem_destroy(problem);
    }
    espl_backend_close(cpu);
    espl_backend_close(ref);
}

static void test_cpu__same_bytes_for_any_thread_count(void **state)
{
    (void)state;
    struct espl_backend *backends[3];
    for (unsigned b = 0; b < 3; b++) {
        backends[b] = open_backend("cpu", b + 1);
        assert_int_equal(espl_backend_threads(backends[b]), b + 1);
    }
    for (const struct espl_kernel_case *item = espl_kernel_cases; item->op != NULL; item++) {
        struct espl_kernel_problem *problem = make_problem(item);
        run_problem(problem, backends[0]);
        void *bytes = malloc(problem->output_bytes);
        assert_non_null(bytes);
        memcpy(bytes, problem->output, problem->output_bytes);
        for (unsigned b = 1; b < 3; b++) {
            run_problem(problem, backends[b]);
            if (memcmp(bytes, problem->output, problem->output_bytes) != 0) {
                char text[128];
                espl_kernel_case_describe(item, text);
                fail_msg("%s: %u threads give other bytes than one", text, b + 1);
            }
        }
        free(bytes);
        espl_kernel_problem_destroy(problem);
    }
    for (unsigned b = 0; b < 3; b++) {
        espl_backend_close(backends[b]);
    }
}

/* exp and erfc of the CPU backend through silu and gelu, over the whole range of float32. */
static void test_cpu_activations__hold_their_accuracy_everywhere(void **state)
{
    (void)state;
    enum { COUNT = 400001 };
    struct espl_backend *cpu = open_backend("cpu", 2);
    const struct espl_ops *ops = espl_backend_ops(cpu);
    float *silu = malloc(COUNT * sizeof *silu);
    float *gelu = malloc(COUNT * sizeof *gelu);
    float *ones = malloc(COUNT * sizeof *ones);
    double worst_silu = 0.0;
    double worst_gelu = 0.0;
    assert_non_null(silu);
    assert_non_null(gelu);
    assert_non_null(ones);
    for (size_t i = 0; i < COUNT; i++) {
        silu[i] = gelu[i] = ((float)i - 200000.0F) * 0.0005F; /* -100 .. 100 */
        ones[i] = 1.0F;
    }
    assert_int_equal(ops->silu_mul(cpu, COUNT, silu, ones, NULL), ESPL_OK);
    assert_int_equal(ops->gelu(cpu, COUNT, gelu, NULL), ESPL_OK);
    for (size_t i = 0; i < COUNT; i++) {
        const double x = (double)(((float)i - 200000.0F) * 0.0005F);
        const double true_silu = x / (1.0 + exp(-x));
        const double true_gelu = 0.5 * x * erfc(-x * 0.70710678118654752440);
        if (x > -87.0) {
            const double size = fabs(true_silu) + DBL_MIN;
            worst_silu = fmax(worst_silu, fabs((double)silu[i] - true_silu) / size);
        } else {
            assert_true(fabs((double)silu[i]) < 1.5e-36); /* 87 e^-87 */
        }
        worst_gelu = fmax(worst_gelu, fabs((double)gelu[i] - true_gelu) / fmax(1.0, fabs(x)));
        if (x > -7.0 && x < 0.0) { /* the left tail keeps its digits */
            assert_true(fabs((double)gelu[i] / true_gelu - 1.0) < 5e-6);
        }
    }
    print_message("silu: relative error %.3g; gelu: error %.3g of max(1, |x|)\n", worst_silu,
                  worst_gelu);
    assert_true(worst_silu < 4e-7);
    assert_true(worst_gelu < 2e-7);
    free(silu);
    free(gelu);
    free(ones);
    espl_backend_close(cpu);
}

static void test_cpu_activations__keep_nan(void **state)
{
    (void)state;
    struct espl_backend *cpu = open_backend("cpu", 1);
    const struct espl_ops *ops = espl_backend_ops(cpu);
    float values[19];
    float ones[19];
    for (unsigned op = 0; op < 3; op++) {
        for (size_t i = 0; i < 19; i++) {
            values[i] = i == 3 || i == 18 ? NAN : 1.0F;
            ones[i] = 1.0F;
        }
        if (op == 0) {
            assert_int_equal(ops->silu_mul(cpu, 19, values, ones, NULL), ESPL_OK);
        } else if (op == 1) {
            assert_int_equal(ops->gelu(cpu, 19, values, NULL), ESPL_OK);
        } else {
            assert_int_equal(ops->relu(cpu, 19, values, NULL), ESPL_OK);
        }
        for (size_t i = 0; i < 19; i++) {
            assert_int_equal(isnan(values[i]) != 0, i == 3 || i == 18);
        }
    }
    espl_backend_close(cpu);
}

/* A NaN score must not vanish in softmax or cross entropy, whatever the maximum does with it. */
static void test_cpu_losses__keep_nan(void **state)
{
    (void)state;
    struct espl_backend *cpu = open_backend("cpu", 1);
    const struct espl_ops *ops = espl_backend_ops(cpu);
    const struct espl_attention_shape shape = {.windows = 1,
                                               .tokens = 3,
                                               .key_rows = 3,
                                               .heads = 1,
                                               .kv_heads = 1,
                                               .head_dim = 2,
                                               .scale = 1.0F};
    const int32_t target = 0;
    float logits[40];
    float q[6] = {1, 2, 3, 4, 5, 6};
    float y[6];
    double nll = 0.0;
    for (size_t bad = 0; bad < 40; bad++) {
        for (size_t i = 0; i < 40; i++) {
            logits[i] = i == bad ? NAN : (float)i;
        }
        assert_int_equal(ops->cross_entropy(cpu, 1, 40, logits, &target, &nll, NULL), ESPL_OK);
        assert_true(isnan(nll));
    }
    q[2] = NAN; /* of position 1 */
    assert_int_equal(ops->attention(cpu, &shape, q, logits, logits, y, NULL), ESPL_OK);
    assert_true(isfinite(y[0]));
    assert_true(isnan(y[2]));
    assert_true(isfinite(y[4]));
    espl_backend_close(cpu);
}

/* Past 16384 positions the query panels get lower; the last rows against the formula. */
static void test_cpu_attention__long_window(void **state)
{
    (void)state;
    enum { TOKENS = 16411, DIM = 2 };
    const struct espl_kernel_case item = {"attention", {1, TOKENS, 1, 1, DIM}, 0};
    const size_t rows[] = {0, 63, 64, 16383, 16384, TOKENS - 1};
    struct espl_backend *cpu = open_backend("cpu", 2);
    struct espl_kernel_problem *problem = make_problem(&item);
    run_problem(problem, cpu);
    const float *y = problem->output;
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        double sums[DIM] = {0};
        double total = 0.0;
        const float *q = problem->inputs[0] + rows[r] * DIM;
        for (size_t j = 0; j <= rows[r]; j++) {
            const float *k = problem->inputs[1] + j * DIM;
            const double weight =
                exp(((double)q[0] * (double)k[0] + (double)q[1] * (double)k[1]) / sqrt(2.0));
            total += weight;
            for (size_t d = 0; d < DIM; d++) {
                sums[d] += weight * (double)problem->inputs[2][j * DIM + d];
            }
        }
        for (size_t d = 0; d < DIM; d++) {
            assert_true(fabs((double)y[rows[r] * DIM + d] - sums[d] / total) < 3e-6);
        }
    }
    espl_kernel_problem_destroy(problem);
    espl_backend_close(cpu);
}

static void test_norms__work_in_place(void **state)
{
    (void)state;
    static const struct espl_kernel_case cases[] = {{"rmsnorm", {9, 67}, 0},
                                                    {"layernorm", {9, 67}, ESPL_CASE_BIAS}};
    static const char *const names[] = {"ref", "cpu"};
    for (size_t c = 0; c < 4; c++) {
        struct espl_backend *backend = open_backend(names[c / 2], 2);
        const struct espl_ops *ops = espl_backend_ops(backend);
        struct espl_kernel_problem *p = make_problem(&cases[c % 2]);
        run_problem(p, backend);
        if (c % 2 == 0) {
            assert_int_equal(
                ops->rmsnorm(backend, 9, 67, p->inputs[0], p->inputs[1], 1e-5F, p->inputs[0], NULL),
                ESPL_OK);
        } else {
            assert_int_equal(ops->layernorm(backend, 9, 67, p->inputs[0], p->inputs[1],
                                            p->inputs[2], 1e-5F, p->inputs[0], NULL),
                             ESPL_OK);
        }
        assert_memory_equal(p->inputs[0], p->output, p->output_bytes);
        espl_kernel_problem_destroy(p);
        espl_backend_close(backend);
    }
}

/* rope keeps a table between calls: another magnitude, frequency or length must not meet the old
 * one. */
static void test_cpu_rope__forgets_its_table_when_anything_changes(void **state)
{
    (void)state;
    struct espl_backend *backends[] = {open_backend("cpu", 1), open_backend("ref", 1)};
    const float first[] = {1.0F, 0.01F};
    const float second[] = {1.0F, 0.02F};
    const struct {
        size_t tokens, past;
        const float *inv_freq;
        size_t head_dim;
        float magnitude;
    } calls[] = {{3, 0, first, 4, 1.0F},    {5, 0, first, 4, 1.0F},   {5, 0, second, 4, 1.0F},
                 {5, 0, second, 4, 2.0F},   {5, 0, second, 2, 2.0F},  {2, 0, second, 2, 2.0F},
                 {1, 255, second, 2, 2.0F}, {2, 255, first, 4, 1.0F}, {1, 700, first, 4, 1.0F}};
    for (size_t c = 0; c < sizeof calls / sizeof calls[0]; c++) {
        float x[2][20];
        for (size_t b = 0; b < 2; b++) {
            for (size_t i = 0; i < 20; i++) {
                x[b][i] = (float)i - 9.5F;
            }
            assert_int_equal(espl_backend_ops(backends[b])
                                 ->rope(backends[b], 1, calls[c].tokens, calls[c].past, 1,
                                        calls[c].head_dim, calls[c].inv_freq, calls[c].magnitude,
                                        x[b], NULL),
                             ESPL_OK);
        }
        assert_memory_equal(x[0], x[1], sizeof x[0]);
    }
    espl_backend_close(backends[0]);
    espl_backend_close(backends[1]);
}

/* A window in two goes, keys and values of both in one cache with room left, against the window at
 * once: the reference gives the same bits. */
static void test_attention__windows_that_go_on(void **state)
{
    enum { WINDOWS = 2, TOKENS = 21, ROOM = 25, HEADS = 4, KV_HEADS = 2, DIM = 8 };
    enum { Q = HEADS * DIM, KV = KV_HEADS * DIM };
    (void)state;
    static float q[WINDOWS * TOKENS * Q], whole[WINDOWS * TOKENS * Q], part[WINDOWS * TOKENS * Q];
    static float k[WINDOWS * ROOM * KV], v[WINDOWS * ROOM * KV], dense_k[WINDOWS * TOKENS * KV],
        dense_v[WINDOWS * TOKENS * KV];
    for (size_t i = 0; i < WINDOWS * TOKENS * Q; i++) {
        q[i] = sinf((float)i);
    }
    for (size_t i = 0; i < WINDOWS * ROOM * KV; i++) { /* NaN where nothing may read */
        const size_t at = i / KV % ROOM;
        const size_t to = (i / KV / ROOM * TOKENS + at) * KV + i % KV;
        k[i] = at < TOKENS ? cosf(3.0F * (float)i) : NAN;
        v[i] = at < TOKENS ? cosf(5.0F * (float)i) : NAN;
        if (at < TOKENS) {
            dense_k[to] = k[i];
            dense_v[to] = v[i];
        }
    }
    static const char *const names[] = {"ref", "cpu"};
    for (size_t b = 0; b < 2; b++) {
        struct espl_backend *backend = open_backend(names[b], 2);
        const struct espl_ops *ops = espl_backend_ops(backend);
        struct espl_attention_shape shape = {.windows = WINDOWS,
                                             .tokens = TOKENS,
                                             .key_rows = TOKENS,
                                             .heads = HEADS,
                                             .kv_heads = KV_HEADS,
                                             .head_dim = DIM,
                                             .scale = 0.5F};
        assert_int_equal(ops->attention(backend, &shape, q, dense_k, dense_v, whole, NULL),
                         ESPL_OK);
        static const size_t steps[] = {13, 1, 7};
        shape.key_rows = ROOM;
        for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
            static float queries[WINDOWS * TOKENS * Q], y[WINDOWS * TOKENS * Q];
            shape.tokens = steps[s];
            for (size_t w = 0; w < WINDOWS; w++) {
                memcpy(queries + w * steps[s] * Q, q + (w * TOKENS + shape.past) * Q,
                       steps[s] * Q * sizeof *q);
            }
            assert_int_equal(ops->attention(backend, &shape, queries, k, v, y, NULL), ESPL_OK);
            for (size_t w = 0; w < WINDOWS; w++) {
                memcpy(part + (w * TOKENS + shape.past) * Q, y + w * steps[s] * Q,
                       steps[s] * Q * sizeof *q);
            }
            shape.past += steps[s];
        }
        assert_int_equal(shape.past, TOKENS);
        for (size_t i = 0; i < WINDOWS * TOKENS * Q; i++) {
            assert_true(fabsf(part[i] - whole[i]) <= (b == 0 ? 0.0F : 1e-6F));
        }
        espl_backend_close(backend);
    }
}

static void test_masks__refuse_impossible_patterns(void **state)
{
    (void)state;
    static const char *const names[] = {"ref", "cpu"};
    const struct espl_matrix_shape shape = {1, 6};
    const float score[6] = {1, 2, 3, 4, 5, 6};
    uint8_t mask = 0;
    for (size_t b = 0; b < 2; b++) {
        struct espl_error err;
        struct espl_backend *backend = open_backend(names[b], 1);
        const struct espl_ops *ops = espl_backend_ops(backend);
        assert_int_equal(ops->nm_mask(backend, &shape, score, 2, 4, false, &mask, &err),
                         ESPL_E_UNSUPPORTED);
        assert_string_equal(err.message, "6 columns are not a multiple of 4");
        assert_int_equal(ops->nm_mask(backend, &shape, score, 0, 3, false, &mask, &err),
                         ESPL_E_UNSUPPORTED);
        assert_int_equal(ops->nm_mask(backend, &shape, score, 4, 3, false, &mask, &err),
                         ESPL_E_UNSUPPORTED);
        assert_int_equal(ops->row_mask(backend, &shape, score, 7, &mask, &err), ESPL_E_UNSUPPORTED);
        assert_int_equal(ops->nm_mask(backend, &shape, score, 1, 3, false, &mask, &err), ESPL_OK);
        assert_int_equal(mask, 0x24); /* columns 2 and 5 */
        espl_backend_close(backend);
    }
}

static void test_backend_open__refuses_unknown_names(void **state)
{
    (void)state;
    struct espl_error err;
    struct espl_backend *backend = NULL;
    assert_int_equal(espl_backend_open("tpu", 0, &backend, &err), ESPL_E_UNSUPPORTED);
    assert_string_equal(err.message, "this build has no kernel backend 'tpu'");
    assert_null(backend);
}

static void test_backend_open__bounds_threads(void **state)
{
    (void)state;
    struct espl_backend *backend = open_backend("cpu", 1000);
    assert_int_equal(espl_backend_threads(backend), ESPL_BACKEND_MAX_THREADS);
    espl_backend_close(backend);
    backend = open_backend("auto", 0);
    assert_true(espl_backend_threads(backend) >= 1);
    assert_string_equal(espl_backend_ops(backend)->name, "cpu");
    espl_backend_close(backend);
    espl_backend_close(NULL);
}

static void test_blas_better_core__knows_the_old_ones(void **state)
{
    (void)state;
    assert_string_equal(espl_blas_better_core("Prescott", true, true), "SkylakeX");
    assert_string_equal(espl_blas_better_core("Prescott", true, false), "Haswell");
    assert_null(espl_blas_better_core("Prescott", false, false));
    assert_string_equal(espl_blas_better_core("Core2", true, false), "Haswell");
    assert_null(espl_blas_better_core("Haswell", true, true));
    assert_null(espl_blas_better_core("Zen", true, true));
    assert_null(espl_blas_better_core("SkylakeX", true, true));
    assert_null(espl_blas_better_core("Cooperlake", true, true));
    assert_null(espl_blas_better_core("neoversen1", false, false));
    assert_null(espl_blas_better_core("Sapphirerapids", true, true));
}

static void test_blas_get_info__describes_the_linked_library(void **state)
{
    (void)state;
    struct espl_blas_info info;
    espl_blas_get_info(&info);
    assert_non_null(strstr(info.config, "OpenBLAS"));
    assert_true(info.core[0] != '\0');
    assert_true(strcmp(info.parallel, "serial") == 0 || strcmp(info.parallel, "pthreads") == 0 ||
                strcmp(info.parallel, "openmp") == 0);
    assert_int_equal(info.old_core_on_new_cpu, espl_blas_better_core_here() != NULL);
}

/* In a process of its own: the limit cannot be raised again. */
static void test_backend_open__refuses_when_blas_has_no_room(void **state)
{
    (void)state;
#if defined __SANITIZE_ADDRESS__ || defined ESPL_EMULATED
    skip(); /* shadow memory, or an emulator's own, is over any limit */
#endif
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit limit = {.rlim_cur = (rlim_t)64 << 20, .rlim_max = (rlim_t)64 << 20};
        struct espl_backend *backend = NULL;
        struct espl_error err = {0};
        const bool set = setrlimit(RLIMIT_AS, &limit) == 0;
        const enum espl_status status = espl_backend_open("cpu", 1, &backend, &err);
        _exit(set && status == ESPL_E_NOMEM && strstr(err.hint, "ulimit -v") != NULL ? 0 : 1);
    }
    int exit_status = 0;
    assert_int_equal(waitpid(child, &exit_status, 0), child);
    assert_true(WIFEXITED(exit_status));
    assert_int_equal(WEXITSTATUS(exit_status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ref__equals_formulas_in_double),
        cmocka_unit_test(test_cpu__is_within_tolerance_of_ref),
        cmocka_unit_test(test_cpu__same_bytes_for_any_thread_count),
        cmocka_unit_test(test_cpu_activations__hold_their_accuracy_everywhere),
        cmocka_unit_test(test_cpu_activations__keep_nan),
        cmocka_unit_test(test_cpu_losses__keep_nan),
        cmocka_unit_test(test_cpu_attention__long_window),
        cmocka_unit_test(test_norms__work_in_place),
        cmocka_unit_test(test_cpu_rope__forgets_its_table_when_anything_changes),
        cmocka_unit_test(test_attention__windows_that_go_on),
        cmocka_unit_test(test_masks__refuse_impossible_patterns),
        cmocka_unit_test(test_backend_open__refuses_unknown_names),
        cmocka_unit_test(test_backend_open__bounds_threads),
        cmocka_unit_test(test_backend_open__refuses_when_blas_has_no_room),
        cmocka_unit_test(test_blas_better_core__knows_the_old_ones),
        cmocka_unit_test(test_blas_get_info__describes_the_linked_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

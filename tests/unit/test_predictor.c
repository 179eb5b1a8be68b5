/* The end-to-end predictor on a synthetic stack whose gammas are known: 48 layers of 4 shapes,
 * table cost base * (0.3 + 0.7 (n / 8)^0.9), 1 % measurement noise. */
#include "support/cmocka_all.h"

#include "core/rng.h"
#include "search/predictor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 48, SHAPES = 4, LEVELS = 8, MOST_RUNS = 96, HELD_OUT = 200 };

static const double shape_base[SHAPES] = {0.020, 0.008, 0.026, 0.025};
static const double shape_gamma[SHAPES] = {1.10, 0.93, 1.02, 0.97};
static const double fixed_cost = 0.35;

struct stack {
    size_t shape_of[LAYERS];
    double costs[MOST_RUNS * LAYERS];
    double measured[MOST_RUNS];
};

static double table_cost(size_t shape, unsigned level)
{
    return shape_base[shape] * (0.3 + 0.7 * pow((level + 1.0) / LEVELS, 0.9));
}

static double true_cost(const uint8_t *levels)
{
    double sum = fixed_cost;
    for (size_t layer = 0; layer < LAYERS; layer++) {
        sum += shape_gamma[layer % SHAPES] * table_cost(layer % SHAPES, levels[layer]);
    }
    return sum;
}

static void table_costs(const uint8_t *levels, double *costs)
{
    for (size_t layer = 0; layer < LAYERS; layer++) {
        costs[layer] = table_cost(layer % SHAPES, levels[layer]);
    }
}

static void make_stack(struct stack *stack, size_t runs, uint64_t seed)
{
    struct espl_rng rng = espl_rng_stream(seed, "noise", 0);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        stack->shape_of[layer] = layer % SHAPES;
    }
    for (size_t run = 0; run < runs; run++) {
        uint8_t levels[LAYERS];
        espl_predictor_design(LAYERS, stack->shape_of, SHAPES, LEVELS, runs, run, seed, levels);
        table_costs(levels, stack->costs + run * LAYERS);
        stack->measured[run] = true_cost(levels) * (1.0 + 0.01 * espl_rng_normal(&rng));
    }
}

static void fit(const struct stack *stack, size_t runs, enum espl_gamma_mode mode,
                struct espl_predictor *predictor)
{
    const struct espl_predictor_data data = {.layers = LAYERS,
                                             .runs = runs,
                                             .shapes = SHAPES,
                                             .shape_of = stack->shape_of,
                                             .costs = stack->costs,
                                             .measured = stack->measured};
    const struct espl_predictor_options options = {.gamma = mode, .ridge = 0.02, .max_error = 0.1};
    struct espl_error err;
    assert_int_equal(espl_predictor_fit(&data, &options, predictor, &err), ESPL_OK);
}

/* Largest relative error over configurations with one level per layer anywhere. */
static double worst_held_out(const struct espl_predictor *predictor)
{
    double worst = 0.0;
    for (size_t i = 0; i < HELD_OUT; i++) {
        struct espl_rng rng = espl_rng_stream(99, "held-out", i);
        uint8_t levels[LAYERS];
        double costs[LAYERS];
        for (size_t layer = 0; layer < LAYERS; layer++) {
            levels[layer] = (uint8_t)espl_rng_below(&rng, LEVELS);
        }
        table_costs(levels, costs);
        const double error = fabs(espl_predictor_cost(predictor, costs) / true_cost(levels) - 1.0);
        worst = error > worst ? error : worst;
    }
    return worst;
}

/* What a search would do to a bad fit: the half of the layers with the lowest gamma dense, the
 * others sparsest. True over predicted cost. */
static double worst_exploited(const struct espl_predictor *predictor)
{
    uint8_t levels[LAYERS];
    double costs[LAYERS];
    for (size_t layer = 0; layer < LAYERS; layer++) {
        size_t lower = 0;
        for (size_t other = 0; other < LAYERS; other++) {
            lower += predictor->gamma[other] < predictor->gamma[layer] ||
                     (predictor->gamma[other] == predictor->gamma[layer] && other < layer);
        }
        levels[layer] = lower < LAYERS / 2 ? LEVELS - 1 : 0;
    }
    table_costs(levels, costs);
    return true_cost(levels) / espl_predictor_cost(predictor, costs);
}

static void test_fit__per_shape_recovers_the_stack(void **state)
{
    (void)state;
    static struct stack stack;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct espl_predictor predictor;
        make_stack(&stack, 48, seed);
        fit(&stack, 48, ESPL_GAMMA_PER_SHAPE, &predictor);
        assert_true(predictor.health.safe);
        assert_string_equal(predictor.health.reason, "");
        assert_int_equal(predictor.health.unknowns, SHAPES + 1);
        assert_int_equal(predictor.health.zero_gammas, 0);
        assert_true(isfinite(predictor.health.condition));
        assert_true(predictor.health.left_out_max_error < 0.05);
        assert_true(predictor.health.left_out_mean_error >= predictor.health.mean_error);
        assert_true(worst_held_out(&predictor) < 0.02);
        espl_predictor_free(&predictor);
    }
}

/* Without noise the gammas themselves come back. */
static void test_fit__exact_data_gives_exact_gammas(void **state)
{
    (void)state;
    static struct stack stack;
    struct espl_predictor predictor;
    make_stack(&stack, 24, 1);
    for (size_t run = 0; run < 24; run++) {
        uint8_t levels[LAYERS];
        espl_predictor_design(LAYERS, stack.shape_of, SHAPES, LEVELS, 24, run, 1, levels);
        stack.measured[run] = true_cost(levels);
    }
    fit(&stack, 24, ESPL_GAMMA_PER_SHAPE, &predictor);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        assert_true(fabs(predictor.gamma[layer] - shape_gamma[layer % SHAPES]) < 1e-9);
    }
    assert_true(fabs(predictor.intercept - fixed_cost) < 1e-9);
    assert_true(predictor.health.max_error < 1e-9);
    espl_predictor_free(&predictor);
}

/* One gamma a layer from 24 runs: the fit to its own data looks perfect, half of the gammas are 0,
 * and a search would be fooled by far more than its errors say. It must be refused. */
static void test_fit__refuses_more_unknowns_than_runs_can_tell(void **state)
{
    (void)state;
    static struct stack stack;
    struct espl_predictor predictor;
    make_stack(&stack, 24, 1);
    fit(&stack, 24, ESPL_GAMMA_PER_LAYER, &predictor);
    assert_false(predictor.health.safe);
    assert_string_equal(predictor.health.reason, "24 measured runs for 49 unknowns");
    assert_true(predictor.health.zero_gammas >= 20);
    assert_true(predictor.health.mean_error < 0.01);
    assert_true(isinf(predictor.health.condition));
    assert_true(worst_exploited(&predictor) > 1.2);
    espl_predictor_free(&predictor);
}

/* With enough runs for the count, zeros alone are reason enough. */
static void test_fit__refuses_zero_gammas(void **state)
{
    (void)state;
    static struct stack stack;
    struct espl_predictor predictor;
    make_stack(&stack, 60, 1);
    fit(&stack, 60, ESPL_GAMMA_PER_LAYER, &predictor);
    assert_true(predictor.health.zero_gammas > 0);
    assert_false(predictor.health.safe);
    assert_non_null(strstr(predictor.health.reason, "gammas are 0"));
    espl_predictor_free(&predictor);
}

static void test_fit__shrunk_is_safe_with_few_runs(void **state)
{
    (void)state;
    static struct stack stack;
    struct espl_predictor predictor;
    make_stack(&stack, 24, 1);
    fit(&stack, 24, ESPL_GAMMA_SHRUNK, &predictor);
    assert_int_equal(predictor.health.zero_gammas, 0);
    assert_true(predictor.health.safe);
    assert_true(worst_exploited(&predictor) < 1.15);
    espl_predictor_free(&predictor);
}

static void test_fit__refuses_a_large_left_out_error(void **state)
{
    (void)state;
    static struct stack stack;
    struct espl_predictor predictor;
    make_stack(&stack, 24, 1);
    stack.measured[5] *= 1.6; /* a run that something disturbed */
    fit(&stack, 24, ESPL_GAMMA_PER_SHAPE, &predictor);
    assert_false(predictor.health.safe);
    assert_non_null(strstr(predictor.health.reason, "left out"));
    espl_predictor_free(&predictor);
}

/* Passes that are all alike are fitted without error, but nothing tells layers from the rest. */
static void test_fit__refuses_runs_that_are_alike(void **state)
{
    (void)state;
    const size_t shape_of[] = {0};
    const double costs[] = {2.0, 2.0, 2.0};
    const double measured[] = {2.0, 2.0, 2.0};
    const struct espl_predictor_data data = {1, 3, 1, shape_of, costs, measured};
    const struct espl_predictor_options options = {ESPL_GAMMA_PER_SHAPE, 0.02, 0.1};
    struct espl_predictor predictor;
    assert_int_equal(espl_predictor_fit(&data, &options, &predictor, NULL), ESPL_OK);
    assert_int_equal(predictor.health.zero_gammas, 0);
    assert_true(predictor.health.left_out_max_error < 1e-9);
    assert_false(predictor.health.safe);
    assert_string_equal(predictor.health.reason, "the measured runs cannot tell the layers apart");
    espl_predictor_free(&predictor);
}

static void test_fit__errors(void **state)
{
    (void)state;
    const size_t shape_of[] = {0};
    const double costs[] = {1.0};
    const double measured[] = {0.0};
    struct espl_predictor_data data = {1, 1, 1, shape_of, costs, measured};
    const struct espl_predictor_options options = {ESPL_GAMMA_PER_SHAPE, 0.02, 0.1};
    struct espl_predictor predictor;
    struct espl_error err;
    assert_int_equal(espl_predictor_fit(&data, &options, &predictor, &err), ESPL_E_NUMERIC);
    espl_predictor_free(&predictor);
    data.runs = 0;
    assert_int_equal(espl_predictor_fit(&data, &options, &predictor, &err), ESPL_E_KIND);
    espl_predictor_free(&predictor);
}

static void test_sum__is_not_safe(void **state)
{
    (void)state;
    struct espl_predictor predictor;
    const double costs[] = {1.5, 2.25};
    assert_int_equal(espl_predictor_sum(2, &predictor, NULL), ESPL_OK);
    assert_true(espl_predictor_cost(&predictor, costs) == 3.75);
    assert_false(predictor.health.safe);
    assert_non_null(strstr(predictor.health.reason, "no end-to-end run"));
    espl_predictor_free(&predictor);
}

/* Half near one level, each level in turn; a quarter one shape against the others; a quarter of
 * extremes. */
static void test_design__has_three_parts(void **state)
{
    (void)state;
    size_t shape_of[LAYERS];
    uint8_t levels[LAYERS];
    size_t dense = 0;
    for (size_t layer = 0; layer < LAYERS; layer++) {
        shape_of[layer] = layer % SHAPES;
    }
    for (size_t run = 0; run < 24; run++) {
        espl_predictor_design(LAYERS, shape_of, SHAPES, LEVELS, 24, run, 7, levels);
        for (size_t layer = 0; layer < LAYERS; layer++) {
            const int step = (int)levels[layer] - (int)(run % LEVELS);
            const size_t turn = run - 12;
            assert_true(levels[layer] < LEVELS);
            if (run < 12) {
                assert_true(step >= -1 && step <= 1);
            } else if (run < 18) {
                const bool chosen = layer % SHAPES == turn / 2 % SHAPES;
                assert_int_equal(levels[layer], chosen == (turn % 2 == 0) ? 0 : LEVELS - 1);
            } else {
                assert_true(levels[layer] == 0 || levels[layer] == LEVELS - 1);
                dense += levels[layer] != 0;
            }
        }
    }
    assert_true(dense > 6 * LAYERS / 4 && dense < 6 * LAYERS * 3 / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fit__per_shape_recovers_the_stack),
        cmocka_unit_test(test_fit__exact_data_gives_exact_gammas),
        cmocka_unit_test(test_fit__refuses_more_unknowns_than_runs_can_tell),
        cmocka_unit_test(test_fit__refuses_zero_gammas),
        cmocka_unit_test(test_fit__shrunk_is_safe_with_few_runs),
        cmocka_unit_test(test_fit__refuses_a_large_left_out_error),
        cmocka_unit_test(test_fit__refuses_runs_that_are_alike),
        cmocka_unit_test(test_fit__errors),
        cmocka_unit_test(test_sum__is_not_safe),
        cmocka_unit_test(test_design__has_three_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

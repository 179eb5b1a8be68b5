/* Searches on made-up problems: never over budget, as good as exhaustive search on a toy, counts
 * and limits kept. */
#include "support/cmocka_all.h"

#include "search_fixture.h"

#include <math.h>
#include <string.h>

static struct espl_search *start_search(struct search_fixture *f, const char *strategy,
                                        const struct espl_search_options *options)
{
    struct espl_search *search = NULL;
    struct espl_error err;
    const struct espl_search_strategy *found = espl_search_strategy_find(strategy);
    assert_non_null(found);
    if (espl_search_create(&f->space, options, found, search_fixture_score, f, &search, &err) !=
        ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return search;
}

static void run_to_end(struct search_fixture *f, struct espl_search *search)
{
    while (!espl_search_finished(search)) {
        assert_int_equal(espl_search_step(search, NULL), ESPL_OK);
        assert_true(espl_search_feasible(&f->space, espl_search_best(search)));
    }
}

static double best_of_all(const struct search_fixture *f)
{
    double best = -INFINITY;
    uint8_t levels[4];
    for (unsigned code = 0; code < 8 * 8 * 8 * 8; code++) {
        for (unsigned layer = 0; layer < 4; layer++) {
            levels[layer] = (uint8_t)(code >> (3 * layer) & 7u);
        }
        const double value = search_fixture_value(f, levels);
        best = espl_search_feasible(&f->space, levels) && value > best ? value : best;
    }
    return best;
}

/* 4 layers x 8 levels, every refinement, two constraints now and then. Fidelities are both exact
 * enough here: the top one decides. */
static void test_overshoot__equals_exhaustive_search(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        for (int refine = 0; refine < 3; refine++) {
            struct search_fixture f;
            struct espl_search_options options;
            search_fixture_make(&f, 4, 8, 0.6, seed % 2 == 1, seed);
            espl_search_default_options(&options);
            options.seed = seed;
            options.refine = refine;
            options.repair = (int)(seed / 2 % 2);
            options.overshoot_max = seed % 3 == 0 ? 1 : 4;
            options.fidelities = 2; /* the second is not rounded */
            options.survivors[0] = 3;
            options.patience = 0;
            options.generations = 80;
            struct espl_search *search = start_search(&f, "overshoot-repair-refine", &options);
            run_to_end(&f, search);
            assert_true(fabs(espl_search_best_score(search) - best_of_all(&f)) < 1e-12);
            assert_false(f.over_budget);
            espl_search_destroy(search);
        }
    }
}

static void test_all_strategies__keep_the_budget(void **state)
{
    (void)state;
    for (size_t i = 0; espl_search_strategies[i] != NULL; i++) {
        for (uint64_t seed = 0; seed < 6; seed++) {
            struct search_fixture f;
            struct espl_search_options options;
            search_fixture_make(&f, 12, 8, 0.45 + 0.05 * (double)seed, seed % 2 == 0, seed);
            espl_search_default_options(&options);
            options.seed = seed;
            options.generations = 25;
            options.selection = seed % 3 == 0 ? ESPL_SELECT_COMMA : ESPL_SELECT_PLUS;
            options.resample = seed % 3 == 1;
            struct espl_search *search =
                start_search(&f, espl_search_strategies[i]->name, &options);
            run_to_end(&f, search);
            if (strcmp(espl_search_strategies[i]->name, "greedy") != 0) {
                assert_false(f.over_budget);
            }
            espl_search_destroy(search);
        }
    }
}

/* Plus selection on fixed data never loses ground. */
static void test_plus__never_gets_worse(void **state)
{
    (void)state;
    struct search_fixture f;
    struct espl_search_options options;
    search_fixture_make(&f, 12, 8, 0.6, false, 5);
    espl_search_default_options(&options);
    options.generations = 30;
    struct espl_search *search = start_search(&f, "overshoot-repair-refine", &options);
    run_to_end(&f, search);
    for (size_t i = 1; i < espl_search_record_count(search); i++) {
        assert_true(espl_search_record_at(search, i)->score >=
                    espl_search_record_at(search, i - 1)->score);
        assert_int_equal(espl_search_record_at(search, i)->generation, i);
    }
    assert_true(espl_search_asked(search, 0) > espl_search_computed(search));
    assert_int_equal(espl_search_computed(search), f.scored);
    espl_search_destroy(search);
}

/* Comma forgets the parent, so with one offspring a generation it must lose ground at times. */
static void test_comma__may_get_worse(void **state)
{
    (void)state;
    struct search_fixture f;
    struct espl_search_options options;
    bool worse = false;
    search_fixture_make(&f, 12, 8, 0.6, false, 5);
    espl_search_default_options(&options);
    options.generations = 30;
    options.offspring = 1;
    options.patience = 0;
    options.selection = ESPL_SELECT_COMMA;
    struct espl_search *search = start_search(&f, "overshoot-repair-refine", &options);
    run_to_end(&f, search);
    for (size_t i = 1; i < espl_search_record_count(search); i++) {
        worse |=
            espl_search_record_at(search, i)->score < espl_search_record_at(search, i - 1)->score;
    }
    assert_true(worse);
    espl_search_destroy(search);
}

static void test_evaluations__stop_at_the_limit(void **state)
{
    (void)state;
    for (size_t i = 0; espl_search_strategies[i] != NULL; i++) {
        for (int refine = 0; refine < 3; refine++) {
            struct search_fixture f;
            struct espl_search_options options;
            search_fixture_make(&f, 12, 8, 0.6, false, 3);
            espl_search_default_options(&options);
            options.refine = refine;
            options.max_evaluations = 61;
            options.patience = 0;
            struct espl_search *search =
                start_search(&f, espl_search_strategies[i]->name, &options);
            run_to_end(&f, search);
            assert_true(f.scored <= 61);
            assert_int_equal(espl_search_computed(search), f.scored);
            if (espl_search_strategies[i]->step != NULL) {
                assert_int_equal(f.scored, 61);
                assert_string_equal(espl_search_stop_reason(search), "evaluations");
            }
            espl_search_destroy(search);
        }
    }
}

static void test_patience__stops_a_search_that_stands_still(void **state)
{
    (void)state;
    struct search_fixture f;
    struct espl_search_options options;
    search_fixture_make(&f, 4, 4, 0.6, false, 3);
    espl_search_default_options(&options);
    options.generations = 1000;
    options.patience = 7;
    struct espl_search *search = start_search(&f, "overshoot-repair-refine", &options);
    run_to_end(&f, search);
    assert_string_equal(espl_search_stop_reason(search), "patience");
    const size_t count = espl_search_record_count(search);
    assert_true(count > 7);
    assert_true(espl_search_record_at(search, count - 1)->score ==
                espl_search_record_at(search, count - 8)->score);
    espl_search_destroy(search);
}

/* A budget of the dense model: nothing to prune away. */
static void test_loose_budget__stays_dense(void **state)
{
    (void)state;
    for (size_t i = 0; espl_search_strategies[i] != NULL; i++) {
        struct search_fixture f;
        struct espl_search_options options;
        search_fixture_make(&f, 6, 8, 1.0, false, 3);
        f.space.constraint[0].budget += 1e-9;
        espl_search_default_options(&options);
        options.generations = 10;
        struct espl_search *search = start_search(&f, espl_search_strategies[i]->name, &options);
        run_to_end(&f, search);
        for (size_t layer = 0; layer < 6; layer++) {
            assert_int_equal(espl_search_best(search)[layer], 7);
        }
        espl_search_destroy(search);
    }
}

/* With levels of equal cost a repair must look past the next level. */
static void test_plateaus__do_not_trap_the_repair(void **state)
{
    (void)state;
    struct search_fixture f;
    struct espl_search_options options;
    search_fixture_make(&f, 6, 8, 0.6, false, 3);
    for (size_t layer = 0; layer < 6; layer++) {
        double *cost = f.cost + layer * ESPL_SEARCH_MAX_LEVELS;
        cost[2] = cost[3]; /* 3:8 runs on the kernel for 4:8 */
        cost[4] = cost[5] = cost[6] = cost[7];
    }
    espl_search_default_options(&options);
    options.generations = 20;
    options.patience = 0;
    options.overshoot_max = 4;
    options.repair = ESPL_REPAIR_RANDOM;
    options.refine = ESPL_REFINE_LAZY;
    struct espl_search *search = start_search(&f, "overshoot-repair-refine", &options);
    run_to_end(&f, search);
    assert_true(espl_search_computed(search) > 60);
    assert_false(f.over_budget);
    espl_search_destroy(search);
}

/* A score that no refinement improves (denser is worse), so that what is scored is the repaired
 * offspring and its trials of one step each; most: layers in which one differs from the parent. */
struct changes {
    size_t layers;
    const uint8_t *parent; /* NULL: before the first generation */
    size_t most;
};

static enum espl_status count_changes(void *user, uint64_t epoch, unsigned fidelity, size_t count,
                                      const uint8_t *levels, double *scores, struct espl_error *err)
{
    struct changes *changes = user;
    (void)epoch;
    (void)fidelity;
    (void)err;
    for (size_t i = 0; i < count; i++) {
        size_t differing = 0;
        scores[i] = 0.0;
        for (size_t layer = 0; layer < changes->layers; layer++) {
            const uint8_t level = levels[i * changes->layers + layer];
            scores[i] -= level;
            differing += changes->parent != NULL && level != changes->parent[layer];
        }
        changes->most = differing > changes->most ? differing : changes->most;
    }
    return ESPL_OK;
}

/* One layer denser, one sparser, one tried: `fewest` never changes more, `random` does. */
static void test_repair__fewest_changes_one_layer(void **state)
{
    (void)state;
    size_t most[2];
    for (int repair = 0; repair < 2; repair++) {
        struct search_fixture f;
        struct espl_search_options options;
        struct espl_search *search = NULL;
        struct changes changes = {.layers = 12};
        search_fixture_make(&f, 12, 8, 0.6, false, 3);
        espl_search_default_options(&options);
        options.offspring = 64;
        options.repair = repair;
        options.refine = ESPL_REFINE_LAZY;
        assert_int_equal(espl_search_create(&f.space, &options,
                                            espl_search_strategy_find("overshoot-repair-refine"),
                                            count_changes, &changes, &search, NULL),
                         ESPL_OK);
        assert_int_equal(espl_search_step(search, NULL), ESPL_OK);
        changes.parent = espl_search_best(search); /* stays until the offspring are selected */
        assert_int_equal(espl_search_step(search, NULL), ESPL_OK);
        most[repair] = changes.most;
        espl_search_destroy(search);
    }
    assert_int_equal(most[ESPL_REPAIR_FEWEST], 3);
    assert_true(most[ESPL_REPAIR_RANDOM] > 3);
}

/* Refinements cost what the method says: latency-only one score an offspring at most, literal more
 * than lazy. */
static void test_refine__costs(void **state)
{
    (void)state;
    uint64_t scored[3];
    for (int refine = 0; refine < 3; refine++) {
        struct search_fixture f;
        struct espl_search_options options;
        search_fixture_make(&f, 16, 8, 0.6, false, 9);
        espl_search_default_options(&options);
        options.refine = refine;
        options.generations = 30;
        options.patience = 0;
        struct espl_search *search = start_search(&f, "overshoot-repair-refine", &options);
        run_to_end(&f, search);
        scored[refine] = f.scored;
        espl_search_destroy(search);
    }
    assert_true(scored[ESPL_REFINE_LATENCY_ONLY] <= 8 + 30 * 8);
    assert_true(scored[ESPL_REFINE_LAZY] > scored[ESPL_REFINE_LATENCY_ONLY]);
    assert_true(scored[ESPL_REFINE_LITERAL] > scored[ESPL_REFINE_LAZY]);
}

static void test_front__is_ordered_and_feasible(void **state)
{
    (void)state;
    struct search_fixture f;
    struct espl_search_options options;
    search_fixture_make(&f, 12, 8, 0.6, false, 2);
    espl_search_default_options(&options);
    options.generations = 20;
    struct espl_search *search = start_search(&f, "overshoot-repair-refine", &options);
    run_to_end(&f, search);
    double last_cost = -INFINITY;
    double last_score = -INFINITY;
    assert_true(espl_search_front_count(search) > 0);
    for (size_t i = 0; i < espl_search_front_count(search); i++) {
        const uint8_t *levels = NULL;
        double cost = 0.0;
        double score = 0.0;
        espl_search_front_at(search, i, &levels, &cost, &score);
        assert_true(cost > last_cost && score > last_score);
        assert_true(cost == espl_search_cost(&f.space, 0, levels));
        assert_true(espl_search_feasible(&f.space, levels));
        last_cost = cost;
        last_score = score;
    }
    assert_true(last_score == espl_search_best_score(search));
    espl_search_destroy(search);
}

static void test_options__out_of_range(void **state)
{
    (void)state;
    struct search_fixture f;
    struct espl_search_options options;
    struct espl_search *search = NULL;
    search_fixture_make(&f, 4, 8, 0.6, false, 2);
    espl_search_default_options(&options);
    options.offspring = 0;
    assert_int_equal(espl_search_create(&f.space, &options, espl_search_strategies[0],
                                        search_fixture_score, &f, &search, NULL),
                     ESPL_E_KIND);
    espl_search_default_options(&options);
    options.overshoot_max = 0;
    assert_int_equal(espl_search_create(&f.space, &options, espl_search_strategies[0],
                                        search_fixture_score, &f, &search, NULL),
                     ESPL_E_KIND);
    assert_null(search);
    assert_null(espl_search_strategy_find("no such"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overshoot__equals_exhaustive_search),
        cmocka_unit_test(test_all_strategies__keep_the_budget),
        cmocka_unit_test(test_plus__never_gets_worse),
        cmocka_unit_test(test_comma__may_get_worse),
        cmocka_unit_test(test_evaluations__stop_at_the_limit),
        cmocka_unit_test(test_patience__stops_a_search_that_stands_still),
        cmocka_unit_test(test_loose_budget__stays_dense),
        cmocka_unit_test(test_plateaus__do_not_trap_the_repair),
        cmocka_unit_test(test_repair__fewest_changes_one_layer),
        cmocka_unit_test(test_refine__costs),
        cmocka_unit_test(test_front__is_ordered_and_feasible),
        cmocka_unit_test(test_options__out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Spaces: costs, feasibility, uniform configurations and what is refused; Pareto fronts; memory of
 * scores. */
#include "support/cmocka_all.h"

#include "search/pareto.h"
#include "search/search_memo.h"
#include "search_fixture.h"

#include <math.h>
#include <string.h>

static void test_cost__hand_worked(void **state)
{
    (void)state;
    struct search_fixture f;
    search_fixture_make(&f, 3, 4, 0.7, false, 1);
    const uint8_t levels[] = {0, 1, 3}; /* parts 1/4, 2/4, 4/4 of bases 3, 1, 4 */
    const double expected = 0.3 + 3.0 * 0.475 + 1.0 * 0.65 + 4.0 * 1.0;
    assert_true(fabs(espl_search_cost(&f.space, 0, levels) - expected) < 1e-12);
    assert_true(espl_search_feasible(&f.space, levels) ==
                (expected <= f.space.constraint[0].budget));
}

static void test_uniform__takes_the_next_lower_level(void **state)
{
    (void)state;
    struct search_fixture f;
    uint8_t levels[3];
    search_fixture_make(&f, 3, 4, 0.7, false, 1);
    f.level_count[1] = 2; /* the middle layer has 1 and 4 of 8 only */
    f.level_n[ESPL_SEARCH_MAX_LEVELS + 1] = 4;
    espl_search_uniform(&f.space, 3, levels);
    assert_int_equal(levels[0], 2);
    assert_int_equal(levels[1], 0);
    espl_search_uniform(&f.space, 4, levels);
    assert_int_equal(levels[1], 1);
    espl_search_uniform(&f.space, 0, levels);
    assert_int_equal(levels[0], 0);
}

static void test_uniform_limit__is_the_last_feasible_one(void **state)
{
    (void)state;
    for (unsigned i = 4; i <= 12; i++) {
        struct search_fixture f;
        uint8_t levels[8];
        search_fixture_make(&f, 8, 8, 0.1 * i, i % 2 == 0, i);
        const unsigned limit = espl_search_uniform_limit(&f.space);
        espl_search_uniform(&f.space, limit, levels);
        assert_true(espl_search_feasible(&f.space, levels) || limit == 0);
        espl_search_uniform(&f.space, limit + 1, levels);
        assert_true(limit >= 8 || !espl_search_feasible(&f.space, levels));
    }
}

static void test_check__names_least_cost_and_budget(void **state)
{
    (void)state;
    struct search_fixture f;
    struct espl_error err;
    search_fixture_make(&f, 4, 8, 0.2, false, 1);
    assert_int_equal(espl_search_space_check(&f.space, &err), ESPL_E_NUMERIC);
    assert_non_null(strstr(err.message, "the latency budget of"));
    assert_non_null(strstr(err.message, "the sparsest configuration needs"));
}

static void test_check__refuses_tables(void **state)
{
    (void)state;
    struct search_fixture f;
    search_fixture_make(&f, 4, 8, 0.7, false, 1);
    f.cost[ESPL_SEARCH_MAX_LEVELS + 3] = 0.01; /* falls: a repair could run for ever */
    assert_int_equal(espl_search_space_check(&f.space, NULL), ESPL_E_KIND);
    search_fixture_make(&f, 4, 8, 0.7, false, 1);
    f.cost[0] = (double)NAN;
    assert_int_equal(espl_search_space_check(&f.space, NULL), ESPL_E_KIND);
    search_fixture_make(&f, 4, 8, 0.7, false, 1);
    f.level_n[2] = f.level_n[1];
    assert_int_equal(espl_search_space_check(&f.space, NULL), ESPL_E_KIND);
    search_fixture_make(&f, 4, 8, 0.7, false, 1);
    f.level_count[2] = 0;
    assert_int_equal(espl_search_space_check(&f.space, NULL), ESPL_E_KIND);
}

static void test_pareto__keeps_what_nothing_beats(void **state)
{
    (void)state;
    struct espl_pareto front = {.layers = 1};
    const struct {
        uint8_t name;
        double cost, score;
    } points[] = {{0, 5, 5}, {1, 3, 4}, {2, 4, 3}, {3, 3, 4},  {4, 2, 4.5},
                  {5, 6, 5}, {6, 5, 6}, {7, 4, 6}, {8, 4.5, 6}};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        assert_int_equal(
            espl_pareto_add(&front, &points[i].name, points[i].cost, points[i].score, NULL),
            ESPL_OK);
    }
    /* 4 beats 1 and 3, 6 beats 0 and 5, 7 scores as 6 for less and as 8, 2 was beaten by 1 */
    assert_int_equal(front.count, 2);
    assert_int_equal(front.levels[0], 4);
    assert_int_equal(front.levels[1], 7);
    espl_pareto_free(&front);
}

static void test_memo__finds_what_it_was_told(void **state)
{
    (void)state;
    struct espl_search_memo memo = {.layers = 3};
    double score = 0.0;
    for (unsigned i = 0; i < 1000; i++) { /* grows several times */
        const uint8_t levels[] = {(uint8_t)(i % 16), (uint8_t)(i / 16 % 16), (uint8_t)(i / 256)};
        assert_false(espl_search_memo_find(&memo, i % 2, levels, &score));
        assert_int_equal(espl_search_memo_add(&memo, i % 2, levels, i, NULL), ESPL_OK);
    }
    for (unsigned i = 0; i < 1000; i++) {
        const uint8_t levels[] = {(uint8_t)(i % 16), (uint8_t)(i / 16 % 16), (uint8_t)(i / 256)};
        assert_true(espl_search_memo_find(&memo, i % 2, levels, &score));
        assert_true(score == (double)i);
        assert_false(espl_search_memo_find(&memo, 1 - i % 2, levels, &score));
    }
    espl_search_memo_clear(&memo);
    const uint8_t first[] = {0, 0, 0};
    assert_false(espl_search_memo_find(&memo, 0, first, &score));
    espl_search_memo_free(&memo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cost__hand_worked),
        cmocka_unit_test(test_uniform__takes_the_next_lower_level),
        cmocka_unit_test(test_uniform_limit__is_the_last_feasible_one),
        cmocka_unit_test(test_check__names_least_cost_and_budget),
        cmocka_unit_test(test_check__refuses_tables),
        cmocka_unit_test(test_pareto__keeps_what_nothing_beats),
        cmocka_unit_test(test_memo__finds_what_it_was_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

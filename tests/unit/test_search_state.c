/* A search that is saved and restored after any generation ends in the same state, byte for byte;
 * damaged and foreign states are refused. */
#include "support/cmocka_all.h"

#include "search_fixture.h"

#include <stdlib.h>
#include <string.h>

enum { STATE_LIMIT = 1 << 22, GENERATIONS = 12 };

static void choose_options(size_t number, struct espl_search_options *options)
{
    espl_search_default_options(options);
    options->seed = 17 + number;
    options->generations = GENERATIONS;
    options->patience = 0;
    options->repair = (int)(number / 2 % 2);
    options->overshoot_max = 3;
    options->refine = (int)(number % 3);
    options->selection = (int)(number / 3 % 2);
    options->resample = number % 2 == 1;
    options->fidelities = number % 3 == 0 ? 2 : 1;
    options->survivors[0] = 2;
    options->max_evaluations = number == 4 ? 70 : 0;
}

static struct espl_search *create(struct search_fixture *f, const char *strategy,
                                  const struct espl_search_options *options)
{
    struct espl_search *search = NULL;
    assert_int_equal(espl_search_create(&f->space, options, espl_search_strategy_find(strategy),
                                        search_fixture_score, f, &search, NULL),
                     ESPL_OK);
    return search;
}

static void save(const struct espl_search *search, struct espl_buf *state)
{
    espl_buf_init(state, STATE_LIMIT);
    assert_int_equal(espl_search_save(search, state, NULL), ESPL_OK);
}

static void finish(struct espl_search *search, struct espl_buf *state)
{
    while (!espl_search_finished(search)) {
        assert_int_equal(espl_search_step(search, NULL), ESPL_OK);
    }
    save(search, state);
}

static void check_resume(const char *strategy, size_t number)
{
    struct search_fixture f;
    struct espl_search_options options;
    struct espl_buf whole;
    search_fixture_make(&f, 8, 8, 0.6, number % 2 == 0, number);
    choose_options(number, &options);
    struct espl_search *search = create(&f, strategy, &options);
    finish(search, &whole);
    espl_search_destroy(search);
    for (size_t cut = 0; cut <= GENERATIONS; cut++) {
        struct espl_buf middle;
        struct espl_buf resumed;
        search = create(&f, strategy, &options);
        for (size_t i = 0; i < cut; i++) {
            assert_int_equal(espl_search_step(search, NULL), ESPL_OK);
        }
        save(search, &middle);
        espl_search_destroy(search);
        search = create(&f, strategy, &options);
        assert_int_equal(espl_search_restore(search, middle.data, middle.len, NULL), ESPL_OK);
        finish(search, &resumed);
        assert_int_equal(resumed.len, whole.len);
        assert_memory_equal(resumed.data, whole.data, whole.len);
        espl_search_destroy(search);
        espl_buf_free(&middle);
        espl_buf_free(&resumed);
    }
    espl_buf_free(&whole);
}

static void test_restore__ends_in_the_same_bytes(void **state)
{
    (void)state;
    for (size_t number = 0; number < 6; number++) {
        check_resume("overshoot-repair-refine", number);
    }
    check_resume("evopress", 1);
    check_resume("evopress", 2);
    check_resume("greedy", 2);
    check_resume("uniform", 1);
}

static void test_seed__changes_the_search(void **state)
{
    (void)state;
    struct search_fixture f;
    struct espl_search_options options;
    struct espl_buf states[2];
    search_fixture_make(&f, 8, 8, 0.6, false, 1);
    for (size_t i = 0; i < 2; i++) {
        choose_options(1, &options);
        options.seed = i;
        struct espl_search *search = create(&f, "overshoot-repair-refine", &options);
        assert_int_equal(espl_search_step(search, NULL), ESPL_OK);
        assert_int_equal(espl_search_step(search, NULL), ESPL_OK);
        save(search, &states[i]);
        espl_search_destroy(search);
    }
    assert_true(states[0].len != states[1].len ||
                memcmp(states[0].data + 72, states[1].data + 72, states[0].len - 72) != 0);
    espl_buf_free(&states[0]);
    espl_buf_free(&states[1]);
}

static void test_restore__refuses_another_problem(void **state)
{
    (void)state;
    struct search_fixture f;
    struct espl_search_options options;
    struct espl_buf saved;
    struct espl_error err;
    search_fixture_make(&f, 8, 8, 0.6, false, 1);
    choose_options(1, &options);
    struct espl_search *search = create(&f, "overshoot-repair-refine", &options);
    save(search, &saved);
    espl_search_destroy(search);

    search = create(&f, "evopress", &options);
    assert_int_equal(espl_search_restore(search, saved.data, saved.len, &err), ESPL_E_KIND);
    espl_search_destroy(search);

    f.space.constraint[0].budget *= 1.0000001;
    search = create(&f, "overshoot-repair-refine", &options);
    assert_int_equal(espl_search_restore(search, saved.data, saved.len, &err), ESPL_E_KIND);
    espl_search_destroy(search);

    search_fixture_make(&f, 8, 8, 0.6, false, 1);
    f.cost[3] *= 1.0000001;
    search = create(&f, "overshoot-repair-refine", &options);
    assert_int_equal(espl_search_restore(search, saved.data, saved.len, &err), ESPL_E_KIND);
    espl_search_destroy(search);
    espl_buf_free(&saved);
}

/* Cut anywhere or with any byte changed: refused, or (a number that stays possible) accepted, but
 * never read past its end and never with a level that a layer does not have. */
static void test_restore__survives_damage(void **state)
{
    (void)state;
    struct search_fixture f;
    struct espl_search_options options;
    struct espl_buf saved;
    search_fixture_make(&f, 4, 4, 0.6, false, 1);
    choose_options(1, &options);
    struct espl_search *search = create(&f, "overshoot-repair-refine", &options);
    assert_int_equal(espl_search_step(search, NULL), ESPL_OK);
    save(search, &saved);
    espl_search_destroy(search);
    for (size_t len = 0; len < saved.len; len++) {
        unsigned char *cut = malloc(len > 0 ? len : 1); /* exact: sanitizers see any byte more */
        assert_non_null(cut);
        memcpy(cut, saved.data, len);
        search = create(&f, "overshoot-repair-refine", &options);
        assert_int_equal(espl_search_restore(search, cut, len, NULL), ESPL_E_CORRUPT);
        espl_search_destroy(search);
        free(cut);
    }
    for (size_t at = 0; at < saved.len; at++) {
        saved.data[at] = (char)(saved.data[at] ^ 0x80);
        search = create(&f, "overshoot-repair-refine", &options);
        const enum espl_status status = espl_search_restore(search, saved.data, saved.len, NULL);
        assert_true(status == ESPL_OK || status == ESPL_E_CORRUPT || status == ESPL_E_KIND);
        for (size_t layer = 0; status == ESPL_OK && layer < f.space.layers; layer++) {
            assert_true(espl_search_best(search)[layer] < f.level_count[layer]);
        }
        espl_search_destroy(search);
        saved.data[at] = (char)(saved.data[at] ^ 0x80);
    }
    espl_buf_free(&saved);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restore__ends_in_the_same_bytes),
        cmocka_unit_test(test_seed__changes_the_search),
        cmocka_unit_test(test_restore__refuses_another_problem),
        cmocka_unit_test(test_restore__survives_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

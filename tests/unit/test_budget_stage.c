/* The stages of layer-wise search one after the other on a tiny ViT: what they refuse, what they
 * find, and that an interrupted search ends in the same bytes. */
#include "support/cmocka_all.h"

#include "search_stage_fixture.h"

#include "stages/budget_search/budget_measure.h"
#include "stages/budget_search/budget_params.h"
#include "stages/latency_profile/nm_stack.h"
#include "stages/registry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct espl_stage espl_stage_nm_supernet;
extern const struct espl_stage espl_stage_latency_profile;
extern const struct espl_stage espl_stage_budget_search;

enum { LAYERS = 8, GENERATIONS = 5, PARAMS_BYTES = 512 };

/* Inputs of a search, and default parameters of its stage with few pictures and generations. */
struct setup {
    struct prune_fixture fixture;
    struct espl_arena *arena;
    struct espl_budget_params params;
    int64_t pictures[2];
    const char *metrics[2];
    const char *kernel; /* of the latency table */
};

static void expect(const struct search_result *result, enum espl_status status, const char *text)
{
    if (result->status != status || strstr(result->err.message, text) == NULL) {
        fail_msg("status %d: '%s'", (int)result->status, result->err.message);
    }
}

static void make_supernet(struct setup *setup)
{
    _Alignas(max_align_t) unsigned char params[PARAMS_BYTES];
    struct search_result result;
    assert_true(espl_stage_nm_supernet.params_size <= sizeof params);
    search_default_params(&espl_stage_nm_supernet, setup->arena, params);
    const struct search_run run = {.stage = &espl_stage_nm_supernet,
                                   .params = params,
                                   .key_digit = 'd',
                                   .ports = {"model", "images"},
                                   .digits = {'a', 'b'}};
    search_run_stage(&setup->fixture, &run, &result);
    assert_int_equal(result.status, ESPL_OK);
    assert_true(search_metric(&result, "top1_uniform_8") >= 0.0);
    search_result_free(&result);
}

/* Parameters of latency-profile have no public struct: these are its first fields. */
struct latency_head {
    const char *table;
    bool allow_foreign;
    int64_t batch, m, vector, threads, repeats, runs, run_repeats;
};

static void profile(struct setup *setup, size_t runs, bool energy, bool allow_foreign,
                    const char *fingerprint, struct search_result *result)
{
    _Alignas(max_align_t) unsigned char params[PARAMS_BYTES];
    char path[ESPL_PATH_MAX];
    struct latency_head head;
    assert_true(espl_stage_latency_profile.params_size <= sizeof params);
    search_default_params(&espl_stage_latency_profile, setup->arena, params);
    search_write_table(&setup->fixture, runs, energy, setup->kernel, path);
    memcpy(&head, params, sizeof head);
    head.table = path;
    head.allow_foreign = allow_foreign;
    memcpy(params, &head, sizeof head);
    const struct search_run run = {.stage = &espl_stage_latency_profile,
                                   .params = params,
                                   .key_digit = 'e',
                                   .ports = {"model"},
                                   .digits = {'a'},
                                   .fingerprint = fingerprint};
    search_run_stage(&setup->fixture, &run, result);
}

static void open_setup_for(struct setup *setup, size_t runs, bool energy, const char *kernel)
{
    struct search_result result;
    memset(setup, 0, sizeof *setup);
    setup->kernel = kernel;
    setup->arena = espl_arena_create((size_t)1 << 20);
    search_fixture_open_stage(&setup->fixture);
    make_supernet(setup);
    profile(setup, runs, energy, false, "y; dev", &result);
    if (result.status != ESPL_OK) {
        fail_msg("%s", result.err.message);
    }
    search_result_free(&result);
    search_default_params(&espl_stage_budget_search, setup->arena, &setup->params);
    setup->pictures[0] = 8;
    setup->metrics[0] = "kl";
    setup->params.pictures = (struct espl_list){1, setup->pictures};
    setup->params.metrics = (struct espl_list){1, setup->metrics};
    setup->params.generations = GENERATIONS;
    setup->params.speedup = 1.6;
}

static void open_setup(struct setup *setup, size_t runs, bool energy)
{
    open_setup_for(setup, runs, energy, "made-up");
}

static void close_setup(struct setup *setup)
{
    prune_fixture_close(&setup->fixture);
    espl_arena_destroy(setup->arena);
}

static void search(struct setup *setup, char key_digit, const char *fingerprint,
                   struct search_result *result)
{
    const struct search_run run = {.stage = &espl_stage_budget_search,
                                   .params = &setup->params,
                                   .key_digit = key_digit,
                                   .ports = {"model", "quality", "latency", "images"},
                                   .digits = {'a', 'd', 'e', 'b'},
                                   .fingerprint = fingerprint,
                                   .seed = 9};
    search_run_stage(&setup->fixture, &run, result);
}

static void read_assignment(struct setup *setup, char key_digit, uint8_t n[LAYERS])
{
    struct espl_artifact *artifact = NULL;
    assert_int_equal(espl_store_open_artifact(&setup->fixture.store,
                                              prune_key(&setup->fixture, key_digit), "assignment",
                                              &artifact, NULL),
                     ESPL_OK);
    assert_int_equal(espl_artifact_read_rows(artifact, "/assignment/n", 0, LAYERS, n, LAYERS, NULL),
                     ESPL_OK);
    espl_artifact_close(artifact);
}

/* The masks of the model output keep exactly the assigned N of every 8. */
static void check_masks(struct setup *setup, char key_digit, const uint8_t n[LAYERS])
{
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    size_t layer = 0;
    assert_int_equal(espl_store_open_artifact(&setup->fixture.store,
                                              prune_key(&setup->fixture, key_digit), "model",
                                              &artifact, NULL),
                     ESPL_OK);
    assert_int_equal(espl_model_open(artifact, &setup->fixture.store, &model, NULL), ESPL_OK);
    for (size_t i = 0; i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        if (!espl_role_is_block_linear(spec->role) || spec->is_bias) {
            assert_false(espl_model_has_mask(model, spec));
            continue;
        }
        uint8_t *mask = prune_read_mask(model, spec);
        for (uint64_t row = 0; row < spec->shape[0]; row++) {
            for (uint64_t window = 0; window < spec->shape[1] / 8; window++) {
                unsigned kept = 0;
                for (uint64_t c = 0; c < 8; c++) {
                    kept += prune_mask_bit(mask, spec->shape[1], row, 8 * window + c);
                }
                assert_int_equal(kept, n[layer]);
            }
        }
        free(mask);
        layer++;
    }
    assert_int_equal(layer, LAYERS);
    espl_model_close(model);
    espl_artifact_close(artifact);
}

static void test_search__finds_a_model_within_budget(void **state)
{
    (void)state;
    struct setup setup;
    struct search_result result;
    uint8_t n[LAYERS];
    open_setup(&setup, 40, false);
    search(&setup, 'c', "z; dev", &result);
    assert_int_equal(result.status, ESPL_OK);
    assert_true(search_metric(&result, "latency_seconds") <=
                search_metric(&result, "latency_budget_seconds"));
    assert_true(search_metric(&result, "speedup_predicted") >= 1.6);
    assert_true(search_metric(&result, "holdout_pictures") == SEARCH_PICTURES / 2);
    assert_true(search_metric(&result, "block_evaluations_saved") > 1.0);
    read_assignment(&setup, 'c', n);
    check_masks(&setup, 'c', n);
    /* The fit is exact here, so the predicted cost can be worked out: gamma 1.1, b = 3e-4. */
    double expected = 3e-4;
    for (size_t layer = 0; layer < LAYERS; layer++) {
        expected += 1.1e-4 * (1.0 + (double)(layer % 4)) * (1.0 + n[layer]);
    }
    assert_true(fabs(search_metric(&result, "latency_seconds") / expected - 1.0) < 1e-9);
    search_result_free(&result);
    close_setup(&setup);
}

static bool has_figure(const struct search_result *result, const char *name)
{
    return json_object_get(result->volatile_metrics, name) != NULL;
}

/* Costs that this machine measured: what is chosen is timed again. The tiny model's costs are
 * noise, so that little can be said of them but their place. */
static void test_search__measures_what_it_chose(void **state)
{
    (void)state;
    _Alignas(max_align_t) unsigned char params[PARAMS_BYTES];
    struct setup setup;
    struct search_result result;
    open_setup(&setup, 40, false);
    search(&setup, 'c', "z; dev", &result); /* the kernel "made-up" is not this CPU's */
    assert_int_equal(result.status, ESPL_OK);
    assert_false(has_figure(&result, "speedup_measured"));
    search_result_free(&result);

    struct latency_head head;
    search_default_params(&espl_stage_latency_profile, setup.arena, params);
    memcpy(&head, params, sizeof head);
    assert_int_equal(head.repeats, 30); /* the fields are where they are thought to be */
    head.threads = 1;
    head.repeats = 3;
    head.runs = 8;
    head.run_repeats = 1;
    memcpy(params, &head, sizeof head);
    const struct search_run profile_here = {.stage = &espl_stage_latency_profile,
                                            .params = params,
                                            .key_digit = 'e',
                                            .ports = {"model"},
                                            .digits = {'a'},
                                            .fingerprint = "y; here"};
    search_run_stage(&setup.fixture, &profile_here, &result);
    assert_int_equal(result.status, ESPL_OK);
    search_result_free(&result);
    setup.params.allow_unsafe_predictor = true;
    setup.params.allow_vector_mismatch = true;
    setup.params.speedup = 1.0;
    search(&setup, 'f', "z; here", &result);
    if (result.status != ESPL_OK) {
        fail_msg("%s", result.err.message);
    }
    const double seconds = search_metric(&result, "latency_measured_seconds");
    const double predicted = search_metric(&result, "latency_seconds");
    assert_true(seconds > 0.0 && search_metric(&result, "speedup_measured") > 0.0);
    assert_true(fabs(search_metric(&result, "latency_prediction_error") -
                     (predicted / seconds - 1.0)) < 1e-9);
    assert_null(json_object_get(result.metrics, "latency_measured_seconds")); /* not stored */
    search_result_free(&result);
    close_setup(&setup);
}

/* Costs that are said to be of this machine's kernel, but of hundreds of microseconds where the
 * tiny model takes a few: every finalist's error is known but for its size. */
static void test_search__measures_the_runners_up(void **state)
{
    (void)state;
    struct setup setup;
    struct search_result result;
    open_setup_for(&setup, 40, false, espl_nm_stack_kernels("cpu")[0]);
    search(&setup, 'c', "z; dev", &result);
    assert_int_equal(result.status, ESPL_OK);
    const double error = search_metric(&result, "latency_prediction_error");
    const double worst = search_metric(&result, "latency_prediction_worst_error");
    const double finalists = search_metric(&result, "finalists_measured");
    assert_true(finalists >= 2.0 && finalists <= 3.0);
    assert_true(error > 1.0 && worst >= error);
    assert_null(json_object_get(result.metrics, "finalists_measured")); /* not stored */
    search_result_free(&result);
    close_setup(&setup);
}

static void test_worse_error__is_larger_in_magnitude(void **state)
{
    (void)state;
    assert_true(espl_budget_worse_error(0.1, -0.2) == -0.2);
    assert_true(espl_budget_worse_error(-0.2, 0.1) == -0.2);
    assert_true(espl_budget_worse_error(0.1, 0.3) == 0.3);
}

/* As if the process had died after each generation in turn. */
static void test_search__resumes_to_the_same_bytes(void **state)
{
    (void)state;
    struct setup setup;
    struct search_result whole;
    open_setup(&setup, 40, false);
    search(&setup, 'c', "z; dev", &whole);
    assert_int_equal(whole.status, ESPL_OK);
    for (unsigned done = 1; done <= GENERATIONS + 1; done++) {
        struct setup again;
        struct search_result resumed;
        open_setup(&again, 40, false);
        prune_copy_units(&setup.fixture, &again.fixture, done);
        search(&again, 'c', "z; dev", &resumed);
        assert_int_equal(resumed.status, ESPL_OK);
        assert_true(json_equal(whole.metrics, resumed.metrics));
        assert_true(json_equal(whole.layers, resumed.layers));
        assert_string_equal(whole.content[0], resumed.content[0]);
        assert_string_equal(whole.content[1], resumed.content[1]);
        search_result_free(&resumed);
        close_setup(&again);
    }
    search_result_free(&whole);
    close_setup(&setup);
}

static void test_search__both_budgets(void **state)
{
    (void)state;
    struct setup setup;
    struct search_result result;
    open_setup(&setup, 40, true);
    setup.params.constraint = ESPL_BUDGET_BOTH;
    setup.params.energy_saving = 1.9;
    search(&setup, 'c', "z; dev", &result);
    assert_int_equal(result.status, ESPL_OK);
    assert_true(search_metric(&result, "speedup_predicted") >= 1.6);
    assert_true(search_metric(&result, "energy_saving_predicted") >= 1.9);
    search_result_free(&result);
    setup.params.levels = (struct espl_list){1, (int64_t[]){4}};
    setup.params.energy_saving = 3.0;
    search(&setup, 'f', "z; dev", &result);
    expect(&result, ESPL_E_NUMERIC, "the energy budget of");
    assert_string_equal(result.err.blame, "param:energy_saving");
    close_setup(&setup);
}

/* More pictures than there are, and held-out ones that the search saw: said before the search. */
static void test_search__refuses_pictures_that_do_not_fit(void **state)
{
    (void)state;
    struct setup setup;
    struct search_result result;
    open_setup(&setup, 40, false);
    setup.params.search_pictures = SEARCH_PICTURES + 1;
    search(&setup, 'c', "z; dev", &result);
    expect(&result, ESPL_E_KIND, "41 pictures are asked for, there are 40");
    assert_string_equal(result.err.blame, "param:search_pictures");
    setup.params.search_pictures = SEARCH_PICTURES - 10;
    setup.params.holdout_pictures = 11;
    search(&setup, 'c', "z; dev", &result);
    expect(&result, ESPL_E_KIND, "11 held-out pictures are asked for, there are 10");
    assert_string_equal(result.err.blame, "param:holdout_pictures");
    setup.params.holdout_pictures = 10;
    const struct search_run run = {.stage = &espl_stage_budget_search,
                                   .params = &setup.params,
                                   .key_digit = 'c',
                                   .ports = {"model", "quality", "latency", "images", "holdout"},
                                   .digits = {'a', 'd', 'e', 'b', 'b'},
                                   .fingerprint = "z; dev"};
    search_run_stage(&setup.fixture, &run, &result);
    expect(&result, ESPL_E_KIND, "'holdout' is the same pictures as 'images'");
    assert_string_equal(result.err.blame, "input:holdout");
    close_setup(&setup);
}

static void test_search__refuses_an_unsafe_predictor(void **state)
{
    (void)state;
    struct setup setup;
    struct search_result result;
    open_setup(&setup, 0, false);
    search(&setup, 'c', "z; dev", &result);
    expect(&result, ESPL_E_NUMERIC, "the latency predictor is not safe to search with");
    setup.params.allow_unsafe_predictor = true;
    setup.params.generations = 0;
    search(&setup, 'c', "z; dev", &result);
    assert_int_equal(result.status, ESPL_OK);
    search_result_free(&result);
    close_setup(&setup);
}

static void test_search__refuses_a_foreign_device(void **state)
{
    (void)state;
    struct setup setup;
    struct search_result result;
    open_setup(&setup, 40, false);
    search(&setup, 'c', "y; another", &result);
    expect(&result, ESPL_E_MACHINE, "the latencies were measured on 'x; dev'");
    profile(&setup, 40, false, false, "y; another", &result);
    expect(&result, ESPL_E_MACHINE, "was measured on 'x; dev', this is 'y; another'");
    profile(&setup, 40, false, true, "y; another", &result);
    assert_int_equal(result.status, ESPL_OK);
    search_result_free(&result);
    setup.params.generations = 0;
    search(&setup, 'c', "y; another", &result); /* the user has taken the table already */
    assert_int_equal(result.status, ESPL_OK);
    search_result_free(&result);
    close_setup(&setup);
}

static void test_search__refuses_lists_that_do_not_fit(void **state)
{
    (void)state;
    struct setup setup;
    struct search_result result;
    open_setup(&setup, 40, false);
    setup.pictures[1] = 16;
    setup.params.pictures.count = 2;
    search(&setup, 'c', "z; dev", &result);
    expect(&result, ESPL_E_JOB, "'metrics' does not fit");
    setup.metrics[1] = "accuracy";
    setup.params.metrics.count = 2;
    setup.params.survivors = (struct espl_list){1, (int64_t[]){2}};
    search(&setup, 'c', "z; dev", &result);
    expect(&result, ESPL_E_JOB, "unknown metric 'accuracy'");
    setup.metrics[1] = "top1";
    setup.pictures[1] = SEARCH_PICTURES;
    search(&setup, 'c', "z; dev", &result);
    expect(&result, ESPL_E_KIND, "a fidelity of 40 pictures, but the search has 20");
    assert_string_equal(result.err.blame, "param:pictures");
    close_setup(&setup);
}

/* Every strategy of the registry is a choice of the stage, in the same order. */
static void test_params__name_all_strategies(void **state)
{
    (void)state;
    const struct espl_param *param = espl_budget_params_table;
    size_t count = 0;
    while (strcmp(param->name, "strategy") != 0) {
        param++;
    }
    for (; espl_search_strategies[count] != NULL; count++) {
        assert_string_equal(param->choices[count], espl_search_strategies[count]->name);
    }
    assert_null(param->choices[count]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search__finds_a_model_within_budget),
        cmocka_unit_test(test_search__measures_what_it_chose),
        cmocka_unit_test(test_search__measures_the_runners_up),
        cmocka_unit_test(test_worse_error__is_larger_in_magnitude),
        cmocka_unit_test(test_search__resumes_to_the_same_bytes),
        cmocka_unit_test(test_search__both_budgets),
        cmocka_unit_test(test_search__refuses_pictures_that_do_not_fit),
        cmocka_unit_test(test_search__refuses_an_unsafe_predictor),
        cmocka_unit_test(test_search__refuses_a_foreign_device),
        cmocka_unit_test(test_search__refuses_lists_that_do_not_fit),
        cmocka_unit_test(test_params__name_all_strategies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

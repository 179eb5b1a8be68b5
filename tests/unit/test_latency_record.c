/* Latency tables as JSON: the tables that ship, a round trip, what is refused; and the search
 * problem made from one. */
#include "support/cmocka_all.h"

#include "stages/budget_search/search_problem.h"
#include "stages/latency_profile/latency_holdout.h"
#include "stages/latency_profile/nm_stack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static json_t *shipped(const char *name)
{
    char path[512];
    json_error_t where;
    (void)snprintf(path, sizeof path, "%s/datasets/latency/%s", ESPL_SOURCE_DIR, name);
    json_t *json = json_load_file(path, 0, &where);
    if (json == NULL) {
        fail_msg("%s: %s", path, where.text);
    }
    return json;
}

static void load(const json_t *json, struct espl_latency_record *record)
{
    struct espl_error err;
    if (espl_latency_record_from_json(json, record, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    record->fit = (struct espl_predictor_options){
        .gamma = ESPL_GAMMA_PER_SHAPE, .ridge = 0.02, .max_error = 0.1};
    assert_int_equal(espl_latency_record_fit(record, &err), ESPL_OK);
}

static void test_shipped_tables__are_safe(void **state)
{
    (void)state;
    const char *const names[] = {"deit-cifar10-epyc.json", "deit-fmnist-epyc.json"};
    for (size_t i = 0; i < 2; i++) {
        struct espl_latency_record record;
        json_t *json = shipped(names[i]);
        load(json, &record);
        assert_true(record.latency.predictor.health.safe);
        assert_true(record.latency.predictor.health.left_out_mean_error < 0.05);
        assert_false(record.energy.present);
        /* Measured runs are predicted from table and fit. */
        for (size_t run = 0; run < record.run_count; run++) {
            const double predicted = espl_latency_record_predict(
                &record, &record.latency, record.run_n + run * record.layer_count);
            assert_true(fabs(predicted / record.latency.measured[run] - 1.0) < 0.1);
        }
        espl_latency_record_free(&record);
        json_decref(json);
    }
}

static void test_json__round_trip(void **state)
{
    (void)state;
    struct espl_latency_record record;
    struct espl_latency_record again;
    json_t *json = shipped("deit-fmnist-epyc.json");
    load(json, &record);
    json_t *written = espl_latency_record_to_json(&record);
    load(written, &again);
    json_t *twice = espl_latency_record_to_json(&again);
    assert_true(json_equal(written, twice));
    assert_true(again.latency.predictor.intercept == record.latency.predictor.intercept);
    const char *const members[] = {"device",  "batch",  "m",      "vector", "threads",
                                   "kernels", "shapes", "layers", "runs",   "latency"};
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        if (!json_equal(json_object_get(json, members[i]), json_object_get(written, members[i]))) {
            fail_msg("member '%s' changed", members[i]);
        }
    }
    json_decref(json);
    json_decref(written);
    json_decref(twice);
    espl_latency_record_free(&record);
    espl_latency_record_free(&again);
}

/* Passes that nothing is fitted to: kept, and how far predictions of them are off. */
static void test_holdout__errors(void **state)
{
    (void)state;
    struct espl_latency_record record;
    struct espl_latency_record again;
    json_t *json = shipped("deit-fmnist-epyc.json");
    const json_t *runs = json_object_get(json, "runs");
    load(json, &record);
    const double first = espl_latency_record_predict(&record, &record.latency, record.run_n);
    const double second =
        espl_latency_record_predict(&record, &record.latency, record.run_n + record.layer_count);
    assert_int_equal(json_object_set_new(json, "holdout",
                                         json_pack("{s:[O, O], s:[f, f]}", "runs",
                                                   json_array_get(runs, 0), json_array_get(runs, 1),
                                                   "measured", first / 0.9, second / 1.3)),
                     0);
    espl_latency_record_free(&record);
    load(json, &record);
    assert_int_equal(record.holdout_count, 2);
    json_t *written = espl_latency_record_to_json(&record);
    load(written, &again);
    const struct espl_latency_holdout_errors errors = espl_latency_holdout_errors(&again);
    assert_true(fabs(errors.mean - 0.2) < 1e-9);
    assert_true(fabs(errors.worst - 0.3) < 1e-9);
    espl_latency_record_free(&record);
    espl_latency_record_free(&again);
    json_decref(written);
    json_decref(json);
}

/* Every second configuration is of all levels, the others of three beside each other. */
static void test_holdout__configurations(void **state)
{
    (void)state;
    enum { LAYERS = 200, M = 8 };
    for (size_t run = 0; run < 40; run++) {
        uint8_t n[LAYERS];
        uint8_t same[LAYERS];
        unsigned least = M + 1;
        unsigned most = 0;
        espl_latency_holdout_draw(LAYERS, M, run, n);
        espl_latency_holdout_draw(LAYERS, M, run, same);
        assert_memory_equal(n, same, sizeof n);
        for (size_t i = 0; i < LAYERS; i++) {
            least = n[i] < least ? n[i] : least;
            most = n[i] > most ? n[i] : most;
        }
        assert_true(least >= 1 && most <= M);
        assert_int_equal(most - least, run % 2 == 0           ? M - 1
                                       : run / 2 % M == 0     ? 1
                                       : run / 2 % M == M - 1 ? 1
                                                              : 2);
    }
}

static void test_stack__what_a_device_can_time(void **state)
{
    (void)state;
    struct espl_error err;
    assert_false(espl_nm_stack_is_cuda("auto"));
    assert_true(espl_nm_stack_is_cuda("cuda:0"));
    assert_string_equal(espl_nm_stack_kernels("cpu")[ESPL_NM_KERNEL_SPARSE], "gather");
    assert_null(espl_nm_stack_kernels("cpu")[ESPL_NM_KERNEL_LIBRARY]);
    assert_string_equal(espl_nm_stack_kernels("cuda:0")[ESPL_NM_KERNEL_SPARSE], "md-spmm");
    assert_string_equal(espl_nm_stack_kernels("cuda:0")[ESPL_NM_KERNEL_LIBRARY], "dense-cublaslt");
    assert_null(espl_nm_stack_kernels("cuda:0")[ESPL_NM_MOST_KERNELS]);
    assert_int_equal(espl_nm_stack_check("cpu", 24, &err), ESPL_OK);
    assert_int_equal(espl_nm_stack_check("cuda:0", 64, &err), ESPL_OK);
    assert_int_equal(espl_nm_stack_check("cuda:0", 24, &err), ESPL_E_JOB);
    assert_int_equal(espl_nm_stack_check("cuda:1", 64, &err), ESPL_E_UNSUPPORTED);
    assert_non_null(strstr(err.hint, "CUDA_VISIBLE_DEVICES=1"));
}

/* Each of these values at its place makes the table one to refuse. */
static void test_json__refuses(void **state)
{
    (void)state;
    const struct {
        const char *member, *value, *text;
    } cases[] = {
        {"schema", "\"espalier.latency/2\"", "'schema'"},
        {"device", "\"\"", "'device'"},
        {"batch", "0", "'batch'"},
        {"m", "17", "'m'"},
        {"vector", "1.5", "'vector'"},
        {"kernels", "[]", "'kernels'"},
        {"shapes", "[]", "'shapes'"},
        {"shapes", "[{\"tokens\": 1, \"in\": 1}]", "'out'"},
        {"layers", "[{\"module\": \"a\", \"shape\": 9}]", "'layers'"},
        {"runs", "[[1, 2]]", "'runs'"},
        {"latency", "{\"raw\": [], \"spread\": [], \"measured\": []}", "'measured'"},
        {"latency", "null", "'measured'"},
        {"energy", "{\"measured\": []}", "'measured'"},
        {"holdout", "{\"runs\": [[1, 2]], \"measured\": [1.0]}", "'runs'"},
        {"holdout", "{\"runs\": [], \"measured\": [1.0]}", "'measured'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct espl_latency_record record;
        struct espl_error err;
        json_t *json = shipped("deit-fmnist-epyc.json");
        json_t *value = json_loads(cases[i].value, JSON_DECODE_ANY, NULL);
        assert_int_equal(json_object_set_new(json, cases[i].member, value), 0);
        const enum espl_status status = espl_latency_record_from_json(json, &record, &err);
        if (status != ESPL_E_CORRUPT || strstr(err.message, cases[i].text) == NULL) {
            fail_msg("%s = %s: status %d, '%s'", cases[i].member, cases[i].value, (int)status,
                     err.message);
        }
        espl_latency_record_free(&record);
        json_decref(json);
    }
}

/* A cost is above 0, and no spread below it: the file's fault, not one of computing. */
static void test_json__refuses_costs_that_are_none(void **state)
{
    (void)state;
    const struct {
        const char *cells;
        double value;
        enum espl_status status;
    } cases[] = {{"raw", -1e-3, ESPL_E_CORRUPT},
                 {"raw", 0.0, ESPL_E_CORRUPT},
                 {"spread", -1e-6, ESPL_E_CORRUPT},
                 {"spread", 0.0, ESPL_OK}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct espl_latency_record record;
        struct espl_error err = {0};
        json_t *json = shipped("deit-fmnist-epyc.json");
        json_t *shapes = json_object_get(json_object_get(json, "latency"), cases[i].cells);
        json_t *kernels = json_array_get(json_array_get(shapes, 2), 4);
        assert_int_equal(json_array_set_new(kernels, 1, json_real(cases[i].value)), 0);
        const enum espl_status status = espl_latency_record_from_json(json, &record, &err);
        assert_int_equal(status, cases[i].status);
        assert_true(status == ESPL_OK || strstr(err.message, cases[i].cells) != NULL);
        espl_latency_record_free(&record);
        json_decref(json);
    }
}

static void test_same_device__looks_past_the_first_word(void **state)
{
    (void)state;
    assert_true(espl_latency_same_device("auto; cpu X, 2 cores", "cpu; cpu X, 2 cores"));
    assert_false(espl_latency_same_device("cpu; cpu X, 2 cores", "cpu; cpu X, 4 cores"));
    assert_true(espl_latency_same_device("orin", "orin"));
}

/* What a supernet cannot be is not worth measuring either. */
static void test_m__of_a_supernet(void **state)
{
    (void)state;
    struct espl_error err;
    assert_int_equal(espl_nm_check_m(4, NULL), ESPL_OK);
    assert_int_equal(espl_nm_check_m(8, NULL), ESPL_OK);
    assert_int_equal(espl_nm_check_m(16, NULL), ESPL_OK);
    for (int64_t m = -1; m <= 17; m++) {
        if (m != 4 && m != 8 && m != 16) {
            assert_int_equal(espl_nm_check_m(m, &err), ESPL_E_JOB);
            assert_string_equal(err.blame, "param:m");
        }
    }
}

/* ---- the problem of a search ---- */

static void make_layers(const struct espl_latency_record *record, size_t count,
                        struct espl_nm_layers *layers)
{
    layers->items = calloc(count, sizeof *layers->items);
    layers->count = count;
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(layers->items[i].spec.module, sizeof layers->items[i].spec.module, "%s",
                       record->modules[i]);
    }
}

static void test_problem__dense_budget_and_levels(void **state)
{
    (void)state;
    const struct espl_supernet_facts facts = {.m = 8, .vector = 1};
    const int64_t allowed[] = {1, 2, 4};
    struct espl_budget budget = {.kind = ESPL_BUDGET_LATENCY, .speedup = 2.0};
    struct espl_latency_record record;
    struct espl_nm_layers layers;
    struct espl_search_problem problem;
    struct espl_error err;
    uint8_t n[64];
    uint8_t top[64];
    json_t *json = shipped("deit-fmnist-epyc.json");
    load(json, &record);
    make_layers(&record, record.layer_count - 4, &layers); /* the last block is not searched */
    assert_int_equal(espl_search_problem_make(&record, &facts, &layers, &budget, &problem, &err),
                     ESPL_OK);
    memset(n, 8, sizeof n);
    const double dense = espl_latency_record_predict(&record, &record.latency, n);
    assert_true(fabs(problem.dense[0] / dense - 1.0) < 1e-12);
    assert_true(fabs(problem.space.constraint[0].budget / dense - 0.5) < 1e-12);
    for (size_t layer = 0; layer < layers.count; layer++) {
        top[layer] = (uint8_t)(problem.level_count[layer] - 1);
        for (size_t level = 1; level < problem.level_count[layer]; level++) {
            const size_t cell = layer * ESPL_SEARCH_MAX_LEVELS + level;
            assert_true(problem.cost[0][cell] > problem.cost[0][cell - 1]); /* no free level */
        }
    }
    /* 7:8 is slower than dense in this table, so that nobody needs it. */
    assert_true(problem.level_count[0] < 8);
    espl_search_problem_levels(&problem, top, n);
    assert_int_equal(n[0], 8);
    assert_true(fabs(espl_search_cost(&problem.space, 0, top) / dense - 1.0) < 1e-12);
    espl_search_problem_free(&problem);

    budget.levels = allowed;
    budget.level_count = 3;
    budget.latency = 0.9 * dense;
    assert_int_equal(espl_search_problem_make(&record, &facts, &layers, &budget, &problem, &err),
                     ESPL_OK);
    assert_int_equal(problem.level_count[0], 4); /* dense stays */
    assert_true(problem.space.constraint[0].budget == 0.9 * dense);
    espl_search_problem_free(&problem);
    espl_nm_layers_free(&layers);
    espl_latency_record_free(&record);
    json_decref(json);
}

static void test_problem__refuses(void **state)
{
    (void)state;
    const int64_t bad_level[] = {9};
    struct espl_supernet_facts facts = {.m = 8, .vector = 1};
    struct espl_budget budget = {.kind = ESPL_BUDGET_LATENCY, .speedup = 100.0};
    struct espl_latency_record record;
    struct espl_nm_layers layers;
    struct espl_search_problem problem;
    struct espl_error err;
    json_t *json = shipped("deit-fmnist-epyc.json");
    load(json, &record);
    make_layers(&record, record.layer_count, &layers);
    assert_int_equal(espl_search_problem_make(&record, &facts, &layers, &budget, &problem, &err),
                     ESPL_E_NUMERIC);
    assert_string_equal(err.blame, "param:speedup");
    assert_string_equal(err.message,
                        "the latency budget of 0.000299306 s cannot be met: the sparsest "
                        "configuration needs 0.0120943, the dense model 0.0299306");
    assert_string_equal(err.hint, "set 'speedup' to at most 2.474, or allow sparser levels");
    espl_search_problem_free(&problem);
    budget.latency = 4e-3;
    assert_int_equal(espl_search_problem_make(&record, &facts, &layers, &budget, &problem, &err),
                     ESPL_E_NUMERIC);
    assert_string_equal(err.blame, "param:latency_budget");
    assert_string_equal(err.hint, "allow at least 12.095ms, or sparser levels");
    espl_search_problem_free(&problem);
    budget.latency = 0.0;
    budget.speedup = 2.474; /* what the advice says */
    assert_int_equal(espl_search_problem_make(&record, &facts, &layers, &budget, &problem, &err),
                     ESPL_OK);
    espl_search_problem_free(&problem);
    budget.speedup = 2.0;
    budget.kind = ESPL_BUDGET_BOTH;
    assert_int_equal(espl_search_problem_make(&record, &facts, &layers, &budget, &problem, &err),
                     ESPL_E_KIND);
    assert_string_equal(err.message, "the latency table holds no energy");
    espl_search_problem_free(&problem);
    budget.kind = ESPL_BUDGET_LATENCY;
    budget.levels = bad_level;
    budget.level_count = 1;
    assert_int_equal(espl_search_problem_make(&record, &facts, &layers, &budget, &problem, &err),
                     ESPL_E_KIND);
    espl_search_problem_free(&problem);
    budget.level_count = 0;
    (void)snprintf(layers.items[3].spec.module, sizeof layers.items[3].spec.module, "blocks.9.x");
    assert_int_equal(espl_search_problem_make(&record, &facts, &layers, &budget, &problem, &err),
                     ESPL_E_KIND);
    assert_string_equal(err.message, "layer 'blocks.9.x' is not in the latency table");
    espl_search_problem_free(&problem);
    facts.m = 4;
    assert_int_equal(espl_search_problem_make(&record, &facts, &layers, &budget, &problem, &err),
                     ESPL_E_KIND);
    espl_search_problem_free(&problem);
    espl_nm_layers_free(&layers);
    espl_latency_record_free(&record);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shipped_tables__are_safe),
        cmocka_unit_test(test_json__round_trip),
        cmocka_unit_test(test_json__refuses),
        cmocka_unit_test(test_holdout__errors),
        cmocka_unit_test(test_holdout__configurations),
        cmocka_unit_test(test_stack__what_a_device_can_time),
        cmocka_unit_test(test_json__refuses_costs_that_are_none),
        cmocka_unit_test(test_same_device__looks_past_the_first_word),
        cmocka_unit_test(test_m__of_a_supernet),
        cmocka_unit_test(test_problem__dense_budget_and_levels),
        cmocka_unit_test(test_problem__refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

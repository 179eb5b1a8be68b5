/* The record of an SpMM bench as JSON, as an artifact and as points of drawings. */
#include "stages/deploy_bench/bench_record.h"

#include "support/test_folder.h"

#include <math.h>
#include <string.h>

/* Equal but for rounding; cmocka compares floats only. */
static void expect_close(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-12 * fabs(expected))) {
        fail_msg("%.17g, expected %.17g", found, expected);
    }
}

static struct espl_spmm_result result(const char *name, bool ours, double median)
{
    struct espl_spmm_result made = {.ours = ours,
                                    .lossless = ours,
                                    .measured = true,
                                    .cold = true,
                                    .bytes = 1000,
                                    .expected = 2e-6};
    memcpy(made.name, name, strlen(name) + 1);
    made.times[ESPL_SPMM_GRAPH] = (struct espl_cuda_time){median, 2.0 * median};
    return made;
}

/* Two cases: dense and 1x1 (the choice) beside a peer; the second case lacks the peer. */
static void fill(struct espl_bench_record *record)
{
    struct espl_error err;
    struct espl_spmm_case item = {
        .rows = 32, .cols = 64, .tokens = 8, .sparsity = 0.5, .usual = ESPL_SPMM_GRAPH};
    struct espl_bench_matrix matrix = {
        .module = "layers.0.mlp.up_proj", .stored_as = "2x1", .modules = 3};
    *record = (struct espl_bench_record){.device = "GPU A",
                                         .ceiling = {1e9, 1 << 20},
                                         .repeats = 5,
                                         .launches = 24,
                                         .over_sparsities = true};
    item.results[0] = result("dense", true, 6e-6);
    item.results[1] = result("1x1", true, 4e-6);
    item.results[1].expected = 1e-6;
    item.results[1].bytes = 700;
    item.results[1].stored = true;
    item.results[1].choice = (struct espl_cuda_spmm_choice){16, 2, 4, 3, 66, 0, 0};
    item.results[1].sweep = (struct espl_spmm_sweep){9, {8, 1, 1, 2, 5, 0, 0}, 3.2e-6, 4e-6};
    item.results[2] = result("peer", false, 12e-6);
    item.count = 3;
    espl_spmm_choose(&item);
    assert_int_equal(espl_bench_record_add(record, &item, &matrix, &err), ESPL_OK);
    item.tokens = 1;
    item.results[2].measured = false;
    memcpy(item.results[2].why, "no library", sizeof "no library");
    assert_int_equal(espl_bench_record_add(record, &item, NULL, &err), ESPL_OK);
}

static double number(const json_t *object, const char *a, const char *b)
{
    const json_t *value = json_object_get(object, a);
    value = b != NULL ? json_object_get(value, b) : value;
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void test_json__says_everything_once(void **state)
{
    (void)state;
    struct espl_bench_record record;
    fill(&record);
    json_t *json = espl_bench_record_json(&record);
    assert_non_null(json);
    assert_string_equal(json_string_value(json_object_get(json, "schema")),
                        "espalier.bench-spmm/1");
    const json_t *cases = json_object_get(json, "cases");
    assert_int_equal(json_array_size(cases), 2);
    const json_t *first = json_array_get(cases, 0);
    assert_string_equal(json_string_value(json_object_get(first, "chosen")), "1x1");
    expect_close(number(first, "modules", NULL), 3.0);
    assert_null(json_object_get(json_array_get(cases, 1), "module"));
    /* 700 bytes of 1x1, 8 x (32 + 128) of x and y, at 1 GB/s */
    expect_close(number(first, "floor_seconds", NULL), 1980e-9);
    const json_t *r = json_array_get(json_object_get(first, "results"), 1);
    expect_close(number(r, "graph", "median_seconds"), 4e-6);
    expect_close(number(r, "graph", "p95_seconds"), 8e-6);
    assert_true(json_is_null(json_object_get(r, "eager")));
    expect_close(number(r, "bits_per_weight", NULL), 8.0 * 700 / 2048);
    expect_close(number(r, "bytes_per_second", NULL), 700 / 4e-6);
    expect_close(number(r, "share_of_copy", NULL), 0.175);
    expect_close(number(r, "share_of_floor", NULL), 0.495);
    expect_close(number(r, "choice", "parts"), 66.0);
    assert_string_equal(json_string_value(json_object_get(r, "choice_from")), "stored");
    expect_close(number(r, "sweep", "regret"), 0.25);
    const json_t *missing = json_array_get(json_object_get(json_array_get(cases, 1), "results"), 2);
    assert_true(json_is_false(json_object_get(missing, "measured")));
    assert_string_equal(json_string_value(json_object_get(missing, "why")), "no library");
    const json_t *summary = json_array_get(json_object_get(json, "summary"), 0);
    assert_true(json_is_null(json_object_get(summary, "sparsity")));
    expect_close(number(summary, "speedup_over", "peer"), 3.0);
    expect_close(number(summary, "swept_regret", NULL), 0.25);
    json_decref(json);
    espl_bench_record_free(&record);
}

static void test_artifact__holds_the_columns(void **state)
{
    (void)state;
    const char *path = below("bench.h5");
    struct espl_bench_record record;
    struct espl_artifact *artifact = NULL;
    struct espl_error err;
    fill(&record);
    assert_int_equal(espl_artifact_create(path, "bench.spmm/1", &artifact, &err), ESPL_OK);
    assert_int_equal(espl_bench_record_write(&record, artifact, &err), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_OK);
    assert_int_equal(espl_artifact_open(path, &artifact, &err), ESPL_OK);
    uint64_t tokens[2];
    uint64_t subject[6][2];
    uint64_t choice[6][5];
    double seconds[6][ESPL_SPMM_MODES][2];
    assert_int_equal(
        espl_artifact_read_rows(artifact, "/cases/tokens", 0, 2, tokens, sizeof tokens, &err),
        ESPL_OK);
    assert_int_equal(
        espl_artifact_read_rows(artifact, "/results/subject", 0, 6, subject, sizeof subject, &err),
        ESPL_OK);
    assert_int_equal(
        espl_artifact_read_rows(artifact, "/results/choice", 0, 6, choice, sizeof choice, &err),
        ESPL_OK);
    assert_int_equal(
        espl_artifact_read_rows(artifact, "/results/seconds", 0, 6, seconds, sizeof seconds, &err),
        ESPL_OK);
    assert_int_equal(tokens[0], 8);
    assert_int_equal(tokens[1], 1);
    assert_int_equal(subject[4][0], 1);
    assert_int_equal(subject[4][1], 1);
    assert_int_equal(choice[1][0], 16);
    assert_int_equal(choice[1][4], 66);
    expect_close(seconds[2][ESPL_SPMM_GRAPH][0], 12e-6);
    expect_close(seconds[2][ESPL_SPMM_GRAPH][1], 24e-6);
    assert_true(isnan(seconds[2][ESPL_SPMM_EAGER][0]));
    json_t *description = json_loads(espl_artifact_description(artifact), 0, NULL);
    const json_t *subjects = json_object_get(description, "subjects");
    assert_int_equal(json_array_size(subjects), 3);
    assert_string_equal(json_string_value(json_array_get(subjects, 2)), "peer");
    json_decref(description);
    espl_artifact_close(artifact);
    espl_bench_record_free(&record);
}

struct points {
    size_t speedups, intensities, rates;
    double over_peer;
};

static enum espl_status take(void *user, const char *series, size_t tokens, const char *subject,
                             double value, struct espl_error *err)
{
    struct points *points = user;
    (void)err;
    assert_true(tokens == 1 || tokens == 8);
    assert_non_null(strstr(subject, "32x64 50 %"));
    points->speedups += strncmp(series, "speedup_over_", 13) == 0 ? 1 : 0;
    points->intensities += strcmp(series, "roofline_intensity") == 0 ? 1 : 0;
    points->rates += strcmp(series, "roofline_rate") == 0 ? 1 : 0;
    if (strcmp(series, "speedup_over_peer") == 0) {
        points->over_peer = value;
    }
    return ESPL_OK;
}

/* Layers and a quantiser: a linear of a model that stands for 3, and one for 1. */
static void fill_layers(struct espl_bench_record *record)
{
    struct espl_error err;
    struct espl_spmm_case item = {
        .rows = 32, .cols = 64, .tokens = 8, .bits = 4, .sparsity = 0.5, .usual = ESPL_SPMM_GRAPH};
    struct espl_bench_matrix matrix = {.module = "layers.0.mlp.up_proj", .modules = 3};
    *record = (struct espl_bench_record){
        .device = "GPU A", .ceiling = {1e9, 1 << 20}, .over_sparsities = true};
    item.results[0] = result("dense", true, 4e-6);
    item.results[1] = result("dense+atom", true, 5e-6);
    item.results[1].kind = ESPL_SPMM_LAYER;
    item.results[2] = result("quantise", true, 3e-6);
    item.results[2].kind = ESPL_SPMM_QUANTISER;
    item.results[2].bytes = 0;
    item.count = 3;
    espl_spmm_choose(&item);
    assert_int_equal(espl_bench_record_add(record, &item, &matrix, &err), ESPL_OK);
    matrix.modules = 1;
    assert_int_equal(espl_bench_record_add(record, &item, &matrix, &err), ESPL_OK);
}

static void test_layers__have_figures_of_their_own(void **state)
{
    (void)state;
    struct espl_bench_record record;
    struct points points = {0, 0, 0, 0.0};
    struct espl_error err;
    const char *why = "";
    fill_layers(&record);
    assert_true(espl_bench_record_of_model(&record));
    const struct espl_bench_totals totals = espl_bench_record_totals(&record, 8);
    expect_close(totals.seconds, 16e-6);
    expect_close(totals.layer_seconds, 20e-6);
    expect_close(totals.bytes, 4000.0);
    assert_int_equal(espl_bench_record_missing(&record, "dense", &why), 0);
    assert_int_equal(espl_bench_record_kind(&record, "quantise"), ESPL_SPMM_QUANTISER);
    json_t *json = espl_bench_record_json(&record);
    const json_t *first = json_array_get(json_object_get(json, "cases"), 0);
    const json_t *results = json_object_get(first, "results");
    expect_close(number(first, "code_bits", NULL), 4.0);
    const json_t *layer = json_array_get(results, 1);
    assert_string_equal(json_string_value(json_object_get(layer, "kind")), "layer");
    expect_close(number(layer, "over_codes", NULL), 1.25);
    const json_t *quantiser = json_array_get(results, 2);
    assert_string_equal(json_string_value(json_object_get(quantiser, "kind")), "quantiser");
    assert_null(json_object_get(quantiser, "weight_bytes"));
    assert_null(json_object_get(quantiser, "expected_seconds"));
    const json_t *summary = json_array_get(json_object_get(json, "summary"), 0);
    expect_close(number(summary, "layer_over_codes", "dense+atom"), 1.25);
    json_decref(json);
    /* drawings: products over dense (itself), and no quantiser in the roofline */
    assert_int_equal(espl_bench_record_figures(&record, take, &points, &err), ESPL_OK);
    assert_int_equal(points.speedups, 2);
    assert_int_equal(points.rates, 4);
    espl_bench_record_free(&record);
}

static void test_missing__is_counted_with_its_reason(void **state)
{
    (void)state;
    struct espl_bench_record record;
    const char *why = "";
    fill(&record);
    assert_int_equal(espl_bench_record_missing(&record, "peer", &why), 1);
    assert_string_equal(why, "no library");
    assert_int_equal(espl_bench_record_missing(&record, "1x1", &why), 0);
    espl_bench_record_free(&record);
}

static void test_figures__of_what_was_measured(void **state)
{
    (void)state;
    struct espl_bench_record record;
    struct points points = {0, 0, 0, 0.0};
    struct espl_error err;
    fill(&record);
    assert_int_equal(espl_bench_record_figures(&record, take, &points, &err), ESPL_OK);
    /* over dense and 1x1 twice, over the peer once */
    assert_int_equal(points.speedups, 5);
    expect_close(points.over_peer, 3.0);
    assert_int_equal(points.intensities, 5);
    assert_int_equal(points.rates, 5);
    espl_bench_record_free(&record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json__says_everything_once),
        cmocka_unit_test(test_artifact__holds_the_columns),
        cmocka_unit_test(test_figures__of_what_was_measured),
        cmocka_unit_test(test_layers__have_figures_of_their_own),
        cmocka_unit_test(test_missing__is_counted_with_its_reason),
    };
    return cmocka_run_group_tests(tests, test_folder_set_up, test_folder_tear_down);
}

/* The evaluate stage without the planner: which windows it takes, its metrics and artifact against
 * PyTorch's values, and how it ends when it is stopped or given the wrong tokens. */
#include "core/fs.h"
#include "engine/stage_ctx.h"
#include "stages/evaluate/evaluate_metrics.h"
#include "stages/evaluate/evaluate_windows.h"
#include "unit/golden_data.h"
#include "unit/prune_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

extern const struct espl_stage espl_stage_evaluate;

static void require_ok(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s [%s]", err->message, err->context);
    }
}

/* ---- which windows ---- */

static struct espl_model_config some_config(bool learned_positions, uint64_t positions)
{
    struct espl_model_config config;
    memset(&config, 0, sizeof config);
    config.vocab = 100;
    config.max_positions = positions;
    config.rope.type = learned_positions ? ESPL_ROPE_NONE : ESPL_ROPE_DEFAULT;
    return config;
}

static void test_choose_windows__running_text(void **state)
{
    (void)state;
    struct espl_error err;
    struct espl_evaluate_windows windows;
    const struct espl_model_config usual = some_config(false, 512);
    const struct espl_model_config longer = some_config(false, 131072);
    const struct espl_evaluate_tokens text = {.count = 10000, .vocab_size = 100};
    require_ok(espl_evaluate_choose_windows(&usual, &text, 0, 0, &windows, &err), &err);
    assert_int_equal(windows.sequence_length, 512);
    assert_int_equal(windows.windows, 19); /* 272 tokens dropped */
    require_ok(espl_evaluate_choose_windows(&longer, &text, 0, 0, &windows, &err), &err);
    assert_int_equal(windows.sequence_length, 2048);
    assert_int_equal(windows.windows, 4);
    require_ok(espl_evaluate_choose_windows(&usual, &text, 1000, 3, &windows, &err), &err);
    assert_int_equal(windows.sequence_length, 1000);
    assert_int_equal(windows.windows, 3);
}

/* The tokens stage takes a length for a whole text, too: it is for the readers. */
static void test_choose_windows__running_text_with_a_length(void **state)
{
    (void)state;
    struct espl_error err;
    struct espl_evaluate_windows windows;
    struct espl_evaluate_tokens tokens;
    const struct espl_model_config config = some_config(false, 512);
    json_t *description = json_pack("{s:i, s:i, s:i, s:i}", "count", 2570, "windows", 0,
                                    "sequence_length", 128, "vocab_size", 90);
    espl_evaluate_read_tokens(description, &tokens);
    json_decref(description);
    require_ok(espl_evaluate_choose_windows(&config, &tokens, 0, 0, &windows, &err), &err);
    assert_int_equal(windows.sequence_length, 128);
    assert_int_equal(windows.windows, 20); /* 10 tokens dropped */
    require_ok(espl_evaluate_choose_windows(&config, &tokens, 256, 0, &windows, &err), &err);
    assert_int_equal(windows.sequence_length, 256);
    assert_int_equal(windows.windows, 10);
}

static void test_choose_windows__before_the_text_is_known(void **state)
{
    (void)state;
    struct espl_error err;
    struct espl_evaluate_windows windows;
    const struct espl_model_config config = some_config(false, 512);
    const struct espl_evaluate_tokens unknown = {0};
    require_ok(espl_evaluate_choose_windows(&config, &unknown, 0, 0, &windows, &err), &err);
    assert_int_equal(windows.windows, 0);
    require_ok(espl_evaluate_choose_windows(&config, &unknown, 0, 7, &windows, &err), &err);
    assert_int_equal(windows.windows, 7);
}

static void test_choose_windows__drawn_windows_keep_their_length(void **state)
{
    (void)state;
    struct espl_error err;
    struct espl_evaluate_windows windows;
    struct espl_evaluate_tokens tokens;
    const struct espl_model_config config = some_config(false, 512);
    json_t *description = json_pack("{s:i, s:i, s:i, s:i}", "count", 2560, "windows", 20,
                                    "sequence_length", 128, "vocab_size", 90);
    espl_evaluate_read_tokens(description, &tokens);
    json_decref(description);
    require_ok(espl_evaluate_choose_windows(&config, &tokens, 0, 0, &windows, &err), &err);
    assert_int_equal(windows.sequence_length, 128);
    assert_int_equal(windows.windows, 20);
    require_ok(espl_evaluate_choose_windows(&config, &tokens, 128, 5, &windows, &err), &err);
    assert_int_equal(windows.windows, 5);
    assert_int_equal(espl_evaluate_choose_windows(&config, &tokens, 64, 0, &windows, &err),
                     ESPL_E_KIND);
    assert_string_equal(err.message, "'sequence_length' is 64, but the tokens are windows of 128");
    assert_string_equal(err.blame, "param:sequence_length");
}

static void test_choose_windows__refusals(void **state)
{
    (void)state;
    struct espl_error err;
    struct espl_evaluate_windows windows;
    const struct espl_model_config opt = some_config(true, 512);
    const struct espl_model_config llama = some_config(false, 512);
    const struct espl_evaluate_tokens text = {.count = 600};
    const struct espl_evaluate_tokens foreign = {.count = 600, .vocab_size = 101};

    assert_int_equal(espl_evaluate_choose_windows(&opt, &text, 513, 0, &windows, &err),
                     ESPL_E_KIND);
    assert_string_equal(err.message,
                        "'sequence_length' is 513, but the model has 512 learned positions");
    assert_string_equal(err.blame, "param:sequence_length");
    require_ok(espl_evaluate_choose_windows(&llama, &text, 513, 0, &windows, &err), &err);

    assert_int_equal(espl_evaluate_choose_windows(&llama, &text, 601, 0, &windows, &err),
                     ESPL_E_KIND);
    assert_string_equal(err.message, "the text has 600 tokens, fewer than one window of 601");
    assert_string_equal(err.blame, "input:tokens");

    assert_int_equal(espl_evaluate_choose_windows(&llama, &text, 200, 4, &windows, &err),
                     ESPL_E_KIND);
    assert_string_equal(err.message, "'windows' is 4, but the tokens give 3 windows of 200");
    assert_string_equal(err.blame, "param:windows");

    assert_int_equal(espl_evaluate_choose_windows(&llama, &foreign, 0, 0, &windows, &err),
                     ESPL_E_KIND);
    assert_string_equal(err.message,
                        "the tokenizer knows 101 ids, but the model's vocabulary is 100");
    assert_string_equal(err.blame, "input:tokens");

    assert_int_equal(espl_evaluate_choose_windows(&llama, &text, 1, 0, &windows, &err),
                     ESPL_E_KIND);
}

/* ---- runs ---- */

static struct espl_artifact *open_artifact(struct prune_fixture *fixture, char digit)
{
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    struct espl_artifact *artifact = NULL;
    prune_path(fixture, digit, path);
    require_ok(espl_artifact_open(path, &artifact, &err), &err);
    return artifact;
}

/* What a run left; base_digit 0 = none. metrics, volatile_metrics: owned. */
struct run {
    enum espl_status status;
    struct espl_error err;
    json_t *metrics;
    json_t *volatile_metrics;
    char path[ESPL_PATH_MAX];
};

static struct run run_stage(struct prune_fixture *fixture,
                            const struct espl_evaluate_params *params, char model_digit,
                            char tokens_digit, char base_digit, const volatile int *stopped)
{
    struct run run;
    struct espl_error err;
    struct espl_stage_ctx *ctx = NULL;
    memset(&run, 0, sizeof run);
    const struct espl_ctx_port inputs[3] = {
        {"model", open_artifact(fixture, model_digit)},
        {"tokens", open_artifact(fixture, tokens_digit)},
        {"base", base_digit != 0 ? open_artifact(fixture, base_digit) : NULL}};
    struct espl_ctx_port output = {"metrics", NULL};
    require_ok(espl_fs_join(run.path, fixture->folder, "metrics.h5", &err), &err);
    require_ok(espl_artifact_create(run.path, "metrics/1", &output.artifact, &err), &err);
    const struct espl_ctx_config config = {.store = &fixture->store,
                                           .stage = &espl_stage_evaluate,
                                           .stage_id = "quality",
                                           .key = prune_key(fixture, 'e'),
                                           .device = "cpu",
                                           .inputs = inputs,
                                           .input_count = 3,
                                           .outputs = &output,
                                           .output_count = 1,
                                           .message_fd = -1,
                                           .stopped = stopped};
    require_ok(espl_stage_ctx_create(&config, &ctx, &err), &err);
    run.status = espl_stage_evaluate.run(ctx, params, &run.err);
    run.metrics = json_deep_copy(espl_stage_ctx_metrics(ctx, false));
    run.volatile_metrics = json_deep_copy(espl_stage_ctx_metrics(ctx, true));
    if (run.status == ESPL_OK) {
        require_ok(espl_artifact_finish(&output.artifact, NULL, &err), &err);
    } else {
        espl_artifact_abandon(output.artifact);
    }
    espl_stage_ctx_destroy(ctx);
    for (size_t i = 0; i < 3; i++) {
        espl_artifact_close(inputs[i].artifact);
    }
    return run;
}

static void free_run(struct run *run)
{
    json_decref(run->metrics);
    json_decref(run->volatile_metrics);
}

static double metric(const json_t *metrics, const char *name)
{
    const json_t *value = json_object_get(metrics, name);
    if (!json_is_number(value)) {
        fail_msg("metric '%s' was not reported", name);
    }
    return json_number_value(value);
}

/* The artifact says what was reported, in the order of the names. */
static void check_artifact(const struct run *run)
{
    struct espl_error err;
    struct espl_artifact *artifact = NULL;
    void *data = NULL;
    size_t bytes = 0;
    size_t index = 0;
    const char *name = NULL;
    const char *previous = "";
    json_t *value = NULL;
    require_ok(espl_artifact_open(run->path, &artifact, &err), &err);
    json_t *description = json_loads(espl_artifact_description(artifact), 0, NULL);
    const json_t *described = json_object_get(description, "metrics");
    require_ok(espl_artifact_read(artifact, "/metrics/values", 4096, &data, &bytes, &err), &err);
    const double *values = data;
    assert_int_equal(json_object_size(described), json_object_size(run->metrics));
    assert_int_equal(bytes, json_object_size(described) * sizeof *values);
    json_object_foreach((json_t *)described, name, value)
    {
        assert_true(strcmp(name, previous) > 0);
        previous = name;
        assert_true(json_number_value(value) == metric(run->metrics, name));
        assert_true(json_number_value(value) == values[index++]);
    }
    json_decref(description);
    free(data);
    espl_artifact_close(artifact);
}

static double golden_value(const char *model, const char *name)
{
    char path[GOLDEN_PATH];
    golden_path("golden/novels-test-16x512.json", path);
    json_t *golden = json_load_file(path, 0, NULL);
    assert_non_null(golden);
    const double value = json_number_value(json_object_get(json_object_get(golden, model), name));
    json_decref(golden);
    return value;
}

static void test_evaluate__sample_model_alone_and_against_itself(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    char dir[GOLDEN_PATH];
    char path[GOLDEN_PATH];
    size_t bytes = 0;
    const struct espl_evaluate_params all = {0, 0, 0};
    const struct espl_evaluate_params some = {512, 3, 0};
    prune_fixture_open(&fixture);
    assert_true(golden_model_dir("llama-6m", dir));
    golden_path("golden/novels-test-16x512.i32", path);
    int32_t *ids = golden_read(path, &bytes);
    prune_import(&fixture, 'a', dir);
    prune_make_tokens(&fixture, 'b', ids, 16, 512, 4096);

    struct run run = run_stage(&fixture, &all, 'a', 'b', 0, NULL);
    require_ok(run.status, &run.err);
    const double expected = golden_value("llama-6m", "perplexity_16");
    assert_true(fabs(metric(run.metrics, "perplexity") / expected - 1.0) < 1e-5);
    assert_true(metric(run.metrics, "windows") == 16.0);
    assert_true(metric(run.metrics, "tokens") == 8192.0);
    assert_true(metric(run.metrics, "sequence_length") == 512.0);
    assert_null(json_object_get(run.metrics, "kl"));
    assert_true(metric(run.volatile_metrics, "seconds") > 0.0);
    assert_true(metric(run.volatile_metrics, "tokens_per_second") > 0.0);
    assert_true(metric(run.volatile_metrics, "gflops") > 0.0);
    check_artifact(&run);
    free_run(&run);

    run = run_stage(&fixture, &some, 'a', 'b', 'a', NULL);
    require_ok(run.status, &run.err);
    assert_true(metric(run.metrics, "windows") == 3.0);
    assert_true(metric(run.metrics, "perplexity_ratio") == 1.0);
    assert_true(metric(run.metrics, "perplexity_base") == metric(run.metrics, "perplexity"));
    assert_true(metric(run.metrics, "kl") == 0.0);
    check_artifact(&run);
    free_run(&run);
    free(ids);
    prune_fixture_close(&fixture);
}

static void test_evaluate__refuses_foreign_tokens_and_stops(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    const struct espl_model_config config = prune_llama_config();
    const struct espl_evaluate_params all = {0, 0, 0};
    const volatile int stop = 1;
    int32_t ids[2 * 16];
    prune_fixture_open(&fixture);
    prune_make_model(&fixture, 'a', &config, ESPL_DTYPE_F32, NULL);
    for (size_t i = 0; i < 32; i++) {
        ids[i] = (int32_t)i;
    }
    prune_make_tokens(&fixture, 'b', ids, 2, 16, 51); /* the model knows 50 ids */
    ids[20] = 50;
    prune_make_tokens(&fixture, 'c', ids, 2, 16, 50);
    ids[20] = 20;
    prune_make_tokens(&fixture, 'd', ids, 2, 16, 50);

    struct run run = run_stage(&fixture, &all, 'a', 'b', 0, NULL);
    assert_int_equal(run.status, ESPL_E_KIND);
    assert_string_equal(run.err.blame, "input:tokens");
    free_run(&run);
    run = run_stage(&fixture, &all, 'a', 'c', 0, NULL);
    assert_int_equal(run.status, ESPL_E_CORRUPT);
    assert_string_equal(run.err.message, "token id 50 at position 4 of window 1 is outside the "
                                         "model's vocabulary of 50");
    free_run(&run);
    run = run_stage(&fixture, &all, 'a', 'd', 0, &stop);
    assert_true(run.status == ESPL_E_CANCELLED || run.status == ESPL_E_TERMINATED);
    free_run(&run);
    run = run_stage(&fixture, &all, 'a', 'd', 0, NULL);
    require_ok(run.status, &run.err);
    free_run(&run);
    prune_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choose_windows__running_text),
        cmocka_unit_test(test_choose_windows__running_text_with_a_length),
        cmocka_unit_test(test_choose_windows__before_the_text_is_known),
        cmocka_unit_test(test_choose_windows__drawn_windows_keep_their_length),
        cmocka_unit_test(test_choose_windows__refusals),
        cmocka_unit_test(test_evaluate__sample_model_alone_and_against_itself),
        cmocka_unit_test(test_evaluate__refuses_foreign_tokens_and_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "prune_golden.h"

#include "text_fixture.h"

#include "core/log.h"
#include "stages/wanda_prune/wanda_setup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct espl_stage espl_stage_wanda_prune;

enum { WINDOWS = 32, TOKENS = 512 };

static const char *const all[] = {"*"};

static void check(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s [%s] (%s)", err->message, err->context, err->hint);
    }
}

static void make_windows(struct prune_fixture *fixture, const char *model_dir, const char *text,
                         const json_t *expected)
{
    uint64_t starts[4];
    const size_t count =
        text_calibration(fixture, 'b', model_dir, text, 0, WINDOWS, TOKENS, starts);
    const json_t *first = json_object_get(expected, "first_starts");
    assert_int_equal(count, json_integer_value(json_object_get(expected, "tokens")));
    assert_int_equal(json_array_size(first), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(starts[i], json_integer_value(json_array_get(first, i)));
    }
}

static void compare_masks(struct prune_fixture *fixture, const json_t *expected)
{
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    struct espl_error err;
    struct espl_sha256 *combined = espl_sha256_create();
    char hex[ESPL_SHA256_HEX];
    const json_t *masks = json_object_get(expected, "masks_sha256");
    size_t linears = 0, different = 0;
    assert_non_null(combined);
    prune_open(fixture, 'c', &artifact, &model);
    for (size_t i = 0; i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        if (spec->is_bias || !espl_role_is_block_linear(spec->role)) {
            continue;
        }
        uint8_t *mask = prune_read_mask(model, spec);
        const size_t bytes = (size_t)spec->shape[0] * espl_mask_stride((size_t)spec->shape[1]);
        check(espl_sha256_bytes(mask, bytes, hex, &err), &err);
        espl_sha256_update(combined, mask, bytes);
        const char *golden = json_string_value(json_object_get(masks, spec->module));
        assert_non_null(golden);
        if (strcmp(golden, hex) != 0) {
            print_error("mask of '%s' differs from the golden one\n", spec->module);
            different++;
        }
        linears++;
        free(mask);
    }
    assert_int_equal(different, 0);
    assert_int_equal(linears, json_object_size(masks));
    espl_sha256_finish(combined, hex);
    assert_string_equal(hex, json_string_value(json_object_get(expected, "combined_sha256")));
    espl_sha256_destroy(combined);
    espl_model_close(model);
    espl_artifact_close(artifact);
}

/* Within 0.2 % of the independent implementation's perplexity of its own pruned model. */
static void compare_perplexity(struct prune_fixture *fixture, const char *model_dir,
                               const char *text, const char *label, double golden)
{
    size_t count = 0;
    int32_t *ids = text_tokenise(model_dir, text, &count, NULL);
    const uint64_t most = count / TOKENS;
    const uint64_t windows = strcmp(label, "all") == 0 ? most : strtoull(label, NULL, 10);
    assert_in_range(windows, 1, most);
    const double perplexity = text_perplexity(fixture, 'c', ids, windows, TOKENS);
    print_message("  perplexity over %s windows: %.6f, golden %.6f, ratio - 1 = %.1e\n", label,
                  perplexity, golden, perplexity / golden - 1.0);
    assert_true(fabs(perplexity / golden - 1.0) < 0.002);
    free(ids);
}

static json_t *read_golden(const char *model)
{
    char name[128], path[GOLDEN_PATH];
    (void)snprintf(name, sizeof name, "golden/masks/%s.json", model);
    golden_path(name, path);
    json_t *golden = json_load_file(path, 0, NULL);
    if (golden == NULL) {
        fail_msg("cannot read '%s'", path);
    }
    return golden;
}

void prune_golden_check(const char *model, const char *calibration, const char *name,
                        const char *perplexity)
{
    char model_dir[GOLDEN_PATH], text[GOLDEN_PATH], test_text[GOLDEN_PATH];
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_error err;
    const bool have_test =
        text_find("novels-test.txt.xz", test_text) ||
        (strcmp(perplexity, "all") != 0 && text_find("novels-test-sample.txt.xz", test_text));
    if (!golden_model_dir(model, model_dir) || !text_find(calibration, text) || !have_test) {
        print_message("SKIPPED: model '%s', text '%s' or the test text is not there\n", model,
                      calibration);
        skip();
    }
    json_t *golden = read_golden(model);
    const json_t *from_text = json_object_get(json_object_get(golden, "calibration"), calibration);
    const json_t *expected = json_object_get(json_object_get(from_text, "cases"), name);
    assert_non_null(expected);
    struct espl_wanda_params params = {
        .common = {.sparsity = 0.5, .layers = {.targets = {1, all}, .last_layer = -1}},
        .max_perplexity_ratio = 100.0};
    if (strcmp(name, "50") != 0) {
        assert_true(espl_parse_nm(name, &params.common.pattern));
    }
    prune_fixture_open(&fixture);
    prune_import(&fixture, 'a', model_dir);
    make_windows(&fixture, model_dir, text, from_text);
    const double start = espl_clock_monotonic();
    check(prune_run(&fixture, &espl_stage_wanda_prune, &params, 'c', 'a', 'b', NULL, &result, &err),
          &err);
    print_message("  %s %s: pruned in %.1f s\n", model, name, espl_clock_monotonic() - start);
    prune_result_free(&result);
    compare_masks(&fixture, expected);
    const json_t *value =
        json_object_get(json_object_get(expected, "perplexity_novels_test"), perplexity);
    assert_true(json_is_real(value));
    compare_perplexity(&fixture, model_dir, test_text, perplexity, json_real_value(value));
    prune_fixture_close(&fixture);
    json_decref(golden);
}

/* ---- all cases ---- */

struct golden_case {
    const char *title;
    const char *model;
    const char *name;
    const char *perplexity;
};

static void run_case(void **state)
{
    const struct golden_case *golden = *state;
    prune_golden_check(golden->model, "novels-calib.txt.xz", golden->name, golden->perplexity);
}

int prune_golden_run_all(const char *perplexity)
{
    struct golden_case cases[] = {
        {.title = "llama half", .model = "llama-6m", .name = "50"},
        {.title = "llama 2:4", .model = "llama-6m", .name = "2:4"},
        {.title = "llama 4:8", .model = "llama-6m", .name = "4:8"},
        {.title = "llama 1:4", .model = "llama-6m", .name = "1:4"},
        {.title = "opt half", .model = "opt-6m", .name = "50"},
        {.title = "opt 2:4", .model = "opt-6m", .name = "2:4"},
        {.title = "opt 4:8", .model = "opt-6m", .name = "4:8"},
        {.title = "opt 1:4", .model = "opt-6m", .name = "1:4"},
    };
    enum { CASES = sizeof cases / sizeof cases[0] };
    struct CMUnitTest tests[CASES];
    for (size_t i = 0; i < CASES; i++) {
        cases[i].perplexity = perplexity;
        tests[i] = (struct CMUnitTest){
            .name = cases[i].title, .test_func = run_case, .initial_state = &cases[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

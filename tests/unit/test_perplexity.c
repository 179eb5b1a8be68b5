/* Perplexity and KL against PyTorch's values (tests/data/README.md), equal bits for any number of
 * threads, and how a damaged model or a stop request ends. */
#include "core/log.h"
#include "eval/perplexity.h"
#include "unit/checkpoint_model.h"
#include "unit/golden_data.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WINDOWS = 16, TOKENS = 512 };

static void require_ok(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s [%s]", err->message, err->context);
    }
}

static struct espl_model *open_model(const char *dir)
{
    struct espl_error err;
    struct espl_model *model = NULL;
    require_ok(checkpoint_model_open(dir, dir, &model, &err), &err);
    return model;
}

static struct espl_perplexity measure(struct espl_model *model, struct espl_model *base,
                                      unsigned threads, const int32_t *ids, uint64_t windows,
                                      size_t tokens)
{
    struct espl_error err;
    struct espl_backend *backend = NULL;
    struct espl_perplexity result;
    require_ok(espl_backend_open("cpu", threads, &backend, &err), &err);
    require_ok(espl_perplexity_measure(model, base, backend, ids, windows, tokens, NULL, NULL,
                                       &result, &err),
               &err);
    espl_backend_close(backend);
    return result;
}

static json_t *golden_values(const char *model)
{
    char path[GOLDEN_PATH];
    golden_path("golden/novels-test-16x512.json", path);
    json_t *all = json_load_file(path, 0, NULL);
    assert_non_null(all);
    json_t *values = json_incref(json_object_get(all, model));
    json_decref(all);
    assert_non_null(values);
    return values;
}

/* The first 16 windows of novels-test; the models' tokenizers differ in the first id alone. */
static int32_t *golden_ids(const json_t *values)
{
    char path[GOLDEN_PATH];
    size_t bytes = 0;
    golden_path("golden/novels-test-16x512.i32", path);
    int32_t *ids = golden_read(path, &bytes);
    assert_int_equal(bytes, WINDOWS * TOKENS * sizeof *ids);
    ids[0] = (int32_t)json_integer_value(json_object_get(values, "first_id"));
    return ids;
}

static void check_model(const char *name)
{
    char dir[GOLDEN_PATH];
    if (!golden_model_dir(name, dir)) {
        print_message("skipped: reference model '%s' is not on this machine\n", name);
        skip();
    }
    json_t *values = golden_values(name);
    int32_t *ids = golden_ids(values);
    struct espl_model *model = open_model(dir);
    const struct espl_perplexity result = measure(model, NULL, 2, ids, WINDOWS, TOKENS);
    const double expected = json_number_value(json_object_get(values, "perplexity_16"));
    print_message("%s: perplexity %.6f, PyTorch %.6f\n", name, result.perplexity, expected);
    /* Two float32 implementations differ by rounding only, far below the 0.1 percent that are
     * promised. */
    assert_true(fabs(result.perplexity / expected - 1.0) < 1e-5);
    assert_true(result.perplexity == exp(result.mean_nll));
    assert_int_equal(result.windows, WINDOWS);
    assert_int_equal(result.tokens, WINDOWS * TOKENS);
    checkpoint_model_close(model);
    json_decref(values);
    free(ids);
}

static void test_perplexity_measure__llama_6m(void **state)
{
    (void)state;
    check_model("llama-6m");
}

static void test_perplexity_measure__llama_18m(void **state)
{
    (void)state;
    check_model("llama-18m");
}

static void test_perplexity_measure__opt_6m(void **state)
{
    (void)state;
    check_model("opt-6m");
}

static void test_perplexity_measure__kl_from_another_model(void **state)
{
    (void)state;
    char dir[GOLDEN_PATH];
    char base_dir[GOLDEN_PATH];
    if (!golden_model_dir("llama-6m", dir) || !golden_model_dir("llama-18m", base_dir)) {
        print_message("skipped: reference models are not on this machine\n");
        skip();
    }
    json_t *values = golden_values("llama-6m");
    json_t *base_values = golden_values("llama-18m");
    int32_t *ids = golden_ids(values);
    struct espl_model *model = open_model(dir);
    struct espl_model *base = open_model(base_dir);
    const struct espl_perplexity result = measure(model, base, 2, ids, WINDOWS, TOKENS);
    const double kl = json_number_value(json_object_get(values, "kl_from_llama-18m_16"));
    const double base_perplexity = json_number_value(json_object_get(base_values, "perplexity_16"));
    assert_true(fabs(result.kl / kl - 1.0) < 1e-4);
    assert_true(fabs(result.perplexity_base / base_perplexity - 1.0) < 1e-5);
    checkpoint_model_close(model);
    checkpoint_model_close(base);
    json_decref(values);
    json_decref(base_values);
    free(ids);
}

/* A tiny model, its ids, and the mean NLL PyTorch found. */
struct tiny {
    struct espl_model *model;
    int32_t *ids;
    double mean_nll;
    uint64_t windows;
    size_t tokens;
};

static void open_tiny(const char *name, struct tiny *tiny)
{
    char dir[GOLDEN_PATH];
    char path[GOLDEN_PATH + 32];
    size_t bytes = 0;
    (void)snprintf(path, sizeof path, "models/%s", name);
    golden_path(path, dir);
    (void)snprintf(path, sizeof path, "%s/expected.json", dir);
    json_t *expected = json_load_file(path, 0, NULL);
    assert_non_null(expected);
    tiny->windows = (uint64_t)json_integer_value(json_object_get(expected, "windows"));
    tiny->tokens = (size_t)json_integer_value(json_object_get(expected, "tokens"));
    tiny->mean_nll = json_number_value(json_object_get(expected, "mean_nll"));
    json_decref(expected);
    (void)snprintf(path, sizeof path, "%s/ids.i32", dir);
    tiny->ids = golden_read(path, &bytes);
    tiny->model = open_model(dir);
}

static void close_tiny(struct tiny *tiny)
{
    checkpoint_model_close(tiny->model);
    free(tiny->ids);
}

static void test_perplexity_measure__same_model_has_no_divergence(void **state)
{
    (void)state;
    struct tiny tiny;
    open_tiny("qwen2", &tiny);
    const struct espl_perplexity result =
        measure(tiny.model, tiny.model, 1, tiny.ids, tiny.windows, tiny.tokens);
    assert_true(fabs(result.mean_nll / tiny.mean_nll - 1.0) < 1e-5);
    assert_true(result.perplexity_base == result.perplexity);
    assert_true(result.kl == 0.0);
    close_tiny(&tiny);
}

static void test_perplexity_measure__same_bits_for_any_thread_count(void **state)
{
    (void)state;
    char dir[GOLDEN_PATH];
    assert_true(golden_model_dir("llama-6m", dir)); /* ships with the sources */
    json_t *values = golden_values("llama-6m");
    int32_t *ids = golden_ids(values);
    struct espl_model *model = open_model(dir);
    /* 5 windows of 300: no border of a panel, tile or batch falls on another. */
    const struct espl_perplexity one = measure(model, NULL, 1, ids, 5, 300);
    for (unsigned threads = 2; threads <= 3; threads++) {
        const struct espl_perplexity more = measure(model, NULL, threads, ids, 5, 300);
        assert_memory_equal(&one.mean_nll, &more.mean_nll, sizeof one.mean_nll);
    }
    checkpoint_model_close(model);
    json_decref(values);
    free(ids);
}

/* Evaluates llama-default with a NaN in one weight. */
static void measure_damaged(int64_t layer, enum espl_role role, struct espl_error *err)
{
    char dir[GOLDEN_PATH];
    struct tiny tiny;
    struct espl_model *damaged = NULL;
    struct espl_backend *backend = NULL;
    struct espl_perplexity result;
    open_tiny("llama-default", &tiny);
    golden_path("models/llama-default", dir);
    require_ok(checkpoint_model_open_damaged(dir, dir, layer, role, &damaged, err), err);
    require_ok(espl_backend_open("cpu", 2, &backend, err), err);
    assert_int_equal(espl_perplexity_measure(damaged, NULL, backend, tiny.ids, tiny.windows,
                                             tiny.tokens, NULL, NULL, &result, err),
                     ESPL_E_NUMERIC);
    espl_backend_close(backend);
    checkpoint_model_close(damaged);
    close_tiny(&tiny);
}

static void test_perplexity_measure__names_layer_and_window_of_nan(void **state)
{
    (void)state;
    struct espl_error err;
    measure_damaged(1, ESPL_ROLE_UP, &err);
    assert_string_equal(err.message, "hidden states of the model are not finite after layer 1, "
                                     "first in window 0");
    measure_damaged(-1, ESPL_ROLE_HEAD, &err);
    assert_string_equal(err.message, "logits of the model are not finite in window 0, position 0");
}

static void test_perplexity_measure__refuses_impossible_requests(void **state)
{
    (void)state;
    struct tiny tiny;
    struct tiny other;
    struct espl_error err;
    struct espl_backend *backend = NULL;
    struct espl_perplexity result;
    open_tiny("qwen2", &tiny);
    open_tiny("llama-default", &other);
    require_ok(espl_backend_open("cpu", 1, &backend, &err), &err);
    assert_int_equal(espl_perplexity_measure(tiny.model, NULL, backend, tiny.ids, 0, tiny.tokens,
                                             NULL, NULL, &result, &err),
                     ESPL_E_KIND);
    assert_int_equal(espl_perplexity_measure(tiny.model, NULL, backend, tiny.ids, 1, 1, NULL, NULL,
                                             &result, &err),
                     ESPL_E_KIND);
    assert_int_equal(espl_perplexity_measure(tiny.model, other.model, backend, tiny.ids, 1,
                                             tiny.tokens, NULL, NULL, &result, &err),
                     ESPL_E_KIND);
    assert_string_equal(err.message, "the base model has a vocabulary of 53, the model one of 67");
    espl_backend_close(backend);
    close_tiny(&tiny);
    close_tiny(&other);
}

struct watcher {
    uint64_t last;
    uint64_t total;
    size_t calls;
    size_t stop_after;
};

static bool watch(void *user, uint64_t done, uint64_t total)
{
    struct watcher *watcher = user;
    assert_true(done >= watcher->last);
    assert_true(done <= total);
    watcher->last = done;
    watcher->total = total;
    watcher->calls++;
    return watcher->calls < watcher->stop_after;
}

static void test_perplexity_measure__reports_progress_and_stops(void **state)
{
    (void)state;
    struct tiny tiny;
    struct espl_error err;
    struct espl_backend *backend = NULL;
    struct espl_perplexity result;
    struct watcher watcher = {.stop_after = SIZE_MAX};
    open_tiny("qwen2", &tiny);
    require_ok(espl_backend_open("cpu", 1, &backend, &err), &err);
    require_ok(espl_perplexity_measure(tiny.model, tiny.model, backend, tiny.ids, tiny.windows,
                                       tiny.tokens, watch, &watcher, &result, &err),
               &err);
    assert_int_equal(watcher.last, tiny.windows);
    assert_int_equal(watcher.total, tiny.windows);
    watcher = (struct watcher){.stop_after = 2};
    assert_int_equal(espl_perplexity_measure(tiny.model, NULL, backend, tiny.ids, tiny.windows,
                                             tiny.tokens, watch, &watcher, &result, &err),
                     ESPL_E_CANCELLED);
    assert_int_equal(watcher.calls, 2);
    espl_backend_close(backend);
    close_tiny(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_perplexity_measure__llama_6m),
        cmocka_unit_test(test_perplexity_measure__llama_18m),
        cmocka_unit_test(test_perplexity_measure__opt_6m),
        cmocka_unit_test(test_perplexity_measure__kl_from_another_model),
        cmocka_unit_test(test_perplexity_measure__same_model_has_no_divergence),
        cmocka_unit_test(test_perplexity_measure__same_bits_for_any_thread_count),
        cmocka_unit_test(test_perplexity_measure__names_layer_and_window_of_nan),
        cmocka_unit_test(test_perplexity_measure__refuses_impossible_requests),
        cmocka_unit_test(test_perplexity_measure__reports_progress_and_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Forward pass against values computed by PyTorch (see tests/data/README.md): tiny models of every
 * architecture and rope rule on both backends, and the reference models at their golden positions.
 */
#include "eval/forward.h"
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

static void require_ok(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s [%s]", err->message, err->context);
    }
}

/* Logits (windows * tokens, vocab) of ids; malloc'ed. */
static float *run_model(struct espl_model *model, const char *backend_name, const int32_t *ids,
                        size_t windows, size_t tokens)
{
    struct espl_error err;
    struct espl_backend *backend = NULL;
    struct espl_forward *forward = NULL;
    struct espl_block *block = NULL;
    const struct espl_model_config *config = espl_model_get_config(model);
    const size_t rows = windows * tokens;
    float *hidden = malloc(rows * (size_t)config->hidden * sizeof *hidden);
    float *logits = malloc(rows * (size_t)config->vocab * sizeof *logits);
    assert_non_null(hidden);
    assert_non_null(logits);
    require_ok(espl_backend_open(backend_name, 0, &backend, &err), &err);
    require_ok(espl_forward_create(model, backend, windows, tokens, &forward, &err), &err);
    require_ok(espl_forward_embed(forward, ids, windows, hidden, &err), &err);
    for (uint64_t layer = 0; layer < config->layers; layer++) {
        require_ok(espl_block_load(forward, layer, &block, &err), &err);
        require_ok(espl_forward_block(forward, block, windows, hidden, NULL, NULL, &err), &err);
    }
    require_ok(espl_forward_logits(forward, hidden, rows, logits, &err), &err);
    espl_block_destroy(block);
    espl_forward_destroy(forward);
    espl_backend_close(backend);
    free(hidden);
    return logits;
}

struct tiny {
    struct espl_model *model;
    int32_t *ids;
    float *logits;
    size_t windows;
    size_t tokens;
    size_t vocab;
};

static void open_tiny(const char *name, struct tiny *tiny)
{
    char dir[GOLDEN_PATH];
    char weights[GOLDEN_PATH];
    char path[GOLDEN_PATH + 64];
    struct espl_error err;
    size_t bytes = 0;
    (void)snprintf(path, sizeof path, "models/%s", name);
    golden_path(path, dir);
    (void)snprintf(path, sizeof path, "%s/expected.json", dir);
    json_t *expected = json_load_file(path, 0, NULL);
    assert_non_null(expected);
    tiny->windows = (size_t)json_integer_value(json_object_get(expected, "windows"));
    tiny->tokens = (size_t)json_integer_value(json_object_get(expected, "tokens"));
    (void)snprintf(path, sizeof path, "models/%s",
                   json_string_value(json_object_get(expected, "weights")));
    golden_path(path, weights);
    json_decref(expected);
    require_ok(checkpoint_model_open(weights, dir, &tiny->model, &err), &err);
    tiny->vocab = (size_t)espl_model_get_config(tiny->model)->vocab;
    (void)snprintf(path, sizeof path, "%s/ids.i32", dir);
    tiny->ids = golden_read(path, &bytes);
    assert_int_equal(bytes, tiny->windows * tiny->tokens * sizeof *tiny->ids);
    (void)snprintf(path, sizeof path, "%s/logits.f32", dir);
    tiny->logits = golden_read(path, &bytes);
    assert_int_equal(bytes, tiny->windows * tiny->tokens * tiny->vocab * sizeof *tiny->logits);
}

static void close_tiny(struct tiny *tiny)
{
    checkpoint_model_close(tiny->model);
    free(tiny->ids);
    free(tiny->logits);
}

static void check_tiny(const char *name)
{
    static const char *const backends[] = {"ref", "cpu"};
    struct tiny tiny;
    open_tiny(name, &tiny);
    for (size_t b = 0; b < 2; b++) {
        float *logits = run_model(tiny.model, backends[b], tiny.ids, tiny.windows, tiny.tokens);
        for (size_t i = 0; i < tiny.windows * tiny.tokens * tiny.vocab; i++) {
            /* Logits reach 25; the float32 run of PyTorch is within 3e-5 of its float64 run, which
             * the fixture holds. */
            if (!(fabsf(logits[i] - tiny.logits[i]) <= 2e-4F)) {
                fail_msg("%s on %s: logit %zu is %.6f, expected %.6f", name, backends[b], i,
                         (double)logits[i], (double)tiny.logits[i]);
            }
        }
        free(logits);
    }
    close_tiny(&tiny);
}

static void test_forward__opt_post_norm_with_projections(void **state)
{
    (void)state;
    check_tiny("opt-post-norm");
}

static void test_forward__opt_gelu_without_biases_and_affine_norms(void **state)
{
    (void)state;
    check_tiny("opt-gelu");
}

static void test_forward__llama_gqa_biases_and_own_head_size(void **state)
{
    (void)state;
    check_tiny("llama-default");
}

static void test_forward__rope_llama3(void **state)
{
    (void)state;
    check_tiny("llama-llama3");
}

static void test_forward__rope_linear(void **state)
{
    (void)state;
    check_tiny("llama-linear");
}

static void test_forward__rope_dynamic_past_the_trained_length(void **state)
{
    (void)state;
    check_tiny("llama-dynamic");
}

static void test_forward__rope_yarn(void **state)
{
    (void)state;
    check_tiny("llama-yarn");
}

static void test_forward__qwen2(void **state)
{
    (void)state;
    check_tiny("qwen2");
}

/* The rope fixtures share weights and ids: if a rule were ignored, its logits would be those of the
 * default rule, so these must differ by more than the tolerance. */
static void test_forward__rope_fixtures_differ(void **state)
{
    (void)state;
    static const char *const others[] = {"llama-llama3", "llama-linear", "llama-dynamic",
                                         "llama-yarn"};
    struct tiny plain;
    open_tiny("llama-default", &plain);
    for (size_t o = 0; o < 4; o++) {
        struct tiny other;
        float largest = 0.0F;
        open_tiny(others[o], &other);
        for (size_t i = 0; i < plain.windows * plain.tokens * plain.vocab; i++) {
            largest = fmaxf(largest, fabsf(plain.logits[i] - other.logits[i]));
        }
        assert_true(largest > 0.1F);
        close_tiny(&other);
    }
    close_tiny(&plain);
}

static void check_position(const json_t *golden, const float *logits, size_t vocab)
{
    const json_t *ids = json_object_get(golden, "ids");
    const json_t *values = json_object_get(golden, "values");
    double sum = 0.0;
    float previous = INFINITY;
    for (size_t i = 0; i < vocab; i++) {
        sum += exp((double)logits[i]);
    }
    assert_true(fabs(log(sum) - json_number_value(json_object_get(golden, "logsumexp"))) <= 5e-3);
    for (size_t rank = 0; rank < 5; rank++) {
        const size_t id = (size_t)json_integer_value(json_array_get(ids, rank));
        assert_true(id < vocab);
        size_t above = 0;
        for (size_t i = 0; i < vocab; i++) {
            above += logits[i] > logits[id] ? 1 : 0;
        }
        assert_int_equal(above, rank);
        assert_true(logits[id] < previous);
        previous = logits[id];
        assert_true(fabs((double)logits[id] - json_number_value(json_array_get(values, rank))) <=
                    5e-3);
    }
}

/* golden.json: top five ids and values and the logsumexp at some positions of the text's first
 * window of 512. */
static void check_reference_model(const char *name, int32_t first_id)
{
    char dir[GOLDEN_PATH];
    char path[GOLDEN_PATH + 64];
    struct espl_error err;
    struct espl_model *model = NULL;
    size_t bytes = 0;
    const char *position = NULL;
    json_t *entry = NULL;
    if (!golden_model_dir(name, dir)) {
        print_message("skipped: reference model '%s' is not on this machine\n", name);
        skip();
    }
    golden_path("golden/novels-test-16x512.i32", path);
    int32_t *ids = golden_read(path, &bytes);
    ids[0] = first_id;
    (void)snprintf(path, sizeof path, "%s/golden.json", dir);
    json_t *golden = json_load_file(path, 0, NULL);
    assert_non_null(golden);
    require_ok(checkpoint_model_open(dir, dir, &model, &err), &err);
    const size_t vocab = (size_t)espl_model_get_config(model)->vocab;
    float *logits = run_model(model, "cpu", ids, 1, 512);
    size_t positions = 0;
    json_object_foreach(json_object_get(golden, "logits"), position, entry)
    {
        check_position(entry, logits + (size_t)strtoul(position, NULL, 10) * vocab, vocab);
        positions++;
    }
    assert_int_equal(positions, 6);
    free(logits);
    checkpoint_model_close(model);
    json_decref(golden);
    free(ids);
}

static void test_forward__golden_logits_llama_6m(void **state)
{
    (void)state;
    check_reference_model("llama-6m", 0);
}

static void test_forward__golden_logits_llama_18m(void **state)
{
    (void)state;
    check_reference_model("llama-18m", 0);
}

static void test_forward__golden_logits_opt_6m(void **state)
{
    (void)state;
    check_reference_model("opt-6m", 2); /* same vocabulary, other BOS */
}

/* What an observer saw. */
struct seen {
    size_t calls;
    enum espl_role roles[16];
    size_t role_count;
    size_t widths[8];
    enum espl_status answer;
};

static enum espl_status watch(void *user, const enum espl_role *roles, size_t role_count,
                              const float *x, size_t tokens_total, size_t in,
                              struct espl_error *err)
{
    struct seen *seen = user;
    assert_non_null(x);
    assert_int_equal(tokens_total, 2 * 23);
    seen->widths[seen->calls++] = in;
    for (size_t i = 0; i < role_count; i++) {
        seen->roles[seen->role_count++] = roles[i];
    }
    return seen->answer == ESPL_OK ? ESPL_OK : espl_fail(err, seen->answer, "seen enough");
}

static void test_forward_block__shows_every_input_once(void **state)
{
    (void)state;
    static const enum espl_role expected[] = {ESPL_ROLE_Q, ESPL_ROLE_K,   ESPL_ROLE_V,
                                              ESPL_ROLE_O, ESPL_ROLE_FC1, ESPL_ROLE_FC2};
    struct espl_error err;
    struct tiny tiny;
    struct espl_backend *backend = NULL;
    struct espl_forward *forward = NULL;
    struct espl_block *block = NULL;
    struct espl_matrix_shape shape = {0};
    open_tiny("opt-post-norm", &tiny);
    const struct espl_model_config *config = espl_model_get_config(tiny.model);
    float *hidden = malloc(tiny.windows * tiny.tokens * (size_t)config->hidden * sizeof *hidden);
    assert_non_null(hidden);
    require_ok(espl_backend_open("cpu", 0, &backend, &err), &err);
    require_ok(espl_forward_create(tiny.model, backend, 2, tiny.tokens, &forward, &err), &err);
    require_ok(espl_forward_embed(forward, tiny.ids, 2, hidden, &err), &err);
    require_ok(espl_block_load(forward, 0, &block, &err), &err);

    struct seen seen = {.answer = ESPL_OK};
    require_ok(espl_forward_block(forward, block, 2, hidden, watch, &seen, &err), &err);
    assert_int_equal(seen.calls, 4);
    assert_int_equal(seen.role_count, 6);
    assert_memory_equal(seen.roles, expected, sizeof expected);
    assert_int_equal(seen.widths[0], config->hidden);
    assert_int_equal(seen.widths[3], config->ffn);

    seen = (struct seen){.answer = ESPL_E_CANCELLED};
    assert_int_equal(espl_forward_block(forward, block, 2, hidden, watch, &seen, &err),
                     ESPL_E_CANCELLED);
    assert_int_equal(seen.calls, 1);

    assert_non_null(espl_block_weight(block, ESPL_ROLE_FC1, &shape));
    assert_int_equal(shape.rows, config->ffn);
    assert_int_equal(shape.cols, config->hidden);
    assert_null(espl_block_weight(block, ESPL_ROLE_GATE, &shape));
    assert_null(espl_block_weight(block, ESPL_ROLE_MLP_NORM, &shape));

    espl_block_destroy(block);
    espl_forward_destroy(forward);
    espl_backend_close(backend);
    free(hidden);
    close_tiny(&tiny);
}

static void test_forward__refuses_what_the_model_cannot_take(void **state)
{
    (void)state;
    struct espl_error err;
    struct tiny tiny;
    struct espl_backend *backend = NULL;
    struct espl_forward *forward = NULL;
    struct espl_block *block = NULL;
    open_tiny("opt-post-norm", &tiny);
    const struct espl_model_config *config = espl_model_get_config(tiny.model);
    float *hidden = malloc(3 * tiny.tokens * (size_t)config->hidden * sizeof *hidden);
    assert_non_null(hidden);
    require_ok(espl_backend_open("cpu", 1, &backend, &err), &err);

    assert_int_equal(espl_forward_create(tiny.model, backend, 1, 41, &forward, &err),
                     ESPL_E_UNSUPPORTED);
    assert_string_equal(err.message,
                        "windows of 41 tokens are longer than the model's 40 learned positions");
    assert_null(forward);

    require_ok(espl_forward_create(tiny.model, backend, 2, tiny.tokens, &forward, &err), &err);
    tiny.ids[tiny.tokens + 4] = 61;
    assert_int_equal(espl_forward_embed(forward, tiny.ids, 2, hidden, &err), ESPL_E_CORRUPT);
    assert_string_equal(
        err.message,
        "token id 61 at position 4 of window 1 is outside the model's vocabulary of 61");
    tiny.ids[tiny.tokens + 4] = -1;
    assert_int_equal(espl_forward_embed(forward, tiny.ids, 2, hidden, &err), ESPL_E_CORRUPT);
    assert_int_equal(espl_forward_embed(forward, tiny.ids, 3, hidden, &err), ESPL_E_INTERNAL);
    assert_int_equal(espl_block_load(forward, 2, &block, &err), ESPL_E_INTERNAL);
    assert_null(block);

    espl_forward_destroy(forward);
    espl_backend_close(backend);
    free(hidden);
    close_tiny(&tiny);
}

/* Counted by hand for opt-post-norm with 23 tokens: block linears 4 * 33^2 + 2 * 33 * 40 = 6996
 * weights, twice; head 61 * 20, projections 2 * 20 * 33; attention 23 * 24 / 2 pairs, 33 wide, two
 * products, two layers. */
static void test_forward_flop__counts_half_of_the_attention_square(void **state)
{
    (void)state;
    struct tiny tiny;
    open_tiny("opt-post-norm", &tiny);
    const double linear = 2.0 * 23.0 * (2.0 * 6996.0 + 1220.0 + 1320.0);
    const double attention = 2.0 * 2.0 * 2.0 * 276.0 * 33.0;
    assert_true(espl_forward_flop(espl_model_get_config(tiny.model), 23) == linear + attention);
    close_tiny(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward__opt_post_norm_with_projections),
        cmocka_unit_test(test_forward__opt_gelu_without_biases_and_affine_norms),
        cmocka_unit_test(test_forward__llama_gqa_biases_and_own_head_size),
        cmocka_unit_test(test_forward__rope_llama3),
        cmocka_unit_test(test_forward__rope_linear),
        cmocka_unit_test(test_forward__rope_dynamic_past_the_trained_length),
        cmocka_unit_test(test_forward__rope_yarn),
        cmocka_unit_test(test_forward__qwen2),
        cmocka_unit_test(test_forward__rope_fixtures_differ),
        cmocka_unit_test(test_forward__golden_logits_llama_6m),
        cmocka_unit_test(test_forward__golden_logits_llama_18m),
        cmocka_unit_test(test_forward__golden_logits_opt_6m),
        cmocka_unit_test(test_forward_block__shows_every_input_once),
        cmocka_unit_test(test_forward__refuses_what_the_model_cannot_take),
        cmocka_unit_test(test_forward_flop__counts_half_of_the_attention_square),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

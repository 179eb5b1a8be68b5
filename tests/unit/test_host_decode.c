/* Decoding on the CPU token by token against one pass over all tokens: on the reference backend,
 * which adds every row by itself, the logits are the same bits. Tiny models of every architecture
 * and rope rule, and random encoded ones with codes and a 4-bit cache. */
#include "eval/host_decode.h"

#include "core/fs.h"
#include "core/rng.h"
#include "model/quantised.h"
#include "stages/iebme_encode/random_model.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"
#include "unit/checkpoint_model.h"
#include "unit/golden_data.h"
#include "unit/prune_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 2, PROMPT = 5, TOKENS = 12, NEW = TOKENS - PROMPT };

static void require_ok(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s [%s]", err->message, err->context);
    }
}

/* Logits (sequences * TOKENS, vocabulary) of one pass. */
static float *logits_at_once(struct espl_model *model, struct espl_backend *backend,
                             const int32_t *ids)
{
    const struct espl_model_config *config = espl_model_get_config(model);
    const size_t rows = (size_t)SEQUENCES * TOKENS;
    struct espl_forward *forward = NULL;
    struct espl_block *block = NULL;
    struct espl_error err;
    float *hidden = malloc(rows * (size_t)config->hidden * sizeof *hidden);
    float *logits = malloc(rows * (size_t)config->vocab * sizeof *logits);
    assert_true(hidden != NULL && logits != NULL);
    require_ok(espl_forward_create(model, backend, SEQUENCES, TOKENS, &forward, &err), &err);
    require_ok(espl_forward_embed(forward, ids, SEQUENCES, hidden, &err), &err);
    for (uint64_t layer = 0; layer < config->layers; layer++) {
        require_ok(espl_block_load(forward, layer, &block, &err), &err);
        require_ok(espl_forward_block(forward, block, SEQUENCES, hidden, NULL, NULL, &err), &err);
    }
    require_ok(espl_forward_logits(forward, hidden, rows, logits, &err), &err);
    espl_block_destroy(block);
    espl_forward_destroy(forward);
    free(hidden);
    return logits;
}

static void random_prompts(int32_t *ids, size_t vocabulary)
{
    struct espl_rng rng = espl_rng_stream(5, "prompts", 0);
    for (size_t i = 0; i < SEQUENCES * PROMPT; i++) {
        ids[i] = (int32_t)espl_rng_below(&rng, vocabulary);
    }
}

static struct espl_host_decoder *make_decoder(struct espl_model *model,
                                              struct espl_backend *backend)
{
    const struct espl_host_decoder_options options = {SEQUENCES + 1, PROMPT + 2, TOKENS};
    struct espl_host_decoder *decoder = NULL;
    struct espl_error err;
    require_ok(espl_host_decoder_create(model, backend, &options, &decoder, &err), &err);
    return decoder;
}

/* steps (NEW, SEQUENCES, vocabulary) <- the logits of every choice; made (SEQUENCES, NEW). */
static void decode(struct espl_host_decoder *decoder, const int32_t *prompts, size_t vocabulary,
                   float *steps, int32_t *made)
{
    const size_t bytes = SEQUENCES * vocabulary * sizeof *steps;
    double seconds = -1.0;
    struct espl_error err;
    require_ok(espl_host_read_prompt(decoder, prompts, SEQUENCES, PROMPT, &err), &err);
    memcpy(steps, espl_host_last_logits(decoder), bytes);
    for (size_t i = 1; i < NEW; i++) {
        require_ok(espl_host_decode(decoder, 1, &seconds, &err), &err);
        assert_true(seconds >= 0.0);
        memcpy(steps + i * SEQUENCES * vocabulary, espl_host_last_logits(decoder), bytes);
    }
    require_ok(espl_host_get_tokens(decoder, made, NEW, &err), &err);
}

static void expect_greedy(const float *steps, size_t vocabulary, const int32_t *made)
{
    for (size_t i = 0; i < NEW * SEQUENCES; i++) {
        const float *logits = steps + i * vocabulary;
        const size_t id = (size_t)made[i % SEQUENCES * NEW + i / SEQUENCES];
        for (size_t v = 0; v < vocabulary; v++) {
            assert_true(v < id ? logits[v] < logits[id] : logits[v] <= logits[id]);
        }
    }
}

/* limit: of the difference, 0 for equal bits. */
static void try_model(struct espl_model *model, const char *backend_name, float limit)
{
    const size_t vocabulary = (size_t)espl_model_get_config(model)->vocab;
    int32_t prompts[SEQUENCES * PROMPT];
    int32_t made[2][SEQUENCES * NEW];
    int32_t all[SEQUENCES * TOKENS];
    struct espl_backend *backend = NULL;
    struct espl_error err;
    float *steps = malloc((size_t)NEW * SEQUENCES * vocabulary * sizeof *steps);
    assert_non_null(steps);
    require_ok(espl_backend_open(backend_name, 0, &backend, &err), &err);
    struct espl_host_decoder *decoder = make_decoder(model, backend);
    random_prompts(prompts, vocabulary);
    decode(decoder, prompts, vocabulary, steps, made[0]);
    decode(decoder, prompts, vocabulary, steps, made[1]); /* from an empty cache again */
    assert_memory_equal(made[0], made[1], sizeof made[0]);
    expect_greedy(steps, vocabulary, made[1]);
    espl_host_decoder_destroy(decoder);
    for (size_t s = 0; s < SEQUENCES; s++) {
        memcpy(all + s * TOKENS, prompts + s * PROMPT, PROMPT * sizeof *all);
        memcpy(all + s * TOKENS + PROMPT, made[1] + s * NEW, NEW * sizeof *all);
    }
    float *wanted = logits_at_once(model, backend, all);
    for (size_t i = 0; i < NEW * SEQUENCES; i++) {
        const size_t row = i % SEQUENCES * TOKENS + PROMPT - 1 + i / SEQUENCES;
        for (size_t v = 0; v < vocabulary; v++) {
            assert_true(fabsf(steps[i * vocabulary + v] - wanted[row * vocabulary + v]) <= limit);
        }
    }
    espl_backend_close(backend);
    free(wanted);
    free(steps);
}

/* Of all linears of blocks as floats; norms and biases are no part of it. */
static void expect_float_bytes(struct espl_model *model)
{
    struct espl_backend *backend = NULL;
    struct espl_error err;
    uint64_t bytes = 0;
    for (size_t i = 0; i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        if (espl_role_is_block_linear(spec->role) && !spec->is_bias) {
            bytes += spec->shape[0] * spec->shape[1] * sizeof(float);
        }
    }
    require_ok(espl_backend_open("ref", 0, &backend, &err), &err);
    struct espl_host_decoder *decoder = make_decoder(model, backend);
    assert_int_equal(espl_host_decoder_weight_bytes(decoder), bytes);
    assert_int_equal(espl_host_decoder_areas(decoder), ESPL_IEBME_DENSE);
    espl_host_decoder_destroy(decoder);
    espl_backend_close(backend);
}

static void test_float_models__as_in_one_pass(void **state)
{
    static const char *const names[] = {"llama-default", "llama-dynamic", "llama-linear",
                                        "llama-llama3",  "llama-yarn",    "opt-gelu",
                                        "opt-post-norm", "qwen2"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[GOLDEN_PATH + 64];
        char folder[GOLDEN_PATH];
        char weights[GOLDEN_PATH];
        struct espl_model *model = NULL;
        struct espl_error err;
        (void)snprintf(text, sizeof text, "models/%s", names[i]);
        golden_path(text, folder);
        (void)snprintf(text, sizeof text, "%s/expected.json", folder);
        json_t *expected = json_load_file(text, 0, NULL);
        assert_non_null(expected);
        (void)snprintf(text, sizeof text, "models/%s",
                       json_string_value(json_object_get(expected, "weights")));
        golden_path(text, weights);
        json_decref(expected);
        require_ok(checkpoint_model_open(weights, folder, &model, &err), &err);
        try_model(model, "ref", 0.0F);
        try_model(model, "cpu", 1e-4F);
        expect_float_bytes(model);
        checkpoint_model_close(model);
    }
}

static void with_random(const char *shape, enum espl_iebme_areas areas,
                        void (*use)(struct espl_model *model))
{
    char folder[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    struct espl_error err;
    temp_folder_make(folder);
    (void)snprintf(path, sizeof path, "%.*s/model.h5", (int)sizeof path - 16, folder);
    const struct espl_random_model_options options = {
        .checkpoint = {.shape = shape, .layers = 2, .vocab = 300, .dtype = ESPL_DTYPE_F16},
        .path = path,
        .sparsity = 0.5,
        .bits = 4,
        .areas = areas};
    require_ok(espl_random_model_write(&options, NULL, &err), &err);
    require_ok(espl_artifact_open(path, &artifact, &err), &err);
    require_ok(espl_model_open(artifact, NULL, &model, &err), &err);
    use(model);
    espl_model_close(model);
    espl_artifact_close(artifact);
    temp_folder_remove(folder);
}

/* The same tokens by the same logits, whatever the number of threads. */
static void try_threads(struct espl_model *model)
{
    static const unsigned threads[] = {1, 2, 3};
    const size_t vocabulary = (size_t)espl_model_get_config(model)->vocab;
    const size_t count = (size_t)NEW * SEQUENCES * vocabulary;
    int32_t prompts[SEQUENCES * PROMPT];
    int32_t made[2][SEQUENCES * NEW];
    float *steps = malloc(2 * count * sizeof *steps);
    assert_non_null(steps);
    random_prompts(prompts, vocabulary);
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        const size_t at = i == 0 ? 0 : 1;
        struct espl_backend *backend = NULL;
        struct espl_error err;
        require_ok(espl_backend_open("cpu", threads[i], &backend, &err), &err);
        struct espl_host_decoder *decoder = make_decoder(model, backend);
        decode(decoder, prompts, vocabulary, steps + at * count, made[at]);
        espl_host_decoder_destroy(decoder);
        espl_backend_close(backend);
        assert_memory_equal(made[0], made[at], sizeof made[0]);
        assert_memory_equal(steps, steps + at * count, count * sizeof *steps);
    }
    free(steps);
}

static void try_codes(struct espl_model *model)
{
    try_model(model, "ref", 0.0F);
    try_threads(model);
}

static void test_encoded_models__as_in_one_pass(void **state)
{
    (void)state;
    with_random("opt", ESPL_IEBME_1X1, try_codes);
    with_random("llama", ESPL_IEBME_2X2, try_codes);
    with_random("qwen2", ESPL_IEBME_DENSE, try_codes);
}

static void refuse(struct espl_model *model)
{
    const struct espl_host_decoder_options long_ones = {1, PROMPT, 1 << 20};
    const struct espl_host_decoder_options no_room = {1, PROMPT, PROMPT};
    struct espl_backend *backend = NULL;
    struct espl_host_decoder *decoder = NULL;
    struct espl_error err;
    int32_t ids[SEQUENCES * TOKENS] = {0};
    require_ok(espl_backend_open("cpu", 1, &backend, &err), &err);
    assert_int_equal(espl_host_decoder_create(model, backend, &long_ones, &decoder, &err),
                     ESPL_E_UNSUPPORTED);
    assert_int_equal(espl_host_decoder_create(model, backend, &no_room, &decoder, &err),
                     ESPL_E_INTERNAL);
    assert_null(decoder);
    decoder = make_decoder(model, backend);
    assert_int_equal(espl_host_decode(decoder, 1, NULL, &err), ESPL_E_INTERNAL);
    ids[3] = 300;
    assert_int_equal(espl_host_read_prompt(decoder, ids, SEQUENCES, PROMPT, &err), ESPL_E_CORRUPT);
    assert_int_equal(espl_host_get_tokens(decoder, ids, 1, &err), ESPL_E_INTERNAL);
    ids[3] = 299;
    require_ok(espl_host_read_prompt(decoder, ids, SEQUENCES, PROMPT, &err), &err);
    assert_int_equal(espl_host_decode(decoder, NEW, NULL, &err), ESPL_E_UNSUPPORTED);
    require_ok(espl_host_decode(decoder, NEW - 1, NULL, &err), &err);
    assert_int_equal(espl_host_decode(decoder, 1, NULL, &err), ESPL_E_UNSUPPORTED);
    assert_int_equal(espl_host_get_tokens(decoder, ids, NEW + 1, &err), ESPL_E_INTERNAL);
    assert_int_equal(espl_host_read_prompt(decoder, ids, SEQUENCES + 2, PROMPT, &err),
                     ESPL_E_UNSUPPORTED);
    assert_int_equal(espl_host_read_prompt(decoder, ids, 1, PROMPT + 3, &err), ESPL_E_UNSUPPORTED);
    espl_host_decoder_destroy(decoder);
    espl_backend_close(backend);
}

static void test_what_does_not_fit__refused(void **state)
{
    (void)state;
    with_random("opt", ESPL_IEBME_1X1, refuse);
}

/* Codes of an input take two bytes a column, and a scale and a start a group, outliers being one.
 */
static void test_bytes__of_codes_by_position(void **state)
{
    (void)state;
    const struct espl_model_config config = {.layers = 2,
                                             .hidden = 256,
                                             .heads = 4,
                                             .kv_heads = 4,
                                             .head_dim = 64,
                                             .ffn = 512,
                                             .vocab = 300,
                                             .embed_dim = 256};
    const struct espl_host_decoder_options options = {3, 10, 30};
    struct espl_quant_scheme scheme = {
        .activation_bits = 4, .widths = {{256, 32, 32}, {512, 64, 64}}, .width_count = 2};
    const uint64_t floats = espl_host_decoder_bytes(&config, NULL, &options, 1000);
    assert_int_equal(espl_host_decoder_bytes(&config, &scheme, &options, 1000) - floats,
                     3 * 30 * (2 * 512 + (7 + 1) * 8));
    scheme.activation_bits = ESPL_QUANT_FLOAT_BITS;
    assert_int_equal(espl_host_decoder_bytes(&config, &scheme, &options, 1000), floats);
    assert_int_equal(espl_host_decoder_bytes(&config, NULL, &options, 2000), floats + 1000);
}

/* Every token has the same embedding, so every logit of the tied head is the same. */
static void make_tokens_equal(const struct espl_tensor_spec *spec, float *values)
{
    for (uint64_t row = 1; spec->role == ESPL_ROLE_EMBEDDING && row < spec->shape[0]; row++) {
        memcpy(values + row * spec->shape[1], values, spec->shape[1] * sizeof *values);
    }
}

static void test_equal_logits__the_first_is_chosen(void **state)
{
    const int32_t prompts[SEQUENCES * PROMPT] = {7, 3, 9};
    const int32_t zeros[SEQUENCES * NEW] = {0};
    int32_t made[SEQUENCES * NEW];
    const struct espl_model_config config = prune_llama_config();
    struct prune_fixture fixture;
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    struct espl_backend *backend = NULL;
    struct espl_error err;
    (void)state;
    prune_fixture_open(&fixture);
    prune_make_model(&fixture, 'a', &config, ESPL_DTYPE_F32, make_tokens_equal);
    prune_open(&fixture, 'a', &artifact, &model);
    require_ok(espl_backend_open("ref", 1, &backend, &err), &err);
    struct espl_host_decoder *decoder = make_decoder(model, backend);
    require_ok(espl_host_read_prompt(decoder, prompts, SEQUENCES, PROMPT, &err), &err);
    require_ok(espl_host_decode(decoder, NEW - 1, NULL, &err), &err);
    require_ok(espl_host_get_tokens(decoder, made, NEW, &err), &err);
    assert_memory_equal(made, zeros, sizeof zeros);
    espl_host_decoder_destroy(decoder);
    espl_backend_close(backend);
    espl_model_close(model);
    espl_artifact_close(artifact);
    prune_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float_models__as_in_one_pass),
        cmocka_unit_test(test_encoded_models__as_in_one_pass),
        cmocka_unit_test(test_equal_logits__the_first_is_chosen),
        cmocka_unit_test(test_what_does_not_fit__refused),
        cmocka_unit_test(test_bytes__of_codes_by_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

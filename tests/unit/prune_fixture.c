#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "prune_fixture.h"

#include "support/temp_folder.h"

#include "core/rng.h"
#include "engine/stage_ctx.h"
#include "espalier/kernels.h"
#include "model/safetensors.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s [%s] (%s)", err->message, err->context, err->hint);
    }
}

void prune_fixture_open(struct prune_fixture *fixture)
{
    struct espl_error err;
    memset(fixture, 0, sizeof *fixture);
    espl_artifact_library_init();
    temp_folder_make(fixture->folder);
    check(espl_store_open(fixture->folder, &fixture->store, &err), &err);
}

void prune_fixture_close(struct prune_fixture *fixture)
{
    struct espl_error err;
    check(espl_fs_remove_tree(fixture->folder, &err), &err);
}

const char *prune_key(struct prune_fixture *fixture, char digit)
{
    memset(fixture->key, digit, PRUNE_KEY_TEXT - 1);
    fixture->key[PRUNE_KEY_TEXT - 1] = '\0';
    return fixture->key;
}

struct espl_model_config prune_llama_config(void)
{
    return (struct espl_model_config){.architecture = "llama",
                                      .layers = 3,
                                      .hidden = 24,
                                      .heads = 3,
                                      .kv_heads = 1,
                                      .head_dim = 8,
                                      .ffn = 40,
                                      .vocab = 50,
                                      .max_positions = 64,
                                      .embed_dim = 24,
                                      .norm = ESPL_NORM_RMS,
                                      .norm_eps = 1e-5,
                                      .norm_affine = true,
                                      .activation = ESPL_ACT_SILU,
                                      .pre_norm = true,
                                      .final_norm = true,
                                      .tied_embeddings = true,
                                      .rope = {.type = ESPL_ROPE_DEFAULT, .theta = 1e4},
                                      .bos_id = 0,
                                      .eos_id = 1,
                                      .dtype = "f32"};
}

struct espl_model_config prune_opt_config(void)
{
    return (struct espl_model_config){.architecture = "opt",
                                      .layers = 2,
                                      .hidden = 24,
                                      .heads = 3,
                                      .kv_heads = 3,
                                      .head_dim = 8,
                                      .ffn = 36,
                                      .vocab = 50,
                                      .max_positions = 64,
                                      .embed_dim = 24,
                                      .norm = ESPL_NORM_LAYER,
                                      .norm_eps = 1e-5,
                                      .norm_affine = true,
                                      .activation = ESPL_ACT_RELU,
                                      .pre_norm = true,
                                      .final_norm = true,
                                      .tied_embeddings = true,
                                      .attention_bias = true,
                                      .output_bias = true,
                                      .mlp_bias = true,
                                      .position_offset = 2,
                                      .bos_id = 0,
                                      .eos_id = 1,
                                      .dtype = "f32"};
}

static struct espl_artifact *begin(struct prune_fixture *fixture, char key_digit, const char *kind)
{
    char path[ESPL_PATH_MAX];
    struct espl_artifact *artifact = NULL;
    struct espl_error err;
    const char *key = prune_key(fixture, key_digit);
    check(espl_store_private_path(&fixture->store, key, "out", path, &err), &err);
    check(espl_artifact_create(path, kind, &artifact, &err), &err);
    check(espl_artifact_set_attribute(artifact, "key", key, &err), &err);
    return artifact;
}

static void publish(struct prune_fixture *fixture, char key_digit, struct espl_artifact *artifact,
                    char content_sha256[ESPL_SHA256_HEX])
{
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    (void)snprintf(path, sizeof path, "%s", espl_artifact_path(artifact));
    check(espl_artifact_finish(&artifact, content_sha256, &err), &err);
    check(espl_store_publish(&fixture->store, path, prune_key(fixture, key_digit), NULL, &err),
          &err);
}

static void describe(struct espl_artifact *artifact, json_t *description)
{
    struct espl_error err;
    char *text = json_dumps(description, JSON_COMPACT | JSON_SORT_KEYS);
    assert_non_null(text);
    check(espl_artifact_set_description(artifact, text, &err), &err);
    free(text);
    json_decref(description);
}

/* Exact for bf16 and f32 outputs: values are multiples of 2^-8 below 2. */
static void narrow(enum espl_dtype dtype, float value, unsigned char *out)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (dtype == ESPL_DTYPE_F32) {
        memcpy(out, &bits, sizeof bits);
    } else {
        const uint16_t half = (uint16_t)(bits >> 16);
        memcpy(out, &half, sizeof half);
    }
}

static void write_random(struct espl_artifact *artifact, const struct espl_tensor_spec *spec,
                         uint64_t index, enum espl_dtype dtype, prune_edit_fn edit)
{
    const uint64_t cols = spec->rank == 2 ? spec->shape[1] : 1;
    const size_t count = (size_t)(spec->shape[0] * cols);
    const struct espl_tensor_info info =
        espl_tensor_info_make(spec->path, dtype, spec->rank, spec->shape);
    struct espl_rng rng = espl_rng_stream(5, "weights", index);
    struct espl_error err;
    float *values = malloc(count * sizeof *values);
    unsigned char *raw = malloc((size_t)info.bytes);
    assert_non_null(values);
    assert_non_null(raw);
    for (size_t i = 0; i < count; i++) {
        const double unit = spec->rank == 1 && !spec->is_bias ? 1.0 : 0.0;
        values[i] = (float)(unit + 0.3 * espl_rng_normal(&rng));
    }
    if (edit != NULL) {
        edit(spec, values);
    }
    for (size_t i = 0; i < count; i++) {
        narrow(dtype, values[i], raw + i * espl_dtype_size(dtype));
    }
    check(espl_artifact_write(artifact, &info, raw, &err), &err);
    free(values);
    free(raw);
}

void prune_make_model(struct prune_fixture *fixture, char key_digit,
                      const struct espl_model_config *config, enum espl_dtype dtype,
                      prune_edit_fn edit)
{
    struct espl_artifact *artifact = begin(fixture, key_digit, "model.dense/1");
    struct espl_tensor_spec *specs = NULL;
    size_t count = 0;
    struct espl_error err;
    describe(artifact, espl_model_description(config));
    check(espl_arch_tensors(config, &specs, &count, &err), &err);
    for (size_t i = 0; i < count; i++) {
        write_random(artifact, &specs[i], i, dtype, edit);
    }
    free(specs);
    publish(fixture, key_digit, artifact, NULL);
}

void prune_import(struct prune_fixture *fixture, char key_digit, const char *folder)
{
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    struct espl_model_config config;
    struct espl_safetensors *set = NULL;
    struct espl_tensor_spec *specs = NULL;
    size_t count = 0;
    check(espl_fs_join(path, folder, "config.json", &err), &err);
    json_t *hf = json_load_file(path, 0, NULL);
    assert_non_null(hf);
    check(espl_model_config_from_hf(hf, &config, &err), &err);
    check(espl_safetensors_open(folder, &set, &err), &err);
    check(espl_arch_tensors(&config, &specs, &count, &err), &err);
    struct espl_artifact *artifact = begin(fixture, key_digit, "model.dense/1");
    describe(artifact, espl_model_description(&config));
    for (size_t i = 0; i < count; i++) {
        const struct espl_safetensor *tensor = espl_safetensors_find(set, specs[i].name);
        assert_non_null(tensor);
        const struct espl_tensor_info info =
            espl_tensor_info_make(specs[i].path, tensor->dtype, specs[i].rank, specs[i].shape);
        assert_int_equal(info.bytes, tensor->bytes);
        void *raw = malloc((size_t)tensor->bytes);
        assert_non_null(raw);
        check(espl_safetensors_read(set, tensor, 0, raw, (size_t)tensor->bytes, &err), &err);
        check(espl_artifact_write(artifact, &info, raw, &err), &err);
        free(raw);
    }
    free(specs);
    espl_safetensors_close(set);
    json_decref(hf);
    publish(fixture, key_digit, artifact, NULL);
}

void prune_make_tokens(struct prune_fixture *fixture, char key_digit, const int32_t *ids,
                       uint64_t windows, uint64_t tokens, uint64_t vocab)
{
    struct espl_artifact *artifact = begin(fixture, key_digit, "tokens/1");
    struct espl_error err;
    const uint64_t shape[2] = {windows > 0 ? windows : tokens, tokens};
    const struct espl_tensor_info info =
        espl_tensor_info_make("/tokens/ids", ESPL_DTYPE_I32, windows > 0 ? 2 : 1, shape);
    const uint64_t count = shape[0] * (windows > 0 ? tokens : 1);
    const uint64_t length = windows > 0 ? tokens : 0;
    describe(artifact, json_pack("{s:I, s:I, s:I, s:I}", "count", (json_int_t)count, "windows",
                                 (json_int_t)windows, "sequence_length", (json_int_t)length,
                                 "vocab_size", (json_int_t)vocab));
    check(espl_artifact_write(artifact, &info, ids, &err), &err);
    publish(fixture, key_digit, artifact, NULL);
}

void prune_make_random_tokens(struct prune_fixture *fixture, char key_digit, uint64_t windows,
                              uint64_t tokens)
{
    const size_t count = (size_t)((windows > 0 ? windows : 1) * tokens);
    int32_t *ids = malloc(count * sizeof *ids);
    struct espl_rng rng = espl_rng_stream(9, "ids", 0);
    assert_non_null(ids);
    for (size_t i = 0; i < count; i++) {
        ids[i] = (int32_t)espl_rng_below(&rng, 50);
    }
    prune_make_tokens(fixture, key_digit, ids, windows, tokens, 50);
    free(ids);
}

static struct espl_artifact *open_input(struct prune_fixture *fixture, char key_digit)
{
    char path[ESPL_PATH_MAX];
    struct espl_artifact *artifact = NULL;
    struct espl_error err;
    prune_path(fixture, key_digit, path);
    check(espl_artifact_open(path, &artifact, &err), &err);
    return artifact;
}

enum espl_status prune_run_ports(struct prune_fixture *fixture, const struct espl_stage *stage,
                                 const void *params, char key_digit, const struct prune_port *ports,
                                 size_t port_count, const volatile int *stopped,
                                 struct prune_result *result, struct espl_error *err)
{
    struct espl_ctx_port inputs[PRUNE_MOST_PORTS];
    const struct espl_ctx_port output = {stage->outputs[0].name,
                                         begin(fixture, key_digit, stage->outputs[0].kind)};
    assert_true(port_count <= PRUNE_MOST_PORTS);
    for (size_t i = 0; i < port_count; i++) {
        inputs[i] = (struct espl_ctx_port){ports[i].name, open_input(fixture, ports[i].key_digit)};
    }
    const struct espl_ctx_config config = {.store = &fixture->store,
                                           .stage = stage,
                                           .stage_id = "prune",
                                           .key = prune_key(fixture, key_digit),
                                           .device = "cpu",
                                           .inputs = inputs,
                                           .input_count = port_count,
                                           .outputs = &output,
                                           .output_count = 1,
                                           .message_fd = -1,
                                           .stopped = stopped};
    struct espl_stage_ctx *ctx = NULL;
    struct espl_error own;
    espl_error_clear(err);
    check(espl_stage_ctx_create(&config, &ctx, &own), &own);
    const enum espl_status status = stage->run(ctx, params, err);
    if (result != NULL) {
        memset(result, 0, sizeof *result);
    }
    if (status == ESPL_OK) {
        char content[ESPL_SHA256_HEX];
        publish(fixture, key_digit, output.artifact, content);
        if (result != NULL) {
            result->metrics = json_deep_copy(espl_stage_ctx_metrics(ctx, false));
            result->layers = espl_stage_ctx_layers(ctx);
            result->resumed = espl_stage_ctx_resumed_units(ctx);
            memcpy(result->content_sha256, content, sizeof content);
        }
    } else {
        espl_artifact_abandon(output.artifact);
    }
    espl_stage_ctx_destroy(ctx);
    for (size_t i = 0; i < port_count; i++) {
        espl_artifact_close(inputs[i].artifact);
    }
    return status;
}

enum espl_status prune_run(struct prune_fixture *fixture, const struct espl_stage *stage,
                           const void *params, char key_digit, char model_digit, char tokens_digit,
                           const volatile int *stopped, struct prune_result *result,
                           struct espl_error *err)
{
    const struct prune_port ports[2] = {{"model", model_digit}, {"tokens", tokens_digit}};
    return prune_run_ports(fixture, stage, params, key_digit, ports, tokens_digit != 0 ? 2 : 1,
                           stopped, result, err);
}

void prune_result_free(struct prune_result *result)
{
    json_decref(result->metrics);
    json_decref(result->layers);
    memset(result, 0, sizeof *result);
}

double prune_metric(const struct prune_result *result, const char *name)
{
    const json_t *value = json_object_get(result->metrics, name);
    if (!json_is_real(value)) {
        fail_msg("metric '%s' was not reported", name);
    }
    return json_real_value(value);
}

void prune_path(struct prune_fixture *fixture, char key_digit, char path[ESPL_PATH_MAX])
{
    struct espl_error err;
    check(
        espl_store_artifact_path(&fixture->store, prune_key(fixture, key_digit), NULL, path, &err),
        &err);
}

void prune_open(struct prune_fixture *fixture, char key_digit, struct espl_artifact **artifact,
                struct espl_model **model)
{
    struct espl_error err;
    *artifact = open_input(fixture, key_digit);
    check(espl_model_open(*artifact, &fixture->store, model, &err), &err);
}

uint8_t *prune_read_mask(struct espl_model *model, const struct espl_tensor_spec *spec)
{
    struct espl_error err;
    uint8_t *mask = malloc((size_t)spec->shape[0] * espl_mask_stride((size_t)spec->shape[1]));
    assert_non_null(mask);
    check(espl_model_read_mask(model, spec, 0, spec->shape[0], mask, &err), &err);
    return mask;
}

bool prune_mask_bit(const uint8_t *mask, uint64_t cols, uint64_t row, uint64_t col)
{
    return ((unsigned)mask[row * espl_mask_stride((size_t)cols) + col / 8] >> (col % 8) & 1u) != 0;
}

void prune_copy_units(struct prune_fixture *from, struct prune_fixture *to, unsigned count)
{
    char from_dir[ESPL_PATH_MAX], to_dir[ESPL_PATH_MAX], path[ESPL_PATH_MAX], name[32];
    struct espl_error err;
    check(espl_store_units_dir(&from->store, prune_key(from, 'c'), false, from_dir, &err), &err);
    check(espl_store_units_dir(&to->store, prune_key(to, 'c'), true, to_dir, &err), &err);
    for (unsigned i = 0; i < count; i++) {
        char *data = NULL;
        size_t len = 0;
        (void)snprintf(name, sizeof name, "unit-%06u.h5", i);
        check(espl_fs_join(path, from_dir, name, &err), &err);
        check(espl_fs_read_file(path, 1 << 24, &data, &len, &err), &err);
        check(espl_fs_join(path, to_dir, name, &err), &err);
        check(espl_fs_write_file(path, data, len, &err), &err);
        free(data);
    }
}

static char *read_bytes(struct prune_fixture *fixture, size_t *len)
{
    char path[ESPL_PATH_MAX];
    char *data = NULL;
    struct espl_error err;
    prune_path(fixture, 'c', path);
    check(espl_fs_read_file(path, 1 << 24, &data, len, &err), &err);
    return data;
}

void prune_assert_same(struct prune_fixture *left, struct prune_fixture *right,
                       const struct prune_result *a, const struct prune_result *b)
{
    size_t left_len = 0, right_len = 0;
    assert_true(json_equal(a->metrics, b->metrics));
    assert_true(json_equal(a->layers, b->layers));
    assert_string_equal(a->content_sha256, b->content_sha256);
    char *left_data = read_bytes(left, &left_len);
    char *right_data = read_bytes(right, &right_len);
    assert_int_equal(left_len, right_len);
    assert_memory_equal(left_data, right_data, left_len);
    free(left_data);
    free(right_data);
}

void prune_open_case(struct prune_fixture *fixture, const struct espl_model_config *config,
                     enum espl_dtype dtype, prune_edit_fn edit)
{
    prune_fixture_open(fixture);
    prune_make_model(fixture, 'a', config, dtype, edit);
    prune_make_random_tokens(fixture, 'b', 11, 16);
}

/* Runs in a fixture that starts with the first `units` units of `from` (NULL = none). */
static void run_case(struct prune_fixture *fixture, const struct espl_model_config *config,
                     enum espl_dtype dtype, const struct espl_stage *stage, const void *params,
                     char tokens_digit, struct prune_fixture *from, unsigned units,
                     struct prune_result *result)
{
    struct espl_error err;
    prune_open_case(fixture, config, dtype, NULL);
    if (from != NULL) {
        prune_copy_units(from, fixture, units);
    }
    check(prune_run(fixture, stage, params, 'c', 'a', tokens_digit, NULL, result, &err), &err);
    assert_int_equal(result->resumed, units);
}

void prune_check_resume(const struct espl_model_config *config, enum espl_dtype dtype,
                        const struct espl_stage *stage, const void *params, char tokens_digit)
{
    struct prune_fixture whole;
    struct prune_result expected;
    run_case(&whole, config, dtype, stage, params, tokens_digit, NULL, 0, &expected);
    for (unsigned units = 1; units <= 3; units++) {
        struct prune_fixture resumed;
        struct prune_result result;
        run_case(&resumed, config, dtype, stage, params, tokens_digit, &whole, units, &result);
        prune_assert_same(&whole, &resumed, &expected, &result);
        prune_result_free(&result);
        prune_fixture_close(&resumed);
    }
    prune_result_free(&expected);
    prune_fixture_close(&whole);
}

void prune_check_threads(const struct espl_model_config *config, enum espl_dtype dtype,
                         const struct espl_stage *stage, const void *params, char tokens_digit)
{
    const int before = omp_get_max_threads();
    struct prune_fixture first;
    struct prune_result expected;
    omp_set_num_threads(1);
    run_case(&first, config, dtype, stage, params, tokens_digit, NULL, 0, &expected);
    for (int threads = 2; threads <= 3; threads++) {
        struct prune_fixture other;
        struct prune_result result;
        omp_set_num_threads(threads);
        run_case(&other, config, dtype, stage, params, tokens_digit, NULL, 0, &result);
        prune_assert_same(&first, &other, &expected, &result);
        prune_result_free(&result);
        prune_fixture_close(&other);
    }
    omp_set_num_threads(before);
    prune_result_free(&expected);
    prune_fixture_close(&first);
}

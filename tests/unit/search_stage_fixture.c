#include "support/cmocka_all.h"

#include "search_stage_fixture.h"

#include "core/rng.h"
#include "engine/diagnostics.h"
#include "engine/schema.h"
#include "engine/stage_ctx.h"

#include <stdlib.h>
#include <string.h>

static void check(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s", err->message);
    }
}

struct espl_model_config search_vit_config(void)
{
    struct espl_model_config config;
    struct espl_error err;
    json_t *hf = json_load_file(ESPL_SOURCE_DIR "/tests/data/models/vit-hf/config.json", 0, NULL);
    assert_non_null(hf);
    check(espl_model_config_from_hf(hf, &config, &err), &err);
    json_decref(hf);
    return config;
}

static struct espl_artifact *begin(struct prune_fixture *fixture, char digit, const char *port,
                                   const char *kind)
{
    char path[ESPL_PATH_MAX];
    struct espl_artifact *artifact = NULL;
    struct espl_error err;
    const char *key = prune_key(fixture, digit);
    check(espl_store_private_path(&fixture->store, key, port, path, &err), &err);
    check(espl_artifact_create(path, kind, &artifact, &err), &err);
    check(espl_artifact_set_attribute(artifact, "key", key, &err), &err);
    check(espl_artifact_set_attribute(artifact, "port", port, &err), &err);
    return artifact;
}

static void publish(struct prune_fixture *fixture, char digit, const char *port,
                    struct espl_artifact *artifact, char content[ESPL_SHA256_HEX])
{
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    (void)snprintf(path, sizeof path, "%s", espl_artifact_path(artifact));
    check(espl_artifact_finish(&artifact, content, &err), &err);
    check(espl_store_publish(&fixture->store, path, prune_key(fixture, digit), port, &err), &err);
}

/* Random pictures; labels in turn. */
static void make_pictures(struct prune_fixture *fixture, const struct espl_model_config *config)
{
    const uint64_t side = config->vision.image_size;
    const uint64_t channels = config->vision.channels;
    const uint64_t shape[4] = {SEARCH_PICTURES, side, side, channels};
    const uint64_t labels_shape[1] = {SEARCH_PICTURES};
    const struct espl_tensor_info pixels_info =
        espl_tensor_info_make("/images/pixels", ESPL_DTYPE_U8, 4, shape);
    const struct espl_tensor_info labels_info =
        espl_tensor_info_make("/images/labels", ESPL_DTYPE_I32, 1, labels_shape);
    struct espl_rng rng = espl_rng_stream(5, "pictures", 0);
    uint8_t *pixels = malloc((size_t)pixels_info.bytes);
    int32_t labels[SEARCH_PICTURES];
    struct espl_error err;
    assert_non_null(pixels);
    for (uint64_t i = 0; i < pixels_info.bytes; i++) {
        pixels[i] = (uint8_t)espl_rng_below(&rng, 256);
    }
    for (int i = 0; i < SEARCH_PICTURES; i++) {
        labels[i] = i % (int)config->vocab;
    }
    json_t *scale = json_array();
    for (uint64_t c = 0; c < channels; c++) {
        (void)json_array_append_new(scale, json_real(0.5));
    }
    json_t *description =
        json_pack("{s:i, s:I, s:I, s:I, s:I, s:O, s:O}", "count", (int)SEARCH_PICTURES, "height",
                  (json_int_t)side, "width", (json_int_t)side, "channels", (json_int_t)channels,
                  "classes", (json_int_t)config->vocab, "mean", scale, "std", scale);
    char *text = json_dumps(description, JSON_SORT_KEYS);
    struct espl_artifact *artifact = begin(fixture, 'b', "", "images/1");
    check(espl_artifact_set_description(artifact, text, &err), &err);
    check(espl_artifact_write(artifact, &pixels_info, pixels, &err), &err);
    check(espl_artifact_write(artifact, &labels_info, labels, &err), &err);
    publish(fixture, 'b', "", artifact, NULL);
    free(text);
    free(pixels);
    json_decref(scale);
    json_decref(description);
}

void search_fixture_open_stage(struct prune_fixture *fixture)
{
    const struct espl_model_config config = search_vit_config();
    prune_fixture_open(fixture);
    prune_make_model(fixture, 'a', &config, ESPL_DTYPE_F32, NULL);
    make_pictures(fixture, &config);
}

/* Cost of a level of a shape: a little for the layer, more for each kept weight. */
static double table_cost(size_t shape, unsigned n, double unit)
{
    return unit * (1.0 + (double)shape) * (1.0 + (double)n);
}

static json_t *cost_json(size_t shapes, const json_t *runs, double unit)
{
    json_t *raw = json_array();
    json_t *measured = json_array();
    for (size_t s = 0; s < shapes; s++) {
        json_t *levels = json_array();
        for (unsigned n = 1; n <= 8; n++) {
            (void)json_array_append_new(levels, json_pack("[f]", table_cost(s, n, unit)));
        }
        (void)json_array_append_new(raw, levels);
    }
    for (size_t r = 0; r < json_array_size(runs); r++) {
        double sum = 3.0 * unit; /* what no layer costs */
        for (size_t l = 0; l < 2 * shapes; l++) {
            const json_int_t n = json_integer_value(json_array_get(json_array_get(runs, r), l));
            sum += 1.1 * table_cost(l % shapes, (unsigned)n, unit);
        }
        (void)json_array_append_new(measured, json_real(sum));
    }
    return json_pack("{s:O, s:o, s:o}", "spread", raw, "raw", raw, "measured", measured);
}

void search_write_table(struct prune_fixture *fixture, size_t runs, bool energy, const char *kernel,
                        char path[ESPL_PATH_MAX])
{
    static const char *const modules[] = {"attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"};
    static const int sizes[][2] = {{24, 72}, {24, 24}, {24, 40}, {40, 24}}; /* in, out */
    enum { SHAPES = 4, TOKENS = 10 };
    json_t *shapes = json_array();
    json_t *layers = json_array();
    json_t *listed = json_array();
    struct espl_rng rng = espl_rng_stream(2, "table", 0);
    for (int s = 0; s < SHAPES; s++) {
        (void)json_array_append_new(shapes, json_pack("{s:i, s:i, s:i}", "tokens", TOKENS, "in",
                                                      sizes[s][0], "out", sizes[s][1]));
    }
    for (int l = 0; l < 2 * SHAPES; l++) {
        char module[64];
        (void)snprintf(module, sizeof module, "blocks.%d.%s", l / SHAPES, modules[l % SHAPES]);
        (void)json_array_append_new(layers,
                                    json_pack("{s:s, s:i}", "module", module, "shape", l % SHAPES));
    }
    for (size_t r = 0; r < runs; r++) {
        json_t *run = json_array();
        for (int l = 0; l < 2 * SHAPES; l++) {
            (void)json_array_append_new(run, json_integer(1 + (json_int_t)espl_rng_below(&rng, 8)));
        }
        (void)json_array_append_new(listed, run);
    }
    json_t *table = json_pack("{s:s, s:s, s:i, s:i, s:i, s:[s], s:o, s:o, s:o, s:o}", "schema",
                              "espalier.latency/1", "device", "x; dev", "batch", 1, "m", 8,
                              "vector", 1, "kernels", kernel, "shapes", shapes, "layers", layers,
                              "runs", listed, "latency", cost_json(SHAPES, listed, 1e-4));
    assert_non_null(table);
    if (energy) {
        (void)json_object_set_new(table, "energy", cost_json(SHAPES, listed, 2e-3));
    }
    (void)snprintf(path, ESPL_PATH_MAX, "%.1000s/table.json", fixture->folder);
    assert_int_equal(json_dump_file(table, path, JSON_INDENT(1)), 0);
    json_decref(table);
}

void search_default_params(const struct espl_stage *stage, struct espl_arena *arena, void *params)
{
    const struct espl_srcpos nowhere = {"test", 1, 1, 1};
    struct espl_param_value values[64];
    struct espl_diagnostics diags;
    assert_int_equal(espl_diagnostics_init(&diags, NULL), ESPL_OK);
    assert_true(espl_schema_count(stage->params) <= sizeof values / sizeof values[0]);
    memset(params, 0, stage->params_size);
    espl_schema_read(stage->params, NULL, "stage", NULL, params, values, arena, &diags, &nowhere);
    espl_diagnostics_free(&diags);
}

void search_run_stage(struct prune_fixture *fixture, const struct search_run *run,
                      struct search_result *result)
{
    struct espl_ctx_port inputs[SEARCH_MOST_PORTS];
    struct espl_ctx_port outputs[2];
    size_t input_count = 0;
    size_t output_count = 0;
    struct espl_stage_ctx *ctx = NULL;
    struct espl_error err;
    memset(result, 0, sizeof *result);
    for (; run->ports[input_count] != NULL; input_count++) {
        struct espl_artifact *artifact = NULL;
        const char *port = run->digits[input_count] == 'c'   ? "model"
                           : run->digits[input_count] == 'd' ? "supernet"
                           : run->digits[input_count] == 'e' ? "latency"
                                                             : NULL;
        check(espl_store_open_artifact(&fixture->store,
                                       prune_key(fixture, run->digits[input_count]), port,
                                       &artifact, &err),
              &err);
        inputs[input_count] = (struct espl_ctx_port){run->ports[input_count], artifact};
    }
    for (; run->stage->outputs[output_count].name != NULL; output_count++) {
        const struct espl_port *port = &run->stage->outputs[output_count];
        outputs[output_count] = (struct espl_ctx_port){
            port->name, begin(fixture, run->key_digit, port->name, port->kind)};
    }
    const struct espl_ctx_config config = {.store = &fixture->store,
                                           .stage = run->stage,
                                           .stage_id = "stage",
                                           .key = prune_key(fixture, run->key_digit),
                                           .device = "cpu",
                                           .device_fingerprint = run->fingerprint,
                                           .seed = run->seed,
                                           .inputs = inputs,
                                           .input_count = input_count,
                                           .outputs = outputs,
                                           .output_count = output_count,
                                           .message_fd = -1,
                                           .stopped = run->stopped};
    check(espl_stage_ctx_create(&config, &ctx, &err), &err);
    result->status = run->stage->run(ctx, run->params, &result->err);
    result->resumed = espl_stage_ctx_resumed_units(ctx);
    for (size_t i = 0; i < output_count; i++) {
        if (result->status == ESPL_OK) {
            publish(fixture, run->key_digit, outputs[i].name, outputs[i].artifact,
                    result->content[i]);
        } else {
            espl_artifact_abandon(outputs[i].artifact);
        }
    }
    if (result->status == ESPL_OK) {
        result->metrics = json_deep_copy(espl_stage_ctx_metrics(ctx, false));
        result->volatile_metrics = json_deep_copy(espl_stage_ctx_metrics(ctx, true));
        result->layers = espl_stage_ctx_layers(ctx);
    }
    espl_stage_ctx_destroy(ctx);
    for (size_t i = 0; i < input_count; i++) {
        espl_artifact_close(inputs[i].artifact);
    }
}

void search_result_free(struct search_result *result)
{
    json_decref(result->metrics);
    json_decref(result->volatile_metrics);
    json_decref(result->layers);
    memset(result, 0, sizeof *result);
}

double search_metric(const struct search_result *result, const char *name)
{
    const json_t *value = json_object_get(result->metrics, name);
    if (!json_is_real(value)) {
        value = json_object_get(result->volatile_metrics, name);
    }
    if (!json_is_real(value)) {
        fail_msg("metric '%s' was not reported", name);
    }
    return json_real_value(value);
}

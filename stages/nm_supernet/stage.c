/* nm-supernet: ranks the weights of an image model within their windows, once for all N:M masks,
 * and shows what uniform N:M costs on a few pictures. */
#include "engine/stage.h"
#include "stages/nm_supernet/nm_oracle.h"
#include "stages/nm_supernet/nm_rank.h"
#include "stages/prune_common/prune_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct supernet_params {
    int64_t m;
    int64_t vector;
    bool trained;
    int precision; /* enum espl_nm_precision */
    int64_t check_pictures;
    struct espl_list targets, ignore; /* items: const char * */
};

/* Kept activations and masked matrices of the check; one path of a small model. */
static const uint64_t CHECK_BYTES = (uint64_t)64 << 20;

static const struct espl_param params_table[] = {
    {.name = "m",
     .help = "window length: N of every m consecutive inputs are kept; 4, 8 or 16",
     .unit = "inputs",
     .type = ESPL_PARAM_INT,
     .default_text = "8",
     .min = 4.0,
     .max = 16.0,
     .offset = offsetof(struct supernet_params, m)},
    {.name = "vector",
     .help = "neighbouring output channels that share a pattern, ranked by the sum of their |w|; 1 "
             "= every channel has its own",
     .unit = "channels",
     .type = ESPL_PARAM_INT,
     .default_text = "1",
     .min = 1.0,
     .max = 65536.0,
     .offset = offsetof(struct supernet_params, vector)},
    {.name = "trained",
     .help =
         "true for a checkpoint that was trained as an N:M supernet; false: a plain checkpoint, "
         "whose masks inherit weights that never met them",
     .unit = "",
     .type = ESPL_PARAM_BOOL,
     .default_text = "false",
     .offset = offsetof(struct supernet_params, trained)},
    {.name = "precision",
     .help = "how candidates are judged: float, or int8 weights and activations simulated as "
             "deployed",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "float",
     .choices = espl_nm_precisions,
     .offset = offsetof(struct supernet_params, precision)},
    {.name = "check_pictures",
     .help = "pictures on which uniform N:M is measured when images are connected; 0 = none",
     .unit = "pictures",
     .type = ESPL_PARAM_INT,
     .default_text = "256",
     .min = 0.0,
     .max = 1e9,
     .offset = offsetof(struct supernet_params, check_pictures)},
    {.name = "targets",
     .help = "patterns over module names of block linears to search over",
     .unit = "",
     .type = ESPL_PARAM_STRING,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[\"*\"]",
     .offset = offsetof(struct supernet_params, targets)},
    {.name = "ignore",
     .help = "patterns over module names to leave dense",
     .unit = "",
     .type = ESPL_PARAM_STRING,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[]",
     .offset = offsetof(struct supernet_params, ignore)},
    {.name = NULL},
};

static const struct espl_port inputs[] = {
    {"model", "model.dense/1", 0, "an image model: a trained supernet, or a plain one"},
    {"images", "images/1", ESPL_PORT_OPTIONAL, "pictures for the check of uniform N:M"},
    {NULL, NULL, 0, NULL},
};

static const struct espl_port outputs[] = {
    {"supernet", "supernet/1", 0, "ranks of all weights of the layers to search over"},
    {NULL, NULL, 0, NULL},
};

static struct espl_supernet_facts make_facts(const struct supernet_params *params)
{
    return (struct espl_supernet_facts){.m = (unsigned)params->m,
                                        .vector = (size_t)params->vector,
                                        .trained = params->trained,
                                        .precision = params->precision};
}

static enum espl_status plan(struct espl_plan_ctx *ctx, const void *stage_params,
                             struct espl_estimate *est, struct espl_error *err)
{
    const struct supernet_params *params = stage_params;
    const struct espl_supernet_facts facts = make_facts(params);
    const json_t *model = espl_plan_input(ctx, "model");
    struct espl_model_config config;
    struct espl_nm_layers layers = {0};
    enum espl_status status = espl_nm_check_m(params->m, err);
    if (!params->trained) {
        espl_plan_warn(ctx, "'trained' is false: the accuracy of masks is inherited without "
                            "training and falls apart below about 4:8");
    }
    if (status != ESPL_OK || model == NULL) {
        return status;
    }
    status = espl_model_config_from_description(model, &config, err);
    if (status == ESPL_OK) {
        status = espl_nm_layers_select(&config, facts.m, &params->targets, &params->ignore, &layers,
                                       err);
    }
    if (status != ESPL_OK) {
        goto cleanup;
    }
    uint64_t weights = 0;
    uint64_t largest = 0;
    for (size_t i = 0; i < layers.count; i++) {
        const uint64_t count = layers.items[i].spec.shape[0] * layers.items[i].spec.shape[1];
        weights += count;
        largest = count > largest ? count : largest;
    }
    est->output_bytes = weights * espl_nm_rank_bits(facts.m) / 8 / facts.vector + 65536;
    est->host_bytes = largest * (sizeof(float) + 2);
    est->flop = (double)weights * (double)facts.m;
    (void)snprintf(est->note, sizeof est->note, "%zu layers, N:%u, %.1f M weights", layers.count,
                   facts.m, (double)weights * 1e-6);
    if (espl_plan_input(ctx, "images") != NULL && params->check_pictures > 0) {
        const struct espl_nm_oracle_options check = {.fidelities = 1,
                                                     .activation_bytes = CHECK_BYTES};
        est->flop += (double)facts.m * (double)params->check_pictures * espl_vision_flop(&config);
        est->host_bytes += weights + espl_nm_oracle_bytes(&config, &check);
    }
    json_t *predicted = espl_supernet_describe(&config, NULL, &facts, &layers);
    if (predicted == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for the description of the output");
        goto cleanup;
    }
    espl_plan_set_output(ctx, "supernet", predicted);

cleanup:
    espl_nm_layers_free(&layers);
    return status;
}

/* Ranks of one layer, into supernet->ranks and the output. */
static enum espl_status rank_layer(struct espl_stage_ctx *ctx, struct espl_model *model,
                                   struct espl_supernet *supernet, size_t index,
                                   struct espl_error *err)
{
    const struct espl_nm_layer *layer = &supernet->layers.items[index];
    const struct espl_matrix_shape shape = {(size_t)layer->spec.shape[0],
                                            (size_t)layer->spec.shape[1]};
    const size_t groups = espl_nm_groups(shape.rows, supernet->facts.vector);
    float *weights = calloc(shape.rows * shape.cols, sizeof *weights);
    supernet->ranks[index] = calloc(groups * shape.cols, 1);
    enum espl_status status = ESPL_OK;
    if (weights == NULL || supernet->ranks[index] == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory to rank '%s'", layer->spec.module);
        goto cleanup;
    }
    const struct espl_tensor_spec *own =
        espl_model_find(model, layer->spec.layer, layer->spec.role, false);
    status = own == NULL
                 ? espl_fail(err, ESPL_E_INTERNAL, "the model has no '%s'", layer->spec.module)
                 : espl_model_read_f32(model, own, 0, shape.rows, weights, err);
    if (status == ESPL_OK) {
        espl_nm_rank(&shape, supernet->facts.m, supernet->facts.vector, weights,
                     supernet->ranks[index]);
        status = espl_supernet_write_ranks(espl_ctx_output(ctx, "supernet"), &supernet->facts,
                                           layer, supernet->ranks[index], err);
    }

cleanup:
    free(weights);
    return status;
}

static bool asked_to_stop(void *user)
{
    return espl_ctx_cancelled(user);
}

/* Top-1 of every uniform N. */
static enum espl_status measure_uniform(struct espl_stage_ctx *ctx, struct espl_nm_oracle *oracle,
                                        const struct espl_supernet *supernet,
                                        struct espl_error *err)
{
    uint8_t *n = calloc(supernet->layers.count, 1);
    enum espl_status status =
        n == NULL ? espl_fail(err, ESPL_E_NOMEM, "no memory for a configuration") : ESPL_OK;
    for (unsigned level = 1; status == ESPL_OK && level <= supernet->facts.m; level++) {
        char name[32];
        double top1 = 0.0;
        memset(n, (int)level, supernet->layers.count);
        espl_ctx_progress(ctx, level - 1, supernet->facts.m, "uniform pattern");
        status = espl_nm_oracle_score(oracle, 0, 0, 1, n, &top1, err);
        (void)snprintf(name, sizeof name, "top1_uniform_%u", level);
        if (status == ESPL_OK) {
            status = espl_ctx_metric(ctx, name, 100.0 * top1, false, err); /* percent */
        }
    }
    free(n);
    return status;
}

static enum espl_status check_uniform(struct espl_stage_ctx *ctx,
                                      const struct supernet_params *params,
                                      struct espl_model *model,
                                      const struct espl_supernet *supernet, struct espl_error *err)
{
    struct espl_artifact *images = espl_ctx_input(ctx, "images");
    struct espl_backend *backend = NULL;
    struct espl_nm_oracle *oracle = NULL;
    struct espl_nm_pictures pictures = {0};
    struct espl_image_set set;
    enum espl_status status = espl_image_set_open(images, &set, err);
    if (status != ESPL_OK) {
        return status;
    }
    const uint64_t wanted = (uint64_t)params->check_pictures;
    const uint64_t count = wanted < set.count ? wanted : set.count;
    const struct espl_nm_oracle_options options = {.fidelities = 1,
                                                   .pictures = {(size_t)count},
                                                   .metric = {ESPL_NM_TOP1},
                                                   .activation_bytes = CHECK_BYTES};
    status = espl_nm_pictures_open(images, espl_model_get_config(model), count, 0, &pictures, err);
    if (status == ESPL_OK) {
        status = espl_prune_open_backend(ctx, &backend, err);
    }
    if (status == ESPL_OK) {
        status = espl_nm_oracle_create(model, backend, supernet, &pictures, &options, &oracle, err);
    }
    if (status == ESPL_OK) {
        espl_nm_oracle_set_stop(oracle, asked_to_stop, ctx);
        status = measure_uniform(ctx, oracle, supernet, err);
    }
    espl_nm_oracle_destroy(oracle);
    espl_backend_close(backend);
    espl_nm_pictures_free(&pictures);
    return status == ESPL_E_CANCELLED ? espl_ctx_stop(ctx, err) : status;
}

static enum espl_status describe(struct espl_stage_ctx *ctx, struct espl_model *model,
                                 const struct espl_supernet *supernet, struct espl_error *err)
{
    const char *base = espl_artifact_content_sha256(espl_ctx_input(ctx, "model"));
    json_t *description = espl_supernet_describe(espl_model_get_config(model), base,
                                                 &supernet->facts, &supernet->layers);
    char *text =
        description != NULL ? json_dumps(description, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    const enum espl_status status =
        text == NULL ? espl_fail(err, ESPL_E_NOMEM, "no memory for the description of the supernet")
                     : espl_artifact_set_description(espl_ctx_output(ctx, "supernet"), text, err);
    free(text);
    json_decref(description);
    return status;
}

static enum espl_status run(struct espl_stage_ctx *ctx, const void *stage_params,
                            struct espl_error *err)
{
    const struct supernet_params *params = stage_params;
    struct espl_supernet supernet = {.facts = make_facts(params)};
    struct espl_model *model = NULL;
    enum espl_status status = espl_nm_check_m(params->m, err);
    if (status == ESPL_OK) {
        status = espl_model_open(espl_ctx_input(ctx, "model"), espl_ctx_store(ctx), &model, err);
    }
    if (status == ESPL_OK) {
        status = espl_nm_layers_select(espl_model_get_config(model), supernet.facts.m,
                                       &params->targets, &params->ignore, &supernet.layers, err);
    }
    if (status != ESPL_OK) {
        goto cleanup;
    }
    if (!params->trained) {
        espl_log(espl_ctx_log(ctx), ESPL_LOG_WARN,
                 "this is taken as a plain checkpoint, not a trained supernet: the accuracy of "
                 "every mask is inherited WITHOUT training; expect it to fall apart below about "
                 "4:8, and train a supernet (or fine-tune the result) before using such masks");
    }
    supernet.ranks = calloc(supernet.layers.count, sizeof *supernet.ranks);
    if (supernet.ranks == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for %zu layers", supernet.layers.count);
        goto cleanup;
    }
    status = describe(ctx, model, &supernet, err);
    for (size_t i = 0; status == ESPL_OK && i < supernet.layers.count; i++) {
        espl_ctx_progress(ctx, i, supernet.layers.count, "layer");
        status = espl_ctx_cancelled(ctx) ? espl_ctx_stop(ctx, err)
                                         : rank_layer(ctx, model, &supernet, i, err);
    }
    if (status == ESPL_OK && espl_ctx_input(ctx, "images") != NULL && params->check_pictures > 0) {
        status = check_uniform(ctx, params, model, &supernet, err);
    }

cleanup:
    espl_supernet_free(&supernet);
    espl_model_close(model);
    return status;
}

const struct espl_stage espl_stage_nm_supernet = {
    .name = "nm-supernet",
    .summary = "one set of ranks for all N:M masks of an image model, for layer-wise search",
    .cache_version = 1,
    .flags = 0,
    .params = params_table,
    .params_size = sizeof(struct supernet_params),
    .inputs = inputs,
    .outputs = outputs,
    .plan = plan,
    .run = run,
};

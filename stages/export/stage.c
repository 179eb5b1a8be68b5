/* export: writes a model as a safetensors folder for other tools. */
#include "engine/stage.h"

#include "model/model.h"
#include "stages/export/export_manifest.h"
#include "stages/export/export_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct export_params {
    const char *folder;
    uint64_t shard_size;
    bool masks;
    const char *tokenizer; /* NULL = none */
};

static const struct espl_param params_table[] = {
    {.name = "folder",
     .help = "folder to write; an older export there is replaced",
     .unit = "",
     .type = ESPL_PARAM_PATH,
     .offset = offsetof(struct export_params, folder)},
    {.name = "shard_size",
     .help = "largest safetensors file; a model above it is split and gets an index",
     .unit = "",
     .type = ESPL_PARAM_SIZE,
     .default_text = "5GB",
     .min = 1.0,
     .max = 1e15,
     .offset = offsetof(struct export_params, shard_size)},
    {.name = "masks",
     .help = "write the masks of a pruned model into " ESPL_EXPORT_MASKS,
     .unit = "",
     .type = ESPL_PARAM_BOOL,
     .default_text = "true",
     .offset = offsetof(struct export_params, masks)},
    {.name = "tokenizer",
     .help = "folder with tokenizer.json and the files beside it, copied into the export",
     .unit = "",
     .type = ESPL_PARAM_PATH,
     .flags = ESPL_PARAM_OPTIONAL | ESPL_PARAM_INPUT_PATH,
     .offset = offsetof(struct export_params, tokenizer)},
    {.name = NULL},
};

static const struct espl_port inputs[] = {
    {.name = "model", .kind = ESPL_MODEL_KINDS, .help = "what to write, masks applied"},
    {.name = NULL},
};

static const struct espl_port outputs[] = {
    {.name = "manifest", .kind = "export/1", .help = "files, sizes and hashes of the folder"},
    {.name = NULL},
};

static void free_paths(char **paths, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(paths[i]);
    }
}

static enum espl_status find_tokenizer(const struct export_params *params,
                                       char *files[ESPL_EXPORT_TOKENIZER_FILES], size_t *count,
                                       struct espl_error *err)
{
    *count = 0;
    return params->tokenizer == NULL
               ? ESPL_OK
               : espl_export_find_tokenizer(params->tokenizer, files, count, err);
}

static enum espl_status add_tokenizer(struct espl_plan_ctx *ctx, const struct export_params *params,
                                      struct espl_error *err)
{
    char *files[ESPL_EXPORT_TOKENIZER_FILES];
    size_t count = 0;
    enum espl_status status = find_tokenizer(params, files, &count, err);
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        status = espl_plan_add_file(ctx, "tokenizer", files[i], err);
    }
    free_paths(files, count);
    return status;
}

/* Are there weights that a stage has changed? They are float32, and so is all of their export. */
static bool has_changed_weights(const json_t *description)
{
    const json_t *pruning = json_object_get(description, "pruning");
    const char *method = json_string_value(json_object_get(pruning, "method"));
    return json_object_get(description, "quantisation") != NULL ||
           (method != NULL && strcmp(method, "sparsegpt") == 0);
}

/* Bytes of the folder, from the model's description. */
static void estimate_bytes(const json_t *description, const struct export_params *params,
                           struct espl_estimate *est)
{
    struct espl_model_config config;
    enum espl_dtype dtype = ESPL_DTYPE_F32;
    if (description == NULL ||
        espl_model_config_from_description(description, &config, NULL) != ESPL_OK ||
        !espl_dtype_parse(config.dtype, &dtype)) {
        return;
    }
    if (has_changed_weights(description)) {
        dtype = ESPL_DTYPE_F32;
    }
    const uint64_t parameters = espl_arch_parameters(&config);
    est->output_bytes = parameters * espl_dtype_size(dtype) + (1u << 20);
    if (params->masks && json_object_get(description, "base") != NULL) {
        est->output_bytes += parameters / 8;
    }
    (void)snprintf(est->note, sizeof est->note, "%s, %s, to %.100s", config.architecture,
                   espl_dtype_name(dtype), params->folder);
}

static enum espl_status plan(struct espl_plan_ctx *ctx, const void *params,
                             struct espl_estimate *est, struct espl_error *err)
{
    const struct export_params *self = params;
    enum espl_status status = espl_export_check_target(self->folder, err);
    if (status == ESPL_OK) {
        status = add_tokenizer(ctx, self, err);
    }
    est->host_bytes = (uint64_t)64 << 20;
    estimate_bytes(espl_plan_input(ctx, "model"), self, est);
    return status;
}

static void on_progress(void *user, uint64_t done, uint64_t total)
{
    espl_ctx_progress(user, done >> 20, (total + ((1u << 20) - 1)) >> 20, "MiB");
}

static bool on_cancelled(void *user)
{
    return espl_ctx_cancelled(user);
}

static enum espl_status describe(struct espl_stage_ctx *ctx, const json_t *manifest,
                                 struct espl_error *err)
{
    const json_t *files = json_object_get(manifest, "files");
    double bytes = 0.0;
    for (size_t i = 0; i < json_array_size(files); i++) {
        bytes += (double)json_integer_value(json_object_get(json_array_get(files, i), "bytes"));
    }
    char *text = json_dumps(manifest, JSON_COMPACT | JSON_SORT_KEYS);
    if (text == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a manifest");
    }
    enum espl_status status =
        espl_artifact_set_description(espl_ctx_output(ctx, "manifest"), text, err);
    free(text);
    if (status == ESPL_OK) {
        status = espl_ctx_metric(ctx, "files", (double)json_array_size(files), false, err);
    }
    if (status == ESPL_OK) {
        status = espl_ctx_metric(ctx, "bytes", bytes, false, err);
    }
    return status;
}

static enum espl_status run(struct espl_stage_ctx *ctx, const void *params, struct espl_error *err)
{
    const struct export_params *self = params;
    struct espl_artifact *input = espl_ctx_input(ctx, "model");
    const struct espl_export_hooks hooks = {
        .user = ctx, .progress = on_progress, .cancelled = on_cancelled};
    struct espl_model *model = NULL;
    char *files[ESPL_EXPORT_TOKENIZER_FILES];
    size_t count = 0;
    json_t *manifest = NULL;

    enum espl_status status = espl_model_open(input, espl_ctx_store(ctx), &model, err);
    if (status == ESPL_OK) {
        status = find_tokenizer(self, files, &count, err);
    }
    if (status == ESPL_OK) {
        const struct espl_export_options options = {
            .folder = self->folder,
            .shard_size = self->shard_size,
            .masks = self->masks,
            .tokenizer = (const char *const *)files,
            .tokenizer_count = count,
            .content_sha256 = espl_artifact_content_sha256(input),
        };
        status = espl_export_write(model, &options, &hooks, &manifest, err);
    }
    if (status == ESPL_OK) {
        status = describe(ctx, manifest, err);
    }
    json_decref(manifest);
    free_paths(files, count);
    espl_model_close(model);
    return status == ESPL_E_CANCELLED ? espl_ctx_stop(ctx, err) : status;
}

static enum espl_status still_valid(const struct espl_store *store, bool rehash,
                                    struct espl_artifact *cached, const void *params, bool *valid,
                                    char stale[160], struct espl_error *err)
{
    const struct export_params *self = params;
    json_t *manifest = json_loads(espl_artifact_description(cached), JSON_REJECT_DUPLICATES, NULL);
    const enum espl_status status =
        espl_export_manifest_check(store, rehash, self->folder, manifest, valid, stale, err);
    json_decref(manifest);
    return status;
}

static void replaces(const void *params, char what[ESPL_STAGE_REPLACES_TEXT])
{
    const struct export_params *self = params;
    if (espl_export_is_there(self->folder)) {
        (void)snprintf(what, ESPL_STAGE_REPLACES_TEXT, "folder '%.250s' holds an earlier export",
                       self->folder);
    }
}

const struct espl_stage espl_stage_export = {
    .name = "export",
    .summary = "writes a safetensors folder that HF transformers or timm loads",
    .cache_version = 1,
    .params = params_table,
    .params_size = sizeof(struct export_params),
    .inputs = inputs,
    .outputs = outputs,
    .plan = plan,
    .run = run,
    .still_valid = still_valid,
    .replaces = replaces,
};

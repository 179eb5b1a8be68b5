/* import: reads a checkpoint folder of HF transformers or timm, writes a dense model. */
#include "engine/stage.h"

#include "datasets/source.h"
#include "model/model.h"
#include "stages/import/import_checkpoint.h"
#include "stages/import/import_transfer.h"

#include <stdio.h>
#include <string.h>

struct import_params {
    const char *checkpoint; /* one of these two */
    const char *source;
    int arch; /* index into arch_choices; 0 = auto */
    int dtype;
    int storage;
};

static const char *const arch_choices[] = {"auto", "llama", "opt", "qwen2", "vit", "swin", NULL};
static const char *const dtype_choices[] = {"keep", "f16", "bf16", "f32", NULL};
static const char *const storage_choices[] = {"auto", "copy", "reference", NULL};

static const struct espl_param params_table[] = {
    {.name = "checkpoint",
     .help = "folder with config.json and safetensors files, as HF transformers and timm save it",
     .unit = "",
     .type = ESPL_PARAM_PATH,
     .flags = ESPL_PARAM_OPTIONAL | ESPL_PARAM_INPUT_PATH,
     .offset = offsetof(struct import_params, checkpoint)},
    {.name = "source",
     .help = "a model that `espalier fetch` brought, instead of a folder: qwen2-0.5b",
     .unit = "",
     .type = ESPL_PARAM_STRING,
     .flags = ESPL_PARAM_OPTIONAL | ESPL_PARAM_NO_HASH, /* its files enter the key */
     .offset = offsetof(struct import_params, source)},
    {.name = "arch",
     .help = "architecture; auto = what config.json says",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "auto",
     .choices = arch_choices,
     .offset = offsetof(struct import_params, arch)},
    {.name = "dtype",
     .help = "element type of the weights in the artifact; keep = as stored",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "keep",
     .choices = dtype_choices,
     .offset = offsetof(struct import_params, dtype)},
    {.name = "storage",
     .help = "copy the weights or refer to the files; auto = copy below 1 GiB",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "auto",
     .choices = storage_choices,
     .offset = offsetof(struct import_params, storage)},
    {.name = NULL},
};

static const struct espl_port inputs[] = {{.name = NULL}};

static const struct espl_port outputs[] = {
    {.name = "model", .kind = "model.dense/1", .help = "all weights of the checkpoint"},
    {.name = NULL},
};

/* Whatever goes wrong with the folder is found at the parameter that names it. */
static enum espl_status blame_checkpoint(const struct import_params *params,
                                         enum espl_status status, struct espl_error *err)
{
    if (status != ESPL_OK && err != NULL && err->blame[0] == '\0') {
        (void)espl_blame(err, params->source != NULL ? "param:source" : "param:checkpoint");
    }
    return status;
}

static enum espl_status open_folder(const struct import_params *params, const char *arch,
                                    struct espl_import_checkpoint **checkpoint,
                                    struct espl_error *err)
{
    struct espl_source source = {.count = 0};
    if ((params->checkpoint != NULL) == (params->source != NULL)) {
        (void)espl_fail(err, ESPL_E_JOB,
                        params->source != NULL ? "import takes 'checkpoint' or 'source', not both"
                                               : "import needs a 'checkpoint' or a 'source'");
        return espl_hint(err, "checkpoint: folder, or source: name of a fetched model");
    }
    if (params->checkpoint != NULL) {
        const enum espl_status status =
            espl_import_checkpoint_open(params->checkpoint, arch, checkpoint, err);
        if (status == ESPL_E_NOTFOUND) {
            espl_source_hint(params->checkpoint, "source", err);
        }
        return status;
    }
    enum espl_status status = espl_source_find(params->source, &source, err);
    if (status == ESPL_OK) {
        status = espl_import_checkpoint_open(source.folder, arch, checkpoint, err);
    }
    espl_source_free(&source);
    return status;
}

static enum espl_status open_checkpoint(const struct import_params *params,
                                        struct espl_import_checkpoint **checkpoint,
                                        struct espl_import_choice *choice, struct espl_error *err)
{
    const char *arch = params->arch == 0 ? NULL : arch_choices[params->arch];
    enum espl_status status = open_folder(params, arch, checkpoint, err);
    if (status == ESPL_OK) {
        status = espl_import_choose(*checkpoint, (enum espl_import_dtype)params->dtype,
                                    (enum espl_import_storage)params->storage, choice, err);
    }
    return blame_checkpoint(params, status, err);
}

static enum espl_status add_files(struct espl_plan_ctx *ctx, const struct import_params *params,
                                  const struct espl_import_checkpoint *checkpoint,
                                  struct espl_error *err)
{
    enum espl_status status = espl_plan_add_file(ctx, "config", checkpoint->config_path, err);
    const size_t count = espl_safetensors_file_count(checkpoint->files);
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        status =
            espl_plan_add_file(ctx, "weights", espl_safetensors_file(checkpoint->files, i), err);
    }
    return blame_checkpoint(params, status, err);
}

/* One warning or log line for each remark. */
static void each_note(const struct espl_import_checkpoint *checkpoint, struct espl_plan_ctx *plan,
                      const struct espl_log *log)
{
    const char *line = espl_buf_text(&checkpoint->notes);
    while (*line != '\0') {
        const size_t len = strcspn(line, "\n");
        if (plan != NULL) {
            espl_plan_warn(plan, "%.*s", (int)len, line);
        } else {
            espl_log(log, ESPL_LOG_INFO, "%.*s", (int)len, line);
        }
        line += len + (line[len] == '\n' ? 1 : 0);
    }
}

static enum espl_status plan(struct espl_plan_ctx *ctx, const void *params,
                             struct espl_estimate *est, struct espl_error *err)
{
    struct espl_import_checkpoint *checkpoint = NULL;
    struct espl_import_choice choice;
    enum espl_status status = open_checkpoint(params, &checkpoint, &choice, err);
    if (status == ESPL_OK && checkpoint != NULL) {
        status = add_files(ctx, params, checkpoint, err);
    }
    if (status == ESPL_OK) {
        each_note(checkpoint, ctx, NULL);
        espl_plan_set_output(ctx, "model", espl_model_description(&checkpoint->config));
        est->host_bytes = (uint64_t)64 << 20;
        est->output_bytes = choice.output_bytes;
        est->flop = (double)choice.tensor_bytes; /* each byte is hashed, and perhaps copied */
        (void)snprintf(est->note, sizeof est->note, "%s, %.1f M parameters, %s, %s",
                       checkpoint->config.architecture,
                       (double)espl_arch_parameters(&checkpoint->config) / 1e6,
                       checkpoint->config.dtype, choice.reference ? "by reference" : "copied");
    }
    espl_import_checkpoint_close(checkpoint);
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

static enum espl_status report_metrics(struct espl_stage_ctx *ctx,
                                       const struct espl_import_checkpoint *checkpoint,
                                       const struct espl_import_choice *choice,
                                       struct espl_error *err)
{
    enum espl_status status = espl_ctx_metric(
        ctx, "parameters", (double)espl_arch_parameters(&checkpoint->config), false, err);
    if (status == ESPL_OK) {
        status = espl_ctx_metric(ctx, "tensors", (double)checkpoint->count, false, err);
    }
    if (status == ESPL_OK) {
        status = espl_ctx_metric(ctx, "weight_bytes", (double)choice->tensor_bytes, false, err);
    }
    return status;
}

static enum espl_status run(struct espl_stage_ctx *ctx, const void *params, struct espl_error *err)
{
    struct espl_import_checkpoint *checkpoint = NULL;
    struct espl_import_choice choice;
    const struct espl_import_hooks hooks = {
        .user = ctx, .progress = on_progress, .cancelled = on_cancelled, .log = espl_ctx_log(ctx)};

    enum espl_status status = open_checkpoint(params, &checkpoint, &choice, err);
    if (status == ESPL_OK && checkpoint != NULL) {
        each_note(checkpoint, NULL, espl_ctx_log(ctx));
        status = blame_checkpoint(
            params,
            espl_import_transfer(checkpoint, &choice, espl_ctx_output(ctx, "model"), &hooks, err),
            err);
    }
    if (status == ESPL_OK && checkpoint != NULL) {
        status = report_metrics(ctx, checkpoint, &choice, err);
    }
    espl_import_checkpoint_close(checkpoint);
    return status == ESPL_E_CANCELLED ? espl_ctx_stop(ctx, err) : status;
}

static enum espl_status still_valid(const struct espl_store *store, bool rehash,
                                    struct espl_artifact *cached, const void *params, bool *valid,
                                    char stale[160], struct espl_error *err)
{
    (void)rehash;
    (void)store;
    (void)params;
    return espl_import_still_valid(cached, valid, stale, err);
}

const struct espl_stage espl_stage_import = {
    .name = "import",
    .summary = "reads a checkpoint of HF transformers or timm (safetensors)",
    .cache_version = 1,
    .params = params_table,
    .params_size = sizeof(struct import_params),
    .inputs = inputs,
    .outputs = outputs,
    .plan = plan,
    .run = run,
    .still_valid = still_valid,
};

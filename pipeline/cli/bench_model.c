#include "cli/bench_model.h"

#include "core/checked.h"
#include "core/rng.h"
#include "model/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

const struct espl_bench_shape espl_bench_shapes[] = {
    {"llama-6m shape",
     {.shape = "llama",
      .dtype = ESPL_DTYPE_F32,
      .layers = 6,
      .hidden = 256,
      .heads = 4,
      .kv_heads = 2,
      .ffn = 768,
      .vocab = 4096}},
    {"llama-18m shape",
     {.shape = "llama",
      .dtype = ESPL_DTYPE_F32,
      .layers = 6,
      .hidden = 512,
      .heads = 8,
      .kv_heads = 4,
      .ffn = 1024,
      .vocab = 4096}},
    {NULL, {0}},
};

/* What artifacts that are made from the model refer to. */
static const char bench_key[] = "0000000000000000000000000000000000000000000000000000000000000000";

/* Spread of the weights: small, so that no activation runs away. */
static const float weight_spread = 0.02F;

static enum espl_status write_tensor(struct espl_artifact *artifact,
                                     const struct espl_tensor_spec *spec, uint64_t index,
                                     struct espl_error *err)
{
    struct espl_rng rng = espl_rng_stream(0, "bench-model", index);
    const struct espl_tensor_info info =
        espl_tensor_info_make(spec->path, ESPL_DTYPE_F32, spec->rank, spec->shape);
    float *values = malloc((size_t)info.bytes);
    if (values == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for tensor '%s'", spec->name);
    }
    for (size_t i = 0; i < (size_t)info.bytes / sizeof *values; i++) {
        values[i] = spec->rank == 1
                        ? 1.0F
                        : weight_spread * (float)(2.0 * espl_rng_unit(&rng) - 1.0) * 1.7320508F;
    }
    const enum espl_status status = espl_artifact_write(artifact, &info, values, err);
    free(values);
    return status;
}

static enum espl_status write_model(const struct espl_model_config *config, const char *path,
                                    struct espl_error *err)
{
    struct espl_artifact *artifact = NULL;
    struct espl_tensor_spec *specs = NULL;
    size_t count = 0;
    json_t *description = espl_model_description(config);
    char *text = description != NULL ? json_dumps(description, JSON_COMPACT) : NULL;
    enum espl_status status =
        text != NULL ? ESPL_OK : espl_fail(err, ESPL_E_NOMEM, "out of memory for a bench model");
    if (status == ESPL_OK) {
        status = espl_arch_tensors(config, &specs, &count, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_create(path, "model.dense/1", &artifact, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_set_description(artifact, text, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_set_attribute(artifact, "key", bench_key, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        status = write_tensor(artifact, &specs[i], i, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_finish(&artifact, NULL, err);
    }
    espl_artifact_abandon(artifact);
    free(specs);
    free(text);
    json_decref(description);
    return status;
}

enum espl_status espl_bench_model_create(const struct espl_bench_shape *shape,
                                         struct espl_bench_model *model, struct espl_error *err)
{
    const char *temporary = getenv("TMPDIR");
    char name[64];
    struct espl_model_config config;
    enum espl_status status = espl_synth_config(&shape->options, &config, err);
    (void)snprintf(name, sizeof name, "espalier-bench-%lld", (long long)getpid());
    if (status == ESPL_OK) {
        status = espl_fs_join(model->folder, temporary != NULL ? temporary : "/tmp", name, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    if (mkdir(model->folder, S_IRWXU) != 0) { /* what is there already is not ours */
        return espl_fail_errno(err, errno, "cannot create folder '%s'", model->folder);
    }
    status = espl_fs_join(model->path, model->folder, "model.h5", err);
    if (status == ESPL_OK) {
        status = write_model(&config, model->path, err);
    }
    if (status != ESPL_OK) {
        espl_bench_model_remove(model);
    }
    return status;
}

void espl_bench_model_remove(const struct espl_bench_model *model)
{
    /* Best effort: a leftover in the temporary folder harms nobody. */
    (void)espl_fs_remove_tree(model->folder, NULL);
}

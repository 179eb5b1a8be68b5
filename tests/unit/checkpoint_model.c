#include "unit/checkpoint_model.h"

#include "core/fs.h"
#include "model/safetensors.h"
#include "support/temp_folder.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPEN = 8 };

/* A model borrows its artifact; tests hold the model alone. */
static struct {
    struct espl_model *model;
    struct espl_artifact *artifact;
} open_models[MOST_OPEN];

/* Where to put a NaN; role NONE = nowhere. */
struct damage {
    int64_t layer;
    enum espl_role role;
};

static enum espl_status read_config(const char *dir, struct espl_model_config *config,
                                    struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    json_error_t json_error;
    enum espl_status status = espl_fs_join(path, dir, "config.json", err);
    if (status != ESPL_OK) {
        return status;
    }
    json_t *json = json_load_file(path, 0, &json_error);
    status = json == NULL
                 ? espl_fail(err, ESPL_E_CORRUPT, "cannot read '%s': %s", path, json_error.text)
                 : espl_model_config_from_hf(json, config, err);
    json_decref(json);
    return status;
}

static enum espl_status copy_tensor(const struct espl_safetensors *files,
                                    const struct espl_tensor_spec *spec,
                                    const struct damage *damage, struct espl_artifact *artifact,
                                    struct espl_error *err)
{
    const struct espl_safetensor *tensor = espl_safetensors_find(files, spec->name);
    if (tensor == NULL) {
        return espl_fail(err, ESPL_E_NOTFOUND, "no tensor '%s'", spec->name);
    }
    const struct espl_tensor_info info =
        espl_tensor_info_make(spec->path, tensor->dtype, spec->rank, spec->shape);
    if (info.bytes != tensor->bytes) {
        return espl_fail(err, ESPL_E_CORRUPT, "tensor '%s' has another shape", spec->name);
    }
    unsigned char *data = malloc((size_t)info.bytes);
    if (data == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory");
    }
    enum espl_status status =
        espl_safetensors_read(files, tensor, 0, data, (size_t)info.bytes, err);
    if (damage->role == spec->role && damage->layer == spec->layer && !spec->is_bias) {
        const float bad = NAN;
        memcpy(data, &bad, sizeof bad);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_write(artifact, &info, data, err);
    }
    free(data);
    return status;
}

static enum espl_status write_artifact(const char *weights_dir,
                                       const struct espl_model_config *config,
                                       const struct damage *damage, const char *path,
                                       struct espl_error *err)
{
    struct espl_artifact *artifact = NULL;
    struct espl_safetensors *files = NULL;
    struct espl_tensor_spec *specs = NULL;
    size_t count = 0;
    json_t *description = espl_model_description(config);
    char *text = json_dumps(description, JSON_COMPACT);
    enum espl_status status = espl_safetensors_open(weights_dir, &files, err);
    if (status == ESPL_OK) {
        status = espl_arch_tensors(config, &specs, &count, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_create(path, "model.dense/1", &artifact, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_set_description(artifact, text, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        status = copy_tensor(files, &specs[i], damage, artifact, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_finish(&artifact, NULL, err);
    }
    espl_artifact_abandon(artifact);
    espl_safetensors_close(files);
    free(specs);
    free(text);
    json_decref(description);
    return status;
}

static enum espl_status open_artifact(const char *path, struct espl_model **out,
                                      struct espl_error *err)
{
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    enum espl_status status = espl_artifact_open(path, &artifact, err);
    if (status == ESPL_OK) {
        status = espl_model_open(artifact, NULL, &model, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < MOST_OPEN; i++) {
        if (open_models[i].model == NULL) {
            open_models[i].model = model;
            open_models[i].artifact = artifact;
            *out = model;
            return ESPL_OK;
        }
    }
    espl_model_close(model);
    espl_artifact_close(artifact);
    return status != ESPL_OK ? status : espl_fail(err, ESPL_E_INTERNAL, "too many models are open");
}

enum espl_status checkpoint_model_open_damaged(const char *weights_dir, const char *config_dir,
                                               int64_t layer, enum espl_role role,
                                               struct espl_model **out, struct espl_error *err)
{
    char folder[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    struct espl_model_config config;
    const struct damage damage = {.layer = layer, .role = role};
    enum espl_status status = read_config(config_dir, &config, err);
    if (status != ESPL_OK) {
        return status;
    }
    temp_folder_make(folder);
    status = espl_fs_join(path, folder, "model.h5", err);
    if (status == ESPL_OK) {
        status = write_artifact(weights_dir, &config, &damage, path, err);
    }
    if (status == ESPL_OK) {
        status = open_artifact(path, out, err);
    }
    (void)espl_fs_remove_tree(folder, NULL); /* the open file lives on */
    return status;
}

enum espl_status checkpoint_model_open(const char *weights_dir, const char *config_dir,
                                       struct espl_model **out, struct espl_error *err)
{
    return checkpoint_model_open_damaged(weights_dir, config_dir, -1, ESPL_ROLE_NONE, out, err);
}

void checkpoint_model_close(struct espl_model *model)
{
    for (size_t i = 0; i < MOST_OPEN; i++) {
        if (model != NULL && open_models[i].model == model) {
            espl_model_close(model);
            espl_artifact_close(open_models[i].artifact);
            open_models[i].model = NULL;
        }
    }
}

/* Writing models that stand on another one: a description that names the base; mask datasets. */
#include "core/checked.h"
#include "model/model_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void espl_model_mask_path(const struct espl_tensor_spec *weight, char out[ESPL_TENSOR_PATH])
{
    const char *slash = strrchr(weight->path, '/');
    (void)snprintf(out, ESPL_TENSOR_PATH, "%.*s/mask", (int)(slash - weight->path), weight->path);
}

struct espl_tensor_info espl_model_mask_info(const struct espl_tensor_spec *weight)
{
    char path[ESPL_TENSOR_PATH];
    const uint64_t shape[2] = {weight->shape[0], espl_ceil_div((size_t)weight->shape[1], 8)};

    espl_model_mask_path(weight, path);
    struct espl_tensor_info info = espl_tensor_info_make(path, ESPL_DTYPE_U8, 2, shape);
    (void)snprintf(info.packing, sizeof info.packing, "bitmask-lsb0");
    info.logical_shape[0] = weight->shape[0];
    info.logical_shape[1] = weight->shape[1];
    return info;
}

enum espl_status espl_model_describe_over(struct espl_artifact *output,
                                          const struct espl_model *base, const json_t *members,
                                          struct espl_error *err)
{
    json_t *description = espl_model_description(&base->config);
    json_t *reference = json_object();
    (void)json_object_set_new(reference, "content_sha256",
                              json_string(espl_artifact_content_sha256(base->chain[0])));
    (void)json_object_set_new(description, "base", reference);
    (void)json_object_update(description, (json_t *)members); /* only counted and read */
    char *text = json_dumps(description, JSON_COMPACT | JSON_SORT_KEYS);
    const enum espl_status status =
        text == NULL || members == NULL
            ? espl_fail(err, ESPL_E_NOMEM, "out of memory for a model description")
            : espl_artifact_set_description(output, text, err);
    free(text);
    json_decref(description);
    return status;
}

/* Description, and the reference by which readers find the base. */
static enum espl_status begin_over(struct espl_artifact *output, const struct espl_model *base,
                                   const json_t *members, struct espl_error *err)
{
    const struct espl_artifact *parent = base->chain[0];
    const char *key = espl_artifact_attribute(parent, "key");
    if (key[0] == '\0') {
        return espl_fail(err, ESPL_E_KIND, "model '%s' has no key that masks could refer to",
                         espl_artifact_path(parent));
    }
    enum espl_status status = espl_model_describe_over(output, base, members, err);
    if (status == ESPL_OK) {
        status = espl_artifact_set_attribute(output, "parent_key", key, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_set_attribute(output, "parent_port",
                                             espl_artifact_attribute(parent, "port"), err);
    }
    return status;
}

enum espl_status espl_model_begin_masked(struct espl_artifact *output,
                                         const struct espl_model *base, const json_t *pruning,
                                         struct espl_error *err)
{
    json_t *members = json_pack("{s:O}", "pruning", (json_t *)pruning);
    const enum espl_status status = begin_over(output, base, members, err);
    json_decref(members);
    return status;
}

enum espl_status espl_model_begin_quantised(struct espl_artifact *output,
                                            const struct espl_model *base,
                                            const json_t *quantisation, struct espl_error *err)
{
    json_t *own = json_loads(espl_artifact_description(base->chain[0]), 0, NULL);
    json_t *members = json_pack("{s:O, s:O*}", "quantisation", (json_t *)quantisation, "pruning",
                                json_object_get(own, "pruning"));
    const enum espl_status status = begin_over(output, base, members, err);
    json_decref(members);
    json_decref(own);
    return status;
}

enum espl_status espl_model_write_mask(struct espl_artifact *artifact,
                                       const struct espl_tensor_spec *weight, const uint8_t *mask,
                                       struct espl_error *err)
{
    const struct espl_tensor_info info = espl_model_mask_info(weight);
    const size_t stride = (size_t)info.shape[1];
    const unsigned used = (unsigned)(weight->shape[1] % 8);

    /* Unused bits must be 0, or equal masks would not be equal bytes. */
    for (size_t r = 0; used != 0 && r < weight->shape[0]; r++) {
        if ((mask[r * stride + stride - 1] >> used) != 0) {
            return espl_fail(err, ESPL_E_INTERNAL, "mask of '%s' has bits behind its last column",
                             weight->name);
        }
    }
    return espl_artifact_write(artifact, &info, mask, err);
}

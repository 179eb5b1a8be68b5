/* Shapes of image models for random checkpoints: what a timm name stands for, or a small default.
 */
#include "model/synth.h"

#include "artifact/artifact.h"

#include <stdio.h>
#include <string.h>

const struct espl_synth_image_shape espl_synth_image_shapes[] = {
    {"vit", "{\"architecture\":\"vit\",\"model_args\":{\"img_size\":32,\"patch_size\":4,"
            "\"embed_dim\":64,\"depth\":4,\"num_heads\":4,\"num_classes\":10}}"},
    {"swin", "{\"architecture\":\"swin\",\"model_args\":{\"img_size\":32,\"patch_size\":2,"
             "\"embed_dim\":32,\"depths\":[2,2],\"num_heads\":[2,4],\"window_size\":4,"
             "\"num_classes\":10}}"},
    {"deit-tiny", "{\"architecture\":\"deit_tiny_patch16_224\"}"},
    {"deit-small", "{\"architecture\":\"deit_small_patch16_224\"}"},
    {"deit-base", "{\"architecture\":\"deit_base_patch16_224\"}"},
    {"deit-small-distilled", "{\"architecture\":\"deit_small_distilled_patch16_224\"}"},
    {"vit-large", "{\"architecture\":\"vit_large_patch16_224\"}"},
    {"swin-tiny", "{\"architecture\":\"swin_tiny_patch4_window7_224\"}"},
    {"swin-small", "{\"architecture\":\"swin_small_patch4_window7_224\"}"},
    {"swin-base", "{\"architecture\":\"swin_base_patch4_window7_224\"}"},
    {NULL, NULL},
};

static const struct espl_synth_image_shape *find_shape(const char *name)
{
    for (const struct espl_synth_image_shape *shape = espl_synth_image_shapes; shape->name != NULL;
         shape++) {
        if (strcmp(shape->name, name) == 0) {
            return shape;
        }
    }
    return NULL;
}

bool espl_synth_is_image_shape(const char *name)
{
    return find_shape(name) != NULL;
}

enum espl_status espl_synth_image_config(const struct espl_synth_options *options,
                                         struct espl_model_config *config, struct espl_error *err)
{
    const struct espl_synth_image_shape *shape = find_shape(options->shape);
    if (shape == NULL) {
        return espl_fail(err, ESPL_E_INTERNAL, "'%s' is not an image shape", options->shape);
    }
    if (options->layers != 0 || options->hidden != 0 || options->heads != 0 ||
        options->kv_heads != 0 || options->head_dim != 0 || options->ffn != 0 ||
        options->vocab != 0 || options->max_positions != 0 || options->target_bytes != 0) {
        return espl_fail(err, ESPL_E_USAGE, "the sizes of image model '%s' cannot be changed",
                         shape->name);
    }
    json_t *json = json_loads(shape->timm, 0, NULL);
    const enum espl_status status = espl_model_config_from_hf(json, config, err);
    json_decref(json);
    if (status == ESPL_OK) {
        (void)snprintf(config->dtype, sizeof config->dtype, "%s", espl_dtype_name(options->dtype));
    }
    return status;
}

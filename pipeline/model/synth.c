#include "model/synth.h"

#include "core/checked.h"
#include "core/suggest.h"
#include "model/arch.h"
#include "model/arch_internal.h"
#include "model/checkpoint_folder.h"
#include "model/checkpoint_writer.h"
#include "model/element.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- configuration ---- */

static enum espl_status find_shape(const char *name, const struct espl_synth_shape **shape,
                                   struct espl_error *err)
{
    const char *names[64];
    size_t count = 0;
    for (const struct espl_synth_shape *s = espl_synth_shapes; s->name != NULL; s++) {
        if (strcmp(s->name, name) == 0) {
            *shape = s;
            return ESPL_OK;
        }
        if (count < sizeof names / sizeof names[0]) {
            names[count++] = s->name;
        }
    }
    for (const struct espl_synth_image_shape *s = espl_synth_image_shapes;
         s->name != NULL && count < sizeof names / sizeof names[0]; s++) {
        names[count++] = s->name;
    }
    const char *near = espl_suggest(name, names, count);
    (void)espl_fail(err, ESPL_E_USAGE, "unknown model shape '%s'", name);
    (void)espl_hint(err,
                    "%s%s%sshapes are llama, opt, qwen2, vit, swin (small ones) and published "
                    "names as opt-125m, opt-13b, llama-2-7b, llama-3-8b, qwen2-0.5b, deit-small",
                    near != NULL ? "did you mean '" : "", near != NULL ? near : "",
                    near != NULL ? "'?  " : "");
    return ESPL_E_USAGE;
}

static uint64_t either(uint64_t wish, uint64_t otherwise)
{
    return wish != 0 ? wish : otherwise;
}

static void config_of_shape(const struct espl_synth_options *options,
                            const struct espl_synth_shape *shape, struct espl_model_config *config)
{
    const bool opt = strcmp(shape->architecture, "opt") == 0;
    const bool qwen = strcmp(shape->architecture, "qwen2") == 0;

    memset(config, 0, sizeof *config);
    (void)snprintf(config->architecture, sizeof config->architecture, "%s", shape->architecture);
    (void)snprintf(config->dtype, sizeof config->dtype, "%s", espl_dtype_name(options->dtype));
    config->layers = either(options->layers, shape->layers);
    config->hidden = either(options->hidden, shape->hidden);
    config->heads = either(options->heads, shape->heads);
    config->kv_heads = either(options->kv_heads, shape->kv_heads);
    if (options->heads != 0 && options->kv_heads == 0 &&
        (shape->kv_heads == shape->heads || options->heads % shape->kv_heads != 0)) {
        config->kv_heads = options->heads;
    }
    config->head_dim = either(options->head_dim, shape->head_dim);
    if (config->head_dim == 0 || (options->hidden != 0 && options->head_dim == 0)) {
        config->head_dim = config->heads != 0 ? config->hidden / config->heads : 0;
    }
    config->ffn = either(options->ffn, shape->ffn);
    config->vocab = either(options->vocab, shape->vocab);
    config->max_positions = either(options->max_positions, shape->max_positions);
    config->embed_dim = either(shape->embed_dim, config->hidden);
    config->norm = opt ? ESPL_NORM_LAYER : ESPL_NORM_RMS;
    config->norm_eps = shape->norm_eps;
    config->norm_affine = true;
    config->activation = opt ? ESPL_ACT_RELU : ESPL_ACT_SILU;
    config->pre_norm = !shape->post_norm;
    config->final_norm = !shape->post_norm;
    config->tied_embeddings = shape->tied;
    config->attention_bias = opt || qwen;
    config->output_bias = opt;
    config->mlp_bias = opt;
    config->position_offset = opt ? 2 : 0;
    config->rope.type = opt ? ESPL_ROPE_NONE : ESPL_ROPE_DEFAULT;
    config->rope.theta = shape->rope_theta;
    config->rope.factor = opt ? 0.0 : 1.0;
    config->bos_id = opt ? 2 : 1;
    config->eos_id = 2;
}

/* Largest number of layers, from 1 to the configured one, whose tensors stay within `bytes`. */
static void fit_layers(struct espl_model_config *config, uint64_t bytes, size_t element)
{
    struct espl_model_config one = *config;
    struct espl_model_config two = *config;
    one.layers = 1;
    two.layers = 2;
    const uint64_t first = espl_arch_parameters(&one) * element;
    const uint64_t further = espl_arch_parameters(&two) * element - first;
    const uint64_t room = bytes > first ? (bytes - first) / further : 0;
    config->layers = room + 1 < config->layers ? room + 1 : config->layers;
}

enum espl_status espl_synth_config(const struct espl_synth_options *options,
                                   struct espl_model_config *config, struct espl_error *err)
{
    const struct espl_synth_shape *shape = NULL;
    struct espl_model_config made;

    if (!espl_element_is_weight(options->dtype)) {
        return espl_fail(err, ESPL_E_USAGE, "weights cannot be of type '%s'",
                         espl_dtype_name(options->dtype));
    }
    if (espl_synth_is_image_shape(options->shape)) {
        return espl_synth_image_config(options, config, err);
    }
    enum espl_status status = find_shape(options->shape, &shape, err);
    if (status != ESPL_OK) {
        return status;
    }
    config_of_shape(options, shape, &made);
    if (options->head_dim == 0 && made.heads != 0 && made.hidden % made.heads != 0) {
        return espl_fail(err, ESPL_E_USAGE,
                         "hidden size %" PRIu64 " is not a multiple of %" PRIu64 " heads",
                         made.hidden, made.heads);
    }
    if (made.kv_heads != made.heads && made.rope.type == ESPL_ROPE_NONE) {
        return espl_fail(err, ESPL_E_USAGE, "%s has no grouped key/value heads", made.architecture);
    }
    if (espl_model_config_check(&made, err) != ESPL_OK) {
        if (err != NULL) {
            err->code = ESPL_E_USAGE;
        }
        return ESPL_E_USAGE;
    }
    if (options->target_bytes != 0) {
        fit_layers(&made, options->target_bytes, espl_dtype_size(options->dtype));
    }
    *config = made;
    return ESPL_OK;
}

/* ---- the folder ---- */

struct synth {
    const struct espl_synth_options *options;
    const struct espl_tensor_spec *specs;
    struct espl_synth_weights *weights;
};

static enum espl_status read_rows(void *user, size_t index, uint64_t row, uint64_t rows, void *dst,
                                  size_t bytes, struct espl_error *err)
{
    const struct synth *synth = user;
    (void)rows;
    (void)err; /* nothing here can fail */
    espl_synth_weights_read(synth->weights, &synth->specs[index], row, dst, bytes);
    return ESPL_OK;
}

static bool report(void *user, uint64_t done, uint64_t total)
{
    const struct synth *synth = user;
    return synth->options->progress == NULL ||
           synth->options->progress(synth->options->progress_user, done, total);
}

static enum espl_status check_target(const char *folder, struct espl_error *err)
{
    char **names = NULL;
    size_t count = 0;
    if (!espl_fs_exists(folder)) {
        return ESPL_OK;
    }
    if (espl_fs_is_dir(folder)) {
        const enum espl_status status = espl_fs_list(folder, 100000, &names, &count, err);
        if (status != ESPL_OK) {
            return status;
        }
        espl_fs_free_names(names, count);
        if (count == 0) {
            return ESPL_OK;
        }
    }
    (void)espl_fail(err, ESPL_E_USAGE, "'%s' is there already", folder);
    return espl_hint(err, "name a folder that does not exist, or remove it first");
}

enum espl_status espl_synth_write(const struct espl_synth_options *options, uint64_t *bytes,
                                  struct espl_error *err)
{
    struct espl_model_config config;
    struct espl_checkpoint_folder folder = {.temporary = ""};
    struct espl_tensor_spec *specs = NULL;
    enum espl_dtype *dtypes = NULL;
    struct synth synth = {.options = options};
    struct espl_checkpoint_source source = {.progress = report, .user = &synth};

    enum espl_status status = espl_synth_config(options, &config, err);
    if (status == ESPL_OK) {
        status = check_target(options->folder, err);
    }
    if (status == ESPL_OK) {
        status = espl_arch_tensors(&config, &specs, &source.count, err);
    }
    if (status == ESPL_OK) {
        status = espl_synth_weights_create(options->dtype, options->seed, &synth.weights, err);
    }
    if (status != ESPL_OK) {
        goto cleanup;
    }
    dtypes = calloc(source.count, sizeof *dtypes);
    if (dtypes == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu tensors", source.count);
        goto cleanup;
    }
    for (size_t i = 0; i < source.count; i++) {
        dtypes[i] = options->dtype;
    }
    source.specs = specs;
    source.read = options->sparse ? NULL : read_rows;
    source.dtypes = dtypes;
    synth.specs = specs;
    status = espl_checkpoint_folder_begin(options->folder, &folder, err);
    if (status == ESPL_OK) {
        status = espl_checkpoint_write(folder.temporary, &config, &source, options->shard_size,
                                       NULL, err);
    }
    if (status == ESPL_OK) {
        status = espl_checkpoint_folder_publish(&folder, err);
    }
    if (status == ESPL_OK && bytes != NULL) {
        *bytes = espl_checkpoint_bytes(&source);
    }

cleanup:
    espl_checkpoint_folder_abandon(&folder);
    free(dtypes);
    free(specs);
    espl_synth_weights_destroy(synth.weights);
    return status;
}

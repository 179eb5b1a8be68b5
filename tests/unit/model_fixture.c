#include "unit/model_fixture.h"

#include "support/temp_folder.h"

#include "model/arch.h"
#include "model/checkpoint_writer.h"
#include "model/element.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void must(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s (%s)", err->message, err->context);
    }
}

void fixture_make_dir(char out[ESPL_PATH_MAX])
{
    temp_folder_make(out);
}

int fixture_setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    fixture_make_dir(f->dir);
    fixture_join(f->folder, f->dir, "checkpoint");
    *state = f;
    return 0;
}

int fixture_teardown(void **state)
{
    struct fixture *f = *state;
    temp_folder_remove(f->dir);
    free(f);
    return 0;
}

const char *fixture_join(char out[ESPL_PATH_MAX], const char *dir, const char *name)
{
    struct espl_error err = {0};
    must(espl_fs_join(out, dir, name, &err), &err);
    return out;
}

void fixture_write_text(const char *dir, const char *name, const char *text)
{
    char path[ESPL_PATH_MAX];
    struct espl_error err = {0};
    fixture_join(path, dir, name);
    must(espl_fs_write_file(path, text, strlen(text), &err), &err);
}

static struct espl_model_config decoder_config(void)
{
    struct espl_model_config config = {
        .architecture = "llama",
        .layers = 2,
        .hidden = 37,
        .heads = 4,
        .kv_heads = 2,
        .head_dim = 80,
        .ffn = 51,
        .vocab = 29,
        .max_positions = 64,
        .embed_dim = 37,
        .norm = ESPL_NORM_RMS,
        .norm_eps = 1e-5,
        .norm_affine = true,
        .activation = ESPL_ACT_SILU,
        .pre_norm = true,
        .final_norm = true,
        .rope = {.type = ESPL_ROPE_DEFAULT, .theta = 10000.0, .factor = 1.0},
        .bos_id = 1,
        .eos_id = 2,
        .dtype = "bf16",
    };
    return config;
}

static struct espl_model_config opt_config(bool post)
{
    struct espl_model_config config = {
        .architecture = "opt",
        .layers = 2,
        .hidden = 36,
        .heads = 3,
        .kv_heads = 3,
        .head_dim = 12,
        .ffn = 61,
        .vocab = 31,
        .max_positions = 19,
        .embed_dim = post ? 14 : 36,
        .norm = ESPL_NORM_LAYER,
        .norm_eps = 1e-5,
        .norm_affine = true,
        .activation = ESPL_ACT_RELU,
        .pre_norm = !post,
        .final_norm = !post,
        .tied_embeddings = true,
        .attention_bias = true,
        .output_bias = true,
        .mlp_bias = true,
        .position_offset = 2,
        .rope = {.type = ESPL_ROPE_NONE},
        .bos_id = 2,
        .eos_id = 2,
        .dtype = "f16",
    };
    return config;
}

struct espl_model_config fixture_config(const char *name)
{
    if (strcmp(name, "opt") == 0 || strcmp(name, "opt-post") == 0) {
        return opt_config(strcmp(name, "opt-post") == 0);
    }
    struct espl_model_config config = decoder_config();
    if (strcmp(name, "llama-tied") == 0) {
        config.tied_embeddings = true;
    } else if (strcmp(name, "qwen2") == 0) {
        (void)snprintf(config.architecture, sizeof config.architecture, "qwen2");
        config.attention_bias = true;
        config.rope.theta = 1e6;
        config.head_dim = 8;
        config.hidden = 32;
        config.embed_dim = 32;
    } else {
        assert_string_equal(name, "llama");
    }
    return config;
}

/* Seven bits of mantissa, so exact in bf16, and exponents that f16 has. */
float fixture_value(size_t index, uint64_t element)
{
    const uint64_t hash = (index + 1) * 2654435761u + element * 40503u + (element >> 5) * 97u;
    const float mantissa = (float)((int)(hash >> 7 & 0xff) - 128);
    return mantissa / (float)(1u << (6 + (hash >> 17 & 3)));
}

static void fill(enum espl_dtype dtype, size_t index, uint64_t first, size_t count, void *dst)
{
    struct espl_element_loss loss = {0, 0};
    for (size_t i = 0; i < count; i++) {
        const float value = fixture_value(index, first + i);
        espl_element_from_f32(dtype, &value, 1, (char *)dst + i * espl_dtype_size(dtype), &loss);
    }
    assert_int_equal(loss.overflow + loss.flushed, 0);
}

struct source_state {
    const struct espl_tensor_spec *specs;
    enum espl_dtype dtype;
};

static enum espl_status read_rows(void *user, size_t index, uint64_t row, uint64_t rows, void *dst,
                                  size_t bytes, struct espl_error *err)
{
    const struct source_state *state = user;
    (void)rows;
    (void)err;
    fill(state->dtype, index, row * state->specs[index].shape[1],
         bytes / espl_dtype_size(state->dtype), dst);
    return ESPL_OK;
}

void fixture_write_checkpoint(const char *folder, const struct espl_model_config *config,
                              enum espl_dtype dtype, uint64_t shard_size)
{
    struct espl_error err = {0};
    struct espl_tensor_spec *specs = NULL;
    size_t count = 0;
    must(espl_arch_tensors(config, &specs, &count, &err), &err);
    enum espl_dtype *dtypes = calloc(count, sizeof *dtypes);
    assert_non_null(dtypes);
    for (size_t i = 0; i < count; i++) {
        dtypes[i] = dtype;
    }
    struct source_state state = {specs, dtype};
    const struct espl_checkpoint_source source = {
        .specs = specs, .dtypes = dtypes, .count = count, .read = read_rows, .user = &state};
    struct espl_model_config stored = *config;
    (void)snprintf(stored.dtype, sizeof stored.dtype, "%s", espl_dtype_name(dtype));
    must(espl_fs_make_dirs(folder, &err), &err);
    must(espl_checkpoint_write(folder, &stored, &source, shard_size, NULL, &err), &err);
    free(dtypes);
    free(specs);
}

static void set_description(struct espl_artifact *artifact, json_t *description)
{
    struct espl_error err = {0};
    char *text = json_dumps(description, JSON_COMPACT | JSON_SORT_KEYS);
    must(espl_artifact_set_description(artifact, text, &err), &err);
    free(text);
    json_decref(description);
}

void fixture_write_artifact(const char *dir, const char *key,
                            const struct espl_model_config *config, enum espl_dtype dtype,
                            char path[ESPL_PATH_MAX], char content[ESPL_SHA256_HEX])
{
    struct espl_error err = {0};
    struct espl_artifact *artifact = NULL;
    struct espl_tensor_spec *specs = NULL;
    size_t count = 0;
    char name[128];
    char file[ESPL_PATH_MAX];
    struct espl_model_config stored = *config;

    (void)snprintf(name, sizeof name, "%s.h5", key);
    fixture_join(file, dir, name);
    (void)snprintf(stored.dtype, sizeof stored.dtype, "%s", espl_dtype_name(dtype));
    must(espl_artifact_create(file, "model.dense/1", &artifact, &err), &err);
    set_description(artifact, espl_model_description(&stored));
    must(espl_artifact_set_attribute(artifact, "key", key, &err), &err);
    must(espl_arch_tensors(config, &specs, &count, &err), &err);
    for (size_t i = 0; i < count; i++) {
        const struct espl_tensor_info info =
            espl_tensor_info_make(specs[i].path, dtype, specs[i].rank, specs[i].shape);
        void *data = malloc(info.bytes);
        assert_non_null(data);
        fill(dtype, i, 0, info.bytes / espl_dtype_size(dtype), data);
        must(espl_artifact_write(artifact, &info, data, &err), &err);
        free(data);
    }
    must(espl_artifact_finish(&artifact, content, &err), &err);
    free(specs);
    if (path != NULL) {
        memcpy(path, file, strlen(file) + 1);
    }
}

bool fixture_mask_bit(unsigned seed, uint64_t row, uint64_t col)
{
    return ((row * 31u + col * 7u + seed * 13u + (row * col) % 5u) % 3u) != 0;
}

uint8_t *fixture_mask(unsigned seed, const struct espl_tensor_spec *spec)
{
    const size_t stride = (size_t)(spec->shape[1] + 7) / 8;
    uint8_t *mask = calloc((size_t)spec->shape[0], stride);
    assert_non_null(mask);
    for (uint64_t r = 0; r < spec->shape[0]; r++) {
        for (uint64_t c = 0; c < spec->shape[1]; c++) {
            if (fixture_mask_bit(seed, r, c)) {
                mask[r * stride + c / 8] |= (uint8_t)(1u << (c % 8));
            }
        }
    }
    return mask;
}

void fixture_write_masked(const char *dir, const char *key, const char *base_path, unsigned seed,
                          int64_t skip_layer, char path[ESPL_PATH_MAX])
{
    struct espl_error err = {0};
    struct espl_artifact *base = NULL;
    struct espl_artifact *output = NULL;
    struct espl_model *model = NULL;
    char name[128];
    json_t *pruning = json_pack("{s:s}", "method", "fixture");

    (void)snprintf(name, sizeof name, "%s.h5", key);
    fixture_join(path, dir, name);
    must(espl_artifact_open(base_path, &base, &err), &err);
    must(espl_model_open(base, NULL, &model, &err), &err);
    must(espl_artifact_create(path, "model.masked/1", &output, &err), &err);
    must(espl_model_begin_masked(output, model, pruning, &err), &err);
    must(espl_artifact_set_attribute(output, "key", key, &err), &err);
    for (size_t i = 0; i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        if (espl_role_is_block_linear(spec->role) && !spec->is_bias && spec->layer != skip_layer) {
            uint8_t *mask = fixture_mask(seed, spec);
            must(espl_model_write_mask(output, spec, mask, &err), &err);
            free(mask);
        }
    }
    must(espl_artifact_finish(&output, NULL, &err), &err);
    json_decref(pruning);
    espl_model_close(model);
    espl_artifact_close(base);
}

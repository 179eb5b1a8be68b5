#include "model/arch.h"

#include "model/arch_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct espl_arch *const espl_archs[] = {
    &espl_arch_llama, &espl_arch_opt, &espl_arch_qwen2, &espl_arch_vit, &espl_arch_swin, NULL,
};

static const char *const role_names[ESPL_ROLE_COUNT] = {
    [ESPL_ROLE_NONE] = "none",
    [ESPL_ROLE_EMBEDDING] = "embedding",
    [ESPL_ROLE_POSITION] = "position",
    [ESPL_ROLE_CLASS_TOKEN] = "class_token",
    [ESPL_ROLE_DISTILL_TOKEN] = "distill_token",
    [ESPL_ROLE_EMBEDDING_NORM] = "embedding_norm",
    [ESPL_ROLE_PROJECT_IN] = "project_in",
    [ESPL_ROLE_PROJECT_OUT] = "project_out",
    [ESPL_ROLE_FINAL_NORM] = "final_norm",
    [ESPL_ROLE_HEAD] = "head",
    [ESPL_ROLE_DISTILL_HEAD] = "distill_head",
    [ESPL_ROLE_ATTENTION_NORM] = "attention_norm",
    [ESPL_ROLE_MLP_NORM] = "mlp_norm",
    [ESPL_ROLE_ATTENTION_BIAS] = "attention_bias",
    [ESPL_ROLE_MERGE_NORM] = "merge_norm",
    [ESPL_ROLE_MERGE] = "merge",
    [ESPL_ROLE_Q] = "q",
    [ESPL_ROLE_K] = "k",
    [ESPL_ROLE_V] = "v",
    [ESPL_ROLE_QKV] = "qkv",
    [ESPL_ROLE_O] = "o",
    [ESPL_ROLE_GATE] = "gate",
    [ESPL_ROLE_UP] = "up",
    [ESPL_ROLE_DOWN] = "down",
    [ESPL_ROLE_FC1] = "fc1",
    [ESPL_ROLE_FC2] = "fc2",
};

const char *espl_role_name(enum espl_role role)
{
    return (unsigned)role < ESPL_ROLE_COUNT ? role_names[role] : "none";
}

const struct espl_arch *espl_arch_find(const char *name)
{
    if (name == NULL) {
        return NULL;
    }
    for (size_t i = 0; espl_archs[i] != NULL; i++) {
        if (strcmp(espl_archs[i]->name, name) == 0) {
            return espl_archs[i];
        }
        for (size_t j = 0; espl_archs[i]->hf_types[j] != NULL; j++) {
            if (strcmp(espl_archs[i]->hf_types[j], name) == 0) {
                return espl_archs[i];
            }
        }
    }
    return NULL;
}

/* "deit_small_patch16_224" begins with "deit" and an underscore; "swinv2_..." is something else. */
static bool begins_with_word(const char *name, const char *word)
{
    const size_t len = strlen(word);
    return strncmp(name, word, len) == 0 && (name[len] == '_' || name[len] == '\0');
}

const struct espl_arch *espl_arch_of_config(const json_t *config)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const char *timm = json_string_value(json_object_get(config, "architecture"));
    if (type != NULL || timm == NULL) {
        return espl_arch_find(type);
    }
    for (size_t i = 0; espl_archs[i] != NULL; i++) {
        for (size_t j = 0; espl_archs[i]->vision && espl_archs[i]->hf_types[j] != NULL; j++) {
            if (begins_with_word(timm, espl_archs[i]->hf_types[j])) {
                return espl_archs[i];
            }
        }
    }
    return NULL;
}

static bool row_applies(enum espl_when when, const struct espl_model_config *config)
{
    switch (when) {
    case ESPL_WHEN_UNTIED:
        return !config->tied_embeddings;
    case ESPL_WHEN_PROJECTED:
        return config->embed_dim != config->hidden;
    case ESPL_WHEN_NORM_AFFINE:
        return config->norm_affine;
    case ESPL_WHEN_FINAL_NORM_AFFINE:
        return config->final_norm && config->norm_affine;
    case ESPL_WHEN_ATTENTION_BIAS:
        return config->attention_bias;
    case ESPL_WHEN_OUTPUT_BIAS:
        return config->output_bias;
    case ESPL_WHEN_MLP_BIAS:
        return config->mlp_bias;
    case ESPL_WHEN_ALWAYS:
        break;
    }
    return true;
}

static uint64_t dim_size(enum espl_dim dim, const struct espl_model_config *config)
{
    switch (dim) {
    case ESPL_DIM_HIDDEN:
        return config->hidden;
    case ESPL_DIM_EMBED:
        return config->embed_dim;
    case ESPL_DIM_VOCAB:
        return config->vocab;
    case ESPL_DIM_POSITIONS:
        return config->max_positions + config->position_offset;
    case ESPL_DIM_QUERY:
        return config->heads * config->head_dim;
    case ESPL_DIM_KEY_VALUE:
        return config->kv_heads * config->head_dim;
    case ESPL_DIM_FFN:
        return config->ffn;
    case ESPL_DIM_NONE:
        break;
    }
    return 1;
}

static uint64_t rows_of(const struct espl_tensor_row *rows, const struct espl_model_config *config)
{
    uint64_t count = 0;
    for (size_t i = 0; rows[i].module != NULL; i++) {
        count += row_applies(rows[i].when, config) ? 1u : 0u;
    }
    return count;
}

static const struct espl_tensor_row *nth_row(const struct espl_tensor_row *rows,
                                             const struct espl_model_config *config, uint64_t nth)
{
    for (size_t i = 0; rows[i].module != NULL; i++) {
        if (row_applies(rows[i].when, config) && nth-- == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

static void fill_spec(const struct espl_tensor_table *table, const struct espl_tensor_row *row,
                      const struct espl_model_config *config, int64_t layer,
                      struct espl_tensor_spec *spec)
{
    const char *part = row->is_bias ? "bias" : "weight";
    const char *prefix = row->role == ESPL_ROLE_HEAD ? "" : table->prefix;

    memset(spec, 0, sizeof *spec);
    if (layer < 0) {
        (void)snprintf(spec->module, sizeof spec->module, "%s", row->module);
        (void)snprintf(spec->path, sizeof spec->path, "/%s/%s", row->module, part);
    } else {
        (void)snprintf(spec->module, sizeof spec->module, "layers.%" PRId64 ".%s", layer,
                       row->module);
        (void)snprintf(spec->path, sizeof spec->path, "/layers/%03" PRId64 "/%s/%s", layer,
                       row->module, part);
    }
    (void)snprintf(spec->name, sizeof spec->name, "%s%s.%s", prefix, spec->module, part);
    spec->role = row->role;
    spec->is_bias = row->is_bias;
    spec->layer = layer;
    spec->rank = row->cols == ESPL_DIM_NONE ? 1 : 2;
    spec->shape[0] = dim_size(row->rows, config);
    spec->shape[1] = dim_size(row->cols, config);
    spec->file_rank = spec->rank;
    memcpy(spec->file_shape, spec->shape, sizeof spec->shape);
}

bool espl_arch_table_tensor(const struct espl_tensor_table *table,
                            const struct espl_model_config *config, uint64_t index,
                            struct espl_tensor_spec *spec)
{
    const uint64_t outside = rows_of(table->outside, config);
    const uint64_t per_block = rows_of(table->block, config);
    const struct espl_tensor_row *row = NULL;
    int64_t layer = -1;
    if (index < outside) {
        row = nth_row(table->outside, config, index);
    } else if (per_block > 0 && (index - outside) / per_block < config->layers) {
        row = nth_row(table->block, config, (index - outside) % per_block);
        layer = (int64_t)((index - outside) / per_block);
    }
    if (row != NULL) {
        fill_spec(table, row, config, layer, spec);
    }
    return row != NULL;
}

enum espl_status espl_arch_tensors(const struct espl_model_config *config,
                                   struct espl_tensor_spec **specs, size_t *count,
                                   struct espl_error *err)
{
    const struct espl_arch *arch = espl_arch_find(config->architecture);
    if (arch == NULL) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "unknown architecture '%s'",
                         config->architecture);
    }
    struct espl_tensor_spec spec;
    size_t total = 0;
    while (arch->tensor(config, total, &spec)) {
        total++;
    }
    struct espl_tensor_spec *list = calloc(total == 0 ? 1 : total, sizeof *list);
    if (list == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a list of %zu tensors", total);
    }
    for (size_t i = 0; i < total; i++) {
        (void)arch->tensor(config, i, &list[i]); /* in range: counted above */
    }
    *specs = list;
    *count = total;
    return ESPL_OK;
}

uint64_t espl_arch_parameters(const struct espl_model_config *config)
{
    const struct espl_arch *arch = espl_arch_find(config->architecture);
    struct espl_tensor_spec spec;
    uint64_t total = 0;
    for (uint64_t i = 0; arch != NULL && arch->tensor(config, i, &spec); i++) {
        total += spec.shape[0] * spec.shape[1];
    }
    return total;
}

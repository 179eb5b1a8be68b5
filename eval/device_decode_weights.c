/* A model on the device: blocks, embeddings, norms, head. */
#include "eval/device_decode_weights.h"

#include "espalier/cuda_memory.h"
#include "eval/device_decode_internal.h"
#include "eval/device_memory.h"
#include "model/element.h"

#include <stdlib.h>
#include <string.h>

const char *espl_device_form_name(enum espl_device_form form)
{
    static const char *const names[] = {"encoded", "dense-int4", "dense-int8", "dense-fp16"};
    return names[form];
}

enum espl_status espl_device_check_model(const struct espl_model_config *config,
                                         unsigned weight_bits, unsigned activation_bits,
                                         unsigned kv_bits, struct espl_error *err)
{
    if (espl_model_config_is_vision(config)) {
        return espl_fail(err, ESPL_E_KIND, "architecture '%s' is not a language model",
                         config->architecture);
    }
    if (weight_bits > 4 || activation_bits != 4 || (kv_bits != 4 && kv_bits != 16)) {
        espl_fail(err, ESPL_E_UNSUPPORTED,
                  "the CUDA runtime takes weights of 2 to 4 bits, activations of 4, keys and "
                  "values of 4 or 16, not %u, %u and %u",
                  weight_bits, activation_bits, kv_bits);
        return espl_hint(err, "quantise with weight_bits: 4, activation_bits: 4, kv_bits: 4 or 16");
    }
    if (!config->pre_norm || !config->final_norm || config->embed_dim != config->hidden) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "the CUDA runtime takes models with norms before the branches and at the "
                         "end, and embeddings as wide as the blocks");
    }
    if (config->heads == 0 || config->kv_heads == 0 || config->heads % config->kv_heads != 0 ||
        config->heads / config->kv_heads > ESPL_CUDA_ATTENTION_MOST_SHARE ||
        config->head_dim == 0 || config->head_dim % 8 != 0 ||
        config->head_dim > ESPL_CUDA_ATTENTION_MOST_DIM) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "the CUDA runtime takes heads of up to %d dimensions, a multiple of 8, "
                         "with up to %d of them on one key",
                         (int)ESPL_CUDA_ATTENTION_MOST_DIM, (int)ESPL_CUDA_ATTENTION_MOST_SHARE);
    }
    return ESPL_OK;
}

/* ---- outside the blocks ---- */

/* Rows of a table as FP16; values: room for them in FP32, NULL when the table is FP16 itself. */
static enum espl_status read_halves(struct espl_model *model, const struct espl_tensor_spec *spec,
                                    uint64_t row, uint64_t rows, float *values, uint16_t *halves,
                                    struct espl_error *err)
{
    const size_t count = (size_t)(rows * spec->shape[1]);
    struct espl_element_loss loss = {0};
    if (values == NULL) {
        return espl_model_read_raw(model, spec, row, rows, halves, count * sizeof *halves, err);
    }
    const enum espl_status status = espl_model_read_f32(model, spec, row, rows, values, err);
    if (status == ESPL_OK) {
        espl_element_from_f32(ESPL_DTYPE_F16, values, count, halves, &loss);
    }
    return status == ESPL_OK && loss.overflow > 0
               ? espl_fail(err, ESPL_E_NUMERIC, "%llu values of '%s' are too large for FP16",
                           (unsigned long long)loss.overflow, spec->name)
               : status;
}

/* A table of rows from `first_row` on as FP16. */
static enum espl_status load_table(struct espl_model *model, enum espl_role role,
                                   uint64_t first_row, uint16_t **device, struct espl_error *err)
{
    enum { PIECE_VALUES = 1 << 22 };
    const struct espl_tensor_spec *spec = espl_model_find(model, -1, role, false);
    void *memory = NULL;
    if (spec == NULL || spec->rank != 2 || spec->shape[0] <= first_row) {
        return espl_fail(err, ESPL_E_CORRUPT, "the model has no tensor for '%s'",
                         espl_role_name(role));
    }
    const size_t width = (size_t)spec->shape[1];
    const uint64_t rows = spec->shape[0] - first_row;
    const uint64_t step = width < PIECE_VALUES ? PIECE_VALUES / width : 1;
    const bool plain = espl_model_dtype(model, spec) == ESPL_DTYPE_F16;
    float *values = plain ? NULL : espl_eval_allocate((size_t)step, width, sizeof *values);
    uint16_t *halves = espl_eval_allocate((size_t)step, width, sizeof *halves);
    enum espl_status status =
        (plain || values != NULL) && halves != NULL
            ? espl_cuda_alloc((size_t)rows * width * sizeof *halves, &memory, err)
            : espl_fail(err, ESPL_E_NOMEM, "out of memory for a piece of '%s'", spec->name);
    *device = memory;
    for (uint64_t row = 0; status == ESPL_OK && row < rows; row += step) {
        const uint64_t count = rows - row < step ? rows - row : step;
        status = read_halves(model, spec, first_row + row, count, values, halves, err);
        if (status == ESPL_OK) {
            status = espl_cuda_upload(*device + (size_t)row * width, halves,
                                      (size_t)count * width * sizeof *halves, err);
        }
    }
    free(values);
    free(halves);
    return status;
}

static enum espl_status load_norm(struct espl_model *model, int64_t layer, enum espl_role role,
                                  bool optional, float **gain, float **bias, struct espl_error *err)
{
    struct espl_layer_weights norm = {0};
    enum espl_status status = espl_layer_weights_load(&norm, model, layer, role, optional, err);
    if (status == ESPL_OK) {
        status = espl_device_upload_floats(norm.weight, norm.shape.rows, gain, err);
    }
    if (status == ESPL_OK) {
        status = espl_device_upload_floats(norm.bias, norm.shape.rows, bias, err);
    }
    espl_layer_weights_free(&norm);
    return status;
}

static enum espl_status load_outside(struct espl_model *model, struct espl_device_weights *weights,
                                     struct espl_error *err)
{
    const struct espl_model_config *config = &weights->config;
    enum espl_status status = load_table(model, ESPL_ROLE_EMBEDDING, 0, &weights->embedding, err);
    weights->head = weights->embedding;
    if (status == ESPL_OK && !config->tied_embeddings) {
        weights->head = NULL;
        status = load_table(model, ESPL_ROLE_HEAD, 0, &weights->head, err);
    }
    if (status == ESPL_OK && config->rope.type == ESPL_ROPE_NONE) {
        status = load_table(model, ESPL_ROLE_POSITION, config->position_offset, &weights->positions,
                            err);
    }
    if (status == ESPL_OK) {
        status = load_norm(model, -1, ESPL_ROLE_FINAL_NORM, !config->norm_affine,
                           &weights->final_gain, &weights->final_bias, err);
    }
    return status;
}

/* ---- blocks ---- */

static enum espl_status load_linears(struct espl_model *model, struct espl_device_weights *weights,
                                     size_t block, struct espl_error *err)
{
    return espl_device_linears_load(model, weights, block, weights->blocks[block].linears, err);
}

static void free_linears(struct espl_device_block *block)
{
    for (int site = 0; site < ESPL_QUANT_SITES; site++) {
        espl_device_linear_free(&block->linears[site]);
    }
}

static enum espl_status load_block(struct espl_model *model, struct espl_device_weights *weights,
                                   size_t index, struct espl_error *err)
{
    struct espl_device_block *block = &weights->blocks[index];
    const bool optional = !weights->config.norm_affine;
    enum espl_status status = ESPL_OK;
    block->like = index;
    for (size_t before = 0; before < index && block->like == index; before++) {
        if (weights->blocks[before].like == before &&
            espl_model_blocks_equal(model, before, index)) {
            block->like = before;
        }
    }
    if (block->linears[0].out == 0 && block->like == index) {
        status = load_linears(model, weights, index, err);
    }
    for (int site = 0; status == ESPL_OK && block->like != index && site < ESPL_QUANT_SITES;
         site++) {
        status = espl_device_linear_clone(&weights->blocks[block->like].linears[site],
                                          weights->form, &block->linears[site], err);
    }
    if (status == ESPL_OK) {
        status = load_norm(model, (int64_t)index, ESPL_ROLE_ATTENTION_NORM, optional,
                           &block->attention_gain, &block->attention_bias, err);
    }
    if (status == ESPL_OK) {
        status = load_norm(model, (int64_t)index, ESPL_ROLE_MLP_NORM, optional, &block->mlp_gain,
                           &block->mlp_bias, err);
    }
    if (status != ESPL_OK) {
        espl_context(err, "loading layer %zu", index);
    }
    return status;
}

/* Seconds that the products of block 0 are expected to take. */
static enum espl_status expect_seconds(const struct espl_device_weights *weights, size_t tokens,
                                       double *seconds, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    *seconds = 0.0;
    for (int site = 0; status == ESPL_OK && site < ESPL_QUANT_SITES; site++) {
        const struct espl_device_linear *linear = &weights->blocks[0].linears[site];
        for (size_t i = 0; status == ESPL_OK && i < linear->matrix_count; i++) {
            struct espl_cuda_spmm *spmm = NULL;
            status = espl_cuda_spmm_create(linear->matrices[i], tokens, NULL, &spmm, err);
            if (status == ESPL_OK) {
                *seconds += espl_cuda_spmm_expected_seconds(spmm);
            }
            espl_cuda_spmm_destroy(spmm);
        }
    }
    return status;
}

/* Dense or 1x1: loads block 0 in both, the better one stays. */
static enum espl_status choose_areas(struct espl_model *model, struct espl_device_weights *weights,
                                     size_t tokens, struct espl_error *err)
{
    struct espl_device_block *block = &weights->blocks[0];
    struct espl_device_block dense;
    double seconds_dense = 0.0;
    double seconds_sparse = 0.0;
    weights->areas = ESPL_IEBME_DENSE;
    enum espl_status status = load_linears(model, weights, 0, err);
    if (status == ESPL_OK) {
        status = expect_seconds(weights, tokens, &seconds_dense, err);
    }
    dense = *block;
    memset(block, 0, sizeof *block);
    weights->areas = ESPL_IEBME_1X1;
    if (status == ESPL_OK) {
        status = load_linears(model, weights, 0, err);
    }
    if (status == ESPL_OK) {
        status = expect_seconds(weights, tokens, &seconds_sparse, err);
    }
    if (status == ESPL_OK && seconds_dense <= seconds_sparse) {
        const struct espl_device_block sparse = *block;
        *block = dense;
        dense = sparse;
        weights->areas = ESPL_IEBME_DENSE;
    }
    free_linears(&dense);
    return status;
}

static enum espl_status load_blocks(struct espl_model *model,
                                    const struct espl_device_weights_options *options,
                                    struct espl_device_weights *weights, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    weights->block_count = (size_t)weights->config.layers;
    weights->blocks = calloc(weights->block_count + 1, sizeof *weights->blocks);
    if (weights->blocks == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the blocks of a model");
    }
    weights->alike = weights->block_count > 1;
    for (size_t b = 1; weights->alike && b < weights->block_count; b++) {
        weights->alike = espl_model_blocks_equal(model, 0, b);
    }
    if (options->form == ESPL_DEVICE_ENCODED && options->automatic) {
        status = choose_areas(model, weights, options->tokens, err);
    } else {
        weights->areas = options->form == ESPL_DEVICE_ENCODED ? options->areas : ESPL_IEBME_DENSE;
    }
    for (size_t b = 0; status == ESPL_OK && b < weights->block_count; b++) {
        status = load_block(model, weights, b, err);
    }
    return status;
}

/* All linears of blocks have codes. */
static enum espl_status check_codes(const struct espl_model *model, struct espl_error *err)
{
    for (size_t i = 0; i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        if (espl_role_is_block_linear(spec->role) && !spec->is_bias &&
            !espl_model_is_quantised(model, spec)) {
            return espl_fail(err, ESPL_E_UNSUPPORTED,
                             "the CUDA runtime needs all linears of blocks as codes, but '%s' has "
                             "none",
                             spec->module);
        }
    }
    return ESPL_OK;
}

enum espl_status espl_device_weights_create(struct espl_model *model,
                                            const struct espl_device_weights_options *options,
                                            struct espl_device_weights **out,
                                            struct espl_error *err)
{
    const struct espl_quant_scheme *scheme = espl_model_quant_scheme(model);
    const struct espl_model_config *config = espl_model_get_config(model);
    if (scheme == NULL) {
        return espl_fail(err, ESPL_E_KIND, "the model is not quantised");
    }
    enum espl_status status = espl_device_check_model(
        config, scheme->weight_bits, scheme->activation_bits, scheme->kv_bits, err);
    if (status == ESPL_OK) {
        status = check_codes(model, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    struct espl_device_weights *weights = calloc(1, sizeof *weights);
    if (weights == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a model on the device");
    }
    weights->config = *config;
    espl_forward_get_widths(config, &weights->widths);
    weights->form = options->form;
    weights->activation_clip = (float)scheme->activation_clip;
    weights->kv_clip = (float)scheme->kv_clip;
    weights->kv_bits =
        espl_device_form_has_codes(options->form) ? scheme->kv_bits : ESPL_QUANT_FLOAT_BITS;
    status = load_blocks(model, options, weights, err);
    if (status == ESPL_OK) {
        status = load_outside(model, weights, err);
    }
    if (status != ESPL_OK) {
        espl_device_weights_destroy(weights);
        return status;
    }
    *out = weights;
    return ESPL_OK;
}

void espl_device_weights_destroy(struct espl_device_weights *weights)
{
    if (weights == NULL) {
        return;
    }
    for (size_t b = 0; weights->blocks != NULL && b < weights->block_count; b++) {
        struct espl_device_block *block = &weights->blocks[b];
        free_linears(block);
        espl_cuda_free(block->attention_gain);
        espl_cuda_free(block->attention_bias);
        espl_cuda_free(block->mlp_gain);
        espl_cuda_free(block->mlp_bias);
    }
    if (weights->head != weights->embedding) {
        espl_cuda_free(weights->head);
    }
    espl_cuda_free(weights->embedding);
    espl_cuda_free(weights->positions);
    espl_cuda_free(weights->final_gain);
    espl_cuda_free(weights->final_bias);
    free(weights->blocks);
    free(weights);
}

bool espl_device_weights_are_random(const struct espl_device_weights *weights)
{
    return weights->alike &&
           (weights->form == ESPL_DEVICE_DENSE_INT8 || weights->form == ESPL_DEVICE_DENSE_FP16);
}

enum espl_iebme_areas espl_device_weights_areas(const struct espl_device_weights *weights)
{
    return weights->areas;
}

static uint64_t linear_bytes(const struct espl_device_weights *weights,
                             const struct espl_device_linear *linear)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < linear->matrix_count; i++) {
        bytes += espl_cuda_matrix_bytes(linear->matrices[i]);
    }
    if (linear->dense != NULL) {
        bytes += (uint64_t)linear->in * linear->out *
                 (weights->form == ESPL_DEVICE_DENSE_FP16 ? 2u : 1u);
    }
    return bytes;
}

uint64_t espl_device_weights_bytes(const struct espl_device_weights *weights)
{
    uint64_t bytes = 0;
    for (size_t b = 0; b < weights->block_count; b++) {
        for (int site = 0; site < ESPL_QUANT_SITES; site++) {
            bytes += linear_bytes(weights, &weights->blocks[b].linears[site]);
        }
    }
    return bytes;
}

/* Weights of one decoder block: loading and replacing them. */
#include "core/checked.h"
#include "eval/linear.h"
#include "model/quantised.h"

#include <stdlib.h>
#include <string.h>

static const enum espl_role gated_roles[] = {
    ESPL_ROLE_Q,    ESPL_ROLE_K,  ESPL_ROLE_V,    ESPL_ROLE_O,
    ESPL_ROLE_GATE, ESPL_ROLE_UP, ESPL_ROLE_DOWN, ESPL_ROLE_NONE,
};
static const enum espl_role plain_roles[] = {
    ESPL_ROLE_Q,   ESPL_ROLE_K,   ESPL_ROLE_V,    ESPL_ROLE_O,
    ESPL_ROLE_FC1, ESPL_ROLE_FC2, ESPL_ROLE_NONE,
};

const enum espl_role *espl_forward_block_roles(const struct espl_model_config *config)
{
    return espl_forward_is_gated(config) ? gated_roles : plain_roles;
}

void espl_layer_weights_free(struct espl_layer_weights *weights)
{
    free(weights->weight);
    free(weights->bias);
    *weights = (struct espl_layer_weights){0};
}

/* Reads a whole tensor into *values, which has room for `capacity` values (0 = nothing yet). */
static enum espl_status load_tensor(struct espl_model *model, const struct espl_tensor_spec *spec,
                                    size_t capacity, float **values, struct espl_error *err)
{
    const uint64_t columns = spec->rank == 2 ? spec->shape[1] : 1;
    size_t count = 0;
    if (!espl_mul_size((size_t)spec->shape[0], (size_t)columns, &count)) {
        return espl_fail(err, ESPL_E_CORRUPT, "tensor '%s' has an impossible size", spec->name);
    }
    if (*values == NULL || capacity < count) {
        free(*values);
        *values = espl_eval_allocate(count, 1, sizeof **values);
    }
    if (*values == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for tensor '%s' (%zu float32 values)",
                         spec->name, count);
    }
    return espl_model_read_f32(model, spec, 0, spec->shape[0], *values, err);
}

enum espl_status espl_layer_weights_load(struct espl_layer_weights *weights,
                                         struct espl_model *model, int64_t layer,
                                         enum espl_role role, bool optional, struct espl_error *err)
{
    const struct espl_tensor_spec *weight = espl_model_find(model, layer, role, false);
    const struct espl_tensor_spec *bias = espl_model_find(model, layer, role, true);
    if (weight == NULL) {
        if (optional) {
            return ESPL_OK;
        }
        return espl_fail(err, ESPL_E_CORRUPT, "the model has no tensor for '%s' (layer %lld)",
                         espl_role_name(role), (long long)layer);
    }
    const size_t old_weights = weights->shape.rows * weights->shape.cols;
    const size_t old_biases = weights->bias != NULL ? weights->shape.rows : 0;
    enum espl_status status = load_tensor(model, weight, old_weights, &weights->weight, err);
    if (bias == NULL) {
        free(weights->bias);
        weights->bias = NULL;
    } else if (status == ESPL_OK) {
        status = load_tensor(model, bias, old_biases, &weights->bias, err);
    }
    if (status != ESPL_OK) {
        espl_layer_weights_free(weights);
        return status;
    }
    weights->shape.rows = (size_t)weight->shape[0];
    weights->shape.cols = weight->rank == 2 ? (size_t)weight->shape[1] : 1;
    return ESPL_OK;
}

/* A freshly loaded block simulates nothing but its model's own cache. */
static void reset_simulation(const struct espl_forward *forward, struct espl_block *block)
{
    const struct espl_quant_scheme *scheme = espl_model_quant_scheme(forward->model);
    memset(block->simulate, 0, sizeof block->simulate);
    memset(block->simulated, 0, sizeof block->simulated);
    espl_block_simulate_kv(block, 0, 1.0f);
    if (scheme != NULL && scheme->kv_bits != ESPL_QUANT_FLOAT_BITS) {
        espl_block_simulate_kv(block, scheme->kv_bits, (float)scheme->kv_clip);
    }
}

static enum espl_status load_linear(struct espl_forward *forward, struct espl_block *block,
                                    int64_t layer, enum espl_role role, struct espl_error *err)
{
    const struct espl_quant_scheme *scheme = espl_model_quant_scheme(forward->model);
    const struct espl_tensor_spec *spec = espl_model_find(forward->model, layer, role, false);
    struct espl_quant_linear linear = {0};
    espl_quant_linear_free(&block->coded[role].linear);
    if (scheme == NULL || scheme->activation_bits == ESPL_QUANT_FLOAT_BITS || spec == NULL ||
        !espl_model_is_quantised(forward->model, spec)) {
        return espl_layer_weights_load(&block->parts[role], forward->model, layer, role, false,
                                       err);
    }
    enum espl_status status =
        espl_quant_linear_read_stored(forward->model, layer, role, &linear, err);
    if (status == ESPL_OK) {
        status = espl_block_set_quantised(forward, block, role, scheme, &linear, err);
    }
    espl_quant_linear_free(&linear);
    return status;
}

enum espl_status espl_block_load(struct espl_forward *forward, uint64_t layer,
                                 struct espl_block **block, struct espl_error *err)
{
    struct espl_block *loaded = *block;
    const enum espl_role *roles = espl_forward_block_roles(&forward->config);
    const bool norm_optional = !forward->config.norm_affine;
    enum espl_status status = ESPL_OK;

    if (layer >= forward->config.layers) {
        return espl_fail(err, ESPL_E_INTERNAL, "layer %llu asked of a model with %llu layers",
                         (unsigned long long)layer, (unsigned long long)forward->config.layers);
    }
    if (loaded == NULL) {
        loaded = calloc(1, sizeof *loaded);
        if (loaded == NULL) {
            return espl_fail(err, ESPL_E_NOMEM, "out of memory while loading layer %llu",
                             (unsigned long long)layer);
        }
    }
    espl_forward_start_clock(forward);
    reset_simulation(forward, loaded);
    for (size_t i = 0; status == ESPL_OK && roles[i] != ESPL_ROLE_NONE; i++) {
        status = load_linear(forward, loaded, (int64_t)layer, roles[i], err);
    }
    if (status == ESPL_OK) {
        status =
            espl_layer_weights_load(&loaded->parts[ESPL_ROLE_ATTENTION_NORM], forward->model,
                                    (int64_t)layer, ESPL_ROLE_ATTENTION_NORM, norm_optional, err);
    }
    if (status == ESPL_OK) {
        status = espl_layer_weights_load(&loaded->parts[ESPL_ROLE_MLP_NORM], forward->model,
                                         (int64_t)layer, ESPL_ROLE_MLP_NORM, norm_optional, err);
    }
    if (status != ESPL_OK) {
        espl_context(err, "loading layer %llu", (unsigned long long)layer);
        if (*block == NULL) {
            espl_block_destroy(loaded);
        }
        return status;
    }
    loaded->layer = layer;
    *block = loaded;
    espl_forward_lap(forward, &forward->times.load);
    return ESPL_OK;
}

void espl_block_destroy(struct espl_block *block)
{
    if (block == NULL) {
        return;
    }
    for (size_t i = 0; i < ESPL_ROLE_COUNT; i++) {
        espl_layer_weights_free(&block->parts[i]);
        espl_quant_linear_free(&block->coded[i].linear);
    }
    free(block);
}

float *espl_block_weight(struct espl_block *block, enum espl_role role,
                         struct espl_matrix_shape *shape)
{
    if (!espl_role_is_block_linear(role) || block->parts[role].weight == NULL) {
        return NULL;
    }
    *shape = block->parts[role].shape;
    return block->parts[role].weight;
}

enum espl_status espl_block_simulate_input(struct espl_forward *forward, struct espl_block *block,
                                           enum espl_role role,
                                           const struct espl_input_quantiser *quantiser,
                                           struct espl_error *err)
{
    block->simulate[espl_quant_site_of(role)] = *quantiser;
    block->simulated[role] = quantiser->bits != 0;
    return quantiser->bits == 0
               ? ESPL_OK
               : espl_linear_reserve(forward, block->parts[role].shape.cols, quantiser->outliers,
                                     quantiser->group_size, true, err);
}

void espl_block_simulate_kv(struct espl_block *block, unsigned bits, float clip)
{
    block->kv_bits = bits;
    block->kv_clip = clip;
}

/* A site whose linears all read the real input again simulates nothing. */
static void end_simulation(struct espl_block *block, enum espl_role role)
{
    const enum espl_quant_site site = espl_quant_site_of(role);
    bool wanted = false;
    block->simulated[role] = false;
    for (int other = ESPL_ROLE_Q; other <= ESPL_ROLE_FC2; other++) {
        wanted = wanted ||
                 (block->simulated[other] && espl_quant_site_of((enum espl_role)other) == site);
    }
    if (!wanted) {
        block->simulate[site].bits = 0;
    }
}

enum espl_status espl_block_set_quantised(struct espl_forward *forward, struct espl_block *block,
                                          enum espl_role role,
                                          const struct espl_quant_scheme *scheme,
                                          struct espl_quant_linear *linear, struct espl_error *err)
{
    struct espl_layer_weights *part = &block->parts[role];
    end_simulation(block, role);
    if (scheme->activation_bits == ESPL_QUANT_FLOAT_BITS) {
        const enum espl_status status =
            espl_quant_linear_dequantise(linear, 0, linear->out, part->weight, err);
        espl_quant_linear_free(linear);
        return status;
    }
    espl_layer_weights_free(part);
    espl_quant_linear_free(&block->coded[role].linear);
    block->coded[role] = (struct espl_coded_linear){*linear, scheme->activation_bits,
                                                    (float)scheme->activation_clip};
    *linear = (struct espl_quant_linear){0};
    const struct espl_quant_linear *owned = &block->coded[role].linear;
    return espl_linear_reserve(forward, owned->in, owned->outliers, owned->group_size, false, err);
}

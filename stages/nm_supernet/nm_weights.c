#include "stages/nm_supernet/nm_weights.h"

#include "core/checked.h"
#include "stages/nm_supernet/nm_int8.h"
#include "stages/nm_supernet/nm_rank.h"

#include <stdlib.h>

/* One masked matrix. */
struct entry {
    float *matrix; /* NULL = not there */
    uint64_t used; /* clock of the last use */
};

struct espl_nm_weights {
    const struct espl_vision *vision;
    const struct espl_supernet *supernet;
    uint64_t limit_bytes, bytes;
    uint64_t clock;
    struct entry *entries; /* (layers, m) */
};

static const float *own_weight(const struct espl_nm_weights *weights, size_t layer,
                               struct espl_matrix_shape *shape)
{
    const struct espl_tensor_spec *spec = &weights->supernet->layers.items[layer].spec;
    return espl_vision_weight(weights->vision, (uint64_t)spec->layer, spec->role, shape);
}

static uint64_t matrix_bytes(const struct espl_nm_weights *weights, size_t layer)
{
    const struct espl_tensor_spec *spec = &weights->supernet->layers.items[layer].spec;
    return spec->shape[0] * spec->shape[1] * sizeof(float);
}

enum espl_status espl_nm_weights_create(const struct espl_vision *vision,
                                        const struct espl_supernet *supernet, uint64_t limit_bytes,
                                        struct espl_nm_weights **out, struct espl_error *err)
{
    const size_t layers = supernet->layers.count;
    size_t count = 0;
    struct espl_nm_weights *weights = calloc(1, sizeof *weights);
    if (weights == NULL || !espl_mul_size(layers, supernet->facts.m, &count)) {
        free(weights);
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the masks of %zu layers", layers);
    }
    weights->vision = vision;
    weights->supernet = supernet;
    weights->entries = calloc(count, sizeof *weights->entries);
    if (weights->entries == NULL) {
        espl_nm_weights_destroy(weights);
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the masks of %zu layers", layers);
    }
    for (size_t layer = 0; layer < layers; layer++) {
        const struct espl_tensor_spec *spec = &supernet->layers.items[layer].spec;
        struct espl_matrix_shape shape;
        if (own_weight(weights, layer, &shape) == NULL || shape.rows != spec->shape[0] ||
            shape.cols != spec->shape[1]) {
            espl_nm_weights_destroy(weights);
            return espl_fail(err, ESPL_E_CORRUPT, "the model has no layer '%s' of that shape",
                             spec->module);
        }
        weights->limit_bytes += matrix_bytes(weights, layer);
    }
    /* One matrix a layer, so that a configuration fits; more when the caller allows. */
    weights->limit_bytes = limit_bytes > weights->limit_bytes ? limit_bytes : weights->limit_bytes;
    *out = weights;
    return ESPL_OK;
}

void espl_nm_weights_destroy(struct espl_nm_weights *weights)
{
    if (weights == NULL) {
        return;
    }
    const size_t count = weights->supernet->layers.count * weights->supernet->facts.m;
    for (size_t i = 0; weights->entries != NULL && i < count; i++) {
        free(weights->entries[i].matrix);
    }
    free(weights->entries);
    free(weights);
}

/* Frees least recently used matrices until `bytes` more fit. */
static void make_room(struct espl_nm_weights *weights, uint64_t bytes)
{
    const size_t m = weights->supernet->facts.m;
    const size_t count = weights->supernet->layers.count * m;
    while (weights->bytes + bytes > weights->limit_bytes) {
        size_t oldest = count;
        for (size_t i = 0; i < count; i++) {
            if (weights->entries[i].matrix != NULL &&
                (oldest == count || weights->entries[i].used < weights->entries[oldest].used)) {
                oldest = i;
            }
        }
        if (oldest == count) {
            return;
        }
        free(weights->entries[oldest].matrix);
        weights->entries[oldest].matrix = NULL;
        weights->bytes -= matrix_bytes(weights, oldest / m);
    }
}

enum espl_status espl_nm_weights_get(struct espl_nm_weights *weights, size_t layer, unsigned n,
                                     const float **matrix, struct espl_error *err)
{
    const struct espl_supernet *supernet = weights->supernet;
    const bool int8 = supernet->facts.precision == ESPL_NM_INT8;
    struct entry *entry = &weights->entries[layer * supernet->facts.m + (n - 1)];
    struct espl_matrix_shape shape;
    const float *own = own_weight(weights, layer, &shape);
    if (n == supernet->facts.m && !int8) {
        *matrix = NULL;
        return ESPL_OK;
    }
    if (entry->matrix == NULL) {
        const uint64_t bytes = matrix_bytes(weights, layer);
        make_room(weights, bytes);
        entry->matrix = malloc((size_t)bytes);
        if (entry->matrix == NULL) {
            return espl_fail(err, ESPL_E_NOMEM, "no memory for masked weights of '%s'",
                             supernet->layers.items[layer].spec.module);
        }
        weights->bytes += bytes;
        espl_nm_apply(&shape, supernet->facts.vector, supernet->ranks[layer], n, own,
                      entry->matrix);
        if (int8) {
            espl_nm_round_int8(entry->matrix, shape.rows, shape.cols);
        }
    }
    entry->used = ++weights->clock;
    *matrix = entry->matrix;
    return ESPL_OK;
}

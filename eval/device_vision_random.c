/* Random weights of an image model on the device: a master of every size and level, of which each
 * linear has its own copy, as in a real model. */
#include "eval/device_vision_random.h"

#include "core/rng.h"
#include "eval/device_memory.h"
#include "eval/device_vision_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MASTERS = 16 * 4 * ESPL_VISION_MAX_STAGES }; /* levels, linears of a block, stages */

struct master {
    struct espl_nm_layout layout;
    int8_t *codes; /* on the host */
    struct espl_cuda_nm_matrix *matrix;
};

struct espl_device_vision_masters {
    struct espl_device_vision_random random;
    struct espl_tensor_spec *specs; /* of the architecture */
    size_t spec_count;
    struct master items[MOST_MASTERS];
    size_t count;
};

/* Which n of a window's m places the rows of a pattern keep, as ascending places. */
static void draw_places(struct espl_rng *rng, unsigned n, unsigned m, bool *kept)
{
    unsigned left = n;
    for (unsigned p = 0; p < m; p++) {
        kept[p] = espl_rng_below(rng, m - p) < left;
        left -= kept[p];
    }
}

static void fill_codes(const struct espl_nm_layout *layout, int8_t *codes)
{
    struct espl_rng rng = espl_rng_stream(0, "device-random", layout->n);
    bool kept[16];
    for (size_t first = 0; first < layout->rows; first += layout->v) {
        const size_t end = first + layout->v < layout->rows ? first + layout->v : layout->rows;
        for (size_t window = 0; window < layout->cols; window += layout->m) {
            draw_places(&rng, layout->n, layout->m, kept);
            for (size_t row = first; row < end; row++) {
                uint64_t bits[2] = {espl_rng_u64(&rng), espl_rng_u64(&rng)};
                for (unsigned p = 0; p < layout->m && window + p < layout->cols; p++) {
                    const unsigned byte = (unsigned)(bits[p / 8] >> (8 * (p % 8))) & 0xFFu;
                    codes[row * layout->cols + window + p] =
                        kept[p] ? (int8_t)((int)byte - 128) : 0;
                }
            }
        }
    }
}

/* *all, the codes, is freed by the caller, also after an error. */
static enum espl_status draw_matrix(const struct espl_nm_layout *layout, int8_t **all,
                                    struct espl_cuda_nm_matrix **out, struct espl_error *err)
{
    struct espl_nm_matrix packed = {0};
    int8_t *codes = espl_eval_allocate(layout->rows, layout->cols, sizeof *codes);
    *all = codes;
    if (codes == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a matrix of %zu x %zu", layout->rows,
                         layout->cols);
    }
    fill_codes(layout, codes);
    enum espl_status status = espl_nm_encode(codes, layout, &packed, err);
    if (status == ESPL_OK) {
        status = espl_cuda_nm_matrix_create(&packed, out, err);
    }
    espl_nm_free(&packed);
    return status;
}

enum espl_status espl_device_vision_random_matrix(const struct espl_nm_layout *layout,
                                                  struct espl_cuda_nm_matrix **out,
                                                  struct espl_error *err)
{
    int8_t *codes = NULL;
    const enum espl_status status = draw_matrix(layout, &codes, out, err);
    free(codes);
    return status;
}

void espl_device_vision_masters_free(struct espl_device_vision_masters *masters)
{
    for (size_t i = 0; masters != NULL && i < masters->count; i++) {
        espl_cuda_nm_matrix_destroy(masters->items[i].matrix);
        free(masters->items[i].codes);
    }
    if (masters != NULL) {
        free(masters->specs);
    }
    free(masters);
}

static enum espl_status find_master(struct espl_device_vision_masters *masters,
                                    const struct espl_nm_layout *layout, const struct master **out,
                                    struct espl_error *err)
{
    size_t i = 0;
    while (i < masters->count && memcmp(&masters->items[i].layout, layout, sizeof *layout) != 0) {
        i++;
    }
    if (i == MOST_MASTERS) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "more than %d different random matrices",
                         (int)MOST_MASTERS);
    }
    enum espl_status status = ESPL_OK;
    if (i == masters->count) {
        status = draw_matrix(layout, &masters->items[i].codes, &masters->items[i].matrix, err);
        if (status != ESPL_OK) {
            free(masters->items[i].codes);
            masters->items[i].codes = NULL;
        }
    }
    if (status == ESPL_OK) {
        masters->items[i].layout = *layout;
        masters->count += i == masters->count;
        *out = &masters->items[i];
    }
    return status;
}

enum espl_status espl_device_vision_set(struct espl_device_vision *vision, uint64_t block,
                                        enum espl_role role, unsigned n, struct espl_error *err)
{
    struct espl_device_vision_linear *linear =
        block < vision->config.layers ? &vision->blocks[block].linears[role] : NULL;
    const struct master *master = NULL;
    struct espl_cuda_nm_matrix *copy = NULL;
    struct espl_nm_layout layout;
    if (vision->masters == NULL || linear == NULL || linear->scales == NULL) {
        return espl_fail(err, ESPL_E_INTERNAL, "no linear of random bytes at block %llu",
                         (unsigned long long)block);
    }
    const struct espl_device_vision_random *random = &vision->masters->random;
    memset(&layout, 0, sizeof layout); /* compared as bytes */
    layout.rows = linear->out;
    layout.cols = linear->in;
    layout.n = n;
    layout.m = random->m;
    layout.v = n == random->m ? 64 : random->vector;
    espl_cuda_graph_destroy(vision->graph); /* knows the old matrix */
    vision->graph = NULL;
    enum espl_status status = find_master(vision->masters, &layout, &master, err);
    if (status == ESPL_OK) {
        status = espl_cuda_nm_matrix_clone(master->matrix, &copy, err);
    }
    if (status == ESPL_OK) {
        status = espl_device_vision_linear_replace(linear, copy, vision->blocks[block].rows, err);
        if (status != ESPL_OK) {
            espl_cuda_nm_matrix_destroy(copy);
        }
    }
    return status == ESPL_OK ? espl_device_vision_choose(vision, &vision->blocks[block], &layout,
                                                         master->codes, linear, err)
                             : status;
}

/* ---- source ---- */

static const struct espl_tensor_spec *find_spec(const struct espl_device_vision_masters *masters,
                                                int64_t layer, enum espl_role role, bool is_bias)
{
    for (size_t i = 0; i < masters->spec_count; i++) {
        const struct espl_tensor_spec *spec = &masters->specs[i];
        if (spec->layer == layer && spec->role == role && spec->is_bias == is_bias) {
            return spec;
        }
    }
    return NULL;
}

/* Small values: activations stay finite through any number of blocks. */
static float *draw_floats(const struct espl_tensor_spec *spec, struct espl_matrix_shape *shape)
{
    shape->rows = (size_t)spec->shape[0];
    shape->cols = spec->rank == 2 ? (size_t)spec->shape[1] : 1;
    struct espl_rng rng = espl_rng_stream(1, "device-random", shape->rows);
    const double scale = 1.0 / sqrt((double)shape->cols);
    float *values = espl_eval_allocate(shape->rows, shape->cols, sizeof *values);
    for (size_t i = 0; values != NULL && i < shape->rows * shape->cols; i++) {
        values[i] = (float)(scale * (espl_rng_unit(&rng) - 0.5));
    }
    return values;
}

static enum espl_status draw_part(void *user, int64_t layer, enum espl_role role,
                                  struct espl_layer_weights *weights, struct espl_error *err)
{
    const struct espl_device_vision_masters *masters = user;
    const struct espl_tensor_spec *weight = find_spec(masters, layer, role, false);
    const struct espl_tensor_spec *bias = find_spec(masters, layer, role, true);
    struct espl_matrix_shape bias_shape;
    if (weight == NULL) {
        return ESPL_OK;
    }
    weights->weight = draw_floats(weight, &weights->shape);
    weights->bias = bias != NULL ? draw_floats(bias, &bias_shape) : NULL;
    return weights->weight != NULL && (bias == NULL || weights->bias != NULL)
               ? ESPL_OK
               : espl_fail(err, ESPL_E_NOMEM, "out of memory for random weights");
}

/* Dense to begin with. */
static enum espl_status draw_linear(void *user, struct espl_device_vision *vision, uint64_t block,
                                    enum espl_role role, bool *made, struct espl_error *err)
{
    struct espl_device_vision_masters *masters = user;
    struct espl_device_vision_linear *linear = &vision->blocks[block].linears[role];
    const struct espl_tensor_spec *spec = find_spec(masters, (int64_t)block, role, false);
    *made = espl_role_is_block_linear(role) && !masters->random.halves;
    if (!*made) {
        return ESPL_OK;
    }
    linear->out = (size_t)spec->shape[0];
    linear->in = (size_t)spec->shape[1];
    float *scales = espl_eval_allocate(linear->out, 1, sizeof *scales);
    if (scales == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for scales");
    }
    for (size_t i = 0; i < linear->out; i++) {
        scales[i] = 1.0F / (128.0F * sqrtf((float)linear->in));
    }
    enum espl_status status = espl_device_upload_floats(scales, linear->out, &linear->scales, err);
    if (status == ESPL_OK) {
        memset(scales, 0, linear->out * sizeof *scales);
        status = espl_device_upload_floats(scales, linear->out, &linear->bias, err);
    }
    free(scales);
    return status == ESPL_OK ? espl_device_vision_set(vision, block, role, masters->random.m, err)
                             : status;
}

enum espl_status espl_device_vision_create_random(const struct espl_model_config *config,
                                                  const struct espl_device_vision_random *random,
                                                  size_t images, struct espl_device_vision **out,
                                                  struct espl_error *err)
{
    struct espl_device_vision_masters *masters = calloc(1, sizeof *masters);
    const struct espl_device_vision_source source = {masters, draw_part, draw_linear};
    if (masters == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for random weights");
    }
    masters->random = *random;
    enum espl_status status = espl_arch_tensors(config, &masters->specs, &masters->spec_count, err);
    if (status == ESPL_OK) {
        status = espl_device_vision_build(config, images, NULL, 1.0F, random->by, masters, &source,
                                          out, err);
    } else {
        espl_device_vision_masters_free(masters);
    }
    return status;
}

/* gemm_w4a4 and spmm_iebme: packing and loops around the tiles of quant_paths.h.
 *
 * The activations are copied once a call into rows of whole quads, with the sum of every group. The
 * output is cut into panels of the path's columns and runs of tokens; each piece unpacks its
 * weights into the tile's layout and then goes over its tokens. Pieces write different outputs, so
 * nothing depends on which thread takes which. Encoded weights differ in one step alone: a piece
 * decodes the stripes of its columns and packs their rows. */
#include "core/checked.h"
#include "core/codes.h"
#include "espalier/iebme.h"
#include "kernels/backend_internal.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/quant_paths.h"
#include "kernels/cpu/vectormath.h"
#include "kernels/quant_internal.h"

#include <omp.h>
#include <string.h>

/* Tokens of a piece: unpacking a weight costs about as much as 50 tokens with it. */
enum { PIECE_TOKENS = 1024, ALIGNMENT = 64, MOST_TILE_ROWS = 6, MOST_TILE_COLUMNS = 64 };

/* A part of the columns in the layout of the tiles: the normal ones, or the outliers. */
struct part {
    size_t columns; /* of a group */
    size_t groups;
    size_t quads;
    int offset; /* added to weight codes */
    bool wide;
    size_t a_at;     /* bytes into a packed row of activations */
    size_t start_at; /* int32s into a row of starts */
    size_t w_at;     /* bytes into a packed panel */
    size_t scale_at; /* floats into a panel's scales */
};

struct plan {
    const struct espl_quant_path *path;
    const struct espl_quant_shape *shape;
    const struct espl_quant_activations *a;
    const struct espl_quant_weights *w;      /* codes: not used with encoded weights */
    const struct espl_iebme_matrix *encoded; /* or NULL */
    float *y;
    struct part parts[2];
    size_t part_count;
    size_t a_stride, start_stride, w_bytes, scale_count, row_bytes, stripe_bytes, thread_bytes;
    size_t *mask_starts; /* (stripes) of encoded weights */
    int8_t *packed;      /* (tokens, a_stride) */
    int32_t *starts;     /* (tokens, start_stride) */
    char *threads;       /* (threads, thread_bytes) */
};

static size_t round_up(size_t value)
{
    return (value + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static struct part make_part(const struct plan *plan, size_t columns, size_t groups,
                             unsigned weight_bits, bool wide)
{
    const struct part part = {
        .columns = columns,
        .groups = groups,
        .quads = espl_ceil_div(columns, 4),
        .offset = plan->path->signed_weights ? 0 : 1 << (weight_bits - 1u),
        .wide = wide,
        .a_at = plan->a_stride,
        .start_at = plan->start_stride,
        .w_at = plan->w_bytes,
        .scale_at = plan->scale_count,
    };
    return part;
}

static void add_part(struct plan *plan, struct part part)
{
    plan->parts[plan->part_count++] = part;
    plan->a_stride += part.groups * part.quads * 4;
    plan->start_stride += part.groups;
    plan->w_bytes += part.groups * part.quads * 4 * plan->path->columns;
    plan->scale_count += part.groups * plan->path->columns;
}

/* ---- activations ---- */

ESPL_CPU_CLONES
static int32_t copy_and_sum(const int8_t *restrict from, size_t count, int8_t *restrict to)
{
    int32_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        to[i] = from[i];
        sum += from[i];
    }
    return sum;
}

static void pack_token(const struct plan *plan, size_t t)
{
    for (size_t p = 0; p < plan->part_count; p++) {
        const struct part *part = &plan->parts[p];
        const int8_t *from = p == 0 ? plan->a->codes + t * espl_quant_normal(plan->shape)
                                    : plan->a->outlier_codes + t * plan->shape->outliers;
        int8_t *to = plan->packed + t * plan->a_stride + part->a_at;
        for (size_t g = 0; g < part->groups; g++) {
            int8_t *group = to + g * part->quads * 4;
            const int32_t sum = copy_and_sum(from + g * part->columns, part->columns, group);
            memset(group + part->columns, 0, part->quads * 4 - part->columns);
            plan->starts[t * plan->start_stride + part->start_at + g] = -part->offset * sum;
        }
    }
}

/* ---- weights ---- */

ESPL_CPU_CLONES
static void add_offset(uint8_t *codes, size_t count, uint8_t offset)
{
    for (size_t i = 0; i < count; i++) {
        codes[i] = (uint8_t)(codes[i] + offset);
    }
}

/* A row of encoded weights; its stripe is decoded when the first row of it is asked for. */
static void decode_row(const struct plan *plan, size_t row, uint8_t *to, size_t count,
                       int8_t *stripe)
{
    const size_t number = row / ESPL_IEBME_TILE_ROWS;
    const size_t stride = plan->stripe_bytes / ESPL_IEBME_TILE_ROWS;
    if (row % ESPL_IEBME_TILE_ROWS == 0) {
        espl_iebme_decode_stripe(plan->encoded, number, plan->mask_starts[number], stripe);
    }
    memcpy(to, stripe + row % ESPL_IEBME_TILE_ROWS * stride, count);
}

/* One row of a part with its offset. Rows come in order, from a multiple of the path's columns on;
 * stripe: room for a decoded stripe. */
static void unpack_row(const struct plan *plan, const struct part *part, size_t row, uint8_t *to,
                       int8_t *stripe)
{
    const size_t count = part->columns * part->groups;
    if (part != &plan->parts[0]) {
        memcpy(to, plan->w->outlier_codes + row * count, count);
        add_offset(to, count, (uint8_t)part->offset);
        return;
    }
    if (plan->encoded != NULL) {
        decode_row(plan, row, to, count, stripe);
        add_offset(to, count, (uint8_t)part->offset);
        return;
    }
    const unsigned bits = plan->shape->weight_bits;
    const size_t stride = espl_codes_stride(count, bits);
    const uint8_t *from = plan->w->codes + row * stride;
    if (part->offset != 0) {
        plan->path->unpack(from, count, bits, to);
    } else {
        espl_codes_unpack(from, 1, count, bits, (int8_t *)to);
    }
}

/* Rows [first, first + columns of the path) into (groups, quads, columns, 4); rows past the end
 * stay as they are, their sums are dropped. row: room for an unpacked row, padded to a quad. */
static void pack_weights(const struct plan *plan, const struct part *part, size_t first,
                         uint8_t *row, int8_t *stripe, uint8_t *packed)
{
    const size_t columns = plan->path->columns;
    const size_t left = plan->shape->out - first;
    for (size_t n = 0; n < columns && n < left; n++) {
        unpack_row(plan, part, first + n, row, stripe);
        uint8_t *to = packed + n * 4;
        for (size_t g = 0; g < part->groups; g++) {
            const uint8_t *from = row + g * part->columns;
            for (size_t q = 0; q < part->quads; q++) {
                /* A short last quad takes along what follows; the activations are 0 there. */
                memcpy(to, from + q * 4, 4);
                to += columns * 4;
            }
        }
    }
}

static void pack_scales(const struct plan *plan, const struct part *part, size_t first,
                        float *scales)
{
    const size_t columns = plan->path->columns;
    const size_t left = plan->shape->out - first;
    for (size_t g = 0; g < part->groups; g++) {
        for (size_t n = 0; n < columns; n++) {
            float scale = 0.0F;
            if (n < left && part == &plan->parts[0]) {
                scale =
                    plan->w->scales[(first + n) / plan->shape->rows_per_scale * part->groups + g];
            } else if (n < left) {
                scale = plan->w->outlier_scales[first + n];
            }
            scales[g * columns + n] = scale;
        }
    }
}

/* ---- pieces ---- */

static void multiply_tile(const struct plan *plan, size_t token, size_t count, const uint8_t *w,
                          const float *scales, float *sums)
{
    memset(sums, 0, count * plan->path->columns * sizeof *sums);
    for (size_t p = 0; p < plan->part_count; p++) {
        const struct part *part = &plan->parts[p];
        const size_t groups = plan->parts[0].groups;
        const struct espl_quant_tile tile = {
            .tokens = count,
            .groups = part->groups,
            .quads = part->quads,
            .a = plan->packed + token * plan->a_stride + part->a_at,
            .a_stride = plan->a_stride,
            .starts = plan->starts + token * plan->start_stride + part->start_at,
            .start_stride = plan->start_stride,
            .a_scales = p == 0 ? plan->a->scales + token * groups : plan->a->outlier_scales + token,
            .scale_stride = p == 0 ? groups : 1,
            .w = w + part->w_at,
            .w_scales = scales + part->scale_at,
            .wide = part->wide,
            .sums = sums,
        };
        plan->path->multiply(&tile);
    }
}

static void store_tile(const struct plan *plan, size_t token, size_t count, size_t first,
                       const float *sums)
{
    const size_t columns = plan->path->columns;
    const size_t left = plan->shape->out - first;
    const size_t width = left < columns ? left : columns;
    for (size_t t = 0; t < count; t++) {
        float *y = plan->y + (token + t) * plan->shape->out + first;
        if (plan->w->bias == NULL) {
            memcpy(y, sums + t * columns, width * sizeof *y);
            continue;
        }
        for (size_t n = 0; n < width; n++) {
            y[n] = sums[t * columns + n] + plan->w->bias[first + n];
        }
    }
}

static void multiply_piece(const struct plan *plan, size_t piece, size_t token_runs, char *work)
{
    const size_t columns = plan->path->columns;
    const size_t first = piece / token_runs * columns;
    const size_t begin = piece % token_runs * PIECE_TOKENS;
    const size_t tokens = plan->shape->tokens;
    const size_t end = tokens - begin < PIECE_TOKENS ? tokens : begin + PIECE_TOKENS;
    float sums[MOST_TILE_ROWS * MOST_TILE_COLUMNS];
    float *scales = (float *)(void *)work;
    uint8_t *w = (uint8_t *)work + round_up(plan->scale_count * sizeof *scales);
    uint8_t *row = w + round_up(plan->w_bytes);
    int8_t *stripe = (int8_t *)row + plan->row_bytes;
    for (size_t p = 0; p < plan->part_count; p++) {
        pack_weights(plan, &plan->parts[p], first, row, stripe, w + plan->parts[p].w_at);
        pack_scales(plan, &plan->parts[p], first, scales + plan->parts[p].scale_at);
    }
    for (size_t t = begin; t < end; t += plan->path->rows) {
        const size_t count = end - t < plan->path->rows ? end - t : plan->path->rows;
        multiply_tile(plan, t, count, w, scales, sums);
        store_tile(plan, t, count, first, sums);
    }
}

/* Sizes, and the work space they need. */
static enum espl_status prepare(struct plan *plan, struct espl_backend *backend,
                                struct espl_error *err)
{
    const struct espl_quant_shape *shape = plan->shape;
    void *work = NULL;
    size_t packed_bytes = 0;
    size_t starts_bytes = 0;
    size_t mask_starts_bytes = 0;
    size_t threads_bytes = 0;
    size_t bytes = 0;
    add_part(plan,
             make_part(plan, espl_quant_group_columns(shape), espl_quant_groups(shape),
                       shape->weight_bits, shape->weight_bits == 8 && shape->activation_bits == 8));
    if (shape->outliers > 0) {
        add_part(plan, make_part(plan, shape->outliers, 1, 8, true));
    }
    plan->row_bytes = round_up(shape->in + 4);
    if (plan->encoded != NULL) {
        plan->stripe_bytes = espl_iebme_tile_cols(&plan->encoded->layout) * ESPL_IEBME_TILE_VALUES;
        mask_starts_bytes = espl_iebme_stripes(&plan->encoded->layout) * sizeof(size_t);
    }
    plan->thread_bytes = round_up(plan->scale_count * sizeof(float)) + round_up(plan->w_bytes) +
                         plan->row_bytes + plan->stripe_bytes;
    if (!espl_mul_size(shape->tokens, plan->a_stride, &packed_bytes) ||
        !espl_mul_size(shape->tokens, plan->start_stride * sizeof(int32_t), &starts_bytes) ||
        !espl_mul_size(backend->threads, plan->thread_bytes, &threads_bytes) ||
        !espl_add_size(packed_bytes, starts_bytes, &bytes) ||
        !espl_add_size(bytes, threads_bytes, &bytes) ||
        !espl_add_size(bytes, mask_starts_bytes, &bytes) ||
        !espl_add_size(bytes, (size_t)3 * ALIGNMENT, &bytes)) {
        return espl_fail(err, ESPL_E_NOMEM, "a quantised layer of %zu tokens is too large",
                         shape->tokens);
    }
    const enum espl_status status = espl_backend_scratch_array(backend, bytes, 1, &work, err);
    if (status != ESPL_OK) {
        return status;
    }
    plan->threads = work;
    plan->starts = (int32_t *)(void *)(plan->threads + threads_bytes);
    plan->packed = (int8_t *)plan->threads + threads_bytes + round_up(starts_bytes);
    if (plan->encoded != NULL) {
        plan->mask_starts = (size_t *)(void *)((char *)plan->starts + round_up(starts_bytes) +
                                               round_up(packed_bytes));
        espl_iebme_stripe_starts(plan->encoded, plan->mask_starts);
    }
    return ESPL_OK;
}

/* path, shape, a, w, encoded and y of the plan are set, and were checked. */
static enum espl_status run(struct plan *plan, struct espl_backend *backend, struct espl_error *err)
{
    const struct espl_quant_shape *shape = plan->shape;
    const enum espl_status status = prepare(plan, backend, err);
    if (status != ESPL_OK || shape->tokens == 0) {
        return status;
    }
    const size_t token_runs = espl_ceil_div(shape->tokens, PIECE_TOKENS);
    const size_t pieces = espl_ceil_div(shape->out, plan->path->columns) * token_runs;
#pragma omp parallel num_threads(backend->threads)
    {
        char *work = plan->threads + (size_t)omp_get_thread_num() * plan->thread_bytes;
#pragma omp for schedule(static)
        for (size_t t = 0; t < shape->tokens; t++) {
            pack_token(plan, t);
        }
#pragma omp for schedule(dynamic)
        for (size_t p = 0; p < pieces; p++) {
            multiply_piece(plan, p, token_runs, work);
        }
    }
    return ESPL_OK;
}

enum espl_status
espl_cpu_gemm_w4a4_on(const struct espl_quant_path *path, struct espl_backend *backend,
                      const struct espl_quant_shape *shape, const struct espl_quant_activations *a,
                      const struct espl_quant_weights *w, float *y, struct espl_error *err)
{
    struct plan plan = {.path = path, .shape = shape, .a = a, .w = w, .y = y};
    const enum espl_status status = espl_quant_shape_check(shape, err);
    return status == ESPL_OK ? run(&plan, backend, err) : status;
}

enum espl_status
espl_cpu_spmm_iebme_on(const struct espl_quant_path *path, struct espl_backend *backend,
                       const struct espl_quant_shape *shape, const struct espl_quant_activations *a,
                       const struct espl_iebme_weights *w, float *y, struct espl_error *err)
{
    const struct espl_quant_weights rest = {.scales = w->scales,
                                            .outlier_codes = w->outlier_codes,
                                            .outlier_scales = w->outlier_scales,
                                            .bias = w->bias};
    struct plan plan = {
        .path = path, .shape = shape, .a = a, .w = &rest, .encoded = w->codes, .y = y};
    const enum espl_status status = espl_quant_encoded_check(shape, w, err);
    return status == ESPL_OK ? run(&plan, backend, err) : status;
}

enum espl_status espl_cpu_gemm_w4a4(struct espl_backend *backend,
                                    const struct espl_quant_shape *shape,
                                    const struct espl_quant_activations *a,
                                    const struct espl_quant_weights *w, float *y,
                                    struct espl_error *err)
{
    return espl_cpu_gemm_w4a4_on(espl_quant_path_best(), backend, shape, a, w, y, err);
}

enum espl_status espl_cpu_spmm_iebme(struct espl_backend *backend,
                                     const struct espl_quant_shape *shape,
                                     const struct espl_quant_activations *a,
                                     const struct espl_iebme_weights *w, float *y,
                                     struct espl_error *err)
{
    return espl_cpu_spmm_iebme_on(espl_quant_path_best(), backend, shape, a, w, y, err);
}

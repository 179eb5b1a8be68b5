/* Attention of image models on OpenBLAS.
 *
 * One piece of work = one window of one image, its heads one after the other: scores = scale Q K^T,
 * plus bias and mask, softmax, values = P V, divided by the row sums. Windows whose rows lie apart
 * (a shifted, cut map) are gathered head by head. Pieces do not share anything, so results do not
 * depend on the number of threads. */
#include "core/checked.h"
#include "kernels/backend_internal.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/softmax.h"

#include <cblas.h>
#include <omp.h>
#include <string.h>

/* What all pieces of a call share. */
struct full_call {
    const struct espl_full_attention_shape *shape;
    const struct espl_full_attention_tables *tables;
    const float *qkv;
    float *y;
    size_t width;        /* heads * head_dim */
    size_t score_stride; /* floats of a score row */
};

/* A thread's work space: q, k, v and y of one head when they must be gathered, and the scores. */
struct full_scratch {
    float *q, *k, *v, *y; /* (tokens, head_dim) each */
    float *scores;        /* (tokens, score_stride) */
};

static size_t scratch_floats(const struct espl_full_attention_shape *shape, size_t score_stride)
{
    return shape->tokens * (4 * shape->head_dim + score_stride);
}

static struct full_scratch split_scratch(const struct full_call *call, float *memory)
{
    const size_t part = call->shape->tokens * call->shape->head_dim;
    return (struct full_scratch){memory, memory + part, memory + 2 * part, memory + 3 * part,
                                 memory + 4 * part};
}

ESPL_CPU_CLONES
static void add_row(const float *restrict x, float *restrict y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        y[i] += x[i];
    }
}

/* One head of one window; q, k, v, y: its corner, rows `stride` (y: `y_stride`) floats apart. */
static void attend_head(const struct full_call *call, size_t window, size_t head, const float *q,
                        const float *k, const float *v, size_t stride, float *y, size_t y_stride,
                        float *scores)
{
    const struct espl_full_attention_shape *shape = call->shape;
    const size_t tokens = shape->tokens;
    const float *bias = call->tables->bias;
    const float *mask = call->tables->mask;

    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)tokens, (int)tokens,
                (int)shape->head_dim, shape->scale, q, (int)stride, k, (int)stride, 0.0F, scores,
                (int)call->score_stride);
    for (size_t t = 0; t < tokens; t++) {
        float *row = scores + t * call->score_stride;
        if (bias != NULL) {
            add_row(bias + (head * tokens + t) * tokens, row, tokens);
        }
        if (mask != NULL) {
            add_row(mask + (window * tokens + t) * tokens, row, tokens);
        }
        /* P V is linear in each row of P, so the row is divided here, where it is shorter or in
         * cache, and y needs no second pass. */
        espl_divide_row(row, tokens, espl_softmax_row(row, tokens, tokens));
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)tokens, (int)shape->head_dim,
                (int)tokens, 1.0F, scores, (int)call->score_stride, v, (int)stride, 0.0F, y,
                (int)y_stride);
}

static void gather_head(const struct full_call *call, const int32_t *rows, const float *corner,
                        const struct full_scratch *scratch)
{
    const size_t dim = call->shape->head_dim;
    for (size_t t = 0; t < call->shape->tokens; t++) {
        const float *from = corner + (size_t)rows[t] * 3 * call->width;
        memcpy(scratch->q + t * dim, from, dim * sizeof *from);
        memcpy(scratch->k + t * dim, from + call->width, dim * sizeof *from);
        memcpy(scratch->v + t * dim, from + 2 * call->width, dim * sizeof *from);
    }
}

static void attend_window(const struct full_call *call, size_t piece,
                          const struct full_scratch *scratch)
{
    const struct espl_full_attention_shape *shape = call->shape;
    const size_t image = piece / shape->windows;
    const size_t window = piece % shape->windows;
    const size_t dim = shape->head_dim;
    const int32_t *rows = call->tables->rows;
    const size_t first = image * shape->windows * shape->tokens;

    for (size_t head = 0; head < shape->heads; head++) {
        if (rows == NULL) {
            const size_t row = first + window * shape->tokens;
            const float *corner = call->qkv + row * 3 * call->width + head * dim;
            attend_head(call, window, head, corner, corner + call->width, corner + 2 * call->width,
                        3 * call->width, call->y + row * call->width + head * dim, call->width,
                        scratch->scores);
            continue;
        }
        const int32_t *own = rows + window * shape->tokens;
        gather_head(call, own, call->qkv + first * 3 * call->width + head * dim, scratch);
        attend_head(call, window, head, scratch->q, scratch->k, scratch->v, dim, scratch->y, dim,
                    scratch->scores);
        for (size_t t = 0; t < shape->tokens; t++) {
            memcpy(call->y + (first + (size_t)own[t]) * call->width + head * dim,
                   scratch->y + t * dim, dim * sizeof *scratch->y);
        }
    }
}

enum espl_status espl_cpu_full_attention(struct espl_backend *backend,
                                         const struct espl_full_attention_shape *shape,
                                         const struct espl_full_attention_tables *tables,
                                         const float *qkv, float *y, struct espl_error *err)
{
    const struct full_call call = {
        .shape = shape,
        .tables = tables,
        .qkv = qkv,
        .y = y,
        .width = shape->heads * shape->head_dim,
        .score_stride = espl_ceil_div(shape->tokens, ESPL_VECTOR_FLOATS) * ESPL_VECTOR_FLOATS,
    };
    int checked = 0;
    if (!espl_size_to_int(3 * call.width, &checked) ||
        !espl_size_to_int(call.score_stride, &checked)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "attention over %zu tokens with %zu heads of %zu is too large for BLAS",
                         shape->tokens, shape->heads, shape->head_dim);
    }
    void *memory = NULL;
    const size_t thread_floats = scratch_floats(shape, call.score_stride);
    const enum espl_status status = espl_backend_scratch_array(
        backend, thread_floats * backend->blas_threads, sizeof(float), &memory, err);
    if (status != ESPL_OK) {
        return status;
    }
    const size_t pieces = shape->images * shape->windows;
#pragma omp parallel for schedule(dynamic) num_threads(backend->blas_threads) if (pieces > 1)
    for (size_t piece = 0; piece < pieces; piece++) {
        const struct full_scratch scratch =
            split_scratch(&call, (float *)memory + (size_t)omp_get_thread_num() * thread_floats);
        attend_window(&call, piece, &scratch);
    }
    return ESPL_OK;
}

/* Causal attention on OpenBLAS.
 *
 * One piece of work = a panel of queries of one head of one window: scores = scale Q K^T over the
 * keys up to the panel's last query (so above the diagonal only the panel's own corner is wasted),
 * softmax of each row over its own keys, values = P V, divided by the row sums. Pieces do not share
 * anything, so results do not depend on the number of threads. */
#include "core/checked.h"
#include "kernels/backend_internal.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/softmax.h"

#include <cblas.h>
#include <omp.h>
#include <string.h>

/* 128 queries: tall enough for sgemm, and 128 x 512 scores (256 KiB) stay in a second-level cache.
 * Longer windows get lower panels so that a thread's scores stay below 8 MiB. */
enum { PANEL_QUERIES = 128, LOWEST_PANEL = 16, SCORES_LIMIT = 2 * 1024 * 1024 };

static size_t panel_height(size_t tokens)
{
    size_t height = PANEL_QUERIES;
    while (height > LOWEST_PANEL && height * tokens > SCORES_LIMIT) {
        height /= 2;
    }
    return height;
}

/* What all pieces of a call share. */
struct attention_call {
    const struct espl_attention_shape *shape;
    const float *q;
    const float *k;
    const float *v;
    float *y;
    size_t height;       /* of a query panel */
    size_t panels;       /* per window and head */
    size_t score_stride; /* floats of a score row */
};

static void attend_panel(const struct attention_call *call, size_t piece, float *scores)
{
    const struct espl_attention_shape *shape = call->shape;
    const size_t panel = call->panels - 1 - piece % call->panels; /* the costly ones first */
    const size_t head = piece / call->panels % shape->heads;
    const size_t window = piece / call->panels / shape->heads;
    const size_t width = shape->heads * shape->head_dim;
    const size_t kv_width = shape->kv_heads * shape->head_dim;
    const size_t query = panel * call->height;
    const size_t left = shape->tokens - query;
    const size_t rows = left < call->height ? left : call->height;
    const size_t before = shape->past + query;
    const size_t keys = before + rows;
    const size_t at = (window * shape->tokens + query) * width + head * shape->head_dim;
    const size_t kv_at = window * shape->key_rows * kv_width +
                         head / (shape->heads / shape->kv_heads) * shape->head_dim;
    float sums[PANEL_QUERIES];

    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)keys, (int)shape->head_dim,
                shape->scale, call->q + at, (int)width, call->k + kv_at, (int)kv_width, 0.0F,
                scores, (int)call->score_stride);
    for (size_t r = 0; r < rows; r++) {
        sums[r] = espl_softmax_row(scores + r * call->score_stride, before + r + 1, keys);
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)shape->head_dim,
                (int)keys, 1.0F, scores, (int)call->score_stride, call->v + kv_at, (int)kv_width,
                0.0F, call->y + at, (int)width);
    for (size_t r = 0; r < rows; r++) {
        espl_divide_row(call->y + at + r * width, shape->head_dim, sums[r]);
    }
}

enum espl_status espl_cpu_attention(struct espl_backend *backend,
                                    const struct espl_attention_shape *shape, const float *q,
                                    const float *k, const float *v, float *y,
                                    struct espl_error *err)
{
    const size_t keys = shape->past + shape->tokens;
    const struct attention_call call = {
        .shape = shape,
        .q = q,
        .k = k,
        .v = v,
        .y = y,
        .height = panel_height(keys),
        .panels = espl_ceil_div(shape->tokens, panel_height(keys)),
        .score_stride = espl_ceil_div(keys, ESPL_VECTOR_FLOATS) * ESPL_VECTOR_FLOATS,
    };
    int checked = 0;
    if (!espl_size_to_int(shape->heads * shape->head_dim, &checked) ||
        !espl_size_to_int(call.score_stride, &checked)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "attention over %zu positions with %zu heads of %zu is too large for BLAS",
                         keys, shape->heads, shape->head_dim);
    }
    void *scratch = NULL;
    const size_t thread_floats = call.height * call.score_stride;
    const enum espl_status status = espl_backend_scratch_array(
        backend, thread_floats * backend->blas_threads, sizeof(float), &scratch, err);
    if (status != ESPL_OK) {
        return status;
    }
    float *const scores = scratch;
    const size_t pieces = shape->windows * shape->heads * call.panels;
#pragma omp parallel for schedule(dynamic) num_threads(backend->blas_threads) if (pieces > 1)
    for (size_t piece = 0; piece < pieces; piece++) {
        attend_panel(&call, piece, scores + (size_t)omp_get_thread_num() * thread_floats);
    }
    return ESPL_OK;
}

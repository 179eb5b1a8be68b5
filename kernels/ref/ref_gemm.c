/* Reference linear layer and attention: loops as the formulas are written, sums in double. */
#include "kernels/backend_internal.h"
#include "kernels/ref/ref_ops.h"

#include <math.h>

enum espl_status espl_ref_fused_linear(struct espl_backend *backend,
                                       const struct espl_gemm_shape *shape,
                                       enum espl_epilogue epilogue, const float *x, const float *w,
                                       const float *bias, float *y, struct espl_error *err)
{
    (void)backend;
    (void)err;
    for (size_t t = 0; t < shape->tokens; t++) {
        for (size_t o = 0; o < shape->out; o++) {
            double sum = bias != NULL ? (double)bias[o] : 0.0;
            for (size_t i = 0; i < shape->in; i++) {
                sum += (double)x[t * shape->in + i] * (double)w[o * shape->in + i];
            }
            if (epilogue == ESPL_EPILOGUE_GELU) {
                sum = 0.5 * sum * (1.0 + erf(sum / sqrt(2.0)));
            } else if (epilogue == ESPL_EPILOGUE_ADD) {
                sum += (double)y[t * shape->out + o];
            }
            y[t * shape->out + o] = (float)sum;
        }
    }
    return ESPL_OK;
}

enum espl_status espl_ref_gemm_f32(struct espl_backend *backend,
                                   const struct espl_gemm_shape *shape, const float *x,
                                   const float *w, const float *bias, float *y,
                                   struct espl_error *err)
{
    return espl_ref_fused_linear(backend, shape, ESPL_EPILOGUE_NONE, x, w, bias, y, err);
}

/* y (head_dim) of one query: softmax(scale q.k) v over keys 0..last. weights: (last + 1). */
static void attend(const struct espl_attention_shape *shape, const float *q, const float *k,
                   const float *v, size_t last, double *weights, float *y)
{
    const size_t kv_width = shape->kv_heads * shape->head_dim;
    double highest = -INFINITY;
    for (size_t j = 0; j <= last; j++) {
        double dot = 0.0;
        for (size_t d = 0; d < shape->head_dim; d++) {
            dot += (double)q[d] * (double)k[j * kv_width + d];
        }
        weights[j] = dot * (double)shape->scale;
        highest = weights[j] > highest ? weights[j] : highest;
    }
    double sum = 0.0;
    for (size_t j = 0; j <= last; j++) {
        weights[j] = exp(weights[j] - highest);
        sum += weights[j];
    }
    for (size_t d = 0; d < shape->head_dim; d++) {
        double value = 0.0;
        for (size_t j = 0; j <= last; j++) {
            value += weights[j] * (double)v[j * kv_width + d];
        }
        y[d] = (float)(value / sum);
    }
}

enum espl_status espl_ref_attention(struct espl_backend *backend,
                                    const struct espl_attention_shape *shape, const float *q,
                                    const float *k, const float *v, float *y,
                                    struct espl_error *err)
{
    void *scratch = NULL;
    const enum espl_status status = espl_backend_scratch_array(backend, shape->past + shape->tokens,
                                                               sizeof(double), &scratch, err);
    if (status != ESPL_OK) {
        return status;
    }
    const size_t width = shape->heads * shape->head_dim;
    const size_t kv_width = shape->kv_heads * shape->head_dim;
    const size_t group = shape->heads / shape->kv_heads;
    for (size_t n = 0; n < shape->windows; n++) {
        for (size_t h = 0; h < shape->heads; h++) {
            const size_t kv_offset = n * shape->key_rows * kv_width + (h / group) * shape->head_dim;
            for (size_t t = 0; t < shape->tokens; t++) {
                const size_t at = (n * shape->tokens + t) * width + h * shape->head_dim;
                attend(shape, q + at, k + kv_offset, v + kv_offset, shape->past + t, scratch,
                       y + at);
            }
        }
    }
    return ESPL_OK;
}

enum espl_status espl_ref_rope(struct espl_backend *backend, size_t windows, size_t tokens,
                               size_t past, size_t heads, size_t head_dim, const float *inv_freq,
                               float magnitude, float *x, struct espl_error *err)
{
    (void)backend;
    (void)err;
    const size_t half = head_dim / 2;
    for (size_t row = 0; row < windows * tokens; row++) {
        const float position = (float)(past + row % tokens);
        for (size_t h = 0; h < heads; h++) {
            float *head = x + (row * heads + h) * head_dim;
            for (size_t i = 0; i < half; i++) {
                /* The angle is rounded to float32 as the models were trained with. */
                const float angle = position * inv_freq[i];
                const float cosine = (float)(cos((double)angle) * (double)magnitude);
                const float sine = (float)(sin((double)angle) * (double)magnitude);
                const float low = head[i];
                const float high = head[i + half];
                head[i] = low * cosine - high * sine;
                head[i + half] = high * cosine + low * sine;
            }
        }
    }
    return ESPL_OK;
}

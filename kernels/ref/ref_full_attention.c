/* Reference for image models: attention within windows, sums in double. */
#include "kernels/backend_internal.h"
#include "kernels/ref/ref_ops.h"

#include <math.h>

/* Where token t of a window stands among the rows of its image. */
static size_t row_of(const struct espl_full_attention_shape *shape,
                     const struct espl_full_attention_tables *tables, size_t window, size_t t)
{
    const size_t at = window * shape->tokens + t;
    return tables->rows != NULL ? (size_t)tables->rows[at] : at;
}

/* One query: y (head_dim) = softmax(scale q.k + bias + mask) v over the window's tokens. image: its
 * first row of qkv; weights: (tokens). */
static void attend(const struct espl_full_attention_shape *shape,
                   const struct espl_full_attention_tables *tables, const float *image,
                   size_t window, size_t head, size_t query, double *weights, float *y)
{
    const size_t width = shape->heads * shape->head_dim;
    const size_t tokens = shape->tokens;
    const float *q =
        image + row_of(shape, tables, window, query) * 3 * width + head * shape->head_dim;
    double highest = -INFINITY;
    for (size_t t = 0; t < tokens; t++) {
        const float *k =
            image + row_of(shape, tables, window, t) * 3 * width + width + head * shape->head_dim;
        double score = 0.0;
        for (size_t d = 0; d < shape->head_dim; d++) {
            score += (double)q[d] * (double)k[d];
        }
        score *= (double)shape->scale;
        if (tables->bias != NULL) {
            score += (double)tables->bias[(head * tokens + query) * tokens + t];
        }
        if (tables->mask != NULL) {
            score += (double)tables->mask[(window * tokens + query) * tokens + t];
        }
        weights[t] = score;
        highest = score > highest ? score : highest;
    }
    double sum = 0.0;
    for (size_t t = 0; t < tokens; t++) {
        weights[t] = exp(weights[t] - highest);
        sum += weights[t];
    }
    for (size_t d = 0; d < shape->head_dim; d++) {
        double value = 0.0;
        for (size_t t = 0; t < tokens; t++) {
            value += weights[t] * (double)image[row_of(shape, tables, window, t) * 3 * width +
                                                2 * width + head * shape->head_dim + d];
        }
        y[d] = (float)(value / sum);
    }
}

enum espl_status espl_ref_full_attention(struct espl_backend *backend,
                                         const struct espl_full_attention_shape *shape,
                                         const struct espl_full_attention_tables *tables,
                                         const float *qkv, float *y, struct espl_error *err)
{
    void *weights = NULL;
    const enum espl_status status =
        espl_backend_scratch_array(backend, shape->tokens, sizeof(double), &weights, err);
    if (status != ESPL_OK) {
        return status;
    }
    const size_t width = shape->heads * shape->head_dim;
    const size_t image_rows = shape->windows * shape->tokens;
    for (size_t image = 0; image < shape->images; image++) {
        const size_t first = image * image_rows;
        for (size_t at = 0; at < image_rows * shape->heads; at++) {
            const size_t head = at % shape->heads;
            const size_t window = at / shape->heads / shape->tokens;
            const size_t query = at / shape->heads % shape->tokens;
            const size_t row = first + row_of(shape, tables, window, query);
            attend(shape, tables, qkv + first * 3 * width, window, head, query, weights,
                   y + row * width + head * shape->head_dim);
        }
    }
    return ESPL_OK;
}

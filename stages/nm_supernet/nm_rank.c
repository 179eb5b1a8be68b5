#include "stages/nm_supernet/nm_rank.h"

#include <math.h>
#include <string.h>

enum { MAX_M = 16 }; /* widest window that espl_nm_rank_bits() knows */

unsigned espl_nm_rank_bits(unsigned m)
{
    return m == 4 ? 2 : m == 8 ? 3 : m == 16 ? 4 : 0;
}

/* ranks (m) of the scores of one window, by counting what beats each. */
static void rank_window(unsigned m, const double *score, uint8_t *ranks)
{
    for (unsigned i = 0; i < m; i++) {
        unsigned above = 0;
        for (unsigned j = 0; j < m; j++) {
            above += score[j] > score[i] || (score[j] == score[i] && j < i) ? 1u : 0u;
        }
        ranks[i] = (uint8_t)above;
    }
}

void espl_nm_rank(const struct espl_matrix_shape *shape, unsigned m, size_t vector,
                  const float *weights, uint8_t *ranks)
{
    const size_t cols = shape->cols;
    for (size_t group = 0; group < espl_nm_groups(shape->rows, vector); group++) {
        const size_t first = group * vector;
        const size_t last = first + vector < shape->rows ? first + vector : shape->rows;
        for (size_t window = 0; window < cols; window += m) {
            double score[MAX_M] = {0.0};
            for (size_t row = first; row < last; row++) {
                for (unsigned i = 0; i < m; i++) {
                    score[i] += fabs((double)weights[row * cols + window + i]);
                }
            }
            rank_window(m, score, ranks + group * cols + window);
        }
    }
}

void espl_nm_apply(const struct espl_matrix_shape *shape, size_t vector, const uint8_t *ranks,
                   unsigned n, const float *weights, float *masked)
{
    for (size_t row = 0; row < shape->rows; row++) {
        const uint8_t *rank = ranks + row / vector * shape->cols;
        const float *from = weights + row * shape->cols;
        float *to = masked + row * shape->cols;
        for (size_t col = 0; col < shape->cols; col++) {
            to[col] = rank[col] < n ? from[col] : 0.0f;
        }
    }
}

void espl_nm_mask(const struct espl_matrix_shape *shape, size_t vector, const uint8_t *ranks,
                  unsigned n, uint8_t *mask)
{
    const size_t stride = espl_mask_stride(shape->cols);
    memset(mask, 0, shape->rows * stride);
    for (size_t row = 0; row < shape->rows; row++) {
        const uint8_t *rank = ranks + row / vector * shape->cols;
        for (size_t col = 0; col < shape->cols; col++) {
            const unsigned keep = rank[col] < n ? 1u : 0u;
            mask[row * stride + col / 8] |= (uint8_t)(keep << col % 8);
        }
    }
}

/* Wanda's numerics on arrays [Sun et al. 2023, "A Simple and Effective Pruning Approach for Large
 * Language Models"]: the weight W[i][j] matters as much as |W[i][j]| * ||x_j||, compared within its
 * output row. No artifacts, no files. */
#ifndef ESPL_STAGES_WANDA_H
#define ESPL_STAGES_WANDA_H

#include "core/units.h"
#include "espalier/kernels.h"
#include "stages/prune_common/group_align.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum espl_wanda_rule { ESPL_WANDA_FIXED, ESPL_WANDA_CUMULATIVE };

/** What to remove. */
struct espl_wanda_task {
    double sparsity;          /* without a pattern: fraction of each row (fixed) or matrix */
    struct espl_nm_choice nm; /* pattern {0, 0} = unstructured */
    enum espl_wanda_rule rule;
    struct espl_align align; /* with the fixed rule and no pattern */
};

/** norm (count) = float32(sqrt(sums / windows)): root mean, over windows, of the sum of squares of
 * an input channel. sums (count): sums of squares over all tokens of all windows. Returns the
 * first channel whose norm is not finite, or `count` when all are. */
size_t espl_wanda_norms(const double *sums, size_t count, uint64_t windows, float *norm);

/** Mask (rows, stride) of W (rows, cols) float32 for input norms (cols). Ties: the lower column is
 * removed first (the cumulative rule removes all ties of its threshold).
 *
 * fixed: every row loses espl_prune_row_count() weights, or M - N of every window of M; with
 * groups, espl_align_row_mask(). cumulative: a row loses the weights up to the score at which the
 * sum of its sorted scores passes a fraction alpha of the row's total; alpha is bisected from 0.4
 * in [0, 0.8] until the matrix's sparsity is within 0.001 of the wanted one or the interval is
 * below 0.001, so rows differ. Errors: NUMERIC naming row and column of a weight that is not
 * finite, NOMEM. */
enum espl_status espl_wanda_mask(struct espl_backend *backend,
                                 const struct espl_matrix_shape *shape, const float *w,
                                 const float *norm, const struct espl_wanda_task *task,
                                 uint8_t *mask, struct espl_error *err);

#endif

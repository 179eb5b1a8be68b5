/* SparseGPT [Frantar and Alistarh 2023]: one-shot pruning with weight updates, optionally
 * quantising in the same pass. Shares the column loop with GPTQ. */
#ifndef ESPL_STAGES_SPARSEGPT_H
#define ESPL_STAGES_SPARSEGPT_H

#include "stages/prune_common/group_align.h"
#include "stages/quant_common/inverse_factor.h"
#include "stages/quant_common/quantiser.h"

struct espl_sparsegpt_task {
    struct espl_matrix_shape shape;
    const float *w; /* (rows, cols) */
    const struct espl_inverse_factor *factor;
    /* Unstructured: of every block of 128 columns, all rows together, the trunc(count * sparsity) +
     * 1 smallest w^2 / U_cc^2 go (and all ties of the last): the paper's code. 0 removes nothing.
     */
    double sparsity;
    struct espl_align align; /* unstructured: groups that go together; a block of columns holds them
                              * whole */
    size_t keep, window; /* N:M: of every `window` columns of a row `keep` stay; window 0 = off */
    bool keep_tail;      /* N:M: a short last window stays dense; otherwise it is refused */
    /* NULL = prune only. Outliers begin a block of columns of their own. */
    const struct espl_quantiser *quantiser;
    unsigned threads;
};

/** mask (rows, espl_mask_stride(cols)): kept weights. pruned (rows, cols): the updated weights, 0
 *  where removed; with a quantiser its dequantised values. quantised: NULL without a quantiser,
 * else from espl_quantised_create(). loss: NULL or sum of ((w - value) / U_cc)^2 / 2. Errors: JOB
 * (sparsity not in [0, 1), groups that do not fit, a window that does not divide the columns or,
 * when quantising, 128 and the columns without outliers), NUMERIC, KIND, NOMEM. */
enum espl_status espl_sparsegpt(const struct espl_sparsegpt_task *task, uint8_t *mask,
                                float *pruned, struct espl_quantised *quantised, double *loss,
                                struct espl_error *err);

#endif

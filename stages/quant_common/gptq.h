/* GPTQ [Frantar et al. 2023] with Atom's groups and outliers, for dense and for pruned weights.
 *
 * Blocks of 128 columns. Group scales come from the current, already updated weights of the group
 * at its first column. Results are the same for any number of threads. */
#ifndef ESPL_STAGES_GPTQ_H
#define ESPL_STAGES_GPTQ_H

#include "espalier/kernels.h"
#include "stages/quant_common/inverse_factor.h"
#include "stages/quant_common/quantiser.h"

/** What happens to a weight that the mask removed when its turn comes. */
enum espl_removed_rule {
    ESPL_REMOVED_REMASK, /* code 0, and what updates had moved it by flows on to later columns */
    ESPL_REMOVED_FREEZE  /* code 0, its drift is dropped: only for comparison */
};

struct espl_gptq_task {
    struct espl_matrix_shape shape;
    const float *w;                           /* (rows, cols) in the quantiser's column order */
    const uint8_t *mask;                      /* NULL, or kept weights in the same order */
    const struct espl_inverse_factor *factor; /* (cols) */
    struct espl_quantiser quantiser;
    enum espl_removed_rule removed;
    unsigned threads;
};

/** Fills *out (from espl_quantised_create()). loss: NULL, or sum of ((w - value) / U_cc)^2 / 2.
 *  A removed weight always ends as code 0. With factor->identity the codes are those of espl_rtn()
 *  with the columns without activation set to 0. Errors: NUMERIC (weight not finite), NOMEM, KIND
 *  (factor of another width), JOB as espl_quantiser_check(). */
enum espl_status espl_gptq(const struct espl_gptq_task *task, struct espl_quantised *out,
                           double *loss, struct espl_error *err);

#endif

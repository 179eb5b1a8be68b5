/* sparsegpt-prune's parameters and what follows from them and from the inputs' headers alone:
 * shared by `plan` and `run`. */
#ifndef ESPL_STAGES_SPARSEGPT_SETUP_H
#define ESPL_STAGES_SPARSEGPT_SETUP_H

#include "engine/stage.h"
#include "model/model.h"
#include "stages/calibration/chains.h"
#include "stages/prune_common/prune_select.h"
#include "stages/quant_common/quantiser.h"

struct espl_sparsegpt_params {
    struct espl_prune_params common;
    int64_t weight_bits; /* 0 = prune only */
    int64_t group_size;  /* -1 = auto, 0 = one scale a row */
    double damping;
    double max_perplexity_ratio;
};

/** Selects layers and checks the quantisation that goes along. Errors: JOB, blamed on the
 *  parameter. Free the selection in any case. */
enum espl_status espl_sparsegpt_select(const struct espl_model_config *config,
                                       const struct espl_sparsegpt_params *params,
                                       struct espl_prune_selection *selection,
                                       struct espl_error *err);
/** Quantiser of a linear of this many columns; only with weight_bits above 0. */
struct espl_quantiser espl_sparsegpt_quantiser(const struct espl_sparsegpt_params *params,
                                               size_t columns);
/** The "pruning" object of the output; NULL when out of memory. New reference. */
json_t *espl_sparsegpt_describe(const struct espl_sparsegpt_params *params,
                                const struct espl_prune_selection *selection,
                                const struct espl_calibration_info *info);
/** Windows of the dense chain, which is there for the check alone, and of the pruned one. */
struct espl_chain_counts espl_sparsegpt_chain_counts(uint64_t windows);
void espl_sparsegpt_estimate(const struct espl_model_config *config,
                             const struct espl_prune_selection *selection,
                             const struct espl_calibration_info *info, struct espl_estimate *est);

#endif

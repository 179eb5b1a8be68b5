/* wanda-prune's parameters and what follows from them and from the inputs' headers alone: shared by
 * `plan` and `run`. */
#ifndef ESPL_STAGES_WANDA_SETUP_H
#define ESPL_STAGES_WANDA_SETUP_H

#include "engine/stage.h"
#include "stages/calibration/chains.h"
#include "stages/prune_common/prune_select.h"

enum espl_wanda_propagation { ESPL_WANDA_PROPAGATE_PRUNED, ESPL_WANDA_PROPAGATE_DENSE };

struct espl_wanda_params {
    struct espl_prune_params common;
    int rule;      /* enum espl_wanda_rule */
    int propagate; /* enum espl_wanda_propagation */
    double max_perplexity_ratio;
};

/** YAML words of the enums; end with NULL. */
extern const char *const espl_wanda_rule_choices[];
extern const char *const espl_wanda_propagate_choices[];

/** Errors: JOB, rule given together with pattern or align. */
enum espl_status espl_wanda_check_rule(const struct espl_wanda_params *params,
                                       struct espl_error *err);
/** The "pruning" object of the output; NULL when out of memory. New reference. */
json_t *espl_wanda_describe(const struct espl_wanda_params *params,
                            const struct espl_prune_selection *selection,
                            const struct espl_calibration_info *info);
/** Windows of the dense chain, of the pruned one, and of the dense outputs that errors are measured
 * against. One of the chains goes all the way with all windows, the other only with those of the
 * check. */
struct espl_chain_counts espl_wanda_chain_counts(const struct espl_wanda_params *params,
                                                 uint64_t windows);
/** Bytes and operations: two passes of all windows through each block (dense with statistics, then
 * pruned), and the check windows once more. */
void espl_wanda_estimate(const struct espl_model_config *config,
                         const struct espl_wanda_params *params,
                         const struct espl_prune_selection *selection,
                         const struct espl_calibration_info *info, struct espl_estimate *est);

#endif

#include "stages/wanda_prune/wanda_setup.h"

#include "stages/prune_common/model_plan.h"
#include "stages/prune_common/prune_store.h"
#include "stages/wanda_prune/wanda.h"

#include <stdio.h>

const char *const espl_wanda_rule_choices[] = {"fixed", "cumulative", NULL};
const char *const espl_wanda_propagate_choices[] = {"pruned", "dense", NULL};

enum espl_status espl_wanda_check_rule(const struct espl_wanda_params *params,
                                       struct espl_error *err)
{
    if (params->rule == ESPL_WANDA_CUMULATIVE && params->common.pattern.m > 0) {
        espl_fail(err, ESPL_E_JOB, "rule 'cumulative' cannot be combined with pattern %u:%u",
                  (unsigned)params->common.pattern.n, (unsigned)params->common.pattern.m);
        espl_hint(err, "N:M fixes the count of every window; leave 'rule' or 'pattern' out");
        return espl_blame(err, "param:rule");
    }
    if (params->rule == ESPL_WANDA_CUMULATIVE && espl_align_is_on(&params->common.align)) {
        espl_fail(err, ESPL_E_JOB, "rule 'cumulative' cannot be combined with 'align'");
        espl_hint(err, "groups are chosen by the rule 'fixed'");
        return espl_blame(err, "param:rule");
    }
    return ESPL_OK;
}

json_t *espl_wanda_describe(const struct espl_wanda_params *params,
                            const struct espl_prune_selection *selection,
                            const struct espl_calibration_info *info)
{
    return espl_json_join(espl_prune_describe("wanda", &params->common, selection),
                          json_pack("{s:s, s:s, s:I, s:I}", "rule",
                                    espl_wanda_rule_choices[params->rule], "propagate",
                                    espl_wanda_propagate_choices[params->propagate],
                                    "calibration_windows", (json_int_t)info->windows,
                                    "sequence_length", (json_int_t)info->tokens));
}

struct espl_chain_counts espl_wanda_chain_counts(const struct espl_wanda_params *params,
                                                 uint64_t windows)
{
    const uint64_t check = espl_check_windows(windows);
    const bool dense = params->propagate == ESPL_WANDA_PROPAGATE_DENSE;
    return (struct espl_chain_counts){{dense ? windows : check, dense ? check : windows}, windows};
}

/* The cumulative rule keeps the scores of a whole matrix, as they are and sorted. */
static uint64_t score_bytes(const struct espl_wanda_params *params,
                            const struct espl_prune_selection *selection)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < selection->count; i++) {
        const uint64_t *shape = selection->linears[i].spec.shape;
        largest = shape[0] * shape[1] > largest ? shape[0] * shape[1] : largest;
    }
    return params->rule == ESPL_WANDA_CUMULATIVE ? 2 * largest * sizeof(float) : 0;
}

void espl_wanda_estimate(const struct espl_model_config *config,
                         const struct espl_wanda_params *params,
                         const struct espl_prune_selection *selection,
                         const struct espl_calibration_info *info, struct espl_estimate *est)
{
    const struct espl_chain_counts counts = espl_wanda_chain_counts(params, info->windows);
    est->units = selection->selected_layers;
    est->output_bytes = selection->selected_mask_bytes + 65536;
    est->scratch_bytes = selection->selected_mask_bytes + 65536 * selection->selected_layers;
    est->host_bytes = selection->selected_mask_bytes / (selection->selected_layers + 1) +
                      score_bytes(params, selection);
    (void)snprintf(est->note, sizeof est->note, "%zu of %zu linear layers", selection->selected,
                   selection->all_linears);
    espl_chains_estimate(config, info, &counts, est);
    est->flop = espl_forward_flop(config, (size_t)info->tokens) *
                (2.0 * (double)info->windows + (double)ESPL_CHECK_WINDOWS);
}

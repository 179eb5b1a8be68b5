#include "stages/sparsegpt_prune/sparsegpt_setup.h"

#include "stages/calibration/hessians.h"
#include "stages/prune_common/model_plan.h"
#include "stages/prune_common/prune_store.h"
#include "stages/quant_common/channel_order.h"

#include <stdio.h>

static enum espl_status check_quantiser(const struct espl_sparsegpt_params *params,
                                        const struct espl_prune_selection *selection,
                                        struct espl_error *err)
{
    if (params->weight_bits == 1) {
        espl_fail(err, ESPL_E_JOB, "codes of 1 bit are not possible");
        espl_hint(err, "2 to 8 bits, or 0 to prune only");
        return espl_blame(err, "param:weight_bits");
    }
    if (params->weight_bits == 0 && params->group_size >= 0) {
        espl_fail(err, ESPL_E_JOB, "group_size %lld has nothing to quantise",
                  (long long)params->group_size);
        espl_hint(err, "add 'weight_bits', or leave it to atom-quantize after this stage");
        return espl_blame(err, "param:group_size");
    }
    for (size_t i = 0; i < selection->count && params->weight_bits > 0; i++) {
        const struct espl_tensor_spec *spec = &selection->linears[i].spec;
        const struct espl_matrix_shape shape = {(size_t)spec->shape[0], (size_t)spec->shape[1]};
        const struct espl_quantiser quantiser = espl_sparsegpt_quantiser(params, shape.cols);
        if (!selection->linears[i].selected) {
            continue;
        }
        if (params->group_size < 0 && quantiser.group_size == 0) {
            char legal[128];
            espl_group_list(shape.cols, legal);
            espl_fail(err, ESPL_E_JOB, "none of 128, 64, 32 divides the %zu columns of '%s'",
                      shape.cols, spec->module);
            espl_hint(err, "groups that fit: %s; 0 is one scale a row", legal);
            return espl_blame(err, "param:group_size");
        }
        if (espl_quantiser_check(&quantiser, &shape, spec->module, err) != ESPL_OK) {
            return espl_blame(err, "param:group_size");
        }
    }
    return ESPL_OK;
}

enum espl_status espl_sparsegpt_select(const struct espl_model_config *config,
                                       const struct espl_sparsegpt_params *params,
                                       struct espl_prune_selection *selection,
                                       struct espl_error *err)
{
    const uint32_t window = params->common.pattern.m;
    enum espl_status status = espl_prune_select(config, &params->common, selection, err);
    if (status == ESPL_OK && params->weight_bits > 0 && window > 0 && 128 % window != 0) {
        espl_fail(err, ESPL_E_JOB, "pattern %u:%u cannot be combined with 'weight_bits'",
                  (unsigned)params->common.pattern.n, (unsigned)window);
        espl_hint(err, "its windows must divide the 128 columns that are updated together; prune "
                       "first and quantise then");
        status = espl_blame(err, "param:pattern");
    }
    if (status == ESPL_OK && espl_align_is_on(&params->common.align) &&
        128 % params->common.align.grid.cols != 0) {
        espl_fail(err, ESPL_E_JOB, "groups of %u columns are not possible here",
                  (unsigned)params->common.align.grid.cols);
        espl_hint(err, "they must divide the 128 columns that are chosen together");
        status = espl_blame(err, "param:align");
    }
    return status == ESPL_OK ? check_quantiser(params, selection, err) : status;
}

struct espl_quantiser espl_sparsegpt_quantiser(const struct espl_sparsegpt_params *params,
                                               size_t columns)
{
    return (struct espl_quantiser){
        .bits = (unsigned)params->weight_bits,
        .group_size =
            params->group_size < 0 ? espl_group_auto(columns) : (size_t)params->group_size,
        .rows_per_scale = 1,
        .scale = ESPL_QUANT_SCALE_FULL,
        .clip = 1.0f,
    };
}

json_t *espl_sparsegpt_describe(const struct espl_sparsegpt_params *params,
                                const struct espl_prune_selection *selection,
                                const struct espl_calibration_info *info)
{
    return espl_json_join(espl_prune_describe("sparsegpt", &params->common, selection),
                          json_pack("{s:f, s:I, s:I, s:I}", "damping", params->damping,
                                    "weight_bits", (json_int_t)params->weight_bits,
                                    "calibration_windows", (json_int_t)info->windows,
                                    "sequence_length", (json_int_t)info->tokens));
}

struct espl_chain_counts espl_sparsegpt_chain_counts(uint64_t windows)
{
    return (struct espl_chain_counts){{espl_check_windows(windows), windows}, 0};
}

void espl_sparsegpt_estimate(const struct espl_model_config *config,
                             const struct espl_prune_selection *selection,
                             const struct espl_calibration_info *info, struct espl_estimate *est)
{
    const struct espl_chain_counts counts = espl_sparsegpt_chain_counts(info->windows);
    const uint64_t overhead = 65536;
    est->units = selection->selected_layers;
    est->output_bytes =
        selection->selected_mask_bytes + selection->selected_elements * sizeof(float) + overhead;
    est->scratch_bytes = est->output_bytes + overhead * est->units;
    est->host_bytes = espl_hessians_bytes(selection);
    (void)snprintf(est->note, sizeof est->note, "%zu of %zu linear layers", selection->selected,
                   selection->all_linears);
    espl_chains_estimate(config, info, &counts, est);
    est->flop = espl_forward_flop(config, (size_t)info->tokens) *
                (double)(2 * counts.chain[1] + counts.chain[0]);
}

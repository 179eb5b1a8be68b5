#include "stages/registry.h"

#include <stddef.h>

extern const struct espl_stage espl_stage_import;
extern const struct espl_stage espl_stage_tokens;
extern const struct espl_stage espl_stage_images;
extern const struct espl_stage espl_stage_wanda_prune;
extern const struct espl_stage espl_stage_magnitude_prune;
extern const struct espl_stage espl_stage_sparsegpt_prune;
extern const struct espl_stage espl_stage_atom_quantize;
extern const struct espl_stage espl_stage_row_reorder;
extern const struct espl_stage espl_stage_iebme_encode;
extern const struct espl_stage espl_stage_nm_pack;
extern const struct espl_stage espl_stage_nm_supernet;
extern const struct espl_stage espl_stage_latency_profile;
extern const struct espl_stage espl_stage_budget_search;
extern const struct espl_stage espl_stage_deploy_bench;
extern const struct espl_stage espl_stage_evaluate;
extern const struct espl_stage espl_stage_export;

const struct espl_stage *const espl_stages[] = {
    &espl_stage_import,
    &espl_stage_tokens,
    &espl_stage_images,
    &espl_stage_wanda_prune,
    &espl_stage_magnitude_prune,
    &espl_stage_sparsegpt_prune,
    &espl_stage_atom_quantize,
    &espl_stage_row_reorder,
    &espl_stage_iebme_encode,
    &espl_stage_nm_pack,
    &espl_stage_nm_supernet,
    &espl_stage_latency_profile,
    &espl_stage_budget_search,
    &espl_stage_evaluate,
    &espl_stage_deploy_bench,
    &espl_stage_export,
    NULL,
};

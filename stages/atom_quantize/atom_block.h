/* Quantising the resident block of a run. */
#ifndef ESPL_STAGES_ATOM_BLOCK_H
#define ESPL_STAGES_ATOM_BLOCK_H

#include "stages/atom_quantize/atom_setup.h"
#include "stages/calibration/hessians.h"

/** Everything a run holds. */
struct espl_atom_state {
    struct espl_stage_ctx *ctx;
    const struct espl_atom_params *params;
    struct espl_atom_setup setup;
    struct espl_backend *backend;
    struct espl_model *model;
    const struct espl_model_config *config;
    struct espl_calibration_windows windows;
    struct espl_chains chains; /* 0: the model as it was, 1: quantised */
    struct espl_moments moments;
    struct espl_hessians hessians;
    struct espl_block *block;
    int32_t *orders[ESPL_QUANT_SITES]; /* of the resident block; NULL = as they are */
};

/** Is a linear of block `layer` that reads the input at `site` selected? */
bool espl_atom_site_selected(const struct espl_atom_state *state, uint64_t layer,
                             enum espl_quant_site site);
/** Keys and values of the resident block become as coarse as the scheme says. */
void espl_atom_simulate_cache(struct espl_atom_state *state);
/** Quantises the resident, float block from moments that chain 0 has collected, and writes codes
 *  and orders into `unit`. Afterwards the block is quantised. Errors: as espl_atom_run(). */
enum espl_status espl_atom_quantise_block(struct espl_atom_state *state, uint64_t layer,
                                          struct espl_artifact *unit, struct espl_error *err);
void espl_atom_orders_free(struct espl_atom_state *state);

#endif

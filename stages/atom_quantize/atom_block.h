/* Quantising the resident block of a run. */
#ifndef ESPL_STAGES_ATOM_BLOCK_H
#define ESPL_STAGES_ATOM_BLOCK_H

#include "stages/atom_quantize/atom_setup.h"
#include "stages/calibration/block_run.h"
#include "stages/calibration/hessians.h"

/** Everything a run holds. Chain 0: the model as it was, 1: quantised. */
struct espl_atom_state {
    const struct espl_atom_params *params;
    struct espl_block_run run;
    struct espl_atom_setup setup;
    struct espl_moments moments;
    struct espl_hessians hessians;
    int32_t *orders[ESPL_QUANT_SITES]; /* of the resident block; NULL = as they are */
};

/** What a unit file says about the linears of its block (stages/encode_common/unit_counts.h). */
enum espl_atom_event { ESPL_ATOM_DAMPING_RAISED, ESPL_ATOM_RTN_FALLBACKS, ESPL_ATOM_EVENTS };
extern const char *const espl_atom_event_names[ESPL_ATOM_EVENTS];

/** Keys and values of the resident block become as coarse as the scheme says. */
void espl_atom_simulate_cache(struct espl_atom_state *state);
/** Quantises the resident, float block from moments that chain 0 has collected, and writes codes
 *  and orders into `unit`. Afterwards the block is quantised. Errors: as espl_atom_run(). */
enum espl_status espl_atom_quantise_block(struct espl_atom_state *state, uint64_t layer,
                                          struct espl_artifact *unit, struct espl_error *err);
void espl_atom_orders_free(struct espl_atom_state *state);

#endif

/* Hessians and second moments of the inputs of a block's linears, collected by an observer. */
#ifndef ESPL_STAGES_HESSIANS_H
#define ESPL_STAGES_HESSIANS_H

#include "espalier/linalg.h"
#include "model/quantised.h"
#include "stages/calibration/chains.h"
#include "stages/prune_common/prune_select.h"

/** Is a linear of block `layer` that reads the input at `site` selected? */
bool espl_site_selected(const struct espl_model_config *config,
                        const struct espl_prune_selection *selection, uint64_t layer,
                        enum espl_quant_site site);

/** Sums of squares of every input channel, one array a site. */
struct espl_moments {
    struct espl_chains *chains; /* borrowed */
    uint64_t layer;
    double *sums[ESPL_QUANT_SITES]; /* (width), owned; made at the first pass */
    size_t widths[ESPL_QUANT_SITES];
};

/** An espl_linear_input_fn; user: struct espl_moments. Errors: NUMERIC naming layer, linear,
 *  channel, window and token of an activation that is not finite. */
enum espl_status espl_moments_observe(void *user, const enum espl_role *roles, size_t role_count,
                                      const float *x, size_t tokens_total, size_t in,
                                      struct espl_error *err);
/** Starts another block. */
void espl_moments_reset(struct espl_moments *moments, uint64_t layer);
void espl_moments_free(struct espl_moments *moments);

/** One Hessian a site, for the sites that were asked for. */
struct espl_hessians {
    struct espl_chains *chains; /* borrowed */
    uint64_t layer;
    bool wanted[ESPL_QUANT_SITES];
    struct espl_hessian *sites[ESPL_QUANT_SITES]; /* owned */
};

/** Starts another block: Hessians of the inputs that selected linears read. */
void espl_hessians_want(struct espl_hessians *hessians,
                        const struct espl_prune_selection *selection, uint64_t layer);
/** An espl_linear_input_fn; user: struct espl_hessians. */
enum espl_status espl_hessians_observe(void *user, const enum espl_role *roles, size_t role_count,
                                       const float *x, size_t tokens_total, size_t in,
                                       struct espl_error *err);
void espl_hessians_free(struct espl_hessians *hessians);
/** Bytes of all Hessians of a block and of the matrices in hand while one of them is used: of the
 *  inputs that selected linears of any block read. */
uint64_t espl_hessians_bytes(const struct espl_prune_selection *selection);

#endif

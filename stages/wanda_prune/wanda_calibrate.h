/* Calibration passes of Wanda: hidden states of all windows, moved forward block by block, with the
 * sums of squares of every linear's input channels collected on the way.
 *
 * Two chains of hidden states go through the model. `inputs` belongs to the way the run propagates
 * (pruned or dense); `check` is a short second chain of the other kind over the first windows, so
 * that at the end the perplexity of both models is known without a further pass. */
#ifndef ESPL_STAGES_WANDA_CALIBRATE_H
#define ESPL_STAGES_WANDA_CALIBRATE_H

#include "engine/stage.h"
#include "eval/forward.h"
#include "stages/prune_common/hidden_states.h"
#include "stages/prune_common/prune_select.h"
#include "stages/wanda_prune/wanda.h"

enum { ESPL_WANDA_CHECK_WINDOWS = 8 };

struct espl_calibration {
    struct espl_stage_ctx *ctx;                   /* borrowed */
    const struct espl_prune_selection *selection; /* borrowed */
    struct espl_backend *backend;                 /* borrowed */
    struct espl_forward *forward;
    const int32_t *ids; /* (windows, tokens), borrowed */
    uint64_t windows;
    size_t tokens;
    size_t window_values; /* tokens * hidden */
    size_t batch;         /* windows that go through a block together */
    uint64_t check_windows;
    struct espl_hidden_states room;
    float *inputs;  /* (windows, tokens, hidden): into the current block */
    float *outputs; /* (windows, tokens, hidden): of the current block, dense */
    float *check;   /* (check_windows, tokens, hidden) */
    /* Sums of squares of a linear's input channels, by role; roles that read the same input share
     * the array of the first of them, named by lead. */
    double *sums[ESPL_ROLE_COUNT];
    size_t widths[ESPL_ROLE_COUNT];
    enum espl_role lead[ESPL_ROLE_COUNT];
    /* Place of the batch in hand, for messages. */
    uint64_t layer;
    uint64_t first_window;
};

/** Windows that go through a block together: a power of two up to 8, so that the check windows are
 * always whole batches, and about 4096 tokens. */
size_t espl_calibration_batch(uint64_t windows, size_t tokens);
/** Values of all hidden states that a calibration holds; false on overflow. */
bool espl_calibration_values(uint64_t windows, size_t tokens, uint64_t hidden, size_t *values);

/** Embeds all windows. model, backend, ids, selection: borrowed until close.
 *  Errors: NOMEM, NOSPACE, IO, UNSUPPORTED, CORRUPT (an id outside the vocabulary). */
enum espl_status espl_calibration_open(struct espl_stage_ctx *ctx, struct espl_model *model,
                                       struct espl_backend *backend,
                                       const struct espl_prune_selection *selection,
                                       const int32_t *ids, uint64_t windows, size_t tokens,
                                       struct espl_calibration *calibration,
                                       struct espl_error *err);
void espl_calibration_close(struct espl_calibration *calibration);

/** outputs <- block(inputs) with the block as it is, collecting sums of squares.
 *  Errors: NUMERIC naming layer, module, channel and window of an activation that is not finite;
 * CANCELLED. */
enum espl_status espl_calibration_observe(struct espl_calibration *calibration,
                                          struct espl_block *block, uint64_t layer,
                                          struct espl_error *err);
/** inputs <- block(inputs) for the first `windows` windows. distance: NULL, or collects how far the
 * result is from `outputs`. */
enum espl_status espl_calibration_advance(struct espl_calibration *calibration,
                                          struct espl_block *block, uint64_t windows,
                                          struct espl_wanda_distance *distance,
                                          struct espl_error *err);
/** check <- block(check) */
enum espl_status espl_calibration_advance_check(struct espl_calibration *calibration,
                                                struct espl_block *block, struct espl_error *err);
/** inputs <- outputs: dense propagation. */
void espl_calibration_take_outputs(struct espl_calibration *calibration);
/** Sums of squares (in) of the inputs that a role's linear saw. */
const double *espl_calibration_sums(const struct espl_calibration *calibration,
                                    enum espl_role role);
/** Perplexity of the check windows whose last hidden states are `hidden` (inputs or check): exp of
 * the mean over windows of the mean NLL over tokens - 1 targets. May be infinite or NaN. */
enum espl_status espl_calibration_perplexity(struct espl_calibration *calibration,
                                             const float *hidden, uint64_t vocab,
                                             double *perplexity, struct espl_error *err);

#endif

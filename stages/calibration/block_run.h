/* The run of a stage that changes a model block by block: hidden states of the calibration windows
 * go into the resident block, the stage changes it and writes a unit file, hidden states go onward.
 * Blocks whose unit exists are replayed from it, so a resumed run gives the bytes of an
 * uninterrupted one. */
#ifndef ESPL_STAGES_BLOCK_RUN_H
#define ESPL_STAGES_BLOCK_RUN_H

#include "stages/calibration/chains.h"
#include "stages/prune_common/prune_select.h"

/** What such a run holds; starts zeroed. */
struct espl_block_run {
    struct espl_stage_ctx *ctx; /* borrowed */
    struct espl_model *model;
    const struct espl_model_config *config; /* of the model */
    struct espl_backend *backend;
    struct espl_calibration_windows windows;
    const struct espl_prune_selection *selection; /* borrowed */
    struct espl_chains chains;                    /* 0: the model as it came, 1: as it becomes */
    struct espl_block *block;                     /* resident */
};

/** What a stage does. user: its own state, of which the run is a part. */
struct espl_block_steps {
    const char *changed; /* what a block becomes, for messages: "pruned" */
    /** Changes the resident block, writes it into `unit` and moves both chains over it.
     *  *output_error: distance that is reported as the block's layer metric. */
    enum espl_status (*compute)(void *user, uint64_t layer, struct espl_artifact *unit,
                                double *output_error, struct espl_error *err);
    /** A block that compute() does not see, as chain 1 is to find it. unit: what compute() wrote
     *  in an earlier run; NULL = nothing of this block is selected. */
    enum espl_status (*restore)(void *user, uint64_t layer, struct espl_artifact *unit,
                                struct espl_error *err);
};

/** Opens input "model" (left in run->model and run->config), reads input "tokens" and opens the
 * backend. Freed with espl_block_run_close(), also after an error. Errors: as
 * espl_calibration_windows_read() and espl_model_open(). */
enum espl_status espl_block_run_open(struct espl_stage_ctx *ctx, struct espl_block_run *run,
                                     struct espl_error *err);
void espl_block_run_close(struct espl_block_run *run);

/** Opens the chains and goes through all blocks. selection: borrowed until close. Errors: NUMERIC
 * (an output that is not finite), CANCELLED, NOMEM, NOSPACE, IO, and what the steps give. */
enum espl_status espl_block_run_all(struct espl_block_run *run,
                                    const struct espl_prune_selection *selection,
                                    const struct espl_chain_counts *counts,
                                    const struct espl_block_steps *steps, void *user,
                                    struct espl_error *err);

/** What follows the last block of a stage that prunes: the quality check (max_ratio and advice as
 * in espl_chains_check()), then masks and figures of the output. pruning: the description,
 * reference taken; NULL = there was no memory for it. Errors: as espl_chains_check(),
 * espl_prune_finish(). */
enum espl_status espl_block_run_finish_pruned(struct espl_block_run *run, double max_ratio,
                                              const char *advice, json_t *pruning,
                                              struct espl_error *err);

/** The resident block's weight of a linear, in place. Errors: INTERNAL when the block has none of
 *  that shape. */
enum espl_status espl_block_run_weight(const struct espl_block_run *run,
                                       const struct espl_tensor_spec *spec, float **w,
                                       struct espl_matrix_shape *shape, struct espl_error *err);

#endif

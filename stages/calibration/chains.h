/* Hidden states of the calibration windows on their way through a model, block by block. A stage
 * keeps up to two chains, for example of the model as it was and of the model as it becomes, and
 * moves them forward with the resident block in whatever form they need it. */
#ifndef ESPL_STAGES_CHAINS_H
#define ESPL_STAGES_CHAINS_H

#include "engine/stage.h"
#include "eval/forward.h"
#include "stages/calibration/calibration_windows.h"
#include "stages/calibration/hidden_states.h"

enum { ESPL_CHAINS = 2, ESPL_CHECK_WINDOWS = 8 };

/** How many windows are kept. */
struct espl_chain_counts {
    uint64_t chain[ESPL_CHAINS];
    uint64_t peeked; /* windows whose outputs espl_chains_peek() leaves behind; 0 = none */
};

struct espl_chains {
    struct espl_stage_ctx *ctx;                     /* borrowed */
    struct espl_model *model;                       /* borrowed */
    const struct espl_calibration_windows *windows; /* borrowed */
    struct espl_backend *backend;                   /* borrowed */
    struct espl_forward *forward;
    size_t batch;         /* windows that go through a block together */
    size_t window_values; /* tokens * hidden */
    size_t hidden_width;
    struct espl_hidden_states room;
    struct espl_chain_counts counts;
    float *hidden[ESPL_CHAINS]; /* (counts.chain[i], tokens, hidden) */
    float *peeked;              /* (counts.peeked or one batch, tokens, hidden) */
    uint64_t first_window;      /* of the batch in hand, for messages of observers */
};

/** Windows of the check at the end: min(8, count). */
uint64_t espl_check_windows(uint64_t count);
/** Adds to host_bytes and scratch_bytes what chains and ids of `info` need, with one block of the
 * model in memory; says so in the note (already written) when hidden states go to a file. */
void espl_chains_estimate(const struct espl_model_config *config,
                          const struct espl_calibration_info *info,
                          const struct espl_chain_counts *counts, struct espl_estimate *est);

/** Embeds the first counts->chain[i] windows into chain i. Freed with espl_chains_close(), also
 *  after an error. Errors: NOMEM, NOSPACE, IO, UNSUPPORTED, CORRUPT (an id outside the
 *  vocabulary). */
enum espl_status espl_chains_open(struct espl_stage_ctx *ctx, struct espl_model *model,
                                  struct espl_backend *backend,
                                  const struct espl_calibration_windows *windows,
                                  const struct espl_chain_counts *counts,
                                  struct espl_chains *chains, struct espl_error *err);
void espl_chains_close(struct espl_chains *chains);

/** chain <- block(chain) for its first `windows` windows (at most its count). observe: NULL
 *  allowed. Errors: CANCELLED, NUMERIC, and what the observer gives. */
enum espl_status espl_chains_advance(struct espl_chains *chains, unsigned chain,
                                     struct espl_block *block, uint64_t windows,
                                     espl_linear_input_fn observe, void *user,
                                     struct espl_error *err);
/** The same for all windows of a chain without changing it: the observer learns something, and the
 * outputs stay in `peeked` when there is room for them. */
enum espl_status espl_chains_peek(struct espl_chains *chains, unsigned chain,
                                  struct espl_block *block, espl_linear_input_fn observe,
                                  void *user, struct espl_error *err);
/** chain <- what the last peek left. The chain has counts.peeked windows. */
void espl_chains_take_peeked(struct espl_chains *chains, unsigned chain);
/** Relative L2 distance of a chain from what the last peek left, over counts.peeked windows. */
double espl_chains_distance_from_peeked(const struct espl_chains *chains, unsigned chain);
/** Relative L2 distance of chain 1 from chain 0 over the check windows. */
double espl_chains_distance(const struct espl_chains *chains);
/** Perplexity of the check windows after the last block: exp of the mean over windows of the mean
 * NLL over tokens - 1 targets. May be infinite or NaN. */
enum espl_status espl_chains_perplexity(struct espl_chains *chains, unsigned chain,
                                        double *perplexity, struct espl_error *err);
/** Compares both chains after the last block: metrics check_perplexity_base (chain 0),
 *  check_perplexity (chain 1), check_perplexity_ratio. most: stop above this ratio, 0 = never.
 *  what: "quantisation", for messages; where: a hint at the blocks that moved most. Errors:
 *  NUMERIC, blamed on max_perplexity_ratio. */
enum espl_status espl_chains_check(struct espl_chains *chains, double most, const char *what,
                                   const char *where, struct espl_error *err);

#endif

/* Hidden states of the calibration windows on their way through a model, block by block. A stage
 * keeps up to two chains, for example of the model as it was and of the model as it becomes, and
 * moves them forward with the resident block in whatever form they need it. */
#ifndef ESPL_STAGES_CHAINS_H
#define ESPL_STAGES_CHAINS_H

#include "engine/stage.h"
#include "eval/forward.h"
#include "stages/prune_common/hidden_states.h"

enum { ESPL_CHAINS = 2, ESPL_CHECK_WINDOWS = 8 };

/** Calibration windows of a tokens artifact. */
struct espl_calibration_windows {
    int32_t *ids; /* (count, tokens), owned */
    uint64_t count;
    size_t tokens;
};

/** Reads input "tokens" and checks it against the model. windows: free(ids). Errors: as
 *  espl_wanda_check_windows(), KIND, NOMEM, IO. */
enum espl_status espl_calibration_windows_read(struct espl_stage_ctx *ctx,
                                               const struct espl_model_config *config,
                                               struct espl_calibration_windows *windows,
                                               struct espl_error *err);

struct espl_chains {
    struct espl_stage_ctx *ctx;                     /* borrowed */
    const struct espl_calibration_windows *windows; /* borrowed */
    struct espl_backend *backend;                   /* borrowed */
    struct espl_forward *forward;
    size_t batch;         /* windows that go through a block together */
    size_t window_values; /* tokens * hidden */
    size_t hidden_width;
    struct espl_hidden_states room;
    float *hidden[ESPL_CHAINS]; /* (counts[i], tokens, hidden) */
    uint64_t counts[ESPL_CHAINS];
    float *spare;          /* (batch, tokens, hidden) */
    uint64_t first_window; /* of the batch in hand, for messages of observers */
};

/** Windows of the check at the end: min(8, count). */
uint64_t espl_check_windows(uint64_t count);
/** Host bytes of hidden states; those above ESPL_HIDDEN_IN_MEMORY are *scratch instead. */
uint64_t espl_chains_bytes(uint64_t windows, size_t tokens, uint64_t hidden, uint64_t *scratch);
/** Windows that go through a block together. */
size_t espl_chains_batch(uint64_t windows, size_t tokens);

/** Embeds the first counts[i] windows into chain i. Freed with espl_chains_close(), also after an
 *  error. Errors: NOMEM, NOSPACE, IO, UNSUPPORTED, CORRUPT (an id outside the vocabulary). */
enum espl_status espl_chains_open(struct espl_stage_ctx *ctx, struct espl_model *model,
                                  struct espl_backend *backend,
                                  const struct espl_calibration_windows *windows,
                                  const uint64_t counts[ESPL_CHAINS], struct espl_chains *chains,
                                  struct espl_error *err);
void espl_chains_close(struct espl_chains *chains);

/** chain <- block(chain) for its first `windows` windows (at most its count). observe: NULL
 *  allowed. Errors: CANCELLED, NUMERIC, and what the observer gives. */
enum espl_status espl_chains_advance(struct espl_chains *chains, unsigned chain,
                                     struct espl_block *block, uint64_t windows,
                                     espl_linear_input_fn observe, void *user,
                                     struct espl_error *err);
/** The same without changing the chain: only the observer learns something. */
enum espl_status espl_chains_peek(struct espl_chains *chains, unsigned chain,
                                  struct espl_block *block, uint64_t windows,
                                  espl_linear_input_fn observe, void *user, struct espl_error *err);
/** Relative L2 distance of chain 1 from chain 0 over the check windows. */
double espl_chains_distance(const struct espl_chains *chains);
/** Perplexity of the check windows after the last block; may be infinite or NaN. */
enum espl_status espl_chains_perplexity(struct espl_chains *chains, unsigned chain,
                                        double *perplexity, struct espl_error *err);
/** Compares both chains after the last block: metrics check_perplexity_base (chain 0),
 *  check_perplexity (chain 1), check_perplexity_ratio. most: stop above this ratio, 0 = never.
 *  what: "quantisation", for messages. Errors: NUMERIC, blamed on max_perplexity_ratio. */
enum espl_status espl_chains_check(struct espl_chains *chains, double most, const char *what,
                                   struct espl_error *err);

#endif

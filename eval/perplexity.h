/* Perplexity and KL divergence by the protocol of docs/numbers.md: one tokenisation of the whole
 * text, non-overlapping windows, tail dropped, per window the mean NLL over seqlen - 1 targets, exp
 * of the mean over windows. */
#ifndef ESPL_EVAL_PERPLEXITY_H
#define ESPL_EVAL_PERPLEXITY_H

#include "eval/forward.h"

struct espl_perplexity {
    double perplexity;
    double mean_nll;
    double kl; /* mean KL(base || model) per target; only when a base model was given */
    double perplexity_base;
    uint64_t windows;
    uint64_t tokens; /* windows * seqlen */
    double seconds;
    double flop;                     /* of the timed passes, base model included */
    struct espl_forward_times times; /* both models together */
    double loss_seconds;             /* cross entropy and KL over the logits */
};

/** done of total windows; returns false to stop. */
typedef bool (*espl_window_progress_fn)(void *user, uint64_t done, uint64_t total);

/** ids: `windows` windows of `tokens` ids, contiguous. base: NULL, or a model with the same
 * vocabulary to compare with. Errors: CANCELLED when progress said stop, NUMERIC naming layer and
 * window on NaN. */
enum espl_status espl_perplexity_measure(struct espl_model *model, struct espl_model *base,
                                         struct espl_backend *backend, const int32_t *ids,
                                         uint64_t windows, size_t tokens,
                                         espl_window_progress_fn progress, void *user,
                                         struct espl_perplexity *out, struct espl_error *err);
/** Host bytes that espl_perplexity_measure() takes. base: NULL allowed. */
uint64_t espl_perplexity_bytes(const struct espl_model_config *config,
                               const struct espl_model_config *base, uint64_t windows,
                               size_t tokens);

#endif

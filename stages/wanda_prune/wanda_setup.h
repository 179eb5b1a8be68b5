/* wanda-prune's parameters and what follows from them and from the inputs' headers alone: shared by
 * `plan` and `run`. */
#ifndef ESPL_STAGES_WANDA_SETUP_H
#define ESPL_STAGES_WANDA_SETUP_H

#include "engine/stage.h"
#include "model/config.h"
#include "stages/prune_common/prune_select.h"

enum espl_wanda_propagation { ESPL_WANDA_PROPAGATE_PRUNED, ESPL_WANDA_PROPAGATE_DENSE };

struct espl_wanda_params {
    struct espl_prune_params common;
    int rule;      /* enum espl_wanda_rule */
    int propagate; /* enum espl_wanda_propagation */
    double max_perplexity_ratio;
};

/** YAML words of the enums; end with NULL. */
extern const char *const espl_wanda_rule_choices[];
extern const char *const espl_wanda_propagate_choices[];

/** What the tokens input says of itself. */
struct espl_wanda_windows {
    uint64_t windows; /* 0 = one long text */
    uint64_t tokens;  /* in a window */
    uint64_t vocab;   /* entries of the tokenizer; 0 = not said */
};

/** From a tokens description; NULL gives zeros. */
struct espl_wanda_windows espl_wanda_windows_from_json(const json_t *description);
/** Errors, blamed on input tokens: JOB (no windows, shorter than 2 tokens), KIND (longer than the
 * model's learned positions, vocabulary larger than the model's). */
enum espl_status espl_wanda_check_windows(const struct espl_model_config *config,
                                          const struct espl_wanda_windows *info,
                                          struct espl_error *err);
/** Errors: JOB, rule and pattern given together. */
enum espl_status espl_wanda_check_rule(const struct espl_wanda_params *params,
                                       struct espl_error *err);
/** The "pruning" object of the output; NULL when out of memory. New reference. */
json_t *espl_wanda_describe(const struct espl_wanda_params *params,
                            const struct espl_prune_selection *selection,
                            const struct espl_wanda_windows *info);
/** Bytes and operations: two passes of all windows through each block (dense with statistics, then
 * pruned), and the check windows once more. */
void espl_wanda_estimate(const struct espl_model_config *config,
                         const struct espl_wanda_params *params,
                         const struct espl_prune_selection *selection,
                         const struct espl_wanda_windows *info, struct espl_estimate *est);

#endif

/* Which windows of a tokens artifact an evaluation uses. */
#ifndef ESPL_STAGES_EVALUATE_WINDOWS_H
#define ESPL_STAGES_EVALUATE_WINDOWS_H

#include "model/config.h"

#include <jansson.h>

/** Parameters of the stage; its table is in stage.c. */
struct espl_evaluate_params {
    int64_t sequence_length; /* 0 = choose */
    int64_t windows;         /* 0 = all */
    int64_t images;          /* 0 = all */
};

/** What the description of a tokens artifact says; 0 = not known (yet). */
struct espl_evaluate_tokens {
    uint64_t count;           /* ids in all */
    uint64_t windows;         /* 0 = running text */
    uint64_t sequence_length; /* of the windows; of a running text what it asks for, 0 = nothing */
    uint64_t vocab_size;
};

struct espl_evaluate_windows {
    uint64_t sequence_length;
    uint64_t windows; /* 0 = not known yet: the text has not been tokenised */
};

void espl_evaluate_read_tokens(const json_t *description, struct espl_evaluate_tokens *tokens);
/** Window length and count. asked_length, asked_windows: parameters, 0 = choose. A running text is
 *  cut into non-overlapping windows of the length that its stage was given, else min(2048,
 *  max_positions), the tail is dropped; windows that were drawn keep their length. Errors: KIND,
 * blaming the parameter or input that does not fit: a length above a model's learned positions, a
 * length other than that of drawn windows, more windows than there are, a text shorter than one
 * window, a tokenizer with more ids than the model. */
enum espl_status espl_evaluate_choose_windows(const struct espl_model_config *config,
                                              const struct espl_evaluate_tokens *tokens,
                                              uint64_t asked_length, uint64_t asked_windows,
                                              struct espl_evaluate_windows *windows,
                                              struct espl_error *err);

#endif

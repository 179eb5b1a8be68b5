/* What the CPU makes of a model: greedy continuations, logits and perplexity. They take minutes for
 * small models, so they can be kept in a file from one run to the next.
 *
 * Beside them the same of a disturbed CPU: the embeddings of all tokens are moved by one unit in
 * their last place. Activations of 4 bits turn the least difference at the border of two codes into
 * a whole step, and layer after layer that grows: how far the disturbed CPU is from the plain one
 * is how near anything that adds in another order can come. */
#ifndef ESPL_TESTS_DEVICE_REFERENCE_H
#define ESPL_TESTS_DEVICE_REFERENCE_H

#include "espalier/kernels.h"
#include "model/model.h"

enum {
    REFERENCE_PROMPTS = 50,
    REFERENCE_PROMPT = 16,
    REFERENCE_NEW = 64,
    REFERENCE_LOGIT_ROWS = 64, /* of one window */
    REFERENCE_WINDOWS = 64,
    REFERENCE_WINDOW = 256
};

struct device_reference {
    int32_t greedy[REFERENCE_PROMPTS * REFERENCE_NEW];
    int32_t disturbed_greedy[REFERENCE_PROMPTS * REFERENCE_NEW];
    double perplexity;
    float *logits;           /* (REFERENCE_LOGIT_ROWS, vocabulary) */
    float *disturbed_logits; /* the same */
};

/** new_ids (windows, count) <- greedy continuations of ids (windows, prompt), every token by a pass
 *  over all before it. Stops the test on errors. */
void reference_greedy(struct espl_model *model, struct espl_backend *backend, const int32_t *ids,
                      size_t windows, size_t prompt, size_t count, bool disturbed,
                      int32_t *new_ids);
/** logits (windows * tokens, vocabulary). */
void reference_logits(struct espl_model *model, struct espl_backend *backend, const int32_t *ids,
                      size_t windows, size_t tokens, bool disturbed, float *logits);
/** All of it for ids, of which as many are used as are needed. file: NULL, or where the results are
 * taken from if it is there and put otherwise. */
void reference_get(struct espl_model *model, const int32_t *ids, const char *file,
                   struct device_reference *reference);
void reference_free(struct device_reference *reference);

#endif

/* Frequencies of rotary embeddings with the scaling rules found in checkpoints. */
#ifndef ESPL_EVAL_ROPE_FREQUENCIES_H
#define ESPL_EVAL_ROPE_FREQUENCIES_H

#include "model/config.h"

#include <stddef.h>

/** inv_freq (head_dim / 2) in radians per position for windows of `tokens` positions, computed in
 * double; *magnitude multiplies cos and sin (1 except for yarn). Rules: default [Su et al. 2021];
 * linear [Chen et al. 2023]; dynamic NTK; yarn [Peng et al. 2023]; llama3 (Llama 3.1 model card).
 * config->rope.type must not be ESPL_ROPE_NONE. */
void espl_rope_frequencies(const struct espl_model_config *config, size_t tokens, float *inv_freq,
                           float *magnitude);

#endif

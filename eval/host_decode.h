/* Greedy decoding on the CPU: prompts are read in one pass, every further token is a pass of one
 * position over all blocks, whose weights stay in memory, and over the keys and values kept so far.
 * The arithmetic is that of evaluation (eval/forward.h). The CUDA runtime: eval/device_decode.h. */
#ifndef ESPL_EVAL_HOST_DECODE_H
#define ESPL_EVAL_HOST_DECODE_H

#include "espalier/iebme.h"
#include "eval/forward.h"

struct espl_host_decoder;

struct espl_host_decoder_options {
    size_t sequences; /* most at a time */
    size_t prompt;    /* most tokens of a prompt */
    size_t tokens;    /* most positions of a sequence: prompt and what is made */
};

/** Loads all blocks. model, backend: borrowed. Errors: UNSUPPORTED (more positions than the model
 *  has), NOMEM, and those of reading the model. */
enum espl_status espl_host_decoder_create(struct espl_model *model, struct espl_backend *backend,
                                          const struct espl_host_decoder_options *options,
                                          struct espl_host_decoder **out, struct espl_error *err);
/** NULL is allowed. */
void espl_host_decoder_destroy(struct espl_host_decoder *decoder);

/** Reads prompts ids (sequences, prompt) from an empty cache and chooses the first token of each.
 *  Errors: UNSUPPORTED for more than there is room for; CORRUPT for an id outside the vocabulary;
 *  NUMERIC for logits that are not finite. */
enum espl_status espl_host_read_prompt(struct espl_host_decoder *decoder, const int32_t *ids,
                                       size_t sequences, size_t prompt, struct espl_error *err);
/** `count` further tokens of every sequence; seconds (count), NULL allowed <- time of each. Errors:
 *  INTERNAL before a prompt; UNSUPPORTED beyond the positions there is room for; NUMERIC. */
enum espl_status espl_host_decode(struct espl_host_decoder *decoder, size_t count, double *seconds,
                                  struct espl_error *err);
/** ids (sequences, count) <- the tokens made so far, from the first after the prompt. Errors:
 *  INTERNAL for more than were made. */
enum espl_status espl_host_get_tokens(const struct espl_host_decoder *decoder, int32_t *ids,
                                      size_t count, struct espl_error *err);
/** Logits (sequences, vocabulary) that the last token of each sequence was chosen by; owned by the
 *  decoder. */
const float *espl_host_last_logits(const struct espl_host_decoder *decoder);
/** Where the time went since the decoder was made. */
const struct espl_forward_times *espl_host_decoder_times(const struct espl_host_decoder *decoder);
/** Bytes of the blocks' linears as they are kept, all of which every step reads. */
uint64_t espl_host_decoder_weight_bytes(const struct espl_host_decoder *decoder);
/** Areas in which the first encoded linear is kept; dense when none is. */
enum espl_iebme_areas espl_host_decoder_areas(const struct espl_host_decoder *decoder);

/** Host bytes of a decoder for this model, from sizes alone. scheme: of its codes; NULL = a float
 *  model. weight_bytes: of all linears of the blocks as they are kept. */
uint64_t espl_host_decoder_bytes(const struct espl_model_config *config,
                                 const struct espl_quant_scheme *scheme,
                                 const struct espl_host_decoder_options *options,
                                 uint64_t weight_bytes);

#endif

/* Greedy decoding on a CUDA device: a prompt is read, then every token is one replay of a CUDA
 * graph of the whole model. docs/kernels/decode.md. */
#ifndef ESPL_EVAL_DEVICE_DECODE_H
#define ESPL_EVAL_DEVICE_DECODE_H

#include "eval/device_decode_weights.h"
#include "model/quantised.h"

struct espl_device_decoder;

struct espl_device_decoder_options {
    size_t sequences; /* at a time, exactly */
    size_t prompt;    /* tokens of each prompt, exactly */
    size_t tokens;    /* most positions of a sequence: prompt and what is made */
    bool overlap;     /* programmatic dependent launch, where the device has it */
};

/** Can sequences of prompt and output be this long? Errors: UNSUPPORTED beyond learned positions.
 */
enum espl_status espl_device_check_positions(const struct espl_model_config *config, size_t tokens,
                                             struct espl_error *err);
/** weights: borrowed, one decoder at a time. Errors: UNSUPPORTED (more positions than the model
 *  has), NOMEM, MACHINE. */
enum espl_status espl_device_decoder_create(struct espl_device_weights *weights,
                                            const struct espl_device_decoder_options *options,
                                            struct espl_device_decoder **out,
                                            struct espl_error *err);
/** NULL is allowed. */
void espl_device_decoder_destroy(struct espl_device_decoder *decoder);

/** Reads prompts (sequences, prompt) from an empty cache and chooses the first token of each.
 *  Errors: CORRUPT for an id outside the vocabulary; NUMERIC, MACHINE. */
enum espl_status espl_device_read_prompt(struct espl_device_decoder *decoder, const int32_t *ids,
                                         struct espl_error *err);
/** `count` further tokens of every sequence; seconds (count), NULL allowed <- time of each. Errors:
 *  UNSUPPORTED beyond the positions there is room for; NUMERIC, MACHINE. */
enum espl_status espl_device_decode(struct espl_device_decoder *decoder, size_t count,
                                    double *seconds, struct espl_error *err);
/** ids (sequences, count) <- the tokens made so far, from the first after the prompt. Errors:
 *  INTERNAL for more than were made; NOMEM, MACHINE. */
enum espl_status espl_device_get_tokens(const struct espl_device_decoder *decoder, int32_t *ids,
                                        size_t count, struct espl_error *err);
/** logits (sequences * prompt, vocabulary), host <- those after every token of the prompts. Nothing
 *  is chosen. Errors as for reading a prompt. */
enum espl_status espl_device_logits(struct espl_device_decoder *decoder, const int32_t *ids,
                                    float *logits, struct espl_error *err);

/** Where a decode step's time goes, in seconds. */
struct espl_device_step_times {
    double step;      /* the graph of the whole step */
    double products;  /* each piece by itself: linears of the blocks */
    double attention; /* with the cache */
    double norms;     /* embedding, norms, activations, and codes of the next input */
    double head;      /* product with the vocabulary, choice of the token */
    double gaps;      /* step less the pieces */
};

/** Times step and pieces, each as a graph of its own, `repeats` times, at the position reached; of
 *  each the median. The tokens made so far stay; position and cache do, too. After an error *times
 *  says nothing. Errors: INTERNAL before a prompt or without room for a step; NUMERIC, NOMEM,
 *  MACHINE. */
enum espl_status espl_device_time_step(struct espl_device_decoder *decoder, size_t repeats,
                                       struct espl_device_step_times *times,
                                       struct espl_error *err);

/** Bytes of device memory. */
struct espl_device_bytes {
    uint64_t weights; /* linears of the blocks */
    uint64_t outside; /* embeddings, head, positions */
    uint64_t cache;
    uint64_t work; /* of a decoder and of libraries */
};

/** What a decoder and its weights will take, from sizes alone. sparsity: of the codes, for encoded
 *  weights in other areas than dense; 0 = not known, as for dense ones. */
void espl_device_plan_bytes(const struct espl_model_config *config,
                            const struct espl_quant_scheme *scheme,
                            const struct espl_device_weights_options *weights, double sparsity,
                            const struct espl_device_decoder_options *options,
                            struct espl_device_bytes *bytes);
static inline uint64_t espl_device_bytes_sum(const struct espl_device_bytes *bytes)
{
    return bytes->weights + bytes->outside + bytes->cache + bytes->work;
}

#endif

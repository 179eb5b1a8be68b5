/* A block's linears behind one small interface: float32 weights, or integer codes, packed or
 * encoded. All linears that read one input share its activation codes. Internal to eval. */
#ifndef ESPL_EVAL_LINEAR_H
#define ESPL_EVAL_LINEAR_H

#include "eval/forward_internal.h"

/** What the linears at one place of a block read. */
struct espl_linear_input {
    const float *x;         /* (rows, width) */
    const float *simulated; /* the same after fake quantisation; NULL without */
    size_t rows;
    size_t width;
    bool coded; /* forward->codes holds this input */
};

/** Makes room in `forward` for the activation codes of a linear of these sizes, and for simulated
 *  inputs when asked. Once per block at most; nothing is allocated while blocks run. */
enum espl_status espl_linear_reserve(struct espl_forward *forward, size_t in, size_t outliers,
                                     size_t group_size, bool simulate, struct espl_error *err);
void espl_linear_scratch_free(struct espl_forward *forward);
/** Starts an input: fake-quantises it when the block asks for that at this site. */
enum espl_status espl_linear_begin(struct espl_forward *forward, const struct espl_block *block,
                                   enum espl_quant_site site, const float *x, size_t rows,
                                   size_t width, struct espl_linear_input *input,
                                   struct espl_error *err);
/** y (rows, out) = linear(input). */
enum espl_status espl_linear_run(struct espl_forward *forward, const struct espl_block *block,
                                 enum espl_role role, struct espl_linear_input *input, float *y,
                                 struct espl_error *err);

#endif

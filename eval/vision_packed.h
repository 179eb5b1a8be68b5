/* Linears of image models that are packed N:M: what they hold beside the float weights of a block.
 * Internal to eval. */
#ifndef ESPL_EVAL_VISION_PACKED_H
#define ESPL_EVAL_VISION_PACKED_H

#include "eval/vision_internal.h"

/** Loads the packed linear of a role; the float weights of the role stay empty. *packed <- false
 * (and nothing is loaded) when it is not packed. */
enum espl_status espl_vision_load_packed(struct espl_vision *vision, uint64_t block,
                                         enum espl_role role, bool *packed, struct espl_error *err);
/** y = linear(x), added to y or through GELU, for `tokens` rows of x. */
enum espl_status espl_vision_run_packed(struct espl_vision *vision,
                                        const struct espl_quant_linear *linear,
                                        enum espl_epilogue epilogue, size_t tokens, const float *x,
                                        float *y, struct espl_error *err);

#endif

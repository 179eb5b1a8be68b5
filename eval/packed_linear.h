/* Products with linears that are packed N:M (model.nm/1): inputs become bytes with a scale a token,
 * sums of products of bytes are exact, and the scales come after them. Internal to eval. */
#ifndef ESPL_EVAL_PACKED_LINEAR_H
#define ESPL_EVAL_PACKED_LINEAR_H

#include "espalier/kernels.h"
#include "model/quantised.h"

/** sums (tokens, out) <- codes (tokens, in) times the packed codes, then
 *  y (tokens, out) <- (float)sum * (scale of the row * scale of the token) + bias, each operation
 *  rounded to float32: the same bits as gemm_w4a4 gives for the same codes. sums: may be the memory
 *  of y. */
enum espl_status espl_packed_multiply(struct espl_backend *backend,
                                      const struct espl_quant_linear *linear,
                                      const struct espl_quant_activations *codes, size_t tokens,
                                      int32_t *sums, float *y, struct espl_error *err);

#endif

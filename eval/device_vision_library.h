/* Dense products of bytes by cuBLASLt for image models, where they take less time than our own
 * kernels: sums in INT32, then scales, bias and FP16 in a kernel behind them, with the bits that
 * our products give. Internal to eval and to stages that measure. */
#ifndef ESPL_EVAL_DEVICE_VISION_LIBRARY_H
#define ESPL_EVAL_DEVICE_VISION_LIBRARY_H

#include "eval/device_vision_linear.h"

#include <stdbool.h>

/** cuBLASLt, and for each size its product by the fastest of its algorithms. */
struct espl_device_vision_library;

/** Operands that trials may use; what is in them does not matter. */
struct espl_device_vision_operands {
    const int8_t *codes;
    const float *scales; /* of tokens */
    int32_t *sums;
    uint16_t *y;
};

/** Errors: those of espl_cuda_blaslt_create(). */
enum espl_status espl_device_vision_library_create(struct espl_device_vision_library **out,
                                                   struct espl_error *err);
/** NULL is allowed. Linears that were given to it must not run any more. */
void espl_device_vision_library_destroy(struct espl_device_vision_library *library);

/** Whether a linear of that size can run so. */
bool espl_device_vision_library_can(size_t in, size_t out);
/** linear->library <- the product of its size for so many tokens, whose algorithms are tried the
 *  first time; linear->bytes must be there. NULL: the library has none. Errors: NOMEM, MACHINE;
 *  UNSUPPORTED for more sizes than there is room for. */
enum espl_status espl_device_vision_library_find(struct espl_device_vision_library *library,
                                                 const struct espl_device_vision_operands *operands,
                                                 size_t tokens,
                                                 struct espl_device_vision_linear *linear,
                                                 struct espl_error *err);
/** Lets the library multiply when that takes less time than the linear's own kernel, or `always`.
 *  layout, codes (out, in): what its matrix holds. A size and layout is timed once. Errors: those
 *  of espl_device_vision_library_find(). */
enum espl_status espl_device_vision_library_take(
    struct espl_device_vision_library *library, const struct espl_device_vision_operands *operands,
    bool always, size_t tokens, const struct espl_nm_layout *layout, const int8_t *codes,
    struct espl_device_vision_linear *linear, struct espl_error *err);

#endif

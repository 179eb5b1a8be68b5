/* Dense products on a CUDA device by NVIDIA's cuBLASLt, which is looked for at run time: INT8
 * operands with INT32 or INT8 results, or all FP16. Its heuristics name several algorithms for a
 * shape; which of them is the fastest, the caller finds out. Streams are cudaStream_t. */
#ifndef ESPALIER_CUDA_BLASLT_H
#define ESPALIER_CUDA_BLASLT_H

#include "core/error.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The library and work space on the device. Use it in one stream at a time. */
struct espl_cuda_blaslt;
/** A product of one shape made ready. */
struct espl_cuda_blaslt_product;

enum espl_cuda_blaslt_types {
    ESPL_CUDA_BLASLT_SUMS,  /* int8 x int8 -> int32, exact */
    ESPL_CUDA_BLASLT_BYTES, /* int8 x int8 -> int8, sums times 0.001, saturated */
    ESPL_CUDA_BLASLT_HALVES /* FP16, sums in FP32 */
};

enum { ESPL_CUDA_BLASLT_MOST_ALGORITHMS = 16 };

/** Errors: UNSUPPORTED (no cuBLASLt on this machine, or built without CUDA), NOMEM, MACHINE. */
enum espl_status espl_cuda_blaslt_create(struct espl_cuda_blaslt **out, struct espl_error *err);
/** NULL is allowed. Its products must be gone. */
void espl_cuda_blaslt_destroy(struct espl_cuda_blaslt *library);

/** y (tokens, out) = x (tokens, in) W (out, in)^T, row-major without gaps. library: borrowed.
 *  Errors: UNSUPPORTED when there is no algorithm for the shape; NOMEM, MACHINE. */
enum espl_status espl_cuda_blaslt_product_create(struct espl_cuda_blaslt *library,
                                                 enum espl_cuda_blaslt_types types, size_t tokens,
                                                 size_t in, size_t out,
                                                 struct espl_cuda_blaslt_product **product,
                                                 struct espl_error *err);
/** NULL is allowed. */
void espl_cuda_blaslt_product_destroy(struct espl_cuda_blaslt_product *product);
/** How many algorithms there are, best guess first; 1 or more. */
size_t espl_cuda_blaslt_algorithms(const struct espl_cuda_blaslt_product *product);
/** Launches the product by one of them; may be captured in a CUDA graph. Pointers are device
 *  memory. Errors: MACHINE. */
enum espl_status espl_cuda_blaslt_run(const struct espl_cuda_blaslt_product *product,
                                      size_t algorithm, const void *w, const void *x, void *y,
                                      void *stream, struct espl_error *err);

#ifdef __cplusplus
}
#endif

#endif

/* The softmax of attention, row by row, without its division. */
#ifndef ESPL_KERNELS_CPU_SOFTMAX_H
#define ESPL_KERNELS_CPU_SOFTMAX_H

#include "kernels/cpu/vectormath.h"

/** scores[0..keys) <- exp(scores - highest), 0 from keys to end; the sum comes back. The row has
 *  room up to a multiple of ESPL_VECTOR_FLOATS at or above keys. */
float espl_softmax_row(float *scores, size_t keys, size_t end);
/** row <- row / divisor */
void espl_divide_row(float *row, size_t count, float divisor);

#endif

/* Simulated INT8 deployment: values are rounded to what a symmetric INT8 code with one float scale
 * can hold, and stay float32. Weights: a scale a row (output channel), after masking. Activations:
 * a scale a row (token), dynamic. scale = max|x| / 127, code = rint(x / scale) with halves to even.
 */
#ifndef ESPL_STAGES_NM_INT8_H
#define ESPL_STAGES_NM_INT8_H

#include <stddef.h>

/** Rounds x (rows, cols) in place. A row of zeros stays. */
void espl_nm_round_int8(float *x, size_t rows, size_t cols);

#endif

/* Slow, obvious second-order compression in double, and its inputs: written apart from the code
 * under test, with plain Gauss-Jordan and loops. */
#ifndef ESPL_TESTS_QUANT_ORACLE_H
#define ESPL_TESTS_QUANT_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Next number of a splitmix64 stream in [0, 1). */
double oracle_uniform(uint64_t *state);
/** Fresh arrays; the caller frees them. See tests/data/golden/quant/README.md. */
float *oracle_weights(size_t rows, size_t cols, uint64_t seed);
float *oracle_activations(size_t tokens, size_t cols, uint64_t seed);
/** Bit mask with about half of the bits set. */
uint8_t *oracle_mask(size_t rows, size_t cols, uint64_t seed);
bool oracle_kept(const uint8_t *mask, size_t cols, size_t row, size_t column);
/** (2 / 3) X^T X in double, column `dead` (>= cols: none) of X set to 0 first. */
double *oracle_hessian(float *x, size_t tokens, size_t cols, size_t dead);
double *oracle_identity(size_t cols);
/** Upper U with U^T U = (H + damping)^-1, by elimination; diagonal entries of 0 become 1 first. */
double *oracle_factor(const double *hessian, size_t cols, double damp);

/** How a quantising oracle turns a value into another. */
struct oracle_format {
    unsigned bits;
    size_t group, outliers, pair;
    bool full;
    double clip;
};
float oracle_scale(const struct oracle_format *format, double amax);
int oracle_code(double w, float scale, unsigned bits);

/** GPTQ one column at a time over the whole rest of the row, no blocks, no panels. values (rows,
 *  cols) <- dequantised weights; codes (rows, cols) <- codes of normal columns and outliers.
 *  freeze: errors of removed weights are dropped. mask: NULL = all kept. */
void oracle_gptq(size_t rows, size_t cols, const float *w, const double *hessian,
                 const double *upper, const uint8_t *mask, const struct oracle_format *format,
                 bool freeze, double *values, int *codes);

#endif

/* One product of codes for the tests of CUDA kernels: its operands, and the sums that the reference
 * backend finds. All stop the test on an error. */
#ifndef TESTS_CUDA_PRODUCT_H
#define TESTS_CUDA_PRODUCT_H

#include "core/rng.h"
#include "espalier/cuda_spmm.h"

enum { CUDA_POISON = 0x5A, CUDA_POISON_WORD = 0x5A5A5A5A }; /* what outputs hold before */

/** Weights and activations on the host, expected sums, operands on the device. */
struct cuda_product {
    size_t rows, cols, tokens;
    int8_t *codes;     /* (rows, cols) */
    int8_t *x;         /* (tokens, cols) */
    int32_t *expected; /* (tokens, rows) */
    int32_t *y;        /* (tokens, y_stride), from the device */
    void *device_x, *device_y;
    struct espl_cuda_spmm_operands operands;
};

/** Random codes of `bits` bits, each 0 with probability `sparsity`. */
void cuda_product_make(struct espl_rng *rng, size_t rows, size_t cols, size_t tokens, unsigned bits,
                       double sparsity, struct cuda_product *p);
void cuda_product_free(struct cuda_product *p);
/** expected <- the reference backend's product; again when codes have changed. */
void cuda_product_compute(struct cuda_product *p);
/** Of y. */
size_t cuda_product_bytes(const struct cuda_product *p);
/** y holds the expected sums for the first `tokens` tokens, and poison elsewhere. */
void cuda_product_expect(const struct cuda_product *p, size_t tokens, const char *what);
/** Poisons y, multiplies, and expects that. */
void cuda_product_run(struct cuda_product *p, const struct espl_cuda_spmm *spmm, size_t tokens,
                      const char *what);

#endif

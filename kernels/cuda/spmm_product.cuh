/* A matrix made ready for products, as the launching files see it. */
#ifndef ESPL_CUDA_SPMM_PRODUCT_CUH
#define ESPL_CUDA_SPMM_PRODUCT_CUH

#include "kernels/cuda/spmm_args.cuh"
#include "kernels/cuda/spmm_matrix.cuh"

struct espl_cuda_spmm {
    const struct espl_cuda_matrix *matrix;
    size_t tokens;
    unsigned tiles;
    struct espl_cuda_spmm_choice choice;
    const void *kernel;
    size_t shared_bytes;
    unsigned warps; /* of a block */
    bool can_overlap;
    double expected_seconds;
    struct spmm_args args; /* without operands */
};

/** UNSUPPORTED when tokens, rows of y or the address of x do not fit. */
enum espl_status spmm_operands_check(const struct espl_cuda_spmm *spmm, const void *x,
                                     size_t y_stride, size_t tokens, struct espl_error *err);
/** Launches the kernel with its arguments, a struct spmm_args or one that begins with it. */
enum espl_status spmm_launch(const struct espl_cuda_spmm *spmm, void *args, size_t tokens,
                             bool overlap, void *stream, struct espl_error *err);

#endif

/* Weights on the device, as the files of this folder see them. */
#ifndef ESPL_CUDA_SPMM_MATRIX_CUH
#define ESPL_CUDA_SPMM_MATRIX_CUH

#include "espalier/cuda_spmm.h"

struct espl_cuda_matrix {
    size_t rows;
    size_t cols;
    unsigned bits;
    enum espl_iebme_areas unit; /* dense, 1x1, 1x2, 2x1 or 2x2 */
    unsigned stripes;
    unsigned depth;  /* units or slices of a stripe */
    uint8_t *data;   /* device */
    uint32_t *index; /* device; NULL when dense */
    size_t data_bytes;
    unsigned chunk_bytes;   /* sparse: of the largest chunk */
    uint64_t *stripe_start; /* host, (stripes + 1): units of 128 bytes before each stripe */
};

#endif

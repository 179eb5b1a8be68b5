/* Weights on the device, as the files of this folder see them. */
#ifndef ESPL_CUDA_SPMM_MATRIX_CUH
#define ESPL_CUDA_SPMM_MATRIX_CUH

#include "kernels/cuda/atom_args.cuh"

/* What a layer with scales has besides its codes: arrays in one piece of device memory, given by
 * their offsets; see struct atom_args. */
struct spmm_atom {
    struct atom_layout layout;
    size_t rows; /* of the layer; a matrix whose rows stand permuted has whole stripes */
    uint8_t *memory;
    size_t memory_bytes;
    size_t scales_at; /* dense */
    size_t outliers_at;
    size_t outlier_scales_at;
    size_t bias_at;
    size_t row_of_at;
    size_t row_units_at; /* sparse */
    bool has_bias;
    bool has_row_of;
    unsigned row_shift;
    unsigned scale_bytes; /* sparse: in front of every chunk */
};

struct espl_cuda_matrix {
    size_t rows;
    size_t cols;
    unsigned bits;
    enum espl_iebme_areas unit; /* dense, 1x1, 1x2, 2x1, 2x2 or mixed */
    unsigned stripes;
    unsigned depth;  /* units or slices of a stripe */
    uint8_t *data;   /* device */
    uint32_t *index; /* device; NULL when dense */
    size_t data_bytes;
    unsigned chunk_bytes;   /* sparse: of the largest chunk */
    uint64_t *stripe_start; /* host, (stripes + 1): units of 128 bytes before each stripe */
    struct spmm_atom *atom; /* host; NULL without scales */
};

/** Gives the matrix a copy of the facts, and of their memory. The matrix owns both, also after an
 *  error. */
enum espl_status atom_attach(struct espl_cuda_matrix *matrix, const struct spmm_atom *facts,
                             cudaMemcpyKind kind, struct espl_error *err);

#endif

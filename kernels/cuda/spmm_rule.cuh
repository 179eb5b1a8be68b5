/* How a product is cut into blocks, warps and stages. */
#ifndef ESPL_CUDA_SPMM_RULE_CUH
#define ESPL_CUDA_SPMM_RULE_CUH

#include "kernels/cuda/spmm_args.cuh"
#include "kernels/cuda/spmm_matrix.cuh"

/** What the rule knows of a device. */
struct spmm_device {
    unsigned multiprocessors;
    size_t shared_bytes;   /* that a block may have */
    double bytes_a_second; /* of its memory, by clock and width */
    bool few_registers;    /* 10.0 and later: see SPMM_FEW_REGISTERS in spmm_dense.cuh */
};

enum espl_status spmm_device_get(struct spmm_device *device, struct espl_error *err);

/** MMA tiles of 8 tokens that a block does at once: 1, 2 or 4 (sparse: 1 or 2). */
unsigned spmm_tiles(const struct espl_cuda_matrix *matrix, size_t tokens);
/** The members of `wanted` that are not 0, and the rule's choice for the others. Errors:
 * UNSUPPORTED when it does not fit the device. */
enum espl_status spmm_choose(const struct espl_cuda_matrix *matrix, size_t tokens,
                             const struct spmm_device *device,
                             const struct espl_cuda_spmm_choice *wanted,
                             struct espl_cuda_spmm_choice *choice, double *seconds,
                             struct espl_error *err);
/** Stripes whose sums have room in shared memory at a time. */
unsigned spmm_tile_stripes(const struct espl_cuda_matrix *matrix, unsigned tiles, unsigned parts);
/** Of a block, without what is static. warps, pipeline: of the choice. */
size_t spmm_shared_bytes(const struct espl_cuda_matrix *matrix, const struct spmm_args *args,
                         unsigned tiles, unsigned warps, enum espl_cuda_pipeline pipeline);
/** Room of a chunk in a stage. */
unsigned spmm_stage_bytes(const struct espl_cuda_matrix *matrix);

#endif

/* What a launch of an N:M kernel is told, and the weights behind it. */
#ifndef ESPL_CUDA_NM_ARGS_CUH
#define ESPL_CUDA_NM_ARGS_CUH

#include "espalier/cuda_nm.h"

#include <stddef.h>
#include <stdint.h>

enum {
    NM_WARP = 32,
    NM_MAX_WARPS = 8, /* of a block */
    NM_TOKENS = 16,   /* of a matrix instruction */
    NM_QUAD = 4,
    NM_TERM_ROWS = 64, /* room for scales of a tile's rows, and for their biases */
    NM_TERMS = 2 * NM_TERM_ROWS + NM_WARP /* floats of a tile's terms in shared memory */
};

/** Weights on the device, in the order of docs/formats/nm-pack.md. */
struct espl_cuda_nm_matrix {
    enum espl_cuda_nm_form form;
    unsigned registers; /* R: N of 8, 8 when dense */
    unsigned group;     /* COMPACT: log2 of the stripes that share patterns */
    unsigned rows;
    unsigned cols;
    unsigned stripes;
    unsigned blocks;
    uint8_t *values;
    size_t value_bytes;
    uint8_t *patterns;
    size_t pattern_bytes;
    uint8_t *wide; /* the same weights for the kernel of large products, or NULL */
    size_t wide_bytes;
    unsigned wide_registers; /* 2 or 4: N = 1 is stored as N = 2 there */
    unsigned wide_rows;      /* of a unit: which of these kernels reads it */
    unsigned wide_unit;      /* bytes */
};

struct nm_args {
    const uint8_t *values;
    const uint8_t *patterns;
    const int8_t *x;
    void *y;
    const float *row_scales;
    const float *token_scales; /* NULL = 1 */
    const float *bias;         /* NULL = 0 */
    float multiplier;
    unsigned x_stride;
    unsigned y_stride;
    unsigned rows;
    unsigned tokens;
    unsigned stripes;
    unsigned blocks;
    unsigned char group;
    unsigned char split_shift; /* log2 of the warps that share a tile */
    unsigned char tile_shift;  /* log2 of the tiles of a block */
    unsigned char whole;       /* rows come in fours, and four of everything can be moved at once */
    unsigned char output;      /* enum espl_nm_output */
    unsigned char activation;  /* enum espl_nm_activation */
};

/** Kernel of a form, R, tile size in units of 16, and outputs: 0 sums, 1 without and 2 with
 *  activation; NULL: there is none. */
const void *nm_compact_kernel(unsigned registers, unsigned tokens, unsigned rows, unsigned mode);
const void *nm_element_kernel(unsigned registers, unsigned tokens, unsigned rows, unsigned mode);
const void *nm_dense_kernel(unsigned tokens, unsigned rows, unsigned mode);
/** One of them. */
const void *nm_kernel(const struct espl_cuda_nm_matrix *matrix, unsigned tokens, unsigned rows,
                      unsigned mode);

/** Bytes of shared memory of a block. */
size_t nm_shared_bytes(const struct espl_cuda_nm_choice *choice, unsigned mode);
/** Whether there is a kernel for a choice and the device has the room. */
bool nm_choice_exists(const struct espl_cuda_nm_matrix *matrix,
                      const struct espl_cuda_nm_choice *choice);
/** The rule among all other choices. */
struct espl_cuda_nm_choice nm_choose(const struct espl_cuda_nm_matrix *matrix, size_t tokens,
                                     unsigned multiprocessors);

#endif

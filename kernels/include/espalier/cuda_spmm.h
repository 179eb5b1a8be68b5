/* Products y = x W^T of INT4 activations and low-bit weights on a CUDA device, for few
 * tokens (decoding). Design, measurements and limits: docs/kernels/spmm.md.
 *
 * Order of use: espl_cuda_matrix_create_*() puts weights on the device, espl_cuda_spmm_create()
 * chooses how to cut the work and takes work space, espl_cuda_spmm_run() launches one kernel. The
 * integers are exact and the same for every choice. In a build without CUDA all of it answers
 * UNSUPPORTED. Pointers called `device` are device memory; streams are cudaStream_t, 0 = default.
 */
#ifndef ESPALIER_CUDA_SPMM_H
#define ESPALIER_CUDA_SPMM_H

#include "core/error.h"
#include "espalier/dense_device.h"
#include "espalier/iebme.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ESPL_CUDA_SPMM_ALIGN = 16,       /* of rows of x, in bytes */
    ESPL_CUDA_SPMM_MAX_COLS = 131071 /* int32 sums stay exact */
};

/** Weights on the device, immutable. */
struct espl_cuda_matrix;

/** From the device layout of an encoded matrix: 1x1, 1x2, 2x1, 2x2 or mixed, slices of 512.
 *  Errors: UNSUPPORTED for another layout, too many columns or no CUDA; NOMEM, MACHINE. */
enum espl_status espl_cuda_matrix_create_iebme(const struct espl_iebme_device *layout,
                                               struct espl_cuda_matrix **out,
                                               struct espl_error *err);
/** From dense weights of 2, 3 or 4 bits. Errors as above. */
enum espl_status espl_cuda_matrix_create_dense(const struct espl_dense_device *layout,
                                               struct espl_cuda_matrix **out,
                                               struct espl_error *err);
/** A second copy in other memory (to measure with cold caches). */
enum espl_status espl_cuda_matrix_clone(const struct espl_cuda_matrix *matrix,
                                        struct espl_cuda_matrix **out, struct espl_error *err);
void espl_cuda_matrix_destroy(struct espl_cuda_matrix *matrix);
/** Bytes that a product reads: data and index, padding included. */
uint64_t espl_cuda_matrix_bytes(const struct espl_cuda_matrix *matrix);

/** What multiplies. INT8 is there on all devices. INT4 is for plain 4-bit weights of one form on
 *  devices of compute capability 8.0 to 8.9, where it is the automatic choice. */
enum espl_cuda_instruction {
    ESPL_CUDA_INSTRUCTION_AUTOMATIC = 0,
    ESPL_CUDA_INSTRUCTION_INT8 = 1,
    ESPL_CUDA_INSTRUCTION_INT4 = 2
};

/** Who brings chunks of sparse weights into shared memory: every warp those that it decodes, or one
 *  warp of a block for all others, which then are 15 at most. PRODUCER is for plain weights of one
 *  sparse form and the INT8 instruction, from compute capability 9.0; the rule never takes it,
 * since it is slower (docs/kernels/spmm.md). */
enum espl_cuda_pipeline {
    ESPL_CUDA_PIPELINE_AUTOMATIC = 0,
    ESPL_CUDA_PIPELINE_OWN = 1,
    ESPL_CUDA_PIPELINE_PRODUCER = 2
};

/** How the work is cut, and by what it is done. In an argument 0 leaves a member to the rule. */
struct espl_cuda_spmm_choice {
    unsigned warps;  /* of a block: sparse up to 16 that multiply; dense 16, for 8 tokens also 20 */
    unsigned splits; /* of the columns over blocks; their sums meet in the work space */
    unsigned window; /* slices of columns that a block does at a time (sparse) */
    unsigned stages; /* of each warp's ring (sparse), 2 to 4 */
    unsigned parts;  /* of the rows over blocks */
    enum espl_cuda_instruction instruction;
    enum espl_cuda_pipeline pipeline;
};

/** A matrix made ready for up to `tokens` tokens, with its own work space. Use it in one stream at
 *  a time. */
struct espl_cuda_spmm;

/** wanted: NULL for the rule. matrix is borrowed. Errors: UNSUPPORTED for a choice that does not
 * fit the device or the weights, NOMEM, MACHINE. */
enum espl_status espl_cuda_spmm_create(const struct espl_cuda_matrix *matrix, size_t tokens,
                                       const struct espl_cuda_spmm_choice *wanted,
                                       struct espl_cuda_spmm **out, struct espl_error *err);
void espl_cuda_spmm_destroy(struct espl_cuda_spmm *spmm);
/** What was chosen. */
struct espl_cuda_spmm_choice espl_cuda_spmm_chosen(const struct espl_cuda_spmm *spmm);

/** Bytes of packed x: INT4 codes, columns filled up to whole slices of 512, tokens to whole groups:
 *  8, 16, or a multiple of 32, whatever comes next. */
static inline size_t espl_cuda_activation_bytes(size_t tokens, size_t cols)
{
    const size_t groups = tokens <= 8 ? 1 : tokens <= 16 ? 2 : (tokens + 31) / 32 * 4;
    return groups * (((cols + 511) / 512) * 2048 + 512);
}

/** codes (tokens, cols), device, INT4 values in bytes -> x, device, espl_cuda_activation_bytes(),
 * in the order in which the kernels read them: 8 tokens after 8 tokens; of these, 512 bytes for
 * every 128 columns: word 16 g + 4 t + b holds 8 codes of token g, columns 8 t .. 8 t + 7 of block
 * b of 32; byte i of a word: column i in its low, 4 + i in its high nibble. The rest becomes 0.
 * Behind them 512 bytes that begin with the sums of the 8 tokens' codes, int32. */
enum espl_status espl_cuda_pack_activations(const int8_t *codes, size_t tokens, size_t cols,
                                            uint8_t *x, void *stream, struct espl_error *err);

/** Seconds that the rule expects a product with cold caches to take, of sparse forms with a margin.
 *  Of several forms of the same weights the one with the least is the automatic choice. */
double espl_cuda_spmm_expected_seconds(const struct espl_cuda_spmm *spmm);

/** x as packed above, 16-byte aligned; y (tokens, y_stride) int32, device. */
struct espl_cuda_spmm_operands {
    const uint8_t *x;
    int32_t *y;
    size_t y_stride; /* at least rows */
    size_t tokens;   /* 1 to the number given at creation; x was packed for as many or more */
};

/** Launches y = x W^T. weights: NULL, or a clone of the matrix to read instead. overlap: may start
 *  while the kernel before it in the stream ends (programmatic dependent launch, 9.0 and later; no
 *  effect before). Errors: UNSUPPORTED for operands that do not fit; MACHINE. */
enum espl_status espl_cuda_spmm_run(const struct espl_cuda_spmm *spmm,
                                    const struct espl_cuda_matrix *weights,
                                    const struct espl_cuda_spmm_operands *operands, bool overlap,
                                    void *stream, struct espl_error *err);

#ifdef __cplusplus
}
#endif

#endif

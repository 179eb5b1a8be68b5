/* Products y = x W^T of bytes on a CUDA device, W packed N of M: the pieces of W that are zero are
 * neither stored nor, where 16 rows share their pattern, multiplied. Design, measurements and
 * limits: docs/kernels/md-spmm.md.
 *
 * Order of use: espl_cuda_nm_matrix_create() puts weights on the device, espl_cuda_nm_create()
 * chooses how to cut the work, espl_cuda_nm_run() launches one kernel. There is no work space, so
 * a product may run in several streams at a time. The integers are exact and the same for every
 * choice. In a build without CUDA all of it answers UNSUPPORTED. Device pointers are said to be so;
 * streams are cudaStream_t, NULL = default. */
#ifndef ESPALIER_CUDA_NM_H
#define ESPALIER_CUDA_NM_H

#include "core/error.h"
#include "espalier/nm_pack.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ESPL_CUDA_NM_ALIGN = 16 }; /* of x and of its rows, in bytes */

/** How a product treats its weights. */
enum espl_cuda_nm_form {
    ESPL_CUDA_NM_COMPACT, /* shared patterns: activations are gathered, K shrinks to N / M */
    ESPL_CUDA_NM_ELEMENT, /* patterns of single rows: expanded to all columns in registers */
    ESPL_CUDA_NM_DENSE    /* all columns are stored */
};

/** Weights on the device, immutable. */
struct espl_cuda_nm_matrix;

/** From a packed matrix, which is checked first. V >= 16 becomes COMPACT, V = 1 and 8 ELEMENT;
 * DENSE are N = M, and, stored dense on the device, patterns that the kernels do not take: M = 16,
 * and more than 4 of 8 of single rows. Errors: those of espl_nm_check(); UNSUPPORTED, NOMEM,
 * MACHINE.
 */
enum espl_status espl_cuda_nm_matrix_create(const struct espl_nm_matrix *packed,
                                            struct espl_cuda_nm_matrix **out,
                                            struct espl_error *err);
/** A second copy in other memory (to measure with cold caches). */
enum espl_status espl_cuda_nm_matrix_clone(const struct espl_cuda_nm_matrix *matrix,
                                           struct espl_cuda_nm_matrix **out,
                                           struct espl_error *err);
void espl_cuda_nm_matrix_destroy(struct espl_cuda_nm_matrix *matrix);
/** Bytes that a product reads at least: values and patterns, padding included. */
uint64_t espl_cuda_nm_matrix_bytes(const struct espl_cuda_nm_matrix *matrix);
enum espl_cuda_nm_form espl_cuda_nm_matrix_form(const struct espl_cuda_nm_matrix *matrix);

/** How the work is cut. A warp does tile_tokens x tile_rows outputs over a share of the columns;
 *  `splits` warps of a block share a tile and add their sums in shared memory; a block has `tiles`
 *  tiles beside each other. The kernels of large products (compute capability 9.0; COMPACT, M = 8,
 *  rows in sixteens) are, for N of 1 or 2 with V of 16, 32 or 64, and for N of 4 with V of 32 or
 * 64, 64 x 192 with one split and three tiles, whose weights stay in shared memory; and where they
 * do not fit there (from 24 or 25 blocks of 128 columns on, N = 4: from 13 on), with V of 32 or 64,
 *  128 x 256 with one split and one tile. They need y_stride in multiples of 16 elements and y at a
 *  multiple of 16 bytes; where operands are not so aligned, the rule's other choice runs. */
struct espl_cuda_nm_choice {
    unsigned tile_tokens; /* 16 or 32 */
    unsigned tile_rows;   /* 16, 32 or 64 */
    unsigned splits;      /* of the columns: 1, 2, 4 or 8 */
    unsigned tiles;       /* 1, 2 or 4; splits * tiles <= 8 */
};

/** The choices there are for a matrix, for a search over all of them: fills up to `most` entries,
 *  returns how many there are. */
size_t espl_cuda_nm_choices(const struct espl_cuda_nm_matrix *matrix,
                            struct espl_cuda_nm_choice *choices, size_t most);

/** A matrix made ready for a number of tokens. */
struct espl_cuda_nm;

/** wanted: NULL for the rule. matrix is borrowed. Errors: UNSUPPORTED for a choice that does not
 *  exist or too many tokens; NOMEM, MACHINE. */
enum espl_status espl_cuda_nm_create(const struct espl_cuda_nm_matrix *matrix, size_t tokens,
                                     const struct espl_cuda_nm_choice *wanted,
                                     struct espl_cuda_nm **out, struct espl_error *err);
void espl_cuda_nm_destroy(struct espl_cuda_nm *nm);
/** What was chosen. */
struct espl_cuda_nm_choice espl_cuda_nm_chosen(const struct espl_cuda_nm *nm);

/** Operands in device memory. */
struct espl_cuda_nm_operands {
    const int8_t *x; /* (tokens, x_stride), 16-byte aligned; columns beyond the matrix are read, but
                        do not count */
    size_t x_stride; /* a multiple of 16, at least cols */
    void *y;         /* (tokens, y_stride) of what the epilogue says, aligned to its elements */
    size_t y_stride; /* elements, at least rows */
    size_t tokens;   /* 1 to the number given at creation */
    struct espl_nm_epilogue epilogue; /* its arrays in device memory */
};

/** Launches y = x W^T with its epilogue. weights: NULL, or a clone of the matrix to read instead.
 *  overlap: may start while the kernel before it in the stream ends (programmatic dependent launch,
 *  9.0 and later; no effect before); weights, scales and bias of rows must not be written by that
 *  kernel. Errors: UNSUPPORTED for operands that do not fit; MACHINE. */
enum espl_status espl_cuda_nm_run(const struct espl_cuda_nm *nm,
                                  const struct espl_cuda_nm_matrix *weights,
                                  const struct espl_cuda_nm_operands *operands, bool overlap,
                                  void *stream, struct espl_error *err);

#ifdef __cplusplus
}
#endif

#endif

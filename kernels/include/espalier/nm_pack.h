/* N:M weights of 8 bits, packed for matrix units: of every M consecutive columns N are stored, in
 * the order of the fragments of an m16n8k32 product. The format, bit by bit, with a drawing:
 * docs/formats/nm-pack.md. Plain functions on plain arrays. A matrix from a file goes through
 * espl_nm_check() before anything else is done with it. Same subset of C11 and C++ as kernels.h. */
#ifndef ESPALIER_NM_PACK_H
#define ESPALIER_NM_PACK_H

#include "core/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ESPL_NM_STRIPE = 16,      /* rows that are packed together */
    ESPL_NM_BLOCK = 128,      /* columns that are packed together */
    ESPL_NM_SHARED = 16,      /* from this V on, patterns are shared by whole stripes */
    ESPL_NM_MAX_COLS = 131071 /* int32 sums of products of bytes stay exact */
};

/** N of every M consecutive columns are kept, at the same places in V consecutive rows. */
struct espl_nm_layout {
    size_t rows; /* output channels, >= 1 */
    size_t cols; /* 1 to ESPL_NM_MAX_COLS; a last window that is not full keeps N at most */
    unsigned n;  /* 1 to m; m = dense, without patterns */
    unsigned m;  /* 4, 8 or 16 */
    unsigned v;  /* 1, 8, 16, 32 or 64 */
};

/** What follows from a layout. */
struct espl_nm_sizes {
    size_t stripes;   /* ceil(rows / 16) */
    size_t blocks;    /* ceil(cols / 128) */
    size_t groups;    /* of V rows */
    size_t registers; /* R: 4-byte words of a row's quarter of a block, ceil(8 N / M) */
    size_t pattern_bytes;
    size_t value_bytes;
};

/** Arrays have exactly the sizes of espl_nm_sizes_of(); patterns is NULL when N = M. */
struct espl_nm_matrix {
    struct espl_nm_layout layout;
    uint8_t *patterns;
    size_t pattern_bytes;
    uint8_t *values;
    size_t value_bytes;
};

/** Errors: UNSUPPORTED for a layout that does not exist or sizes that do not fit size_t. */
enum espl_status espl_nm_sizes_of(const struct espl_nm_layout *layout, struct espl_nm_sizes *sizes,
                                  struct espl_error *err);
/** *v <- the largest V for which every V rows have all their nonzero codes (rows, cols) at N common
 *  places of every window. layout->v is not read. Errors: UNSUPPORTED; KIND when the codes are not
 *  N of M even row by row, naming row and columns. */
enum espl_status espl_nm_detect(const int8_t *codes, const struct espl_nm_layout *layout,
                                unsigned *v, struct espl_error *err);
/** Allocates and fills *matrix, which espl_nm_free() frees, without loss. layout->v: 0 = what
 *  espl_nm_detect() finds; a V for which patterns are not shared is refused. Places that a window
 *  does not need hold zeros. Errors: UNSUPPORTED, KIND, NOMEM. */
enum espl_status espl_nm_encode(const int8_t *codes, const struct espl_nm_layout *layout,
                                struct espl_nm_matrix *matrix, struct espl_error *err);
/** Frees the arrays and zeroes everything. */
void espl_nm_free(struct espl_nm_matrix *matrix);
/** Everything that a reader or kernel relies on: layout, sizes of arrays, N ascending places inside
 *  every window, zeros beyond the matrix. Errors: UNSUPPORTED, CORRUPT. */
enum espl_status espl_nm_check(const struct espl_nm_matrix *matrix, struct espl_error *err);
/** codes (rows, cols). Runs espl_nm_check() first; codes is not written when that fails. */
enum espl_status espl_nm_decode(const struct espl_nm_matrix *matrix, int8_t *codes,
                                struct espl_error *err);

/** Of a matrix that was checked: bit p of the result is 1 when column window * m + p is stored for
 *  the rows of `group`. */
unsigned espl_nm_kept(const struct espl_nm_matrix *matrix, const struct espl_nm_sizes *sizes,
                      size_t group, size_t window);
/** Where the stored value number `slot` of a row's window stands in `values`. row < 16 stripes,
 *  window < blocks * 128 / m, slot < n. */
size_t espl_nm_value_at(const struct espl_nm_layout *layout, const struct espl_nm_sizes *sizes,
                        size_t row, size_t window, unsigned slot);

/** What a product makes of its int32 sums. */
enum espl_nm_output {
    ESPL_NM_INT32, /* the sums as they are; nothing else of the epilogue is read */
    ESPL_NM_FP16,
    ESPL_NM_INT8
};
enum espl_nm_activation { ESPL_NM_LINEAR, ESPL_NM_RELU, ESPL_NM_GELU };

/** v = (float)sum * (row_scales[row] * token_scales[token]); v = v + bias[row]; the activation
 * (GELU exact, with erf); then FP16: IEEE half, ties to even, infinite from 65520 on; INT8:
 *  clamp(rint(v * multiplier), -128, 127), ties to even. Every operation is rounded to float32, so
 *  that all backends give the same bytes, except that GELU may differ by one step of the output.
 *  Arrays live where the operands of the product live. */
struct espl_nm_epilogue {
    enum espl_nm_output output;
    enum espl_nm_activation activation;
    const float *row_scales;   /* (rows) */
    const float *token_scales; /* (tokens), NULL = 1 */
    const float *bias;         /* (rows), NULL = 0 */
    float multiplier;          /* of INT8: 1 / scale of the outputs */
};

/** Bytes of an output. */
static inline size_t espl_nm_output_bytes(enum espl_nm_output output)
{
    return output == ESPL_NM_INT32 ? 4 : output == ESPL_NM_FP16 ? 2 : 1;
}

#ifdef __cplusplus
}
#endif

#endif

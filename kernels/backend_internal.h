/* What a backend object holds, for the files under kernels/ alone. */
#ifndef ESPL_KERNELS_BACKEND_INTERNAL_H
#define ESPL_KERNELS_BACKEND_INTERNAL_H

#include "espalier/kernels.h"

/** cos and sin of every (position, frequency) pair of the last rope call, so that the 2 x layers
 *  calls of a forward pass compute them once. */
struct espl_rope_table {
    size_t tokens; /* 0 = nothing cached */
    size_t half;
    float magnitude;
    float *inv_freq; /* (half): what the table was made for */
    float *values;   /* (tokens, 2, half): cos, then sin, of a position */
    size_t inv_freq_capacity;
    size_t values_capacity;
};

struct espl_backend {
    const struct espl_ops *ops;
    unsigned threads;
    unsigned blas_threads; /* of loops whose pieces call BLAS: 1 when it serves one caller only */
    void *scratch; /* work space of the running op, 64-byte aligned, grows and never shrinks */
    size_t scratch_bytes;
    struct espl_rope_table rope;
};

/** At least `bytes` of work space, valid until the next call; NULL when out of memory. The first
 *  call of a shape allocates, later ones do not. */
void *espl_backend_scratch(struct espl_backend *backend, size_t bytes);
/** As above for `count` items of `item_bytes`, with overflow check; fills *err on failure. */
enum espl_status espl_backend_scratch_array(struct espl_backend *backend, size_t count,
                                            size_t item_bytes, void **out, struct espl_error *err);

/** One thread a BLAS call: every call of ours is a piece of a loop that already has a thread per
 *  core. OpenBLAS built on OpenMP takes its thread count from OpenMP's default at every call
 * outside a parallel region, so that default becomes 1 too; loops here name their threads
 * themselves. */
void espl_blas_make_single_threaded(void);

/** What every nm_mask refuses: n > m, m > 64, or a short last window without keep_tail. */
enum espl_status espl_nm_mask_check(const struct espl_matrix_shape *shape, size_t n, size_t m,
                                    bool keep_tail, struct espl_error *err);

extern const struct espl_ops espl_ref_ops;
extern const struct espl_ops espl_cpu_ops;

#endif

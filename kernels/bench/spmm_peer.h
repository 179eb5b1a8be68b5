/* Baselines of `espalier bench spmm`: products of the same weights by other libraries. A baseline
 * is this table of functions. Those here load NVIDIA's libraries at run time, so that nothing new
 * is needed to build; a shared object given with --baseline-library adds another one
 * (docs/kernels/baselines.md has an example): it exports
 *
 *     const struct espl_spmm_peer *espl_spmm_peer_get(void);
 *
 * and may use whatever it likes. Functions that return int: 0 = done. */
#ifndef ESPL_BENCH_SPMM_PEER_H
#define ESPL_BENCH_SPMM_PEER_H

#include <stddef.h>
#include <stdint.h>

enum { ESPL_SPMM_PEER_VERSION = 1, ESPL_SPMM_PEER_TEXT = 160 };

/** y (tokens, rows) = x (tokens, cols) W^T. */
struct espl_spmm_peer_problem {
    size_t rows;
    size_t cols;
    size_t tokens;
    const int8_t *codes; /* host: W (rows, cols), values -8 to 7, zeros where pruned */
    size_t cold_bytes;   /* keep so many bytes of copies of W, and at least one */
};

struct espl_spmm_peer {
    unsigned version; /* ESPL_SPMM_PEER_VERSION */
    const char *name; /* as in tables and JSON: lower case, no spaces */
    int sparse;       /* 1: time depends on the sparsity */
    /** Prepares; on failure says why in `why` (ESPL_SPMM_PEER_TEXT bytes). */
    int (*create)(const struct espl_spmm_peer_problem *problem, void **self, char *why);
    /** Puts one product into the stream (a cudaStream_t); launch `copy` reads copy number
     *  copy % copies of W. May be captured into a CUDA graph. */
    int (*launch)(void *self, size_t copy, void *stream);
    /** Bytes of one copy of W. */
    uint64_t (*weight_bytes)(void *self);
    void (*destroy)(void *self);
};

extern const struct espl_spmm_peer espl_spmm_peer_cublas_fp16;
extern const struct espl_spmm_peer espl_spmm_peer_cublaslt_int8;
/** Of the N:M bench: the same with INT8 outputs, and all in FP16. */
extern const struct espl_spmm_peer espl_spmm_peer_cublaslt_int8_int8;
extern const struct espl_spmm_peer espl_spmm_peer_cublaslt_fp16;
extern const struct espl_spmm_peer espl_spmm_peer_cusparselt_2_4;
extern const struct espl_spmm_peer espl_spmm_peer_cusparse_csr;

#endif

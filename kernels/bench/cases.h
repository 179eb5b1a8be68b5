/* The cases of all kernel ops: sizes that tests, benches and support queries share. A case turns
 * into a problem (inputs drawn from a fixed seed, room for the output), which any backend can run.
 * To add a case, add a row in cases.c; to add an op, add its row in the op table of problem.c too.
 */
#ifndef ESPL_KERNELS_BENCH_CASES_H
#define ESPL_KERNELS_BENCH_CASES_H

#include "espalier/kernels.h"

enum espl_case_flag {
    ESPL_CASE_BIAS = 1u << 0,  /* gemm, layernorm: with bias (and gain) */
    ESPL_CASE_TAIL = 1u << 1,  /* nm_mask: keep_tail */
    ESPL_CASE_TIES = 1u << 2,  /* masks: scores take four values only */
    ESPL_CASE_TIMED = 1u << 3, /* `espalier bench kernels` shows it; the others are for tests */
    ESPL_CASE_BIG = 1u << 4    /* too large for the reference: timed only */
};

enum { ESPL_CASE_SIZES = 5 };

/** size: what the op's `size_names` say, unused ones 0. */
struct espl_kernel_case {
    const char *op; /* a member of struct espl_ops */
    size_t size[ESPL_CASE_SIZES];
    unsigned flags;
};

/** The table; ends with .op == NULL. */
extern const struct espl_kernel_case espl_kernel_cases[];

/** How far a backend may be from the reference. Exact ops: same bytes. Others: norm of the
 *  difference over norm of the reference, and largest difference over its root mean square. */
struct espl_kernel_tolerance {
    bool exact;
    double norm;
    double largest;
};

enum espl_problem_output { ESPL_OUTPUT_F32, ESPL_OUTPUT_F64, ESPL_OUTPUT_U8, ESPL_OUTPUT_INDEX };

enum { ESPL_PROBLEM_INPUTS = 4 };

/** A case with data. Inputs in the order of the op's arguments; an in-place op works on `output`,
 *  which espl_kernel_problem_reset() fills with the first input. */
struct espl_kernel_problem {
    const struct espl_kernel_case *item;
    float *inputs[ESPL_PROBLEM_INPUTS];
    size_t input_counts[ESPL_PROBLEM_INPUTS];
    int32_t *targets;                 /* cross_entropy */
    uint16_t *words;                  /* conversions */
    uint8_t *mask;                    /* apply_mask */
    struct espl_quant_problem *quant; /* gemm_w4a4, quantize_act: see problem_quant.h */
    void *output;
    size_t output_count;
    size_t output_bytes;
    enum espl_problem_output output_kind;
    struct espl_kernel_tolerance tolerance;
    double flop;  /* 0 where counting operations says nothing */
    double bytes; /* that have to move at least once */
};

/** "gemm_f32 tokens=7 in=13 out=129 bias" */
void espl_kernel_case_describe(const struct espl_kernel_case *item, char text[128]);
/** Errors: NOMEM; INTERNAL for an op without a row in the op table. */
enum espl_status espl_kernel_problem_create(const struct espl_kernel_case *item,
                                            struct espl_kernel_problem **out,
                                            struct espl_error *err);
void espl_kernel_problem_destroy(struct espl_kernel_problem *problem);
/** Brings the output to the state in which the op expects it. */
void espl_kernel_problem_reset(struct espl_kernel_problem *problem);
/** Runs the op once. Errors: what the op gives; UNSUPPORTED when the backend lacks it. */
enum espl_status espl_kernel_problem_run(struct espl_kernel_problem *problem,
                                         struct espl_backend *backend, struct espl_error *err);
/** Rate of an n x n x n sgemm of the linked BLAS with its own threads, best of `repeats` runs after
 *  a warm-up: what dense products can reach on this machine. Leaves BLAS at one thread a call. */
enum espl_status espl_blas_sgemm_rate(unsigned threads, size_t n, unsigned repeats, double *flops,
                                      struct espl_error *err);
/** Bytes a second at which `threads` threads read an array of `bytes` bytes (several times the last
 *  level of cache), best of `repeats` runs after a warm-up. Errors: NOMEM, also for less
 *  than a cache line. */
enum espl_status espl_memory_read_rate(unsigned threads, size_t bytes, unsigned repeats,
                                       double *rate, struct espl_error *err);

#endif

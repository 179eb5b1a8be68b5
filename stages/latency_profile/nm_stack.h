/* Times the products of N:M layers on a device, and whole passes through a model's blocks made of
 * them: what the table and the runs of latency-profile are. Weights and activations are random:
 * speed does not depend on their values.
 *
 * On the CPU "dense" multiplies with all weights in float32; "gather" needs masks shared by
 * `vector` output channels: for each such group it gathers the kept inputs and multiplies a dense
 * matrix of n / m the width. A pass does all that a block does beside its products (norms,
 * attention, GELU, residual adds) with the ops that evaluation uses.
 *
 * On a CUDA device "dense-int8" and "md-spmm" are the products of bytes of espalier/cuda_nm.h with
 * FP16 results, N = M and less, and "dense-cublaslt" is the dense one by the library, with a kernel
 * for scales and FP16 behind it; a pass is that of eval/device_vision.h, from pictures to logits,
 * with the faster of both. */
#ifndef ESPL_STAGES_NM_STACK_H
#define ESPL_STAGES_NM_STACK_H

#include "espalier/kernels.h"
#include "model/config.h"
#include "stages/latency_profile/latency_record.h"
#include "stages/nm_supernet/nm_layers.h"

/** The library's is on CUDA devices alone. */
enum { ESPL_NM_KERNEL_DENSE, ESPL_NM_KERNEL_SPARSE, ESPL_NM_KERNEL_LIBRARY, ESPL_NM_MOST_KERNELS };

struct espl_nm_stack;

/** What is timed. config, layers: borrowed, must outlive the object. */
struct espl_nm_stack_plan {
    const char *device; /* as a job names it; "auto" is the CPU here */
    unsigned threads;   /* of the CPU; 0 = all */
    const struct espl_model_config *config;
    const struct espl_nm_layers *layers;
    size_t batch;
    unsigned m;
    size_t vector; /* output channels that share a pattern */
};

/** Does the job's device mean a CUDA device to what measures layers? */
bool espl_nm_stack_is_cuda(const char *device);
/** Names of the kernels on a device, by number; ends with NULL. */
const char *const *espl_nm_stack_kernels(const char *device);
/** Refuses, blaming the parameter, what the device cannot time. Errors: UNSUPPORTED, JOB. */
enum espl_status espl_nm_stack_check(const char *device, size_t vector, struct espl_error *err);
/** Errors: NOMEM; on a CUDA device also UNSUPPORTED, MACHINE. */
enum espl_status espl_nm_stack_open(const struct espl_nm_stack_plan *plan,
                                    struct espl_nm_stack **out, struct espl_error *err);
/** NULL is allowed. */
void espl_nm_stack_destroy(struct espl_nm_stack *stack);
/** Threads that the CPU's products use; 0 on a CUDA device. */
size_t espl_nm_stack_threads(const struct espl_nm_stack *stack);
/** Host bytes that the CPU's object takes. */
uint64_t espl_nm_stack_bytes(const struct espl_nm_layers *layers, size_t batch);

/** Seconds of one product of a shape with n of m kept. DENSE and LIBRARY: n must be m. *seconds <-
 * 0 when the library has no product for it. */
enum espl_status espl_nm_stack_time_product(struct espl_nm_stack *stack,
                                            const struct espl_latency_shape *shape, unsigned n,
                                            int kernel, double *seconds, struct espl_error *err);
/** Seconds of one pass: layer l keeps chosen_level of n[l] and runs on chosen_kernel, both as
 *  `table` (closed) says. shape_of (layers). */
enum espl_status espl_nm_stack_time_pass(struct espl_nm_stack *stack,
                                         const struct espl_latency_table *table,
                                         const size_t *shape_of, const uint8_t *n, double *seconds,
                                         struct espl_error *err);
/** From now on a CUDA device repeats what a timing launches: long calls of little work on the host
 * are what an energy meter wants. 1 at first; the CPU takes no notice. */
void espl_nm_stack_repeat(struct espl_nm_stack *stack, size_t repeats);
/** Products or passes that the last timing ran, those before the clock started too. */
size_t espl_nm_stack_ran(const struct espl_nm_stack *stack);

#endif

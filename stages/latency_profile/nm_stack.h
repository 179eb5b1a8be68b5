/* Times the CPU's products of N:M layers, and whole passes through a model's blocks made of them.
 *
 * Two kernels: "dense" multiplies with all weights; "gather" needs masks shared by `vector` output
 * channels: for each such group it gathers the kept inputs and multiplies a dense matrix of n / m
 * the width. Weights and activations are random: speed does not depend on their values. A pass does
 * all that a block does beside its products (norms, attention, GELU, residual adds) with the ops
 * that evaluation uses. */
#ifndef ESPL_STAGES_NM_STACK_H
#define ESPL_STAGES_NM_STACK_H

#include "espalier/kernels.h"
#include "model/config.h"
#include "stages/latency_profile/latency_record.h"
#include "stages/nm_supernet/nm_layers.h"

enum { ESPL_NM_KERNEL_DENSE, ESPL_NM_KERNEL_GATHER, ESPL_NM_KERNELS };
extern const char *const espl_nm_kernel_names[ESPL_NM_KERNELS];

struct espl_nm_stack;

/** backend, config, layers: borrowed, must outlive the object. vector: output channels that share a
 *  pattern. Errors: NOMEM. */
enum espl_status espl_nm_stack_create(struct espl_backend *backend,
                                      const struct espl_model_config *config,
                                      const struct espl_nm_layers *layers, size_t batch, unsigned m,
                                      size_t vector, struct espl_nm_stack **out,
                                      struct espl_error *err);
void espl_nm_stack_destroy(struct espl_nm_stack *stack);
/** Host bytes that the object takes. */
uint64_t espl_nm_stack_bytes(const struct espl_nm_layers *layers, size_t batch);

/** Seconds of one product of a shape with n of m kept. DENSE: n must be m. */
enum espl_status espl_nm_stack_time_product(struct espl_nm_stack *stack,
                                            const struct espl_latency_shape *shape, unsigned n,
                                            int kernel, double *seconds, struct espl_error *err);
/** Seconds of one pass through all blocks: layer l keeps chosen_level of n[l] and runs on
 *  chosen_kernel, both as `table` (closed) says. shape_of (layers). */
enum espl_status espl_nm_stack_time_pass(struct espl_nm_stack *stack,
                                         const struct espl_latency_table *table,
                                         const size_t *shape_of, const uint8_t *n, double *seconds,
                                         struct espl_error *err);

#endif

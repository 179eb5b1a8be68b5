/* The kinds of stacks behind nm_stack.h. */
#ifndef ESPL_STAGES_NM_STACK_KINDS_H
#define ESPL_STAGES_NM_STACK_KINDS_H

#include "stages/latency_profile/nm_stack.h"

struct espl_nm_stack_kind {
    const char *kernels[ESPL_NM_MOST_KERNELS + 1]; /* ends with NULL */
    enum espl_status (*open)(const struct espl_nm_stack_plan *plan, struct espl_nm_stack **out,
                             struct espl_error *err);
    void (*destroy)(struct espl_nm_stack *stack);
    size_t (*threads)(const struct espl_nm_stack *stack);
    enum espl_status (*time_product)(struct espl_nm_stack *stack,
                                     const struct espl_latency_shape *shape, unsigned n, int kernel,
                                     double *seconds, struct espl_error *err);
    enum espl_status (*time_pass)(struct espl_nm_stack *stack,
                                  const struct espl_latency_table *table, const size_t *shape_of,
                                  const uint8_t *n, double *seconds, struct espl_error *err);
};

/** What every kind's object begins with. */
struct espl_nm_stack {
    const struct espl_nm_stack_kind *kind;
    size_t repeats; /* of a timing's launches, on CUDA devices; 0 = 1 */
    size_t ran;     /* products or passes that the last timing ran */
};

extern const struct espl_nm_stack_kind espl_nm_stack_cpu, espl_nm_stack_cuda;

#endif

#include "stages/latency_profile/nm_stack.h"

#include "stages/latency_profile/nm_stack_kinds.h"

#include <string.h>

static const char cuda[] = "cuda:";

bool espl_nm_stack_is_cuda(const char *device)
{
    return strncmp(device, cuda, sizeof cuda - 1) == 0;
}

static const struct espl_nm_stack_kind *kind_of(const char *device)
{
    return espl_nm_stack_is_cuda(device) ? &espl_nm_stack_cuda : &espl_nm_stack_cpu;
}

const char *const *espl_nm_stack_kernels(const char *device)
{
    return kind_of(device)->kernels;
}

enum espl_status espl_nm_stack_check(const char *device, size_t vector, struct espl_error *err)
{
    const size_t shared[] = {0, 1, 8, 16, 32, 64};
    bool known = !espl_nm_stack_is_cuda(device);
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++) {
        known = known || vector == shared[i];
    }
    if (!known) {
        espl_fail(err, ESPL_E_JOB, "no CUDA kernel for patterns shared by %zu channels", vector);
        espl_hint(err, "set 'vector' to 1, 8, 16, 32 or 64");
        return espl_blame(err, "param:vector");
    }
    if (espl_nm_stack_is_cuda(device) && strcmp(device, "cuda:0") != 0) {
        espl_fail(err, ESPL_E_UNSUPPORTED, "latencies are measured on cuda:0, not '%s'", device);
        return espl_hint(err, "make it the first one: CUDA_VISIBLE_DEVICES=%s",
                         device + sizeof cuda - 1);
    }
    return ESPL_OK;
}

enum espl_status espl_nm_stack_open(const struct espl_nm_stack_plan *plan,
                                    struct espl_nm_stack **out, struct espl_error *err)
{
    return kind_of(plan->device)->open(plan, out, err);
}

void espl_nm_stack_destroy(struct espl_nm_stack *stack)
{
    if (stack != NULL) {
        stack->kind->destroy(stack);
    }
}

size_t espl_nm_stack_threads(const struct espl_nm_stack *stack)
{
    return stack->kind->threads(stack);
}

enum espl_status espl_nm_stack_time_product(struct espl_nm_stack *stack,
                                            const struct espl_latency_shape *shape, unsigned n,
                                            int kernel, double *seconds, struct espl_error *err)
{
    return stack->kind->time_product(stack, shape, n, kernel, seconds, err);
}

enum espl_status espl_nm_stack_time_pass(struct espl_nm_stack *stack,
                                         const struct espl_latency_table *table,
                                         const size_t *shape_of, const uint8_t *n, double *seconds,
                                         struct espl_error *err)
{
    return stack->kind->time_pass(stack, table, shape_of, n, seconds, err);
}

void espl_nm_stack_repeat(struct espl_nm_stack *stack, size_t repeats)
{
    stack->repeats = repeats;
}

size_t espl_nm_stack_ran(const struct espl_nm_stack *stack)
{
    return stack->ran;
}

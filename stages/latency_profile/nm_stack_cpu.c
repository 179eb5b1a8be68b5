/* Products and passes of the CPU. */
#include "stages/latency_profile/nm_stack_kinds.h"

#include "core/checked.h"
#include "core/rng.h"
#include "model/arch_vision.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct cpu_stack {
    struct espl_nm_stack base;
    struct espl_backend *backend; /* owned */
    const struct espl_ops *ops;
    const struct espl_model_config *config;
    const struct espl_nm_layers *layers;
    size_t batch, vector;
    unsigned m;
    float *weights;  /* of the largest product; every product takes its head */
    float *x;        /* widest input or output of the batch */
    float *y;        /* widest output */
    float *gathered; /* kept inputs of one group */
    float *part;     /* outputs of one group */
    float *residual; /* what blocks add to */
    uint32_t *kept;  /* (widest in): positions of kept inputs */
};

/* Floats of the widest input, output and matrix of the layers. */
static bool widest(const struct espl_nm_layers *layers, size_t batch, size_t *in, size_t *out,
                   size_t *matrix, size_t *columns)
{
    *in = *out = *matrix = *columns = 1;
    for (size_t i = 0; i < layers->count; i++) {
        const struct espl_latency_shape shape = espl_nm_layer_shape(&layers->items[i], batch);
        size_t x = 0;
        size_t y = 0;
        size_t w = 0;
        if (!espl_mul_size(shape.tokens, shape.in, &x) ||
            !espl_mul_size(shape.tokens, shape.out, &y) ||
            !espl_mul_size(shape.in, shape.out, &w)) {
            return false;
        }
        *in = x > *in ? x : *in;
        *out = y > *out ? y : *out;
        *matrix = w > *matrix ? w : *matrix;
        *columns = shape.in > *columns ? shape.in : *columns;
    }
    return *in <= SIZE_MAX / 16 && *out <= SIZE_MAX / 16 && *matrix <= SIZE_MAX / 16;
}

uint64_t espl_nm_stack_bytes(const struct espl_nm_layers *layers, size_t batch)
{
    size_t in = 0;
    size_t out = 0;
    size_t matrix = 0;
    size_t columns = 0;
    return widest(layers, batch, &in, &out, &matrix, &columns)
               ? sizeof(float) * ((uint64_t)matrix + 5 * (uint64_t)(in > out ? in : out))
               : UINT64_MAX;
}

static void fill_random(float *values, size_t count, float scale, struct espl_rng *rng)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = scale * (float)(espl_rng_unit(rng) - 0.5);
    }
}

static void destroy_cpu(struct espl_nm_stack *base)
{
    struct cpu_stack *stack = (struct cpu_stack *)base;
    free(stack->weights);
    free(stack->x);
    free(stack->y);
    free(stack->gathered);
    free(stack->part);
    free(stack->residual);
    free(stack->kept);
    espl_backend_close(stack->backend);
    free(stack);
}

static enum espl_status allocate(struct cpu_stack *stack, const struct espl_nm_stack_plan *plan,
                                 struct espl_error *err)
{
    size_t in = 0;
    size_t wide = 0;
    size_t matrix = 0;
    size_t columns = 0;
    if (widest(plan->layers, plan->batch, &in, &wide, &matrix, &columns)) {
        in = wide > in ? wide : in;
        stack->weights = malloc(matrix * sizeof(float));
        stack->x = malloc(in * sizeof(float)); /* also holds the output of fc1 */
        stack->y = malloc(wide * sizeof(float));
        stack->gathered = malloc(in * sizeof(float));
        stack->part = malloc(wide * sizeof(float));
        stack->residual = malloc(in * sizeof(float));
        stack->kept = malloc(columns * sizeof *stack->kept);
    }
    if (stack->weights == NULL || stack->x == NULL || stack->y == NULL || stack->gathered == NULL ||
        stack->part == NULL || stack->residual == NULL || stack->kept == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory to time a batch of %zu images", plan->batch);
    }
    struct espl_rng rng = espl_rng_stream(0, "nm-stack", 0);
    /* Small weights: values stay finite through any number of blocks. */
    fill_random(stack->weights, matrix, 1.0f / sqrtf((float)columns), &rng);
    fill_random(stack->x, in, 2.0f, &rng);
    memcpy(stack->residual, stack->x, in * sizeof(float));
    return ESPL_OK;
}

static enum espl_status open_cpu(const struct espl_nm_stack_plan *plan, struct espl_nm_stack **out,
                                 struct espl_error *err)
{
    struct cpu_stack *stack = calloc(1, sizeof *stack);
    if (stack == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory to time a batch of %zu images", plan->batch);
    }
    stack->base.kind = &espl_nm_stack_cpu;
    stack->config = plan->config;
    stack->layers = plan->layers;
    stack->batch = plan->batch;
    stack->m = plan->m;
    stack->vector = plan->vector;
    enum espl_status status = espl_backend_open("cpu", plan->threads, &stack->backend, err);
    if (status == ESPL_OK) {
        stack->ops = espl_backend_ops(stack->backend);
        status = allocate(stack, plan, err);
    }
    if (status != ESPL_OK) {
        destroy_cpu(&stack->base);
        return status;
    }
    *out = &stack->base;
    return ESPL_OK;
}

static size_t count_threads(const struct espl_nm_stack *base)
{
    return espl_backend_threads(((const struct cpu_stack *)base)->backend);
}

/* gathered (tokens, count) <- columns `kept` of x (tokens, in). */
static void gather(size_t tokens, size_t in, const float *x, const uint32_t *kept, size_t count,
                   float *gathered)
{
    for (size_t row = 0; row < tokens; row++) {
        const float *from = x + row * in;
        float *to = gathered + row * count;
        for (size_t i = 0; i < count; i++) {
            to[i] = from[kept[i]];
        }
    }
}

/* Some n of every m inputs; another choice for every group, as masks have it. Returns how many. */
static size_t choose_kept(const struct cpu_stack *stack, size_t in, unsigned n, size_t group)
{
    size_t count = 0;
    for (size_t window = 0; window < in; window += stack->m) {
        const unsigned turn = (unsigned)((window / stack->m + group) % stack->m);
        for (unsigned i = 0; i < stack->m; i++) {
            if ((i + turn) % stack->m < n) {
                stack->kept[count++] = (uint32_t)(window + i);
            }
        }
    }
    return count;
}

static enum espl_status gathered_product(struct cpu_stack *stack,
                                         const struct espl_latency_shape *shape, unsigned n,
                                         const float *x, float *y, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t first = 0; status == ESPL_OK && first < shape->out; first += stack->vector) {
        const size_t left = shape->out - first;
        const size_t rows = left < stack->vector ? left : stack->vector;
        const size_t count = choose_kept(stack, shape->in, n, first / stack->vector);
        const struct espl_gemm_shape product = {shape->tokens, count, rows};
        float *part = rows == shape->out ? y : stack->part;
        gather(shape->tokens, shape->in, x, stack->kept, count, stack->gathered);
        status = stack->ops->gemm_f32(stack->backend, &product, stack->gathered,
                                      stack->weights + first * count, NULL, part, err);
        for (size_t row = 0; status == ESPL_OK && part != y && row < shape->tokens; row++) {
            memcpy(y + row * shape->out + first, part + row * rows, rows * sizeof *y);
        }
    }
    return status;
}

static enum espl_status product(struct cpu_stack *stack, const struct espl_latency_shape *shape,
                                unsigned n, int kernel, const float *x, float *y,
                                struct espl_error *err)
{
    if (kernel == ESPL_NM_KERNEL_SPARSE) {
        return gathered_product(stack, shape, n, x, y, err);
    }
    const struct espl_gemm_shape dense = {shape->tokens, shape->in, shape->out};
    return stack->ops->gemm_f32(stack->backend, &dense, x, stack->weights, NULL, y, err);
}

static enum espl_status time_product(struct espl_nm_stack *base,
                                     const struct espl_latency_shape *shape, unsigned n, int kernel,
                                     double *seconds, struct espl_error *err)
{
    struct cpu_stack *stack = (struct cpu_stack *)base;
    const double start = espl_backend_seconds(stack->backend);
    const enum espl_status status = product(stack, shape, n, kernel, stack->x, stack->y, err);
    *seconds = espl_backend_seconds(stack->backend) - start;
    base->ran = 1;
    return status;
}

/* What follows the product of a layer. The result of q, k, v goes through attention; what the
 * residual stream takes is added to it. Leaves the input of the next layer in stack->x. */
static enum espl_status after_product(struct cpu_stack *stack, const struct espl_nm_layer *layer,
                                      const struct espl_latency_shape *shape,
                                      struct espl_error *err)
{
    static const struct espl_full_attention_tables no_tables = {NULL, NULL, NULL};
    struct espl_vision_place place;
    espl_vision_get_place(stack->config, (uint64_t)layer->spec.layer, &place);
    if (layer->spec.role == ESPL_ROLE_QKV) {
        const size_t window = place.window == 0 ? layer->tokens : place.window * place.window;
        const size_t head_dim = (size_t)(place.width / place.heads);
        const struct espl_full_attention_shape attention = {.images = stack->batch,
                                                            .windows = layer->tokens / window,
                                                            .tokens = window,
                                                            .heads = (size_t)place.heads,
                                                            .head_dim = head_dim,
                                                            .scale = 1.0f / sqrtf((float)head_dim)};
        return stack->ops->full_attention(stack->backend, &attention, &no_tables, stack->y,
                                          stack->x, err);
    }
    if (layer->spec.role == ESPL_ROLE_FC1) {
        memcpy(stack->x, stack->y, shape->tokens * shape->out * sizeof(float));
        return stack->ops->gelu(stack->backend, shape->tokens * shape->out, stack->x, err);
    }
    enum espl_status status =
        stack->ops->add(stack->backend, shape->tokens * shape->out, stack->y, stack->residual, err);
    if (status == ESPL_OK) {
        status = stack->ops->layernorm(stack->backend, shape->tokens, shape->out, stack->residual,
                                       NULL, NULL, 1e-6f, stack->x, err);
    }
    return status;
}

static enum espl_status time_pass(struct espl_nm_stack *base,
                                  const struct espl_latency_table *table, const size_t *shape_of,
                                  const uint8_t *n, double *seconds, struct espl_error *err)
{
    struct cpu_stack *stack = (struct cpu_stack *)base;
    const double start = espl_backend_seconds(stack->backend);
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < stack->layers->count; i++) {
        const struct espl_nm_layer *layer = &stack->layers->items[i];
        const struct espl_latency_shape shape = espl_nm_layer_shape(layer, stack->batch);
        const size_t cell = shape_of[i] * table->m + (n[i] - 1u);
        status = product(stack, &shape, table->chosen_level[cell], (int)table->chosen_kernel[cell],
                         stack->x, stack->y, err);
        if (status == ESPL_OK) {
            status = after_product(stack, layer, &shape, err);
        }
    }
    *seconds = espl_backend_seconds(stack->backend) - start;
    base->ran = 1;
    return status;
}

const struct espl_nm_stack_kind espl_nm_stack_cpu = {
    .kernels = {"dense", "gather"},
    .open = open_cpu,
    .destroy = destroy_cpu,
    .threads = count_threads,
    .time_product = time_product,
    .time_pass = time_pass,
};

/* Products and passes of a CUDA device, each as a CUDA graph. */
#include "core/checked.h"
#include "core/rng.h"
#include "espalier/cuda_memory.h"
#include "eval/device_memory.h"
#include "eval/device_vision.h"
#include "eval/device_vision_library.h"
#include "eval/device_vision_random.h"
#include "stages/latency_profile/nm_stack_kinds.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_COPIES = 64, /* of a matrix, so that launches do not find it in the cache */
    LEAST_LAUNCHES = 24,
    PASSES = 3 /* timed together */
};

struct cuda_stack {
    struct espl_nm_stack base;
    struct espl_nm_stack_plan plan;
    struct espl_device_vision *vision; /* NULL until a pass is timed */
    uint8_t *level;                    /* (layers): N that the vision's linears have */
    /* Operands of single products, for the widest of all. */
    int8_t *x;
    float *scales; /* of tokens and of rows */
    uint16_t *y;
    int32_t *sums; /* of the library */
    size_t cache_bytes;
    /* The product that was timed last. */
    struct espl_nm_layout layout;
    size_t tokens;
    struct espl_cuda_nm_matrix *copies[MOST_COPIES];
    size_t copy_count;
    struct espl_cuda_nm *product;
    /* The same of the library: copies of dense weights behind each other. */
    struct espl_device_vision_library *library;
    struct espl_device_vision_linear dense;
    size_t dense_tokens;
    size_t dense_copies;
};

static void drop_product(struct cuda_stack *stack)
{
    espl_cuda_nm_destroy(stack->product);
    for (size_t i = 0; i < stack->copy_count; i++) {
        espl_cuda_nm_matrix_destroy(stack->copies[i]);
    }
    stack->product = NULL;
    stack->copy_count = 0;
}

static void destroy_cuda(struct espl_nm_stack *base)
{
    struct cuda_stack *stack = (struct cuda_stack *)base;
    drop_product(stack);
    espl_device_vision_destroy(stack->vision);
    espl_cuda_free(stack->dense.bytes);
    espl_device_vision_library_destroy(stack->library);
    espl_cuda_free(stack->sums);
    espl_cuda_free(stack->x);
    espl_cuda_free(stack->scales);
    espl_cuda_free(stack->y);
    free(stack->level);
    free(stack);
}

/* Random bytes for the widest input of the layers, and room for its results. */
static enum espl_status take_operands(struct cuda_stack *stack, struct espl_error *err)
{
    struct espl_rng rng = espl_rng_stream(0, "nm-stack", 1);
    size_t in = 1;
    size_t out = 1;
    size_t terms = 1;
    for (size_t i = 0; i < stack->plan.layers->count; i++) {
        const struct espl_latency_shape shape =
            espl_nm_layer_shape(&stack->plan.layers->items[i], stack->plan.batch);
        size_t x = 0;
        size_t y = 0;
        if (!espl_mul_size(shape.tokens, espl_device_vision_code_stride(shape.in), &x) ||
            !espl_mul_size(shape.tokens, shape.out, &y) || y > SIZE_MAX / sizeof *stack->sums) {
            return espl_fail(err, ESPL_E_NOMEM, "a batch of %zu images is too large",
                             stack->plan.batch);
        }
        in = x > in ? x : in;
        out = y > out ? y : out;
        terms = shape.tokens > terms ? shape.tokens : terms;
        terms = shape.out > terms ? shape.out : terms;
    }
    const size_t words = in / sizeof(uint64_t) + 1;
    uint64_t *bytes = malloc(words * sizeof *bytes);
    float *scales = malloc(terms * sizeof *scales);
    void *x = NULL;
    void *y = NULL;
    void *sums = NULL;
    enum espl_status status = bytes != NULL && scales != NULL
                                  ? ESPL_OK
                                  : espl_fail(err, ESPL_E_NOMEM, "no memory for activations");
    for (size_t i = 0; status == ESPL_OK && i < words; i++) {
        bytes[i] = espl_rng_u64(&rng);
    }
    for (size_t i = 0; status == ESPL_OK && i < terms; i++) {
        scales[i] = 0.01f;
    }
    if (status == ESPL_OK) {
        status = espl_device_upload(bytes, words, sizeof *bytes, &x, err);
        stack->x = x;
    }
    if (status == ESPL_OK) {
        status = espl_device_upload_floats(scales, terms, &stack->scales, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_alloc(out * sizeof *stack->y, &y, err);
        stack->y = y;
    }
    if (status == ESPL_OK) {
        status = espl_cuda_alloc(out * sizeof *stack->sums, &sums, err);
        stack->sums = sums;
    }
    free(bytes);
    free(scales);
    return status;
}

static enum espl_status open_cuda(const struct espl_nm_stack_plan *plan, struct espl_nm_stack **out,
                                  struct espl_error *err)
{
    struct cuda_stack *stack = calloc(1, sizeof *stack);
    if (stack != NULL) {
        stack->level = calloc(plan->layers->count + 1, 1);
    }
    if (stack == NULL || stack->level == NULL) {
        free(stack);
        return espl_fail(err, ESPL_E_NOMEM, "no memory to time a batch of %zu images", plan->batch);
    }
    stack->base.kind = &espl_nm_stack_cuda;
    stack->plan = *plan;
    enum espl_status status = espl_cuda_cache_bytes(&stack->cache_bytes, err);
    if (status == ESPL_OK) {
        status = espl_device_vision_library_create(&stack->library, err);
    }
    if (status == ESPL_OK) {
        status = take_operands(stack, err);
    }
    if (status != ESPL_OK) {
        destroy_cuda(&stack->base);
        return status;
    }
    *out = &stack->base;
    return ESPL_OK;
}

static size_t no_threads(const struct espl_nm_stack *base)
{
    (void)base;
    return 0;
}

/* ---- products ---- */

/* Copies worth four times the cache, or as many as there may be. */
static enum espl_status make_copies(struct cuda_stack *stack, struct espl_error *err)
{
    enum espl_status status =
        espl_device_vision_random_matrix(&stack->layout, &stack->copies[0], err);
    if (status != ESPL_OK) {
        return status;
    }
    stack->copy_count = 1;
    const uint64_t each = espl_cuda_nm_matrix_bytes(stack->copies[0]);
    while (status == ESPL_OK && stack->copy_count < MOST_COPIES &&
           each * stack->copy_count < 4 * (uint64_t)stack->cache_bytes) {
        status =
            espl_cuda_nm_matrix_clone(stack->copies[0], &stack->copies[stack->copy_count], err);
        stack->copy_count += status == ESPL_OK;
    }
    return status;
}

static enum espl_status prepare(struct cuda_stack *stack, const struct espl_latency_shape *shape,
                                unsigned n, struct espl_error *err)
{
    struct espl_nm_layout layout;
    memset(&layout, 0, sizeof layout); /* compared as bytes */
    layout.rows = shape->out;
    layout.cols = shape->in;
    layout.n = n;
    layout.m = stack->plan.m;
    layout.v = n == stack->plan.m ? 64 : (unsigned)stack->plan.vector;
    if (stack->product != NULL && stack->tokens == shape->tokens &&
        memcmp(&layout, &stack->layout, sizeof layout) == 0) {
        return ESPL_OK;
    }
    drop_product(stack);
    stack->layout = layout;
    stack->tokens = shape->tokens;
    const enum espl_status status = make_copies(stack, err);
    return status == ESPL_OK
               ? espl_cuda_nm_create(stack->copies[0], stack->tokens, NULL, &stack->product, err)
               : status;
}

static enum espl_status launch_product(void *self, size_t copy, bool overlap, void *stream,
                                       struct espl_error *err)
{
    const struct cuda_stack *stack = self;
    const struct espl_cuda_nm_operands operands = {
        .x = stack->x,
        .x_stride = espl_device_vision_code_stride(stack->layout.cols),
        .y = stack->y,
        .y_stride = stack->layout.rows,
        .tokens = stack->tokens,
        .epilogue = {.output = ESPL_NM_FP16,
                     .row_scales = stack->scales,
                     .token_scales = stack->scales,
                     .bias = stack->scales},
    };
    return espl_cuda_nm_run(stack->product, stack->copies[copy % stack->copy_count], &operands,
                            overlap, stream, err);
}

static size_t repeats_of(const struct cuda_stack *stack)
{
    return stack->base.repeats > 1 ? stack->base.repeats : 1;
}

/* ---- the same by the library ---- */

/* Dense weights of a shape in copies worth four times the cache, and the library's product. Values
 * do not matter: scales and biases are those that activations have. */
static enum espl_status prepare_dense(struct cuda_stack *stack,
                                      const struct espl_latency_shape *shape,
                                      struct espl_error *err)
{
    struct espl_device_vision_linear *dense = &stack->dense;
    const struct espl_device_vision_operands operands = {stack->x, stack->scales, stack->sums,
                                                         stack->y};
    const size_t each = shape->in * shape->out;
    const size_t wanted = 4 * stack->cache_bytes / each + 1;
    void *bytes = NULL;
    if (dense->bytes != NULL && stack->dense_tokens == shape->tokens && dense->in == shape->in &&
        dense->out == shape->out) {
        return ESPL_OK;
    }
    espl_cuda_free(dense->bytes);
    *dense = (struct espl_device_vision_linear){
        .in = shape->in, .out = shape->out, .scales = stack->scales, .bias = stack->scales};
    stack->dense_tokens = shape->tokens;
    stack->dense_copies = wanted < MOST_COPIES ? wanted : MOST_COPIES;
    enum espl_status status = espl_cuda_alloc(each * stack->dense_copies, &bytes, err);
    dense->bytes = bytes;
    if (status == ESPL_OK) {
        status = espl_cuda_fill(bytes, 1, each * stack->dense_copies, err);
    }
    return status == ESPL_OK ? espl_device_vision_library_find(stack->library, &operands,
                                                               shape->tokens, dense, err)
                             : status;
}

static enum espl_status launch_dense(void *self, size_t copy, bool overlap, void *stream,
                                     struct espl_error *err)
{
    const struct cuda_stack *stack = self;
    struct espl_device_vision_linear one = stack->dense;
    one.bytes += copy % stack->dense_copies * one.in * one.out;
    (void)overlap;
    return espl_device_vision_linear_run(&one, stack->x, stack->scales, stack->dense_tokens,
                                         stack->y, stream, err);
}

/* What is launched once a copy, as a graph. */
static enum espl_status time_copies(struct cuda_stack *stack,
                                    const struct espl_cuda_subject *subject, size_t copies,
                                    double *seconds, struct espl_error *err)
{
    struct espl_cuda_time time = {0};
    const struct espl_cuda_timing_options options = {
        .graph = true,
        .overlap = true,
        .launches = copies > LEAST_LAUNCHES ? copies : LEAST_LAUNCHES,
        .repeats = repeats_of(stack)};
    const enum espl_status status = espl_cuda_time_launches(subject, &options, &time, err);
    stack->base.ran = options.launches * (1 + options.repeats);
    *seconds = time.median;
    return status;
}

static enum espl_status time_dense(struct cuda_stack *stack, const struct espl_latency_shape *shape,
                                   double *seconds, struct espl_error *err)
{
    *seconds = 0.0;
    if (!espl_device_vision_library_can(shape->in, shape->out)) {
        return ESPL_OK;
    }
    const enum espl_status status = prepare_dense(stack, shape, err);
    if (status != ESPL_OK || stack->dense.library == NULL) {
        return status;
    }
    const struct espl_cuda_subject subject = {stack, launch_dense};
    return time_copies(stack, &subject, stack->dense_copies, seconds, err);
}

static enum espl_status time_product(struct espl_nm_stack *base,
                                     const struct espl_latency_shape *shape, unsigned n, int kernel,
                                     double *seconds, struct espl_error *err)
{
    struct cuda_stack *stack = (struct cuda_stack *)base;
    const struct espl_cuda_subject subject = {stack, launch_product};
    if (kernel == ESPL_NM_KERNEL_LIBRARY) {
        return time_dense(stack, shape, seconds, err);
    }
    const enum espl_status status = prepare(stack, shape, n, err); /* n = m: dense */
    return status == ESPL_OK ? time_copies(stack, &subject, stack->copy_count, seconds, err)
                             : status;
}

/* ---- passes ---- */

static enum espl_status open_vision(struct cuda_stack *stack, struct espl_error *err)
{
    const struct espl_device_vision_random random = {
        .m = stack->plan.m,
        .vector = stack->plan.vector > 0 ? (unsigned)stack->plan.vector : 1,
        .by = ESPL_DEVICE_VISION_FASTEST};
    if (stack->vision != NULL) {
        return ESPL_OK;
    }
    memset(stack->level, (int)stack->plan.m, stack->plan.layers->count);
    return espl_device_vision_create_random(stack->plan.config, &random, stack->plan.batch,
                                            &stack->vision, err);
}

static enum espl_status time_pass(struct espl_nm_stack *base,
                                  const struct espl_latency_table *table, const size_t *shape_of,
                                  const uint8_t *n, double *seconds, struct espl_error *err)
{
    struct cuda_stack *stack = (struct cuda_stack *)base;
    struct espl_cuda_time time = {0};
    enum espl_status status = open_vision(stack, err);
    for (size_t i = 0; status == ESPL_OK && i < stack->plan.layers->count; i++) {
        const struct espl_tensor_spec *spec = &stack->plan.layers->items[i].spec;
        const uint8_t level = table->chosen_level[shape_of[i] * table->m + (n[i] - 1u)];
        if (level != stack->level[i]) {
            status = espl_device_vision_set(stack->vision, (uint64_t)spec->layer, spec->role, level,
                                            err);
            stack->level[i] = level;
        }
    }
    if (status == ESPL_OK) {
        status = espl_device_vision_time(stack->vision, ESPL_DEVICE_VISION_ALL, PASSES,
                                         repeats_of(stack), &time, err);
        base->ran = PASSES * (1 + repeats_of(stack));
    }
    *seconds = time.median;
    return status;
}

const struct espl_nm_stack_kind espl_nm_stack_cuda = {
    .kernels = {"dense-int8", "md-spmm", "dense-cublaslt"},
    .open = open_cuda,
    .destroy = destroy_cuda,
    .threads = no_threads,
    .time_product = time_product,
    .time_pass = time_pass,
};

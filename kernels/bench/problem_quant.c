#include "kernels/bench/problem_quant.h"

#include "core/checked.h"
#include "core/codes.h"

#include <stdlib.h>
#include <string.h>

/* Places of the arrays inside one allocation, floats first so that all are aligned. */
struct layout {
    size_t a_scales, a_outlier_scales, w_scales, w_outlier_scales, bias;
    size_t a_codes, a_outlier_codes, w_codes, w_outlier_codes, bytes;
};

static bool take(size_t *used, size_t rows, size_t row_bytes, size_t *at)
{
    size_t bytes = 0;
    *at = *used;
    return espl_mul_size(rows, row_bytes, &bytes) && espl_add_size(*used, bytes, used);
}

static bool lay_out(const struct espl_quant_shape *shape, struct layout *at)
{
    const size_t groups = espl_quant_groups(shape);
    const size_t normal = espl_quant_normal(shape);
    const size_t scale_rows = espl_ceil_div(shape->out, shape->rows_per_scale);
    memset(at, 0, sizeof *at);
    return take(&at->bytes, shape->tokens, groups * sizeof(float), &at->a_scales) &&
           take(&at->bytes, shape->tokens, sizeof(float), &at->a_outlier_scales) &&
           take(&at->bytes, scale_rows, groups * sizeof(float), &at->w_scales) &&
           take(&at->bytes, shape->out, sizeof(float), &at->w_outlier_scales) &&
           take(&at->bytes, shape->out, sizeof(float), &at->bias) &&
           take(&at->bytes, shape->tokens, normal, &at->a_codes) &&
           take(&at->bytes, shape->tokens, shape->outliers, &at->a_outlier_codes) &&
           take(&at->bytes, shape->out, espl_codes_stride(normal, shape->weight_bits),
                &at->w_codes) &&
           take(&at->bytes, shape->out, shape->outliers, &at->w_outlier_codes);
}

/* Every byte is a legal code or pair of codes; activations are cut to their bits. */
static void fill(struct espl_quant_problem *quant, char *memory, const struct layout *at)
{
    const unsigned shift = 8u - quant->shape.activation_bits;
    uint64_t state = 17;
    float *floats = (float *)(void *)memory;
    for (size_t i = 0; i < at->a_codes / sizeof *floats; i++) {
        floats[i] = 0.01F + (float)(i % 13) * 0.001F;
    }
    for (size_t i = at->a_codes; i < at->bytes; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const int value = (int)((state >> 56) & 0xFFu) - 128;
        memory[i] = (char)(i < at->a_outlier_codes ? value >> shift : value);
    }
}

static bool build_input(struct espl_kernel_problem *problem)
{
    size_t bytes = 0;
    const size_t count = problem->item->size[0] * problem->item->size[1];
    if (!espl_mul_size(count, sizeof(float), &bytes)) {
        return false;
    }
    problem->inputs[0] = malloc(bytes);
    if (problem->inputs[0] == NULL) {
        return false;
    }
    problem->input_counts[0] = count;
    for (size_t i = 0; i < count; i++) {
        problem->inputs[0][i] = (float)((i * 7919u) % 2003u) * 0.01F - 10.0F;
    }
    return true;
}

/* The weights with every second code, on average, set to 0. */
static bool build_encoded(struct espl_quant_problem *quant)
{
    const struct espl_quant_shape *shape = &quant->shape;
    const struct espl_iebme_layout layout = {.rows = shape->out,
                                             .cols = espl_quant_normal(shape),
                                             .bits = shape->weight_bits,
                                             .areas = ESPL_IEBME_AUTO};
    struct espl_iebme_plan plan;
    uint64_t state = 23;
    int8_t *codes = malloc(layout.rows * layout.cols);
    if (codes == NULL) {
        return false;
    }
    espl_codes_unpack(quant->w.codes, layout.rows, layout.cols, layout.bits, codes);
    for (size_t i = 0; i < layout.rows * layout.cols; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        codes[i] = state >> 63 != 0 ? codes[i] : 0;
    }
    const bool built = espl_iebme_plan(codes, &layout, NULL, &plan, NULL) == ESPL_OK &&
                       espl_iebme_encode(codes, NULL, &plan, &quant->encoded, NULL) == ESPL_OK;
    free(codes);
    return built;
}

/* Products give floats; quantize_act gives the codes of the problem's activations. */
static bool build_output(struct espl_kernel_problem *problem, bool gemm)
{
    const struct espl_quant_shape *shape = &problem->quant->shape;
    problem->output_kind = gemm ? ESPL_OUTPUT_F32 : ESPL_OUTPUT_U8;
    problem->output_count = shape->tokens * (gemm ? shape->out : espl_quant_normal(shape));
    problem->output_bytes = problem->output_count * (gemm ? sizeof(float) : 1);
    problem->output = calloc(1, problem->output_bytes);
    return problem->output != NULL;
}

bool espl_quant_problem_build(struct espl_kernel_problem *problem)
{
    enum { OUTLIERS = 128, EIGHTH = 8 };
    const size_t *size = problem->item->size;
    const bool encoded = strcmp(problem->item->op, "spmm_iebme") == 0;
    const bool gemm = encoded || strcmp(problem->item->op, "gemm_w4a4") == 0;
    struct layout at;
    struct espl_quant_problem *quant = calloc(1, sizeof *quant);
    problem->quant = quant;
    if (quant == NULL) {
        return false;
    }
    quant->shape.tokens = size[0];
    quant->shape.in = size[1];
    quant->shape.out = size[2];
    quant->shape.group_size = size[3];
    quant->shape.weight_bits = (unsigned)size[4];
    quant->shape.activation_bits = size[4] == 8 ? 8 : 4;
    quant->shape.rows_per_scale = 2;
    quant->shape.outliers = size[1] / EIGHTH < OUTLIERS ? size[1] / EIGHTH : OUTLIERS;
    if (!lay_out(&quant->shape, &at)) {
        return false;
    }
    char *memory = malloc(at.bytes);
    if (memory == NULL) {
        return false;
    }
    quant->memory = memory;
    quant->a.scales = (float *)(void *)(memory + at.a_scales);
    quant->a.outlier_scales = (float *)(void *)(memory + at.a_outlier_scales);
    quant->a.codes = (int8_t *)memory + at.a_codes;
    quant->a.outlier_codes = (int8_t *)memory + at.a_outlier_codes;
    quant->w.scales = (const float *)(void *)(memory + at.w_scales);
    quant->w.outlier_scales = (const float *)(void *)(memory + at.w_outlier_scales);
    quant->w.codes = (const uint8_t *)memory + at.w_codes;
    quant->w.outlier_codes = (const int8_t *)memory + at.w_outlier_codes;
    fill(quant, memory, &at);
    if (gemm && (problem->item->flags & ESPL_CASE_BIAS) != 0) {
        quant->w.bias = (const float *)(void *)(memory + at.bias);
    }
    problem->flop = gemm ? 2.0 * (double)size[0] * (double)size[1] * (double)size[2] : 0.0;
    return (!encoded || build_encoded(quant)) && (gemm || build_input(problem)) &&
           build_output(problem, gemm);
}

void espl_quant_problem_destroy(struct espl_quant_problem *quant)
{
    if (quant != NULL) {
        espl_iebme_matrix_free(&quant->encoded);
        free(quant->memory);
        free(quant);
    }
}

enum espl_status espl_quant_problem_gemm(struct espl_kernel_problem *problem,
                                         const struct espl_ops *ops, struct espl_backend *backend,
                                         struct espl_error *err)
{
    return ops->gemm_w4a4(backend, &problem->quant->shape, &problem->quant->a, &problem->quant->w,
                          problem->output, err);
}

enum espl_status espl_quant_problem_spmm(struct espl_kernel_problem *problem,
                                         const struct espl_ops *ops, struct espl_backend *backend,
                                         struct espl_error *err)
{
    const struct espl_quant_problem *quant = problem->quant;
    const struct espl_iebme_weights w = {.codes = &quant->encoded,
                                         .scales = quant->w.scales,
                                         .outlier_codes = quant->w.outlier_codes,
                                         .outlier_scales = quant->w.outlier_scales,
                                         .bias = quant->w.bias};
    return ops->spmm_iebme(backend, &quant->shape, &quant->a, &w, problem->output, err);
}

enum espl_status espl_quant_problem_act(struct espl_kernel_problem *problem,
                                        const struct espl_ops *ops, struct espl_backend *backend,
                                        struct espl_error *err)
{
    struct espl_quant_activations a = problem->quant->a;
    a.codes = problem->output;
    return ops->quantize_act(backend, &problem->quant->shape, problem->inputs[0], NULL, 0.9F, &a,
                             err);
}

enum espl_status espl_quant_problem_kv(struct espl_kernel_problem *problem,
                                       const struct espl_ops *ops, struct espl_backend *backend,
                                       struct espl_error *err)
{
    const size_t *size = problem->item->size;
    return ops->quantize_kv(backend, size[0], size[1], size[2], (unsigned)size[3], 1.0F,
                            problem->output, err);
}

/* Turning a case into data and running it. */
#include "core/checked.h"
#include "kernels/bench/cases.h"
#include "kernels/bench/problem_quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64: enough for test data, and independent of the library's own generator. */
static uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Bell-shaped, mean 0, variance 1: the sum of 12 uniform numbers less 6. */
static float next_normal(uint64_t *state)
{
    float sum = -6.0F;
    for (unsigned i = 0; i < 12; i++) {
        sum += (float)(next_random(state) >> 40) * 0x1p-24F;
    }
    return sum;
}

static bool fill_input(struct espl_kernel_problem *problem, size_t index, size_t count,
                       float spread)
{
    size_t bytes = 0;
    uint64_t state = index + 1;
    if (!espl_mul_size(count, sizeof(float), &bytes)) {
        return false;
    }
    problem->inputs[index] = malloc(bytes != 0 ? bytes : 1);
    if (problem->inputs[index] == NULL) {
        return false;
    }
    problem->input_counts[index] = count;
    for (size_t i = 0; i < count; i++) {
        problem->inputs[index][i] = spread * next_normal(&state);
    }
    return true;
}

static bool make_output(struct espl_kernel_problem *problem, enum espl_problem_output kind,
                        size_t count)
{
    static const size_t sizes[] = {sizeof(float), sizeof(double), 1, sizeof(size_t)};
    problem->output_kind = kind;
    problem->output_count = count;
    if (!espl_mul_size(count, sizes[kind], &problem->output_bytes)) {
        return false;
    }
    problem->output = calloc(1, problem->output_bytes);
    return problem->output != NULL;
}

static bool has(const struct espl_kernel_problem *problem, enum espl_case_flag flag)
{
    return (problem->item->flags & (unsigned)flag) != 0;
}

/* ---- building: false when out of memory ---- */

static bool build_gemm(struct espl_kernel_problem *p)
{
    const size_t *size = p->item->size;
    p->flop = 2.0 * (double)size[0] * (double)size[1] * (double)size[2];
    return fill_input(p, 0, size[0] * size[1], 1.0F) && fill_input(p, 1, size[2] * size[1], 1.0F) &&
           (!has(p, ESPL_CASE_BIAS) || fill_input(p, 2, size[2], 1.0F)) &&
           make_output(p, ESPL_OUTPUT_F32, size[0] * size[2]);
}

static bool build_norm(struct espl_kernel_problem *p)
{
    const size_t *size = p->item->size;
    const bool rms = strcmp(p->item->op, "rmsnorm") == 0;
    const bool affine = rms || has(p, ESPL_CASE_BIAS);
    return fill_input(p, 0, size[0] * size[1], 3.0F) &&
           (!affine || fill_input(p, 1, size[1], 1.0F)) &&
           (rms || !affine || fill_input(p, 2, size[1], 1.0F)) &&
           make_output(p, ESPL_OUTPUT_F32, size[0] * size[1]);
}

static bool build_rope(struct espl_kernel_problem *p)
{
    const size_t *size = p->item->size;
    const size_t count = size[0] * size[1] * size[2] * size[3];
    if (!fill_input(p, 0, count, 1.0F) || !fill_input(p, 1, size[3] / 2, 1.0F)) {
        return false;
    }
    for (size_t i = 0; i < size[3] / 2; i++) {
        p->inputs[1][i] = (float)pow(10000.0, -2.0 * (double)i / (double)size[3]);
    }
    return make_output(p, ESPL_OUTPUT_F32, count);
}

static bool build_attention(struct espl_kernel_problem *p)
{
    const size_t *size = p->item->size;
    const size_t rows = size[0] * size[1];
    const double pairs = (double)size[0] * (double)size[1] * ((double)size[1] + 1.0) / 2.0;
    p->flop = 4.0 * pairs * (double)(size[2] * size[4]);
    return fill_input(p, 0, rows * size[2] * size[4], 1.5F) &&
           fill_input(p, 1, rows * size[3] * size[4], 1.5F) &&
           fill_input(p, 2, rows * size[3] * size[4], 1.0F) &&
           make_output(p, ESPL_OUTPUT_F32, rows * size[2] * size[4]);
}

static bool build_elementwise(struct espl_kernel_problem *p)
{
    const size_t count = p->item->size[0];
    const bool binary = strcmp(p->item->op, "silu_mul") == 0 || strcmp(p->item->op, "add") == 0;
    return fill_input(p, 0, count, 3.0F) && (!binary || fill_input(p, 1, count, 1.0F)) &&
           make_output(p, ESPL_OUTPUT_F32, count);
}

static bool build_kv(struct espl_kernel_problem *p)
{
    const size_t count = p->item->size[0] * p->item->size[1] * p->item->size[2];
    return fill_input(p, 0, count, 1.0F) && make_output(p, ESPL_OUTPUT_F32, count);
}

static bool build_loss(struct espl_kernel_problem *p)
{
    const size_t *size = p->item->size;
    uint64_t state = 99;
    p->targets = calloc(size[0], sizeof *p->targets);
    if (p->targets == NULL) {
        return false;
    }
    for (size_t t = 0; t < size[0]; t++) { /* every fifth is skipped */
        p->targets[t] = t % 5 == 4 ? -1 : (int32_t)(next_random(&state) % size[1]);
    }
    return fill_input(p, 0, size[0] * size[1], 4.0F) && fill_input(p, 1, size[0] * size[1], 4.0F) &&
           make_output(p, ESPL_OUTPUT_F64, size[0]);
}

static bool build_statistics(struct espl_kernel_problem *p)
{
    const size_t *size = p->item->size;
    return fill_input(p, 0, size[0] * size[1], 1.0F) && make_output(p, ESPL_OUTPUT_F64, size[1]);
}

static bool build_score(struct espl_kernel_problem *p)
{
    const size_t *size = p->item->size;
    return fill_input(p, 0, size[0] * size[1], 1.0F) && fill_input(p, 1, size[1], 1.0F) &&
           make_output(p, ESPL_OUTPUT_F32, size[0] * size[1]);
}

static bool build_mask(struct espl_kernel_problem *p)
{
    const size_t *size = p->item->size;
    if (!fill_input(p, 0, size[0] * size[1], 1.0F)) {
        return false;
    }
    for (size_t i = 0; i < p->input_counts[0]; i++) {
        const float score = fabsf(p->inputs[0][i]);
        p->inputs[0][i] = has(p, ESPL_CASE_TIES) ? floorf(fminf(score, 3.0F)) : score;
    }
    return make_output(p, ESPL_OUTPUT_U8, size[0] * espl_mask_stride(size[1]));
}

static bool build_apply(struct espl_kernel_problem *p)
{
    const size_t *size = p->item->size;
    const size_t mask_bytes = size[0] * espl_mask_stride(size[1]);
    uint64_t state = 7;
    p->mask = malloc(mask_bytes);
    if (p->mask == NULL) {
        return false;
    }
    for (size_t i = 0; i < mask_bytes; i++) {
        p->mask[i] = (uint8_t)(next_random(&state) & 0xFFu);
    }
    return fill_input(p, 0, size[0] * size[1], 1.0F) &&
           make_output(p, ESPL_OUTPUT_F32, size[0] * size[1]);
}

static bool build_words(struct espl_kernel_problem *p)
{
    const size_t count = p->item->size[0];
    p->words = calloc(count, sizeof *p->words);
    if (p->words == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        p->words[i] = (uint16_t)(i & 0xFFFFu);
    }
    return make_output(p, ESPL_OUTPUT_F32, count);
}

static bool build_nonfinite(struct espl_kernel_problem *p)
{
    const size_t *size = p->item->size;
    if (!fill_input(p, 0, size[0], 1.0F)) {
        return false;
    }
    for (size_t i = size[1]; i < size[0]; i += 5003) {
        p->inputs[0][i] = i % 2 == 0 ? INFINITY : NAN;
    }
    return make_output(p, ESPL_OUTPUT_INDEX, 1);
}

/* ---- running ---- */

typedef enum espl_status (*run_fn)(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                   struct espl_backend *backend, struct espl_error *err);

static enum espl_status run_gemm(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                 struct espl_backend *backend, struct espl_error *err)
{
    const struct espl_gemm_shape shape = {p->item->size[0], p->item->size[1], p->item->size[2]};
    return ops->gemm_f32(backend, &shape, p->inputs[0], p->inputs[1], p->inputs[2], p->output, err);
}

static enum espl_status run_rmsnorm(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                    struct espl_backend *backend, struct espl_error *err)
{
    return ops->rmsnorm(backend, p->item->size[0], p->item->size[1], p->inputs[0], p->inputs[1],
                        1e-5F, p->output, err);
}

static enum espl_status run_layernorm(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                      struct espl_backend *backend, struct espl_error *err)
{
    return ops->layernorm(backend, p->item->size[0], p->item->size[1], p->inputs[0], p->inputs[1],
                          p->inputs[2], 1e-5F, p->output, err);
}

static enum espl_status run_rope(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                 struct espl_backend *backend, struct espl_error *err)
{
    const size_t *size = p->item->size;
    return ops->rope(backend, size[0], size[1], 0, size[2], size[3], p->inputs[1], 1.25F, p->output,
                     err);
}

static enum espl_status run_attention(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                      struct espl_backend *backend, struct espl_error *err)
{
    const size_t *size = p->item->size;
    const struct espl_attention_shape shape = {
        .windows = size[0],
        .tokens = size[1],
        .key_rows = size[1],
        .heads = size[2],
        .kv_heads = size[3],
        .head_dim = size[4],
        .scale = (float)(1.0 / sqrt((double)size[4])),
    };
    return ops->attention(backend, &shape, p->inputs[0], p->inputs[1], p->inputs[2], p->output,
                          err);
}

static enum espl_status run_silu_mul(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                     struct espl_backend *backend, struct espl_error *err)
{
    return ops->silu_mul(backend, p->item->size[0], p->output, p->inputs[1], err);
}

static enum espl_status run_relu(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                 struct espl_backend *backend, struct espl_error *err)
{
    return ops->relu(backend, p->item->size[0], p->output, err);
}

static enum espl_status run_gelu(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                 struct espl_backend *backend, struct espl_error *err)
{
    return ops->gelu(backend, p->item->size[0], p->output, err);
}

static enum espl_status run_add(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                struct espl_backend *backend, struct espl_error *err)
{
    return ops->add(backend, p->item->size[0], p->inputs[1], p->output, err);
}

static enum espl_status run_cross_entropy(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                          struct espl_backend *backend, struct espl_error *err)
{
    return ops->cross_entropy(backend, p->item->size[0], p->item->size[1], p->inputs[0], p->targets,
                              p->output, err);
}

static enum espl_status run_kl_divergence(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                          struct espl_backend *backend, struct espl_error *err)
{
    return ops->kl_divergence(backend, p->item->size[0], p->item->size[1], p->inputs[0],
                              p->inputs[1], p->output, err);
}

static enum espl_status run_column_sumsq(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                         struct espl_backend *backend, struct espl_error *err)
{
    return ops->column_sumsq(backend, p->item->size[0], p->item->size[1], p->inputs[0], p->output,
                             err);
}

static struct espl_matrix_shape matrix_of(const struct espl_kernel_problem *p)
{
    return (struct espl_matrix_shape){.rows = p->item->size[0], .cols = p->item->size[1]};
}

static enum espl_status run_wanda_score(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                        struct espl_backend *backend, struct espl_error *err)
{
    const struct espl_matrix_shape shape = matrix_of(p);
    return ops->wanda_score(backend, &shape, p->inputs[0], p->inputs[1], p->output, err);
}

static enum espl_status run_row_mask(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                     struct espl_backend *backend, struct espl_error *err)
{
    const struct espl_matrix_shape shape = matrix_of(p);
    return ops->row_mask(backend, &shape, p->inputs[0], p->item->size[2], p->output, err);
}

static enum espl_status run_nm_mask(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                    struct espl_backend *backend, struct espl_error *err)
{
    const struct espl_matrix_shape shape = matrix_of(p);
    return ops->nm_mask(backend, &shape, p->inputs[0], p->item->size[2], p->item->size[3],
                        has(p, ESPL_CASE_TAIL), p->output, err);
}

static enum espl_status run_apply_mask(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                       struct espl_backend *backend, struct espl_error *err)
{
    const struct espl_matrix_shape shape = matrix_of(p);
    return ops->apply_mask(backend, &shape, p->mask, p->output, err);
}

static enum espl_status run_f16(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                struct espl_backend *backend, struct espl_error *err)
{
    return ops->f16_to_f32(backend, p->item->size[0], p->words, p->output, err);
}

static enum espl_status run_bf16(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                 struct espl_backend *backend, struct espl_error *err)
{
    return ops->bf16_to_f32(backend, p->item->size[0], p->words, p->output, err);
}

static enum espl_status run_nonfinite(struct espl_kernel_problem *p, const struct espl_ops *ops,
                                      struct espl_backend *backend, struct espl_error *err)
{
    return ops->find_nonfinite(backend, p->item->size[0], p->inputs[0], p->output, err);
}

/* What the reset copies into the output of in-place ops. */
enum before_run { OUTPUT_ZERO, OUTPUT_FIRST_INPUT };

static const struct problem_op {
    const char *name;
    const char *size_names[ESPL_CASE_SIZES];
    bool (*build)(struct espl_kernel_problem *p);
    run_fn run;
    enum before_run before;
    struct espl_kernel_tolerance tolerance;
} problem_ops[] = {
    {"gemm_f32", {"tokens", "in", "out"}, build_gemm, run_gemm, OUTPUT_ZERO, {false, 1e-6, 1e-5}},
    {"rmsnorm", {"tokens", "width"}, build_norm, run_rmsnorm, OUTPUT_ZERO, {false, 2e-7, 2e-6}},
    {"layernorm", {"tokens", "width"}, build_norm, run_layernorm, OUTPUT_ZERO, {false, 3e-7, 3e-6}},
    {"rope",
     {"windows", "tokens", "heads", "head_dim"},
     build_rope,
     run_rope,
     OUTPUT_FIRST_INPUT,
     {true, 0.0, 0.0}},
    {"attention",
     {"windows", "tokens", "heads", "kv_heads", "head_dim"},
     build_attention,
     run_attention,
     OUTPUT_ZERO,
     {false, 1e-6, 1e-5}},
    {"silu_mul",
     {"count"},
     build_elementwise,
     run_silu_mul,
     OUTPUT_FIRST_INPUT,
     {false, 3e-7, 3e-6}},
    {"relu", {"count"}, build_elementwise, run_relu, OUTPUT_FIRST_INPUT, {true, 0.0, 0.0}},
    {"gelu", {"count"}, build_elementwise, run_gelu, OUTPUT_FIRST_INPUT, {false, 3e-7, 3e-6}},
    {"add", {"count"}, build_elementwise, run_add, OUTPUT_FIRST_INPUT, {true, 0.0, 0.0}},
    {"cross_entropy",
     {"tokens", "vocab"},
     build_loss,
     run_cross_entropy,
     OUTPUT_ZERO,
     {false, 2e-7, 1e-6}},
    {"kl_divergence",
     {"tokens", "vocab"},
     build_loss,
     run_kl_divergence,
     OUTPUT_ZERO,
     {false, 1e-6, 3e-6}},
    {"column_sumsq",
     {"tokens", "width"},
     build_statistics,
     run_column_sumsq,
     OUTPUT_ZERO,
     {true, 0.0, 0.0}},
    {"wanda_score", {"rows", "cols"}, build_score, run_wanda_score, OUTPUT_ZERO, {true, 0.0, 0.0}},
    {"row_mask", {"rows", "cols", "prune"}, build_mask, run_row_mask, OUTPUT_ZERO, {true, 0, 0}},
    {"nm_mask", {"rows", "cols", "n", "m"}, build_mask, run_nm_mask, OUTPUT_ZERO, {true, 0, 0}},
    {"apply_mask", {"rows", "cols"}, build_apply, run_apply_mask, OUTPUT_FIRST_INPUT, {true, 0, 0}},
    {"f16_to_f32", {"count"}, build_words, run_f16, OUTPUT_ZERO, {true, 0.0, 0.0}},
    {"bf16_to_f32", {"count"}, build_words, run_bf16, OUTPUT_ZERO, {true, 0.0, 0.0}},
    {"find_nonfinite", {"count", "bad"}, build_nonfinite, run_nonfinite, OUTPUT_ZERO, {true, 0, 0}},
    {"quantize_act",
     {"tokens", "in", "out", "group", "bits"},
     espl_quant_problem_build,
     espl_quant_problem_act,
     OUTPUT_ZERO,
     {true, 0.0, 0.0}},
    {"gemm_w4a4",
     {"tokens", "in", "out", "group", "bits"},
     espl_quant_problem_build,
     espl_quant_problem_gemm,
     OUTPUT_ZERO,
     {true, 0.0, 0.0}},
    {"spmm_iebme",
     {"tokens", "in", "out", "group", "bits"},
     espl_quant_problem_build,
     espl_quant_problem_spmm,
     OUTPUT_ZERO,
     {true, 0.0, 0.0}},
    {"quantize_kv",
     {"tokens", "heads", "head_dim", "bits"},
     build_kv,
     espl_quant_problem_kv,
     OUTPUT_FIRST_INPUT,
     {true, 0.0, 0.0}},
};

static const struct problem_op *find_op(const char *name)
{
    for (size_t i = 0; i < sizeof problem_ops / sizeof problem_ops[0]; i++) {
        if (strcmp(problem_ops[i].name, name) == 0) {
            return &problem_ops[i];
        }
    }
    return NULL;
}

void espl_kernel_case_describe(const struct espl_kernel_case *item, char text[128])
{
    enum { TEXT = 128 };
    static const struct {
        unsigned flag;
        const char *word;
    } words[] = {{ESPL_CASE_BIAS, " bias"}, {ESPL_CASE_TAIL, " tail"}, {ESPL_CASE_TIES, " ties"}};
    const struct problem_op *op = find_op(item->op);
    int used = snprintf(text, TEXT, "%s", item->op);
    for (size_t i = 0; op != NULL && i < ESPL_CASE_SIZES && op->size_names[i] != NULL; i++) {
        if (used >= 0 && used < TEXT) {
            used += snprintf(text + used, TEXT - (size_t)used, " %s=%zu", op->size_names[i],
                             item->size[i]);
        }
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if ((item->flags & words[i].flag) != 0 && used >= 0 && used < TEXT) {
            used += snprintf(text + used, TEXT - (size_t)used, "%s", words[i].word);
        }
    }
}

enum espl_status espl_kernel_problem_create(const struct espl_kernel_case *item,
                                            struct espl_kernel_problem **out,
                                            struct espl_error *err)
{
    const struct problem_op *op = find_op(item->op);
    if (op == NULL) {
        return espl_fail(err, ESPL_E_INTERNAL, "no problem is known for kernel op '%s'", item->op);
    }
    struct espl_kernel_problem *problem = calloc(1, sizeof *problem);
    if (problem == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a case of '%s'", item->op);
    }
    problem->item = item;
    problem->tolerance = op->tolerance;
    if (!op->build(problem)) {
        espl_kernel_problem_destroy(problem);
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a case of '%s'", item->op);
    }
    problem->bytes = (double)problem->output_bytes;
    for (size_t i = 0; i < ESPL_PROBLEM_INPUTS; i++) {
        problem->bytes += (double)problem->input_counts[i] * sizeof(float);
    }
    if (problem->words != NULL) {
        problem->bytes += (double)problem->output_count * sizeof(uint16_t);
    }
    espl_kernel_problem_reset(problem);
    *out = problem;
    return ESPL_OK;
}

void espl_kernel_problem_destroy(struct espl_kernel_problem *problem)
{
    if (problem == NULL) {
        return;
    }
    for (size_t i = 0; i < ESPL_PROBLEM_INPUTS; i++) {
        free(problem->inputs[i]);
    }
    free(problem->targets);
    free(problem->words);
    free(problem->mask);
    espl_quant_problem_destroy(problem->quant);
    free(problem->output);
    free(problem);
}

void espl_kernel_problem_reset(struct espl_kernel_problem *problem)
{
    const struct problem_op *const op = find_op(problem->item->op);
    if (op != NULL && op->before == OUTPUT_FIRST_INPUT) {
        memcpy(problem->output, problem->inputs[0], problem->output_bytes);
    } else {
        memset(problem->output, 0, problem->output_bytes);
    }
}

enum espl_status espl_kernel_problem_run(struct espl_kernel_problem *problem,
                                         struct espl_backend *backend, struct espl_error *err)
{
    const struct problem_op *const op = find_op(problem->item->op);
    if (op == NULL) {
        return espl_fail(err, ESPL_E_INTERNAL, "no problem for kernel op '%s'", problem->item->op);
    }
    return op->run(problem, espl_backend_ops(backend), backend, err);
}

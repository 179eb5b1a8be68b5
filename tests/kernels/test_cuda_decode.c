/* Norms, activations, embedding and greedy choice of a decoder on a CUDA device, against double
 * precision and against the quantiser of cuda_atom.h. Skipped without a CUDA device. */
#include "core/rng.h"
#include "espalier/cuda_decode.h"
#include "espalier/cuda_memory.h"
#include "kernels/cuda_arrays.h"
#include "kernels/cuda_atom_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0x5A };

static float *random_floats(struct espl_rng *rng, size_t count, double scale)
{
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(scale * espl_rng_normal(rng));
    }
    return values;
}

/* value + rest of what a split input holds. */
static double split_value(const uint16_t *halves, size_t tokens, size_t width, size_t token,
                          size_t column)
{
    float parts[2];
    const uint16_t words[2] = {halves[token * width + column],
                               halves[(tokens + token) * width + column]};
    fixture_floats_of_halves(words, 2, parts);
    return (double)parts[0] + (double)parts[1];
}

/* ---- norms ---- */

struct norm_case {
    size_t tokens, width, stride;
    bool rms, branch, affine;
};

/* What the norm of a row must be. */
static void reference_norm(const struct norm_case *c, const double *row, const float *gain,
                           const float *bias, double eps, double *out)
{
    double mean = 0.0;
    double squares = 0.0;
    for (size_t i = 0; i < c->width && !c->rms; i++) {
        mean += row[i] / (double)c->width;
    }
    for (size_t i = 0; i < c->width; i++) {
        squares += (row[i] - mean) * (row[i] - mean) / (double)c->width;
    }
    for (size_t i = 0; i < c->width; i++) {
        const double v = (row[i] - mean) / sqrt(squares + eps);
        out[i] = c->affine ? v * (double)gain[i] + (double)bias[i] : v;
    }
}

static void try_norm(const struct norm_case *c)
{
    const double eps = 1e-5;
    struct espl_rng rng = espl_rng_stream(11, "norm", c->width);
    struct espl_error err;
    const size_t count = c->tokens * c->width;
    float *residual = random_floats(&rng, c->tokens * c->stride, 2.0);
    float *values = random_floats(&rng, count, 1.0);
    float *biases = random_floats(&rng, c->width, 0.5);
    float *gain = random_floats(&rng, c->width, 1.0);
    float *bias = random_floats(&rng, c->width, 1.0);
    void *device[] = {cuda_array(residual, c->tokens * c->stride * sizeof(float)),
                      cuda_array(values, count * sizeof(float)),
                      cuda_array(biases, c->width * sizeof(float)),
                      cuda_array(gain, c->width * sizeof(float)),
                      cuda_array(bias, c->width * sizeof(float)),
                      cuda_array(NULL, count * sizeof(float)),
                      cuda_array(NULL, 2 * count * sizeof(uint16_t))};
    const struct espl_cuda_results branch = {
        .values = device[1], .stride = c->width, .bias = device[2]};
    const struct espl_cuda_norm norm = {
        .tokens = c->tokens,
        .width = c->width,
        .residual = device[0],
        .stride = c->stride,
        .branch = c->branch ? &branch : NULL,
        .sum = c->branch ? device[5] : NULL,
        .gain = c->affine ? device[3] : NULL,
        .bias = c->affine ? device[4] : NULL,
        .eps = (float)eps,
        .rms = c->rms,
    };
    const struct espl_cuda_input input = {.form = ESPL_CUDA_INPUT_SPLIT, .values = device[6]};
    cuda_check(espl_cuda_norm_input(&norm, &input, false, NULL, &err), &err);
    float *sum = cuda_fetch(device[5], count * sizeof(float));
    uint16_t *halves = cuda_fetch(device[6], 2 * count * sizeof(uint16_t));
    double *row = malloc(2 * c->width * sizeof *row);
    assert_non_null(row);
    for (size_t t = 0; t < c->tokens; t++) {
        for (size_t i = 0; i < c->width; i++) {
            const float before = residual[t * c->stride + i];
            const float after = before + (values[t * c->width + i] + biases[i]);
            row[i] = (double)(c->branch ? after : before);
            if (c->branch) {
                assert_true(sum[t * c->width + i] == after);
            }
        }
        reference_norm(c, row, gain, bias, eps, row + c->width);
        for (size_t i = 0; i < c->width; i++) {
            const double got = split_value(halves, c->tokens, c->width, t, i);
            const double wanted = row[c->width + i];
            if (!(fabs(got - wanted) <= 2e-6 * (1.0 + fabs(wanted)))) {
                fail_msg("%zu x %zu: norm [%zu][%zu] is %.9g, not %.9g", c->tokens, c->width, t, i,
                         got, wanted);
            }
        }
    }
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++) {
        espl_cuda_free(device[i]);
    }
    free(residual);
    free(values);
    free(biases);
    free(gain);
    free(bias);
    free(sum);
    free(halves);
    free(row);
}

static void test_norm__is_what_double_precision_says(void **state)
{
    static const struct norm_case cases[] = {
        {1, 8, 8, true, false, true},         {3, 256, 256, false, true, true},
        {2, 5120, 5120, false, true, true},   {9, 1000, 1300, true, true, true},
        {33, 512, 1024, false, false, false}, {1, 8192, 8192, true, true, true},
    };
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        try_norm(&cases[i]);
    }
}

/* ---- codes ---- */

/* The device's quantised FP16 values and those made from the same values in FP32 are the same
 * bytes. Norms of rows of plus and minus one are the gains, exactly. */
static void try_codes(struct espl_rng *rng, const struct espl_quant_shape *shape)
{
    struct atom_layer layer;
    struct espl_error err;
    fixture_make_layer(rng, shape, ESPL_IEBME_SCOPE_NONE, 0.5, 0.9F, &layer);
    const size_t count = shape->tokens * shape->in;
    const size_t bytes = espl_cuda_atom_activation_bytes(shape, shape->tokens);
    void *x = cuda_array(layer.x, count * sizeof(float));
    void *codes = cuda_array(NULL, bytes);
    struct espl_cuda_input input = {.form = ESPL_CUDA_INPUT_ATOM,
                                    .values = codes,
                                    .shape = shape,
                                    .order = layer.device_order,
                                    .clip = 0.9F,
                                    .nonfinite = layer.device_nonfinite};
    struct espl_cuda_activation activation = {.kind = ESPL_CUDA_IDENTITY,
                                              .tokens = shape->tokens,
                                              .width = shape->in,
                                              .x = {.values = x, .stride = shape->in}};
    /* What fills up a tile to whole 512 bytes is left alone. */
    cuda_check(espl_cuda_fill(layer.device_x, POISON, bytes, &err), &err);
    fixture_quantize(&layer);
    cuda_check(espl_cuda_fill(codes, POISON, bytes, &err), &err);
    cuda_check(espl_cuda_activation_input(&activation, &input, false, NULL, &err), &err);
    uint8_t *wanted = cuda_fetch(layer.device_x, bytes);
    uint8_t *got = cuda_fetch(codes, bytes);
    assert_memory_equal(got, wanted, bytes);
    free(got);
    free(wanted);

    /* One token's values as gains. */
    struct espl_quant_shape one = *shape;
    float *signs = malloc(shape->in * sizeof *signs);
    assert_non_null(signs);
    for (size_t c = 0; c < shape->in; c++) {
        signs[c] = espl_rng_below(rng, 2) != 0 ? 1.0F : -1.0F;
        layer.x[c] *= signs[c];
    }
    one.tokens = 1;
    void *gain = cuda_array(layer.x, shape->in * sizeof(float));
    void *rows = cuda_array(signs, shape->in * sizeof(float));
    const size_t one_bytes = espl_cuda_atom_activation_bytes(&one, 1);
    const struct espl_cuda_norm norm = {.tokens = 1,
                                        .width = shape->in,
                                        .residual = rows,
                                        .stride = shape->in,
                                        .gain = gain,
                                        .rms = true};
    activation.tokens = 1;
    cuda_check(espl_cuda_fill(codes, POISON, bytes, &err), &err);
    cuda_check(espl_cuda_activation_input(&activation, &input, false, NULL, &err), &err);
    wanted = cuda_fetch(codes, one_bytes);
    cuda_check(espl_cuda_fill(codes, POISON, bytes, &err), &err);
    cuda_check(espl_cuda_norm_input(&norm, &input, true, NULL, &err), &err);
    got = cuda_fetch(codes, one_bytes);
    assert_memory_equal(got, wanted, one_bytes);
    free(got);
    free(wanted);
    free(signs);
    espl_cuda_free(gain);
    espl_cuda_free(rows);
    espl_cuda_free(x);
    espl_cuda_free(codes);
    fixture_free_layer(&layer);
}

static void test_codes__are_those_of_the_quantiser(void **state)
{
    /* tokens, in, out, group, outliers, rows a scale, weight bits, activation bits */
    static const struct espl_quant_shape shapes[] = {
        {1, 640, 16, 128, 128, 2, 4, 4}, {9, 5120, 16, 128, 0, 1, 4, 4},
        {7, 256, 16, 32, 32, 2, 4, 4},   {20, 1288, 16, 0, 8, 2, 4, 4},
        {3, 2048, 16, 0, 0, 1, 4, 4},    {5, 600, 16, 20, 100, 2, 4, 4},
        {2, 664, 16, 24, 64, 1, 4, 4},   {33, 1024, 16, 128, 128, 2, 4, 4},
    };
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    struct espl_rng rng = espl_rng_stream(12, "codes", 0);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        try_codes(&rng, &shapes[i]);
    }
}

/* ---- activations ---- */

static double reference_activation(enum espl_cuda_activation_kind kind, double v, double up)
{
    switch (kind) {
    case ESPL_CUDA_RELU:
        return v > 0.0 ? v : 0.0;
    case ESPL_CUDA_GELU:
        return 0.5 * v * (1.0 + erf(v / sqrt(2.0)));
    case ESPL_CUDA_SILU_MUL:
        return v / (1.0 + exp(-v)) * up;
    default:
        return v;
    }
}

/* Sums of products of bytes with scales and bias in, FP16 or bytes out. */
static void try_activation(enum espl_cuda_activation_kind kind, size_t tokens, size_t width)
{
    struct espl_rng rng = espl_rng_stream(13, "activation", (uint64_t)kind);
    struct espl_error err;
    const size_t columns = kind == ESPL_CUDA_SILU_MUL ? 2 * width : width;
    const size_t stride = columns + 5;
    int32_t *sums = malloc(tokens * stride * sizeof *sums);
    float *rows = random_floats(&rng, columns, 0.01);
    float *bias = random_floats(&rng, columns, 0.5);
    float *scales = random_floats(&rng, tokens, 0.02);
    double *wanted = malloc(tokens * width * sizeof *wanted);
    assert_non_null(sums);
    assert_non_null(wanted);
    for (size_t i = 0; i < tokens * stride; i++) {
        sums[i] = (int32_t)espl_rng_below(&rng, 20001) - 10000;
    }
    for (size_t i = 0; i < tokens * width; i++) {
        double v[2] = {0.0, 0.0};
        for (size_t part = 0; part < (columns > width ? 2 : 1); part++) {
            const size_t c = i % width + part * width;
            const float scaled =
                (float)sums[i / width * stride + c] * (rows[c] * scales[i / width]);
            v[part] = (double)(scaled + bias[c]);
        }
        wanted[i] = reference_activation(kind, v[0], v[1]);
    }
    void *device[] = {cuda_array(sums, tokens * stride * sizeof *sums),
                      cuda_array(rows, columns * sizeof(float)),
                      cuda_array(bias, columns * sizeof(float)),
                      cuda_array(scales, tokens * sizeof(float)),
                      cuda_array(NULL, 2 * tokens * width * sizeof(uint16_t)),
                      cuda_array(NULL, tokens * sizeof(float))};
    const struct espl_cuda_activation activation = {
        kind, tokens, width, {device[0], stride, device[2], device[1], device[3], 1}};
    struct espl_cuda_input input = {.form = ESPL_CUDA_INPUT_SPLIT, .values = device[4]};
    cuda_check(espl_cuda_activation_input(&activation, &input, false, NULL, &err), &err);
    uint16_t *halves = cuda_fetch(device[4], 2 * tokens * width * sizeof(uint16_t));
    for (size_t i = 0; i < tokens * width; i++) {
        const double got = split_value(halves, tokens, width, i / width, i % width);
        if (!(fabs(got - wanted[i]) <= 2e-6 * (1.0 + fabs(wanted[i])))) {
            fail_msg("activation %d of [%zu][%zu] is %.9g, not %.9g", (int)kind, i / width,
                     i % width, got, wanted[i]);
        }
    }
    input.form = ESPL_CUDA_INPUT_BYTES;
    input.scales = device[5];
    cuda_check(espl_cuda_activation_input(&activation, &input, true, NULL, &err), &err);
    int8_t *bytes = cuda_fetch(device[4], tokens * width);
    float *of_token = cuda_fetch(device[5], tokens * sizeof(float));
    for (size_t t = 0; t < tokens; t++) {
        double amax = 1e-5;
        for (size_t c = 0; c < width; c++) {
            amax = fmax(amax, fabs(wanted[t * width + c]));
        }
        assert_true(fabs((double)of_token[t] * 127.0 / amax - 1.0) < 1e-5);
        for (size_t c = 0; c < width; c++) {
            const double back = (double)of_token[t] * (double)bytes[t * width + c];
            assert_true(fabs(back - wanted[t * width + c]) <= 0.5001 * (double)of_token[t]);
        }
    }
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++) {
        espl_cuda_free(device[i]);
    }
    free(sums);
    free(rows);
    free(bias);
    free(scales);
    free(wanted);
    free(halves);
    free(bytes);
    free(of_token);
}

static void test_activation__of_scaled_sums(void **state)
{
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    for (int kind = ESPL_CUDA_IDENTITY; kind <= ESPL_CUDA_SILU_MUL; kind++) {
        try_activation((enum espl_cuda_activation_kind)kind, 1, 1111);
        try_activation((enum espl_cuda_activation_kind)kind, 33, 300);
    }
}

/* ---- the ends ---- */

static void test_embedding__adds_the_position(void **state)
{
    enum { SEQUENCES = 2, ROW_TOKENS = 3, WIDTH = 1030, VOCABULARY = 7, POSITIONS = 12 };
    static const int32_t ids[SEQUENCES * ROW_TOKENS] = {6, 0, 3, 3, 1, 5};
    static const int32_t starts[SEQUENCES] = {0, 9};
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    struct espl_error err;
    uint16_t table[VOCABULARY * WIDTH];
    uint16_t positions[POSITIONS * WIDTH];
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        table[i] = fixture_half((float)(i % 97) - 40.0F);
    }
    for (size_t i = 0; i < sizeof positions / sizeof positions[0]; i++) {
        positions[i] = fixture_half((float)(i % 89) / 8.0F);
    }
    void *device[] = {cuda_array(table, sizeof table), cuda_array(positions, sizeof positions),
                      cuda_array(ids, sizeof ids), cuda_array(starts, sizeof starts),
                      cuda_array(NULL, SEQUENCES * ROW_TOKENS * WIDTH * sizeof(float))};
    const struct espl_cuda_embed embed = {SEQUENCES, ROW_TOKENS, WIDTH,     device[0],
                                          device[1], device[2],  device[3], device[4]};
    cuda_check(espl_cuda_embed(&embed, false, NULL, &err), &err);
    float *hidden = cuda_fetch(device[4], SEQUENCES * ROW_TOKENS * WIDTH * sizeof(float));
    for (size_t i = 0; i < SEQUENCES * ROW_TOKENS * WIDTH; i++) {
        const size_t row = i / WIDTH;
        const size_t token = (size_t)ids[row] * WIDTH + i % WIDTH;
        const size_t position =
            ((size_t)starts[row / ROW_TOKENS] + row % ROW_TOKENS) * WIDTH + i % WIDTH;
        const float wanted = (float)(token % 97) - 40.0F + (float)(position % 89) / 8.0F;
        assert_true(hidden[i] == wanted);
    }
    free(hidden);
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++) {
        espl_cuda_free(device[i]);
    }
}

static void test_greedy__takes_the_first_of_the_largest(void **state)
{
    enum { SEQUENCES = 3, VOCABULARY = 10000, MOST = 20 };
    static const size_t best[SEQUENCES] = {9999, 0, 4242};
    static const int32_t starts[SEQUENCES] = {3, 0, 7};
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    struct espl_rng rng = espl_rng_stream(14, "greedy", 0);
    struct espl_error err;
    float *logits = random_floats(&rng, 2 * SEQUENCES * VOCABULARY, 1.0);
    for (size_t s = 0; s < SEQUENCES; s++) {
        /* The rest decides; a later one is as large. */
        logits[s * VOCABULARY + best[s]] = s == 1 ? -1.0F : 20.0F;
        logits[(SEQUENCES + s) * VOCABULARY + best[s]] = s == 1 ? 51.0F : 30.0F;
    }
    logits[2 * VOCABULARY + 7777] = 50.0F;
    logits[(SEQUENCES + 2) * VOCABULARY + 7777] = 0.0F;
    void *device[] = {cuda_array(logits, 2 * SEQUENCES * VOCABULARY * sizeof(float)),
                      cuda_array(NULL, SEQUENCES * sizeof(uint64_t)),
                      cuda_array(NULL, SEQUENCES * sizeof(unsigned)),
                      cuda_array(NULL, SEQUENCES * sizeof(int32_t)),
                      cuda_array(starts, sizeof starts),
                      cuda_array(NULL, SEQUENCES * MOST * sizeof(int32_t)),
                      cuda_array(NULL, sizeof(unsigned))};
    struct espl_cuda_greedy greedy = {.sequences = SEQUENCES,
                                      .vocabulary = VOCABULARY,
                                      .logits = device[0],
                                      .split = true,
                                      .best = device[1],
                                      .arrived = device[2],
                                      .next = device[3],
                                      .starts = device[4],
                                      .advance = 2,
                                      .history = device[5],
                                      .max_tokens = MOST,
                                      .nonfinite = device[6]};
    for (size_t round = 0; round < 2; round++) { /* the second time there is no rest to add */
        cuda_check(espl_cuda_greedy(&greedy, round == 1, NULL, &err), &err);
        greedy.split = false;
    }
    int32_t *next = cuda_fetch(device[3], SEQUENCES * sizeof *next);
    int32_t *moved = cuda_fetch(device[4], SEQUENCES * sizeof *moved);
    int32_t *history = cuda_fetch(device[5], SEQUENCES * MOST * sizeof *history);
    unsigned *bad = cuda_fetch(device[6], sizeof *bad);
    for (size_t s = 0; s < SEQUENCES; s++) {
        assert_int_equal(next[s], best[s]);
        assert_int_equal(moved[s], starts[s] + 4);
        assert_int_equal(history[s * MOST + (size_t)starts[s] + 2], best[s]);
        assert_int_equal(history[s * MOST + (size_t)starts[s] + 4], best[s]);
    }
    assert_int_equal(*bad, 0);
    logits[0] = NAN;
    cuda_check(espl_cuda_upload(device[0], logits, sizeof(float), &err), &err);
    cuda_check(espl_cuda_greedy(&greedy, false, NULL, &err), &err);
    free(bad);
    bad = cuda_fetch(device[6], sizeof *bad);
    assert_int_equal(*bad, 1);
    free(bad);
    free(next);
    free(moved);
    free(history);
    free(logits);
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++) {
        espl_cuda_free(device[i]);
    }
}

static void test_refusals__say_what_does_not_fit(void **state)
{
    const struct espl_quant_shape shape = {1, 64, 1, 0, 0, 1, 4, 4};
    const struct espl_cuda_input input = {.form = ESPL_CUDA_INPUT_ATOM, .shape = &shape};
    struct espl_cuda_norm norm = {.tokens = 1, .width = 68, .stride = 68};
    struct espl_error err;
    (void)state;
    if (!cuda_has_device()) {
        assert_int_equal(espl_cuda_norm_input(&norm, &input, false, NULL, &err),
                         ESPL_E_UNSUPPORTED);
        return;
    }
    assert_int_equal(espl_cuda_norm_input(&norm, &input, false, NULL, &err), ESPL_E_UNSUPPORTED);
    assert_string_equal(err.message, "a linear of 64 channels cannot read 68");
    norm.width = 64;
    norm.stride = 65;
    assert_int_equal(espl_cuda_norm_input(&norm, &input, false, NULL, &err), ESPL_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm__is_what_double_precision_says),
        cmocka_unit_test(test_codes__are_those_of_the_quantiser),
        cmocka_unit_test(test_activation__of_scaled_sums),
        cmocka_unit_test(test_embedding__adds_the_position),
        cmocka_unit_test(test_greedy__takes_the_first_of_the_largest),
        cmocka_unit_test(test_refusals__say_what_does_not_fit),
    };
    cuda_filter_tests();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

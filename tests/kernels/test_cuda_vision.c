/* The kernels of image models on the CUDA device against the reference backend: attention with and
 * without windows, norms with residual adds and merged cells, rounding to bytes, heads. Outputs are
 * poisoned before and what lies behind them must stay poison. Skipped without a CUDA device. */
#include "espalier/cuda_memory.h"
#include "espalier/cuda_vision.h"
#include "kernels/cuda_device.h"
#include "kernels/cuda_vision_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct espl_rng rng;

/* ---- rounding to bytes ---- */

static struct espl_cuda_vision_codes new_codes(size_t rows, size_t stride, float clip)
{
    return (struct espl_cuda_vision_codes){.codes = vision_output(rows * stride),
                                           .stride = stride,
                                           .scales = vision_output(rows * sizeof(float)),
                                           .clip = clip};
}

/* Codes of x (rows, width) as the reference makes them. */
static void expect_codes(const float *x, size_t rows, size_t width, float clip, int8_t *codes,
                         float *scales)
{
    struct espl_error err;
    struct espl_backend *ref = vision_open_ref();
    const struct espl_quant_shape shape = {.tokens = rows,
                                           .in = width,
                                           .out = 1,
                                           .rows_per_scale = 1,
                                           .weight_bits = 8,
                                           .activation_bits = 8};
    const struct espl_quant_activations a = {.codes = codes, .scales = scales};
    cuda_check(espl_backend_ops(ref)->quantize_act(ref, &shape, x, NULL, clip, &a, &err), &err);
    espl_backend_close(ref);
}

/* flips: how many codes may be one step off. */
static void check_codes(const struct espl_cuda_vision_codes *found, const float *x, size_t rows,
                        size_t width, double scale_tolerance, size_t flips)
{
    int8_t *expected = malloc(rows * width);
    float *scales = malloc(rows * sizeof *scales);
    assert_true(expected != NULL && scales != NULL);
    expect_codes(x, rows, width, found->clip, expected, scales);
    int8_t *codes = vision_take_output(found->codes, rows * found->stride);
    float *found_scales = vision_take_output(found->scales, rows * sizeof *found_scales);
    size_t off = 0;
    for (size_t row = 0; row < rows; row++) {
        assert_true(fabs((double)(found_scales[row] / scales[row]) - 1.0) <= scale_tolerance);
        for (size_t c = 0; c < width; c++) {
            const int distance = abs(codes[row * found->stride + c] - expected[row * width + c]);
            assert_true(distance <= 1);
            off += distance != 0;
        }
        for (size_t c = width; c < found->stride; c++) {
            assert_int_equal((uint8_t)codes[row * found->stride + c], VISION_POISON);
        }
    }
    if (off > flips) {
        fail_msg("%zu of %zu codes differ", off, rows * width);
    }
    free(codes);
    free(found_scales);
    free(expected);
    free(scales);
}

static void test_quantise__bits(void **state)
{
    static const size_t sizes[][3] = {/* rows, width, stride */
                                      {1, 4, 16},       {7, 96, 96},     {33, 192, 208},
                                      {5, 1024, 1024},  {6, 1028, 1040}, {9, 3072, 3072},
                                      {1100, 384, 384}, {3, 4096, 4096}};
    struct espl_error err;
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const size_t rows = sizes[i][0];
        const size_t width = sizes[i][1];
        float *x = NULL;
        uint16_t *halves = vision_draw_halves(&rng, rows * width, &x);
        memset(halves, 0, width * sizeof *halves); /* a row of zeros has the least scale */
        memset(x, 0, width * sizeof *x);
        uint16_t *on_device = vision_operand(halves, rows * width * sizeof *halves);
        const struct espl_cuda_vision_codes codes = new_codes(rows, sizes[i][2], 0.9F);
        cuda_check(espl_cuda_vision_quantise(on_device, rows, width, false, &codes, NULL, &err),
                   &err);
        check_codes(&codes, x, rows, width, 0.0, 0);
        espl_cuda_free(on_device);
        free(halves);
        free(x);
    }
}

/* Of the GELU of FP16 values: sums of few roundings apart, so a code may be one step off. */
static void test_quantise__gelu(void **state)
{
    enum { ROWS = 21, WIDTH = 1536 };
    struct espl_error err;
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    float *x = NULL;
    uint16_t *halves = vision_draw_halves(&rng, ROWS * WIDTH, &x);
    for (size_t i = 0; i < ROWS * WIDTH; i++) {
        x[i] = (float)(0.5 * (double)x[i] * erfc(-(double)x[i] * sqrt(0.5)));
    }
    uint16_t *on_device = vision_operand(halves, ROWS * WIDTH * sizeof *halves);
    const struct espl_cuda_vision_codes codes = new_codes(ROWS, WIDTH, 1.0F);
    cuda_check(espl_cuda_vision_quantise(on_device, ROWS, WIDTH, true, &codes, NULL, &err), &err);
    check_codes(&codes, x, ROWS, WIDTH, 1e-6, 3);
    espl_cuda_free(on_device);
    free(halves);
    free(x);
}

/* A value that is no number shows in the scale, from which the whole row takes it. */
static void test_quantise__not_a_number(void **state)
{
    struct espl_error err;
    enum { ROWS = 2, WIDTH = 200 };
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    uint16_t halves[ROWS * WIDTH] = {0};
    halves[WIDTH + 77] = 0x7E00;
    uint16_t *on_device = vision_operand(halves, sizeof halves);
    const struct espl_cuda_vision_codes codes = new_codes(ROWS, 208, 1.0F);
    cuda_check(espl_cuda_vision_quantise(on_device, ROWS, WIDTH, false, &codes, NULL, &err), &err);
    float *scales = vision_take_output(codes.scales, ROWS * sizeof *scales);
    assert_true(isfinite(scales[0]) && isnan(scales[1]));
    free(scales);
    espl_cuda_free(codes.codes);
    espl_cuda_free(on_device);
}

/* ---- norms ---- */

struct norm_case {
    size_t rows, width;
    size_t step; /* 0 = width */
    size_t side; /* not 0: merged cells; rows = images * side^2 */
    bool add, add_row, keep, affine;
};

/* Where column c of a row stands in x. */
static size_t place_of(const struct norm_case *item, size_t row, size_t c)
{
    const size_t side = item->side;
    if (side == 0) {
        return row * (item->step == 0 ? item->width : item->step) + c;
    }
    const size_t width = item->width / 4;
    const size_t part = c / width;
    const size_t image = row / (side * side);
    const size_t down = row % (side * side) / side * 2 + part % 2;
    const size_t across = row % side * 2 + part / 2;
    return ((image * 2 * side + down) * 2 * side + across) * width + c % width;
}

static void check_norm(const struct norm_case *item)
{
    struct espl_error err;
    struct espl_backend *ref = vision_open_ref();
    const size_t count = item->rows * item->width;
    const size_t step = item->step == 0 ? item->width : item->step;
    const size_t x_count = item->side != 0 ? count : (item->rows - 1) * step + item->width;
    const size_t x_width = item->side != 0 ? item->width / 4 : item->width;
    const float eps = 1e-6F;
    float *added = NULL;
    uint16_t *halves = vision_draw_halves(&rng, x_count, &added);
    float *x = vision_draw(&rng, x_count, 3.0);
    float *row_terms = vision_draw(&rng, x_width, 0.5);
    float *gain = vision_draw(&rng, item->width, 1.0);
    float *bias = vision_draw(&rng, item->width, 1.0);
    float *sum = calloc(count, sizeof *sum);
    float *expected = calloc(count, sizeof *expected);
    assert_true(sum != NULL && expected != NULL);
    for (size_t i = 0; i < count; i++) {
        const size_t place = place_of(item, i / item->width, i % item->width);
        sum[i] = x[place] + ((item->add ? added[place] : 0.0F) +
                             (item->add_row ? row_terms[i % item->width % x_width] : 0.0F));
    }
    cuda_check(espl_backend_ops(ref)->layernorm(ref, item->rows, item->width, sum,
                                                item->affine ? gain : NULL,
                                                item->affine ? bias : NULL, eps, expected, &err),
               &err);
    espl_backend_close(ref);
    const struct espl_cuda_vision_norm norm = {
        .rows = item->rows,
        .width = item->width,
        .x = vision_operand(x, x_count * sizeof *x),
        .step = item->step,
        .add = vision_operand(item->add ? halves : NULL, x_count * sizeof *halves),
        .add_row = vision_operand(item->add_row ? row_terms : NULL, x_width * sizeof *row_terms),
        .keep = item->keep,
        .side = item->side,
        .gain = vision_operand(item->affine ? gain : NULL, item->width * sizeof *gain),
        .bias = vision_operand(item->affine ? bias : NULL, item->width * sizeof *bias),
        .eps = eps,
        .floats = vision_output(count * sizeof(float)),
        .halves = vision_output(count * sizeof(uint16_t)),
        .codes = new_codes(item->rows, (item->width + 15) / 16 * 16, 1.0F),
    };
    cuda_check(espl_cuda_vision_normalise(&norm, NULL, &err), &err);
    float *floats = vision_take_output(norm.floats, count * sizeof *floats);
    uint16_t *as_halves = vision_take_output(norm.halves, count * sizeof *as_halves);
    float *kept = malloc(x_count * sizeof *kept);
    assert_non_null(kept);
    cuda_check(espl_cuda_download(kept, norm.x, x_count * sizeof *kept, &err), &err);
    vision_assert_close(floats, expected, count, 4e-6);
    vision_assert_halves_close(as_halves, expected, count, 6e-4);
    check_codes(&norm.codes, expected, item->rows, item->width, 1e-5, 2 + count / 5000);
    for (size_t i = 0; item->keep && i < count; i++) { /* else x is as it was */
        x[place_of(item, i / item->width, i % item->width)] = sum[i];
    }
    assert_memory_equal(kept, x, x_count * sizeof *x);
    void *const device[] = {norm.x, (void *)(uintptr_t)norm.add, (void *)(uintptr_t)norm.add_row,
                            (void *)(uintptr_t)norm.gain, (void *)(uintptr_t)norm.bias};
    void *const host[] = {halves, added,    x,      row_terms, gain, bias,
                          sum,    expected, floats, as_halves, kept};
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++) {
        espl_cuda_free(device[i]);
    }
    for (size_t i = 0; i < sizeof host / sizeof host[0]; i++) {
        free(host[i]);
    }
}

static void test_norm__cases(void **state)
{
    static const struct norm_case cases[] = {
        {.rows = 1, .width = 4, .affine = true},
        {.rows = 50, .width = 128, .add = true, .keep = true, .affine = true},
        {.rows = 197, .width = 768, .add = true, .keep = true, .affine = true},
        {.rows = 1100, .width = 768, .add = true, .keep = true, .affine = true}, /* warps */
        {.rows = 9, .width = 1024, .add = true, .add_row = true, .keep = true, .affine = true},
        {.rows = 9, .width = 2048, .add = true, .keep = true, .affine = true},
        {.rows = 3, .width = 4096},
        {.rows = 4, .width = 192, .step = 5 * 192, .add = true, .affine = true},
        {.rows = 2 * 16, .width = 256, .side = 4, .affine = true},
        {.rows = 3 * 4, .width = 1536, .side = 2, .add = true, .affine = true},
        {.rows = 7, .width = 96, .add_row = true, .keep = true, .affine = true},
    };
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_norm(&cases[i]);
    }
}

static void test_norm__refused(void **state)
{
    struct espl_error err;
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    const struct espl_cuda_vision_norm wide = {.rows = 1, .width = 4100};
    const struct espl_cuda_vision_norm odd = {.rows = 1, .width = 130};
    assert_int_equal(espl_cuda_vision_normalise(&wide, NULL, &err), ESPL_E_UNSUPPORTED);
    assert_int_equal(espl_cuda_vision_normalise(&odd, NULL, &err), ESPL_E_UNSUPPORTED);
}

/* ---- attention ---- */

struct attention_case {
    size_t images, windows, tokens, heads, head_dim;
    bool rows, bias, mask;
    float sharpness; /* of scores, 0 = 1 */
};

static void check_attention(const struct attention_case *item)
{
    struct espl_error err;
    struct espl_backend *ref = vision_open_ref();
    const size_t cells = item->windows * item->tokens;
    const size_t pairs = item->tokens * item->tokens;
    const size_t count = item->images * cells * item->heads * item->head_dim;
    float *floats = NULL;
    uint16_t *qkv = vision_draw_halves(&rng, 3 * count, &floats);
    int32_t *order = vision_draw_order(&rng, cells);
    float *bias = vision_draw(&rng, item->heads * pairs, 1.0);
    float *mask = vision_draw(&rng, item->windows * pairs, 1.0);
    float *expected = calloc(count, sizeof *expected);
    assert_non_null(expected);
    for (size_t i = 0; i < item->windows * pairs; i++) {
        mask[i] = mask[i] > 0.0F ? 0.0F : -100.0F;
    }
    const struct espl_full_attention_shape shape = {
        item->images,
        item->windows,
        item->tokens,
        item->heads,
        item->head_dim,
        (item->sharpness > 0.0F ? item->sharpness : 1.0F) / sqrtf((float)item->head_dim)};
    const struct espl_full_attention_tables tables = {
        item->rows ? order : NULL, item->bias ? bias : NULL, item->mask ? mask : NULL};
    cuda_check(espl_backend_ops(ref)->full_attention(ref, &shape, &tables, floats, expected, &err),
               &err);
    espl_backend_close(ref);
    const struct espl_cuda_vision_attention attention = {
        .images = item->images,
        .windows = item->windows,
        .tokens = item->tokens,
        .heads = item->heads,
        .head_dim = item->head_dim,
        .scale = shape.scale,
        .qkv = vision_operand(qkv, 3 * count * sizeof *qkv),
        .rows = vision_operand(tables.rows, cells * sizeof *order),
        .bias = vision_operand(tables.bias, item->heads * pairs * sizeof *bias),
        .mask = vision_operand(tables.mask, item->windows * pairs * sizeof *mask),
        .y = vision_output(count * sizeof(uint16_t)),
    };
    cuda_check(espl_cuda_vision_attend(&attention, NULL, &err), &err);
    uint16_t *y = vision_take_output(attention.y, count * sizeof *y);
    /* Probabilities and results are rounded to FP16; values are below 2. */
    vision_assert_halves_close(y, expected, count, 2e-3);
    void *const device[] = {(void *)(uintptr_t)attention.qkv, (void *)(uintptr_t)attention.rows,
                            (void *)(uintptr_t)attention.bias, (void *)(uintptr_t)attention.mask};
    void *const host[] = {floats, qkv, order, bias, mask, expected, y};
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++) {
        espl_cuda_free(device[i]);
    }
    for (size_t i = 0; i < sizeof host / sizeof host[0]; i++) {
        free(host[i]);
    }
}

static void test_attention__cases(void **state)
{
    static const struct attention_case cases[] = {
        {1, 1, 1, 1, 8, false, false, false, 0.0F},
        {2, 1, 197, 3, 64, false, false, false, 0.0F},
        {2, 1, 198, 2, 64, false, false, false, 0.0F},
        {1, 1, 50, 4, 32, false, false, false, 0.0F},
        {1, 1, 65, 3, 64, false, false, false, 0.0F},
        {2, 4, 16, 2, 32, true, true, true, 0.0F},
        {2, 4, 49, 3, 32, true, true, true, 0.0F},
        {1, 4, 49, 3, 32, true, true, false, 0.0F},
        {1, 9, 4, 2, 8, true, true, true, 0.0F},
        {1, 1, 128, 2, 128, false, false, false, 0.0F},
        {2, 1, 70, 2, 80, false, true, false, 0.0F},
        {1, 1, 33, 1, 104, false, false, false, 0.0F},
        {1, 2, 144, 2, 32, true, true, true, 0.0F},
        {1, 4, 49, 2, 64, true, true, true, 0.0F},
        {3, 1, 577, 1, 64, false, false, false, 0.0F},
        /* Scores that lie far above those of earlier keys. */
        {2, 1, 577, 2, 64, false, false, false, 5.0F},
        {2, 4, 144, 3, 32, true, true, true, 5.0F},
    };
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_attention(&cases[i]);
    }
}

static void test_attention__refused(void **state)
{
    struct espl_error err;
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    struct espl_cuda_vision_attention attention = {1,    1,    8,    1,    132, 1.0F,
                                                   NULL, NULL, NULL, NULL, NULL};
    assert_int_equal(espl_cuda_vision_attend(&attention, NULL, &err), ESPL_E_UNSUPPORTED);
    attention.head_dim = 12;
    assert_int_equal(espl_cuda_vision_attend(&attention, NULL, &err), ESPL_E_UNSUPPORTED);
}

/* ---- pooling, heads, bias and GELU ---- */

static void test_heads__mean(void **state)
{
    enum { IMAGES = 11, CELLS = 5, WIDTH = 132, CLASSES = 7, HEADS = 2 };
    struct espl_error err;
    float pooled[IMAGES * WIDTH];
    float logits[IMAGES * CLASSES] = {0.0F};
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    float *x = vision_draw(&rng, HEADS * IMAGES * CELLS * WIDTH, 1.0);
    float *weights[HEADS] = {vision_draw(&rng, CLASSES * WIDTH, 0.1),
                             vision_draw(&rng, CLASSES * WIDTH, 0.1)};
    float *bias = vision_draw(&rng, CLASSES, 1.0);
    for (size_t i = 0; i < IMAGES * WIDTH; i++) {
        double sum = 0.0;
        for (size_t cell = 0; cell < CELLS; cell++) {
            sum += (double)x[(i / WIDTH * CELLS + cell) * WIDTH + i % WIDTH];
        }
        pooled[i] = (float)(sum / CELLS);
    }
    for (size_t i = 0; i < IMAGES * CLASSES; i++) {
        double sum = (double)bias[i % CLASSES]; /* of the first head alone */
        for (size_t c = 0; c < HEADS * WIDTH; c++) {
            sum += (double)x[(c / WIDTH * IMAGES + i / CLASSES) * WIDTH + c % WIDTH] *
                   (double)weights[c / WIDTH][i % CLASSES * WIDTH + c % WIDTH];
        }
        logits[i] = (float)(0.5 * sum);
    }
    float *on_device = vision_operand(x, HEADS * IMAGES * CELLS * WIDTH * sizeof *x);
    float *out = vision_output(sizeof pooled);
    cuda_check(espl_cuda_vision_pool(on_device, IMAGES, CELLS, WIDTH, out, NULL, &err), &err);
    float *found = vision_take_output(out, sizeof pooled);
    vision_assert_close(found, pooled, IMAGES * WIDTH, 1e-6);
    free(found);
    const struct espl_cuda_vision_heads heads = {
        .images = IMAGES,
        .width = WIDTH,
        .classes = CLASSES,
        .heads = HEADS,
        .x = on_device,
        .weight = {vision_operand(weights[0], CLASSES * WIDTH * sizeof(float)),
                   vision_operand(weights[1], CLASSES * WIDTH * sizeof(float))},
        .bias = {vision_operand(bias, CLASSES * sizeof *bias), NULL},
        .logits = vision_output(sizeof logits),
    };
    cuda_check(espl_cuda_vision_classify(&heads, NULL, &err), &err);
    found = vision_take_output(heads.logits, sizeof logits);
    vision_assert_close(found, logits, IMAGES * CLASSES, 1e-5);
    free(found);
    espl_cuda_free(on_device);
    espl_cuda_free((void *)(uintptr_t)heads.weight[0]);
    espl_cuda_free((void *)(uintptr_t)heads.weight[1]);
    espl_cuda_free((void *)(uintptr_t)heads.bias[0]);
    free(weights[0]);
    free(weights[1]);
    free(bias);
    free(x);
}

static void test_finish__bias_and_gelu(void **state)
{
    enum { ROWS = 13, WIDTH = 52 };
    struct espl_error err;
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    float *x = NULL;
    uint16_t *halves = vision_draw_halves(&rng, ROWS * WIDTH, &x);
    float *bias = vision_draw(&rng, WIDTH, 1.0);
    for (size_t i = 0; i < ROWS * WIDTH; i++) {
        const double v = (double)x[i] + (double)bias[i % WIDTH];
        x[i] = (float)(0.5 * v * erfc(-v * sqrt(0.5)));
    }
    uint16_t *in_place = vision_output(ROWS * WIDTH * sizeof *halves);
    float *bias_there = vision_operand(bias, WIDTH * sizeof *bias);
    cuda_check(espl_cuda_upload(in_place, halves, ROWS * WIDTH * sizeof *halves, &err), &err);
    cuda_check(espl_cuda_vision_finish(in_place, ROWS, WIDTH, bias_there, true, NULL, &err), &err);
    uint16_t *found = vision_take_output(in_place, ROWS * WIDTH * sizeof *halves);
    vision_assert_halves_close(found, x, ROWS * WIDTH, 6e-4);
    espl_cuda_free(bias_there);
    free(found);
    free(halves);
    free(bias);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantise__bits),         cmocka_unit_test(test_quantise__gelu),
        cmocka_unit_test(test_quantise__not_a_number), cmocka_unit_test(test_norm__cases),
        cmocka_unit_test(test_norm__refused),          cmocka_unit_test(test_attention__cases),
        cmocka_unit_test(test_attention__refused),     cmocka_unit_test(test_heads__mean),
        cmocka_unit_test(test_finish__bias_and_gelu),
    };
    cuda_filter_tests();
    rng = espl_rng_stream(7, "cuda-vision", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

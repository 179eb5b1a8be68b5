/* The kernels of image models on the CUDA device against the reference backend: attention with and
 * without windows, norms with residual adds and merged cells, rounding to bytes, heads. Outputs are
 * poisoned before and what lies behind them must stay poison. Skipped without a CUDA device. */
#include "core/rng.h"
#include "espalier/cuda_memory.h"
#include "espalier/cuda_vision.h"
#include "espalier/kernels.h"
#include "kernels/cuda_device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0x5A, GUARD = 256 /* bytes behind an output */ };

static struct espl_rng rng;

static float *draw(size_t count, double scale)
{
    float *values = calloc(count, sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(scale * espl_rng_normal(&rng));
    }
    return values;
}

static void *to_device(const void *host, size_t bytes)
{
    struct espl_error err;
    void *device = NULL;
    if (host == NULL) {
        return NULL;
    }
    cuda_check(espl_cuda_alloc(bytes, &device, &err), &err);
    cuda_check(espl_cuda_upload(device, host, bytes, &err), &err);
    return device;
}

static void *poisoned(size_t bytes)
{
    struct espl_error err;
    void *device = NULL;
    cuda_check(espl_cuda_alloc(bytes + GUARD, &device, &err), &err);
    cuda_check(espl_cuda_fill(device, POISON, bytes + GUARD, &err), &err);
    return device;
}

/* Fetches an output, frees it and looks at what lies behind it. */
static void *fetch(void *device, size_t bytes)
{
    struct espl_error err;
    uint8_t *host = malloc(bytes + GUARD);
    assert_non_null(host);
    cuda_check(espl_cuda_download(host, device, bytes + GUARD, &err), &err);
    for (size_t i = bytes; i < bytes + GUARD; i++) {
        assert_int_equal(host[i], POISON);
    }
    espl_cuda_free(device);
    return host;
}

static struct espl_backend *open_ref(void)
{
    struct espl_error err;
    struct espl_backend *ref = NULL;
    cuda_check(espl_backend_open("ref", 1, &ref, &err), &err);
    return ref;
}

static float float_of_half(uint16_t half)
{
    const int exponent = half >> 10 & 31;
    const float mantissa = (float)(half & 1023);
    const float size = exponent == 0    ? ldexpf(mantissa, -24)
                       : exponent == 31 ? (mantissa == 0.0F ? INFINITY : NAN)
                                        : ldexpf(1024.0F + mantissa, exponent - 25);
    return (half & 0x8000) != 0 ? -size : size;
}

/* Halves of small random numbers, and the same as floats. Magnitudes from 2^-8 on: no subnormals.
 */
static uint16_t *draw_halves(size_t count, float **floats)
{
    uint16_t *halves = calloc(count, sizeof *halves);
    *floats = calloc(count, sizeof **floats);
    assert_true(halves != NULL && *floats != NULL);
    for (size_t i = 0; i < count; i++) {
        const unsigned exponent = 7 + (unsigned)espl_rng_below(&rng, 9);
        const unsigned bits = (unsigned)espl_rng_below(&rng, 1024);
        const unsigned sign = (unsigned)espl_rng_below(&rng, 2);
        halves[i] = (uint16_t)(sign << 15 | exponent << 10 | bits);
        (*floats)[i] = float_of_half(halves[i]);
    }
    return halves;
}

static void assert_close(const float *found, const float *expected, size_t count, double tolerance)
{
    for (size_t i = 0; i < count; i++) {
        const double allowed = tolerance * (1.0 + fabs((double)expected[i]));
        if (!(fabs((double)found[i] - (double)expected[i]) <= allowed)) {
            fail_msg("value %zu is %.9g, expected %.9g", i, (double)found[i], (double)expected[i]);
        }
    }
}

static void assert_halves_close(const uint16_t *found, const float *expected, size_t count,
                                double tolerance)
{
    float *values = calloc(count, sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = float_of_half(found[i]);
    }
    assert_close(values, expected, count, tolerance);
    free(values);
}

/* ---- rounding to bytes ---- */

static struct espl_cuda_vision_codes new_codes(size_t rows, size_t stride, float clip)
{
    return (struct espl_cuda_vision_codes){.codes = poisoned(rows * stride),
                                           .stride = stride,
                                           .scales = poisoned(rows * sizeof(float)),
                                           .clip = clip};
}

/* Codes of x (rows, width) as the reference makes them. */
static void expect_codes(const float *x, size_t rows, size_t width, float clip, int8_t *codes,
                         float *scales)
{
    struct espl_error err;
    struct espl_backend *ref = open_ref();
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
    int8_t *codes = fetch(found->codes, rows * found->stride);
    float *found_scales = fetch(found->scales, rows * sizeof *found_scales);
    size_t off = 0;
    for (size_t row = 0; row < rows; row++) {
        assert_true(fabs((double)(found_scales[row] / scales[row]) - 1.0) <= scale_tolerance);
        for (size_t c = 0; c < width; c++) {
            const int distance = abs(codes[row * found->stride + c] - expected[row * width + c]);
            assert_true(distance <= 1);
            off += distance != 0;
        }
        for (size_t c = width; c < found->stride; c++) {
            assert_int_equal((uint8_t)codes[row * found->stride + c], POISON);
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
                                      {1, 4, 16},      {7, 96, 96},     {33, 192, 208},
                                      {5, 1024, 1024}, {6, 1028, 1040}, {9, 3072, 3072},
                                      {3, 4096, 4096}};
    struct espl_error err;
    (void)state;
    if (!cuda_has_device()) {
        return;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const size_t rows = sizes[i][0];
        const size_t width = sizes[i][1];
        float *x = NULL;
        uint16_t *halves = draw_halves(rows * width, &x);
        memset(halves, 0, width * sizeof *halves); /* a row of zeros has the least scale */
        memset(x, 0, width * sizeof *x);
        uint16_t *on_device = to_device(halves, rows * width * sizeof *halves);
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
        return;
    }
    float *x = NULL;
    uint16_t *halves = draw_halves(ROWS * WIDTH, &x);
    for (size_t i = 0; i < ROWS * WIDTH; i++) {
        x[i] = (float)(0.5 * (double)x[i] * erfc(-(double)x[i] * sqrt(0.5)));
    }
    uint16_t *on_device = to_device(halves, ROWS * WIDTH * sizeof *halves);
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
        return;
    }
    uint16_t halves[ROWS * WIDTH] = {0};
    halves[WIDTH + 77] = 0x7E00;
    uint16_t *on_device = to_device(halves, sizeof halves);
    const struct espl_cuda_vision_codes codes = new_codes(ROWS, 208, 1.0F);
    cuda_check(espl_cuda_vision_quantise(on_device, ROWS, WIDTH, false, &codes, NULL, &err), &err);
    float *scales = fetch(codes.scales, ROWS * sizeof *scales);
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
    struct espl_backend *ref = open_ref();
    const size_t count = item->rows * item->width;
    const size_t step = item->step == 0 ? item->width : item->step;
    const size_t x_count = item->side != 0 ? count : (item->rows - 1) * step + item->width;
    const size_t x_width = item->side != 0 ? item->width / 4 : item->width;
    const float eps = 1e-6F;
    float *added = NULL;
    uint16_t *halves = draw_halves(x_count, &added);
    float *x = draw(x_count, 3.0);
    float *row_terms = draw(x_width, 0.5);
    float *gain = draw(item->width, 1.0);
    float *bias = draw(item->width, 1.0);
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
        .x = to_device(x, x_count * sizeof *x),
        .step = item->step,
        .add = to_device(item->add ? halves : NULL, x_count * sizeof *halves),
        .add_row = to_device(item->add_row ? row_terms : NULL, x_width * sizeof *row_terms),
        .keep = item->keep,
        .side = item->side,
        .gain = to_device(item->affine ? gain : NULL, item->width * sizeof *gain),
        .bias = to_device(item->affine ? bias : NULL, item->width * sizeof *bias),
        .eps = eps,
        .floats = poisoned(count * sizeof(float)),
        .halves = poisoned(count * sizeof(uint16_t)),
        .codes = new_codes(item->rows, (item->width + 15) / 16 * 16, 1.0F),
    };
    cuda_check(espl_cuda_vision_normalise(&norm, NULL, &err), &err);
    float *floats = fetch(norm.floats, count * sizeof *floats);
    uint16_t *as_halves = fetch(norm.halves, count * sizeof *as_halves);
    float *kept = malloc(x_count * sizeof *kept);
    assert_non_null(kept);
    cuda_check(espl_cuda_download(kept, norm.x, x_count * sizeof *kept, &err), &err);
    assert_close(floats, expected, count, 4e-6);
    assert_halves_close(as_halves, expected, count, 6e-4);
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
        return;
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
        return;
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
};

/* Some other order of the rows of an image. */
static int32_t *draw_order(size_t count)
{
    int32_t *order = malloc(count * sizeof *order);
    assert_non_null(order);
    for (size_t i = 0; i < count; i++) {
        const size_t other = (size_t)espl_rng_below(&rng, i + 1);
        order[i] = order[other];
        order[other] = (int32_t)i;
    }
    return order;
}

static void check_attention(const struct attention_case *item)
{
    struct espl_error err;
    struct espl_backend *ref = open_ref();
    const size_t cells = item->windows * item->tokens;
    const size_t pairs = item->tokens * item->tokens;
    const size_t count = item->images * cells * item->heads * item->head_dim;
    float *floats = NULL;
    uint16_t *qkv = draw_halves(3 * count, &floats);
    int32_t *order = draw_order(cells);
    float *bias = draw(item->heads * pairs, 1.0);
    float *mask = draw(item->windows * pairs, 1.0);
    float *expected = calloc(count, sizeof *expected);
    assert_non_null(expected);
    for (size_t i = 0; i < item->windows * pairs; i++) {
        mask[i] = mask[i] > 0.0F ? 0.0F : -100.0F;
    }
    const struct espl_full_attention_shape shape = {
        item->images, item->windows,  item->tokens,
        item->heads,  item->head_dim, 1.0F / sqrtf((float)item->head_dim)};
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
        .qkv = to_device(qkv, 3 * count * sizeof *qkv),
        .rows = to_device(tables.rows, cells * sizeof *order),
        .bias = to_device(tables.bias, item->heads * pairs * sizeof *bias),
        .mask = to_device(tables.mask, item->windows * pairs * sizeof *mask),
        .y = poisoned(count * sizeof(uint16_t)),
    };
    cuda_check(espl_cuda_vision_attend(&attention, NULL, &err), &err);
    uint16_t *y = fetch(attention.y, count * sizeof *y);
    /* Probabilities and results are rounded to FP16; values are below 2. */
    assert_halves_close(y, expected, count, 2e-3);
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
        {1, 1, 1, 1, 8, false, false, false},    {2, 1, 197, 3, 64, false, false, false},
        {2, 1, 198, 2, 64, false, false, false}, {1, 1, 50, 4, 32, false, false, false},
        {1, 1, 65, 3, 64, false, false, false},  {2, 4, 16, 2, 32, true, true, true},
        {2, 4, 49, 3, 32, true, true, true},     {1, 4, 49, 3, 32, true, true, false},
        {1, 9, 4, 2, 8, true, true, true},       {1, 1, 128, 2, 128, false, false, false},
        {2, 1, 70, 2, 80, false, true, false},   {1, 1, 33, 1, 104, false, false, false},
        {1, 2, 144, 2, 32, true, true, true},    {1, 4, 49, 2, 64, true, true, true},
        {3, 1, 577, 1, 64, false, false, false},
    };
    (void)state;
    if (!cuda_has_device()) {
        return;
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
        return;
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
        return;
    }
    float *x = draw(HEADS * IMAGES * CELLS * WIDTH, 1.0);
    float *weights[HEADS] = {draw(CLASSES * WIDTH, 0.1), draw(CLASSES * WIDTH, 0.1)};
    float *bias = draw(CLASSES, 1.0);
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
    float *on_device = to_device(x, HEADS * IMAGES * CELLS * WIDTH * sizeof *x);
    float *out = poisoned(sizeof pooled);
    cuda_check(espl_cuda_vision_pool(on_device, IMAGES, CELLS, WIDTH, out, NULL, &err), &err);
    float *found = fetch(out, sizeof pooled);
    assert_close(found, pooled, IMAGES * WIDTH, 1e-6);
    free(found);
    const struct espl_cuda_vision_heads heads = {
        .images = IMAGES,
        .width = WIDTH,
        .classes = CLASSES,
        .heads = HEADS,
        .x = on_device,
        .weight = {to_device(weights[0], CLASSES * WIDTH * sizeof(float)),
                   to_device(weights[1], CLASSES * WIDTH * sizeof(float))},
        .bias = {to_device(bias, CLASSES * sizeof *bias), NULL},
        .logits = poisoned(sizeof logits),
    };
    cuda_check(espl_cuda_vision_classify(&heads, NULL, &err), &err);
    found = fetch(heads.logits, sizeof logits);
    assert_close(found, logits, IMAGES * CLASSES, 1e-5);
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
        return;
    }
    float *x = NULL;
    uint16_t *halves = draw_halves(ROWS * WIDTH, &x);
    float *bias = draw(WIDTH, 1.0);
    for (size_t i = 0; i < ROWS * WIDTH; i++) {
        const double v = (double)x[i] + (double)bias[i % WIDTH];
        x[i] = (float)(0.5 * v * erfc(-v * sqrt(0.5)));
    }
    uint16_t *in_place = poisoned(ROWS * WIDTH * sizeof *halves);
    float *bias_there = to_device(bias, WIDTH * sizeof *bias);
    cuda_check(espl_cuda_upload(in_place, halves, ROWS * WIDTH * sizeof *halves, &err), &err);
    cuda_check(espl_cuda_vision_finish(in_place, ROWS, WIDTH, bias_there, true, NULL, &err), &err);
    uint16_t *found = fetch(in_place, ROWS * WIDTH * sizeof *halves);
    assert_halves_close(found, x, ROWS * WIDTH, 6e-4);
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

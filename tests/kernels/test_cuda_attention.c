/* Attention over the cache on a CUDA device against the reference backend: keys of FP16 and 4 bits,
 * with and without rotary embedding, prompts at once and token by token, caches in several parts.
 * Skipped without a CUDA device. */
#include "core/rng.h"
#include "espalier/cuda_decode.h"
#include "espalier/cuda_memory.h"
#include "kernels/cuda_arrays.h"
#include "kernels/cuda_atom_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 2 };

struct attention_case {
    size_t tokens, heads, kv_heads, head_dim;
    bool codes, rotary;
};

/* q, k and v of all tokens, what ref makes of them, and the device's side. */
struct attention_data {
    const struct attention_case *c;
    size_t width; /* of a row of qkv */
    float *qkv;   /* (sequences * tokens, width) */
    float *wanted;
    struct espl_cuda_attention device;
    void *memory[16];
    size_t memory_count;
};

static void *take(struct attention_data *data, const void *host, size_t bytes)
{
    void *device = cuda_array(host, bytes > 0 ? bytes : 1);
    data->memory[data->memory_count++] = device;
    return device;
}

/* Columns [first, first + count) of all rows. */
static float *columns(const struct attention_data *data, size_t first, size_t count)
{
    const size_t rows = SEQUENCES * data->c->tokens;
    float *values = malloc(rows * count * sizeof *values);
    assert_non_null(values);
    for (size_t r = 0; r < rows; r++) {
        memcpy(values + r * count, data->qkv + r * data->width + first, count * sizeof *values);
    }
    return values;
}

/* To 11 bits, ties to even; none of the values is small enough to lose bits of its own. */
static void round_to_half(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int exponent = 0;
        (void)frexpf(values[i], &exponent);
        const int lowest = exponent < -13 ? -24 : exponent - 11;
        values[i] = ldexpf(rintf(ldexpf(values[i], -lowest)), lowest);
    }
}

static void make_wanted(struct attention_data *data, const float *frequencies, float scale)
{
    const struct attention_case *c = data->c;
    const size_t rows = SEQUENCES * c->tokens;
    const size_t query = c->heads * c->head_dim;
    const size_t value = c->kv_heads * c->head_dim;
    const struct espl_attention_shape shape = {.windows = SEQUENCES,
                                               .tokens = c->tokens,
                                               .key_rows = c->tokens,
                                               .heads = c->heads,
                                               .kv_heads = c->kv_heads,
                                               .head_dim = c->head_dim,
                                               .scale = scale};
    struct espl_backend *backend = NULL;
    struct espl_error err;
    float *q = columns(data, 0, query);
    float *k = columns(data, query, value);
    float *v = columns(data, query + value, value);
    cuda_check(espl_backend_open("ref", 1, &backend, &err), &err);
    const struct espl_ops *ops = espl_backend_ops(backend);
    if (c->codes) {
        cuda_check(ops->quantize_kv(backend, rows, c->kv_heads, c->head_dim, 4, 0.95F, k, &err),
                   &err);
        cuda_check(ops->quantize_kv(backend, rows, c->kv_heads, c->head_dim, 4, 0.95F, v, &err),
                   &err);
    }
    if (c->rotary) {
        cuda_check(ops->rope(backend, SEQUENCES, c->tokens, 0, c->heads, c->head_dim, frequencies,
                             1.0F, q, &err),
                   &err);
        cuda_check(ops->rope(backend, SEQUENCES, c->tokens, 0, c->kv_heads, c->head_dim,
                             frequencies, 1.0F, k, &err),
                   &err);
    }
    if (!c->codes) {
        round_to_half(k, rows * value);
        round_to_half(v, rows * value);
    }
    data->wanted = malloc(rows * query * sizeof *data->wanted);
    assert_non_null(data->wanted);
    cuda_check(ops->attention(backend, &shape, q, k, v, data->wanted, &err), &err);
    espl_backend_close(backend);
    free(q);
    free(k);
    free(v);
}

static void make_data(const struct attention_case *c, struct attention_data *data)
{
    struct espl_rng rng = espl_rng_stream(21, "attention", c->tokens + c->head_dim);
    const size_t half = c->head_dim / 2;
    const float scale = (float)(1.0 / sqrt((double)c->head_dim));
    const size_t places = SEQUENCES * c->kv_heads * c->tokens;
    float *frequencies = malloc(half * sizeof *frequencies);
    float *table = malloc(c->tokens * c->head_dim * sizeof *table);
    memset(data, 0, sizeof *data);
    data->c = c;
    data->width = (c->heads + 2 * c->kv_heads) * c->head_dim;
    data->qkv = malloc(SEQUENCES * c->tokens * data->width * sizeof *data->qkv);
    assert_non_null(data->qkv);
    assert_non_null(frequencies);
    assert_non_null(table);
    for (size_t i = 0; i < SEQUENCES * c->tokens * data->width; i++) {
        data->qkv[i] = (float)(1.5 * espl_rng_normal(&rng));
    }
    for (size_t i = 0; i < half; i++) {
        frequencies[i] = (float)pow(10000.0, -(double)i / (double)half);
    }
    for (size_t t = 0; t < c->tokens; t++) {
        for (size_t i = 0; i < half; i++) {
            const double angle = (double)((float)t * frequencies[i]);
            table[t * c->head_dim + i] = (float)cos(angle);
            table[t * c->head_dim + half + i] = (float)sin(angle);
        }
    }
    make_wanted(data, frequencies, scale);
    data->device = (struct espl_cuda_attention){
        .sequences = SEQUENCES,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .scale = scale,
        .qkv = {.stride = data->width},
        .cache = {.keys = take(data, NULL, places * c->head_dim * 2),
                  .values = take(data, NULL, places * c->head_dim * 2),
                  .max_tokens = c->tokens,
                  .clip = 0.95F},
        .out = take(data, NULL, SEQUENCES * c->tokens * c->heads * c->head_dim * sizeof(float)),
    };
    if (c->codes) {
        data->device.cache.key_scales = take(data, NULL, places * 2 * sizeof(float));
        data->device.cache.value_scales = take(data, NULL, places * 2 * sizeof(float));
    }
    if (c->rotary) {
        data->device.rotation = take(data, table, c->tokens * c->head_dim * sizeof *table);
    }
    free(frequencies);
    free(table);
}

static void free_data(struct attention_data *data)
{
    for (size_t i = 0; i < data->memory_count; i++) {
        espl_cuda_free(data->memory[i]);
    }
    free(data->qkv);
    free(data->wanted);
}

/* Lets tokens [first, first + count) of every sequence join and compares their results. Twice, to
 * the same bits. */
static void run_tokens(struct attention_data *data, size_t first, size_t count)
{
    const struct attention_case *c = data->c;
    const size_t query = c->heads * c->head_dim;
    const size_t bytes = SEQUENCES * count * query * sizeof(float);
    const int32_t starts[SEQUENCES] = {(int32_t)first, (int32_t)first};
    struct espl_error err;
    float *rows = malloc(SEQUENCES * count * data->width * sizeof *rows);
    float *got[2] = {malloc(bytes), malloc(bytes)};
    const size_t kept = data->memory_count;
    assert_non_null(rows);
    for (size_t s = 0; s < SEQUENCES; s++) {
        memcpy(rows + s * count * data->width, data->qkv + (s * c->tokens + first) * data->width,
               count * data->width * sizeof *rows);
    }
    data->device.row_tokens = count;
    data->device.starts = take(data, starts, sizeof starts);
    data->device.qkv.values = take(data, rows, SEQUENCES * count * data->width * sizeof *rows);
    data->device.parts = take(data, NULL, espl_cuda_attention_bytes(&data->device));
    for (size_t round = 0; round < 2; round++) {
        assert_non_null(got[round]);
        cuda_check(espl_cuda_attend(&data->device, round == 1, NULL, &err), &err);
        cuda_check(espl_cuda_download(got[round], data->device.out, bytes, &err), &err);
    }
    assert_memory_equal(got[0], got[1], bytes);
    for (size_t i = 0; i < SEQUENCES * count * query; i++) {
        const size_t row = i / query;
        const size_t at = (row / count * c->tokens + first + row % count) * query + i % query;
        const double wanted = (double)data->wanted[at];
        /* FP16 keys: those of the reference may lie on the other side of a rounding. */
        const double tolerance = c->codes ? 2e-5 : 2e-4;
        if (!(fabs((double)got[0][i] - wanted) <= tolerance * (1.0 + fabs(wanted)))) {
            fail_msg("%zu heads on %zu of %zu, codes %d, rotary %d: token %zu of %zu, [%zu] is "
                     "%.7g, not %.7g",
                     c->heads, c->kv_heads, c->head_dim, c->codes, c->rotary, first + row % count,
                     c->tokens, i % query, (double)got[0][i], wanted);
        }
    }
    free(rows);
    free(got[0]);
    free(got[1]);
    while (data->memory_count > kept) {
        espl_cuda_free(data->memory[--data->memory_count]);
    }
}

static const struct attention_case cases[] = {
    {37, 4, 4, 64, false, false}, {37, 4, 4, 64, true, false},  {21, 8, 4, 64, true, true},
    {21, 8, 4, 64, false, true},  {19, 7, 1, 32, true, true},   {18, 8, 1, 128, false, true},
    {17, 3, 3, 80, true, true},   {13, 2, 1, 256, true, true},  {9, 4, 1, 8, false, false},
    {150, 2, 2, 128, true, true}, {90, 3, 3, 128, true, false}, {120, 2, 2, 64, true, true},
    {70, 2, 2, 128, false, true},
};

static void test_prompt__at_once(void **state)
{
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct attention_data data;
        make_data(&cases[i], &data);
        run_tokens(&data, 0, cases[i].tokens);
        free_data(&data);
    }
}

static void test_tokens__one_after_the_other(void **state)
{
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct attention_data data;
        make_data(&cases[i], &data);
        for (size_t t = 0; t < cases[i].tokens; t++) {
            run_tokens(&data, t, 1);
        }
        free_data(&data);
    }
}

static void test_prompt__then_tokens_over_several_parts(void **state)
{
    static const struct attention_case longer[] = {
        {1100, 2, 1, 64, true, true},
        {1030, 3, 3, 128, false, false},
        {1100, 2, 2, 128, true, true},
        {1030, 2, 2, 64, true, false},
    };
    (void)state;
    if (!cuda_has_device() || cuda_small()) {
        skip();
    }
    for (size_t i = 0; i < sizeof longer / sizeof longer[0]; i++) {
        struct attention_data data;
        const size_t last = longer[i].tokens - 8;
        make_data(&longer[i], &data);
        run_tokens(&data, 0, 500);
        run_tokens(&data, 500, last - 500);
        for (size_t t = last; t < longer[i].tokens; t++) {
            run_tokens(&data, t, 1);
        }
        free_data(&data);
    }
}

static void test_refusals__say_what_does_not_fit(void **state)
{
    struct espl_cuda_attention attention = {
        .sequences = 1, .row_tokens = 1, .heads = 9, .kv_heads = 1, .head_dim = 64};
    struct espl_error err;
    (void)state;
    assert_int_equal(espl_cuda_attend(&attention, false, NULL, &err), ESPL_E_UNSUPPORTED);
    attention.heads = 1;
    attention.head_dim = 60;
    assert_int_equal(espl_cuda_attend(&attention, false, NULL, &err), ESPL_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt__at_once),
        cmocka_unit_test(test_tokens__one_after_the_other),
        cmocka_unit_test(test_prompt__then_tokens_over_several_parts),
        cmocka_unit_test(test_refusals__say_what_does_not_fit),
    };
    cuda_filter_tests();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

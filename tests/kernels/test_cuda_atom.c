/* Quantised layers on a CUDA device against the reference backend: every form of the weights,
 * groups and outliers of all sizes, permutations, tails, cuts, repeats. Skipped without a CUDA
 * device. */
#include "espalier/cuda_memory.h"
#include "kernels/cuda_atom_fixture.h"
#include "kernels/cuda_load.h"
#include "support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0x5A, POISON_HALF = 0x5A5A, Y_PAD = 3 };

static const enum espl_iebme_areas units[] = {ESPL_IEBME_DENSE, ESPL_IEBME_1X1, ESPL_IEBME_1X2,
                                              ESPL_IEBME_2X1, ESPL_IEBME_2X2};
enum { UNITS = sizeof units / sizeof units[0] };

/* y of one product on the device. */
struct output {
    size_t stride, halves;
    void *device;
    uint16_t *host;
    float *floats;
};

static struct output make_output(const struct atom_layer *layer)
{
    struct espl_error err;
    struct output y = {.stride = layer->shape.out + Y_PAD};
    y.halves = layer->shape.tokens * y.stride;
    y.host = malloc(y.halves * sizeof *y.host);
    y.floats = malloc(y.halves * sizeof *y.floats);
    assert_non_null(y.host);
    assert_non_null(y.floats);
    cuda_check(espl_cuda_alloc(y.halves * sizeof *y.host, &y.device, &err), &err);
    return y;
}

static void free_output(struct output *y)
{
    espl_cuda_free(y->device);
    free(y->host);
    free(y->floats);
}

/* Near what ref says for the first `tokens` tokens, poison elsewhere. with_bias: ref has it. */
static void expect_near(const struct atom_layer *layer, const struct output *y, size_t tokens,
                        const int32_t *row_of, const char *what)
{
    const size_t out = layer->shape.out;
    for (size_t t = 0; t < layer->shape.tokens; t++) {
        for (size_t r = 0; r < y->stride; r++) {
            if (t >= tokens || r >= out) {
                assert_int_equal(y->host[t * y->stride + r], POISON_HALF);
                continue;
            }
            const size_t at = row_of != NULL ? (size_t)row_of[r] : r;
            const double got = (double)y->floats[t * y->stride + at];
            const double wanted = (double)layer->y[t * out + r];
            if (!(fabs(got - wanted) <= layer->tolerance[t * out + r])) {
                fail_msg("%s, %zu x %zu in groups of %zu, %zu outliers, %zu tokens: y[%zu][%zu] is "
                         "%g, not %g +- %g",
                         what, out, layer->shape.in, layer->shape.group_size, layer->shape.outliers,
                         tokens, t, r, got, wanted, layer->tolerance[t * out + r]);
            }
        }
    }
}

static void run_once(const struct atom_layer *layer, const struct espl_cuda_spmm *spmm,
                     size_t tokens, struct output *y)
{
    struct espl_error err;
    const struct espl_cuda_atom_operands operands = {layer->device_x, y->device, y->stride, tokens,
                                                     NULL};
    const size_t bytes = y->halves * sizeof *y->host;
    cuda_check(espl_cuda_fill(y->device, POISON, bytes, &err), &err);
    cuda_check(espl_cuda_atom_run(spmm, NULL, &operands, false, NULL, &err), &err);
    cuda_check(espl_cuda_download(y->host, y->device, bytes, &err), &err);
    fixture_floats_of_halves(y->host, y->halves, y->floats);
}

/* FP32 results are those that FP16 ones were rounded from. */
static void expect_floats(const struct atom_layer *layer, const struct espl_cuda_spmm *spmm,
                          size_t tokens, const struct output *y)
{
    const double half_ulp = ldexp(1.0, -11);
    const double least = ldexp(1.0, -25); /* half a step of the smallest halves */
    struct espl_error err;
    void *device = NULL;
    float *floats = malloc(y->halves * sizeof *floats);
    assert_non_null(floats);
    cuda_check(espl_cuda_alloc(y->halves * sizeof *floats, &device, &err), &err);
    const struct espl_cuda_atom_operands operands = {layer->device_x, NULL, y->stride, tokens,
                                                     device};
    cuda_check(espl_cuda_atom_run(spmm, NULL, &operands, false, NULL, &err), &err);
    cuda_check(espl_cuda_download(floats, device, y->halves * sizeof *floats, &err), &err);
    for (size_t i = 0; i < tokens * y->stride; i++) {
        const double exact = (double)floats[i];
        if (i % y->stride < layer->shape.out && isfinite(y->floats[i])) {
            assert_true(fabs(exact - (double)y->floats[i]) <= half_ulp * fabs(exact) + least);
        }
    }
    espl_cuda_free(device);
    free(floats);
}

/* Twice, to the same bits, and in FP32: of small cases once, since only the stores differ. */
static void try_matrix(const struct atom_layer *layer, const struct espl_cuda_matrix *matrix,
                       const struct espl_cuda_spmm_choice *wanted, size_t tokens,
                       const int32_t *row_of, const char *what)
{
    struct espl_error err;
    struct espl_cuda_spmm *spmm = NULL;
    struct output y = make_output(layer);
    struct output again = make_output(layer);
    cuda_check(espl_cuda_spmm_create(matrix, layer->shape.tokens, wanted, &spmm, &err), &err);
    run_once(layer, spmm, tokens, &y);
    expect_near(layer, &y, tokens, row_of, what);
    if (!cuda_small()) {
        run_once(layer, spmm, tokens, &again);
        assert_memory_equal(y.host, again.host, y.halves * sizeof *y.host);
        expect_floats(layer, spmm, tokens, &y);
    }
    espl_cuda_spmm_destroy(spmm);
    free_output(&y);
    free_output(&again);
}

static struct espl_cuda_matrix *upload(const struct atom_layer *layer, enum espl_iebme_areas unit,
                                       const int32_t *row_of)
{
    struct espl_error err;
    struct espl_cuda_matrix *matrix = NULL;
    const struct espl_cuda_atom_form form = {unit, row_of};
    cuda_check(espl_cuda_matrix_create_atom(&layer->shape, &layer->plain, &form, &matrix, &err),
               &err);
    return matrix;
}

static void try_all_forms(const struct atom_layer *layer, size_t tokens)
{
    for (size_t u = 0; u < UNITS; u++) {
        struct espl_cuda_matrix *matrix = upload(layer, units[u], NULL);
        try_matrix(layer, matrix, NULL, tokens, NULL, espl_iebme_areas_name(units[u]));
        espl_cuda_matrix_destroy(matrix);
    }
}

static void try_shape(struct espl_rng *rng, const struct espl_quant_shape *shape, double sparsity)
{
    struct atom_layer layer;
    fixture_make_layer(rng, shape, ESPL_IEBME_SCOPE_NONE, sparsity, 0.9F, &layer);
    try_all_forms(&layer, shape->tokens);
    if (shape->tokens > 1) { /* fewer than prepared for */
        try_all_forms(&layer, shape->tokens / 2);
    }
    fixture_free_layer(&layer);
}

enum { CUT_ROWS = 2000, SMALL_ROWS = 90, SMALL_PARTS = 8 }; /* a few blocks without rows */

/* tokens, in, out, group, outliers, rows a scale, weight bits, activation bits */
static const struct espl_quant_shape shapes[] = {
    {1, 1, 1, 0, 0, 1, 4, 4},          {8, 512, 16, 128, 0, 1, 4, 4},
    {8, 640, 17, 128, 128, 2, 4, 4},   {7, 1287, 40, 0, 0, 1, 4, 4},
    {9, 1287, 33, 0, 7, 2, 4, 4},      {8, 2048, 300, 256, 0, 2, 4, 4},
    {5, 5120, 70, 128, 0, 1, 4, 4},    {16, 4736, 130, 128, 128, 2, 4, 4},
    {3, 768, 2200, 64, 128, 2, 4, 4},  {20, 704, 50, 32, 64, 1, 4, 4},
    {11, 600, 31, 20, 100, 2, 4, 4},   {2, 65, 18, 1, 1, 2, 4, 4},
    {8, 1000, 100, 200, 200, 1, 4, 4}, {8, 1152, 77, 384, 0, 1, 4, 4},
    {8, 1408, 90, 128, 128, 2, 2, 4},  {40, 1100, 77, 0, 12, 1, 2, 4},
    {33, 640, 64, 128, 0, 2, 3, 4},    {8, 300, 64, 60, 0, 1, 3, 4},
    {17, 1280, 48, 128, 256, 2, 4, 4},
};

static void test_shapes__near_ref(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(51, "cuda-atom", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (cuda_small() && shapes[i].out > SMALL_ROWS) {
            continue;
        }
        try_shape(&rng, &shapes[i], 0.5);
    }
}

static void test_tokens__every_number(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(52, "cuda-atom", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t tokens = 1; tokens <= 65; tokens = cuda_next_tokens(tokens)) {
        const struct espl_quant_shape shape = {tokens, 1408, 50, 128, 128, 2, 4, 4};
        try_shape(&rng, &shape, 0.5);
    }
}

static void test_sparsity_and_outliers__none_to_all(void **state)
{
    (void)state;
    static const double levels[] = {0.0, 0.05, 0.4, 0.7, 0.95, 1.0};
    static const size_t outliers[] = {0, 1, 31, 32, 33, 128};
    struct espl_rng rng = espl_rng_stream(53, "cuda-atom", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i += cuda_small() ? 2 : 1) {
        const struct espl_quant_shape shape = {
            11, 1536 + outliers[i], cuda_small() ? 30 : 100, 128, outliers[i], 2, 4, 4};
        try_shape(&rng, &shape, levels[i]);
    }
}

/* Permutations that the artifact has: of rows by stripe and by tile, and of the whole output. */
static void test_permutations__undone(void **state)
{
    (void)state;
    static const enum espl_iebme_scope scopes[] = {ESPL_IEBME_SCOPE_NONE, ESPL_IEBME_SCOPE_STRIPE,
                                                   ESPL_IEBME_SCOPE_TILE};
    struct espl_rng rng = espl_rng_stream(54, "cuda-atom", 0);
    struct espl_error err;
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < 6; i++) {
        struct atom_layer layer;
        const struct espl_quant_shape shape = {8, 1100, 75, i < 3 ? 0 : 50, 100, 2, 4, 4};
        fixture_make_layer(&rng, &shape, scopes[i % 3], 0.6, 1.0F, &layer);
        for (size_t u = 0; u < UNITS; u++) {
            const int32_t *row_of = u % 2 == i % 2 ? layer.row_of : NULL;
            const struct espl_cuda_atom_form form = {units[u], row_of};
            struct espl_cuda_matrix *matrix = NULL;
            cuda_check(espl_cuda_matrix_create_atom_iebme(&layer.shape, &layer.encoded, &form,
                                                          &matrix, &err),
                       &err);
            try_matrix(&layer, matrix, NULL, 8, row_of, "permuted");
            espl_cuda_matrix_destroy(matrix);
        }
        fixture_free_layer(&layer);
    }
}

/* warps, splits, window, stages, parts */
static const struct espl_cuda_spmm_choice cuts[] = {
    {12, 1, 1, 2, 64, 0, 0}, {5, 1, 5, 2, 3, 0, 0},   {8, 2, 2, 2, 7, 0, 0},
    {1, 1, 1, 2, 2, 0, 0},   {12, 3, 3, 2, 0, 0, 0},  {4, 5, 1, 4, 40, 0, 0},
    {9, 1, 3, 2, 11, 0, 0},  {8, 4, 2, 2, 125, 0, 0},
};

static void test_cuts__near_ref(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(55, "cuda-atom", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t tokens = 7; tokens <= 25; tokens += cuda_small() ? 18 : 9) {
        struct atom_layer layer;
        const struct espl_quant_shape shape = {
            tokens, 2688, cuda_small() ? SMALL_ROWS : CUT_ROWS, 128, 128, 2, 4, 4};
        fixture_make_layer(&rng, &shape, ESPL_IEBME_SCOPE_NONE, 0.5, 1.0F, &layer);
        for (size_t u = 0; u < UNITS; u++) {
            struct espl_cuda_matrix *matrix = upload(&layer, units[u], NULL);
            for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
                struct espl_cuda_spmm_choice cut = cuts[i];
                cut.parts = cuda_small() && cut.parts > SMALL_PARTS ? SMALL_PARTS : cut.parts;
                if (units[u] == ESPL_IEBME_DENSE) { /* has 16, 20 for 8 tokens, 12 for many */
                    cut.warps = tokens <= 8 && i % 2 == 0 ? 20 : tokens <= 16 ? 16 : 12;
                }
                try_matrix(&layer, matrix, &cut, tokens, NULL, espl_iebme_areas_name(units[u]));
            }
            espl_cuda_matrix_destroy(matrix);
        }
        fixture_free_layer(&layer);
    }
}

/* One block with more stripes than have room for their sums at once. */
static void test_stripe_tiles__near_ref(void **state)
{
    (void)state;
    static const size_t counts[] = {8, 20};
    const struct espl_cuda_spmm_choice one = {.parts = 1};
    struct espl_rng rng = espl_rng_stream(59, "cuda-atom", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct atom_layer layer;
        const struct espl_quant_shape shape = {
            counts[i], 700, cuda_small() ? 600 : 1600, 128, 60, 2, 4, 4};
        fixture_make_layer(&rng, &shape, ESPL_IEBME_SCOPE_NONE, 0.5, 1.0F, &layer);
        for (size_t u = 0; u < UNITS; u++) {
            struct espl_cuda_matrix *matrix = upload(&layer, units[u], NULL);
            try_matrix(&layer, matrix, &one, counts[i], NULL, espl_iebme_areas_name(units[u]));
            espl_cuda_matrix_destroy(matrix);
        }
        fixture_free_layer(&layer);
    }
}

/* Launches that overlap and split their columns, while another stream stores to memory. */
static void test_repeats__the_same_bits(void **state)
{
    (void)state;
    const size_t launches = cuda_launches();
    struct espl_rng rng = espl_rng_stream(56, "cuda-atom", 0);
    struct espl_error err;
    struct atom_layer layer;
    struct cuda_load load;
    const struct espl_quant_shape shape = {8, 3200, cuda_small() ? SMALL_ROWS : 1500, 128, 128, 2,
                                           4, 4};
    if (!cuda_has_device()) {
        skip();
    }
    cuda_load_open(&load);
    fixture_make_layer(&rng, &shape, ESPL_IEBME_SCOPE_NONE, 0.5, 1.0F, &layer);
    for (size_t u = 0; u < 2 * UNITS; u++) {
        const struct espl_cuda_spmm_choice wanted = {.splits = u < UNITS ? 3 : 1};
        struct espl_cuda_matrix *matrix = upload(&layer, units[u % UNITS], NULL);
        struct espl_cuda_spmm *spmm = NULL;
        struct output first = make_output(&layer);
        const size_t bytes = first.halves * sizeof *first.host;
        uint16_t *all = malloc(launches * bytes);
        void *outputs = NULL;
        assert_non_null(all);
        cuda_check(espl_cuda_spmm_create(matrix, 8, &wanted, &spmm, &err), &err);
        run_once(&layer, spmm, 8, &first);
        expect_near(&layer, &first, 8, NULL, espl_iebme_areas_name(units[u % UNITS]));
        cuda_check(espl_cuda_alloc(launches * bytes, &outputs, &err), &err);
        cuda_check(espl_cuda_fill(outputs, POISON, launches * bytes, &err), &err);
        for (size_t i = 0; i < launches; i++) {
            const struct espl_cuda_atom_operands operands = {
                layer.device_x, (uint16_t *)outputs + i * first.halves, first.stride, 8, NULL};
            cuda_load_store(&load);
            cuda_check(espl_cuda_atom_run(spmm, NULL, &operands, i % 8 != 0, NULL, &err), &err);
        }
        cuda_check(espl_cuda_download(all, outputs, launches * bytes, &err), &err);
        for (size_t i = 0; i < launches; i++) {
            assert_memory_equal(all + i * first.halves, first.host, bytes);
        }
        free(all);
        espl_cuda_free(outputs);
        espl_cuda_spmm_destroy(spmm);
        espl_cuda_matrix_destroy(matrix);
        free_output(&first);
    }
    cuda_load_close(&load);
    fixture_free_layer(&layer);
}

static void test_no_bias_and_clone__near_ref(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(57, "cuda-atom", 0);
    struct espl_error err;
    struct atom_layer layer;
    const struct espl_quant_shape shape = {8, 896, 40, 128, 128, 2, 4, 4};
    if (!cuda_has_device()) {
        skip();
    }
    fixture_make_layer(&rng, &shape, ESPL_IEBME_SCOPE_NONE, 0.5, 1.0F, &layer);
    layer.plain.bias = NULL;
    for (size_t i = 0; i < 8 * shape.out; i++) {
        layer.y[i] -= layer.bias[i % shape.out];
    }
    for (size_t u = 0; u < UNITS; u++) {
        struct espl_cuda_matrix *matrix = upload(&layer, units[u], NULL);
        struct espl_cuda_matrix *clone = NULL;
        cuda_check(espl_cuda_matrix_clone(matrix, &clone, &err), &err);
        assert_true(espl_cuda_matrix_bytes(clone) == espl_cuda_matrix_bytes(matrix));
        try_matrix(&layer, matrix, NULL, 8, NULL, "no bias");
        espl_cuda_matrix_destroy(matrix);
        try_matrix(&layer, clone, NULL, 8, NULL, "clone");
        espl_cuda_matrix_destroy(clone);
    }
    fixture_free_layer(&layer);
}

static void test_refusals__say_what_does_not_fit(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(58, "cuda-atom", 0);
    struct espl_error err;
    struct atom_layer layer;
    struct espl_cuda_matrix *matrix = NULL;
    struct espl_cuda_spmm *spmm = NULL;
    struct espl_quant_shape shape = {4, 640, 20, 128, 128, 2, 4, 4};
    if (!cuda_has_device()) {
        skip();
    }
    fixture_make_layer(&rng, &shape, ESPL_IEBME_SCOPE_NONE, 0.5, 1.0F, &layer);
    struct espl_cuda_atom_form form = {ESPL_IEBME_4X4, NULL};
    assert_int_equal(espl_cuda_matrix_create_atom(&shape, &layer.plain, &form, &matrix, &err),
                     ESPL_E_UNSUPPORTED);
    form = (struct espl_cuda_atom_form){ESPL_IEBME_DENSE, layer.row_of};
    layer.row_of[3] = layer.row_of[4];
    assert_int_equal(espl_cuda_matrix_create_atom(&shape, &layer.plain, &form, &matrix, &err),
                     ESPL_E_CORRUPT);
    shape.activation_bits = 8;
    form.row_of = NULL;
    assert_int_equal(espl_cuda_matrix_create_atom(&shape, &layer.plain, &form, &matrix, &err),
                     ESPL_E_UNSUPPORTED);
    matrix = upload(&layer, ESPL_IEBME_1X1, NULL);
    cuda_check(espl_cuda_spmm_create(matrix, 4, NULL, &spmm, &err), &err);
    const struct espl_cuda_atom_operands operands = {layer.device_x, layer.device_x, 19, 4, NULL};
    assert_int_equal(espl_cuda_atom_run(spmm, NULL, &operands, false, NULL, &err),
                     ESPL_E_UNSUPPORTED);
    const struct espl_cuda_spmm_operands plain = {layer.device_x, layer.device_x, 20, 4};
    assert_int_equal(espl_cuda_spmm_run(spmm, NULL, &plain, false, NULL, &err), ESPL_E_UNSUPPORTED);
    espl_cuda_spmm_destroy(spmm);
    espl_cuda_matrix_destroy(matrix);
    fixture_free_layer(&layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes__near_ref),
        cmocka_unit_test(test_tokens__every_number),
        cmocka_unit_test(test_sparsity_and_outliers__none_to_all),
        cmocka_unit_test(test_permutations__undone),
        cmocka_unit_test(test_cuts__near_ref),
        cmocka_unit_test(test_stripe_tiles__near_ref),
        cmocka_unit_test(test_repeats__the_same_bits),
        cmocka_unit_test(test_no_bias_and_clone__near_ref),
        cmocka_unit_test(test_refusals__say_what_does_not_fit),
    };
    cuda_filter_tests();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The N:M kernels on the CUDA device against the reference backend: every N, M and V, tails, cuts
 * of the work that the rule would not choose, all outputs, and many launches while other kernels
 * store. Skipped on machines without a CUDA device. */
#include "core/rng.h"
#include "espalier/cuda_memory.h"
#include "espalier/cuda_nm.h"
#include "espalier/kernels.h"
#include "kernels/cuda_arrays.h"
#include "kernels/cuda_device.h"
#include "kernels/nm_fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0x5A, Y_PAD = 4, MOST_CHOICES = 64 };

/* One product: operands on the host and on the device. */
struct product {
    struct espl_nm_matrix packed;
    struct espl_cuda_nm_matrix *matrix;
    size_t tokens;
    int8_t *x;     /* (tokens, cols) */
    float *floats; /* row scales, bias, token scales */
    void *device_x, *device_y, *device_floats;
    size_t y_bytes;
    uint8_t *y;        /* from the device */
    uint8_t *expected; /* with its poison */
    struct espl_cuda_nm_operands operands;
};

/* Activations in rows that are longer than the matrix; behind its columns stands noise. */
static void upload_activations(struct espl_rng *rng, struct product *p)
{
    const size_t cols = p->packed.layout.cols;
    const size_t stride = (cols + 15) / 16 * 16 + (cols % 3 == 0 ? 16 : 0);
    int8_t *rows = nm_fixture_bytes(rng, p->tokens * stride, NM_FULL_RANGE);
    for (size_t t = 0; t < p->tokens; t++) {
        memcpy(rows + t * stride, p->x + t * cols, cols);
    }
    p->device_x = cuda_array(rows, p->tokens * stride);
    p->operands.x = p->device_x;
    p->operands.x_stride = stride;
    free(rows);
}

static void make_scales(struct espl_rng *rng, struct product *p)
{
    const size_t rows = p->packed.layout.rows;
    const size_t padded = (rows + 3) / 4 * 4;
    p->floats = calloc(2 * padded + p->tokens, sizeof *p->floats);
    assert_non_null(p->floats);
    for (size_t i = 0; i < 2 * padded + p->tokens; i++) {
        const float unit = (float)espl_rng_unit(rng);
        p->floats[i] = i < padded ? unit * 1e-3F : i < 2 * padded ? unit * 8.0F - 4.0F : unit;
    }
    p->device_floats = cuda_array(p->floats, (2 * padded + p->tokens) * sizeof *p->floats);
}

static void make_product(struct espl_rng *rng, const struct espl_nm_layout *layout, size_t tokens,
                         enum nm_fixture_fill fill, struct product *p)
{
    struct espl_error err;
    *p = (struct product){.tokens = tokens};
    int8_t *codes = nm_fixture_codes(rng, layout, fill);
    nm_fixture_encode(codes, layout, &p->packed);
    cuda_check(espl_cuda_nm_matrix_create(&p->packed, &p->matrix, &err), &err);
    p->x = nm_fixture_bytes(rng, tokens * layout->cols, fill);
    p->operands.tokens = tokens;
    p->operands.y_stride = layout->rows + (layout->rows % 3 == 0 ? Y_PAD : 0);
    p->y_bytes = tokens * p->operands.y_stride * sizeof(int32_t);
    p->y = malloc(p->y_bytes);
    p->expected = malloc(p->y_bytes);
    assert_non_null(p->y);
    assert_non_null(p->expected);
    cuda_check(espl_cuda_alloc(p->y_bytes, &p->device_y, &err), &err);
    p->operands.y = p->device_y;
    upload_activations(rng, p);
    make_scales(rng, p);
    free(codes);
}

static void free_product(struct product *p)
{
    espl_nm_free(&p->packed);
    espl_cuda_nm_matrix_destroy(p->matrix);
    free(p->x);
    free(p->floats);
    free(p->y);
    free(p->expected);
    espl_cuda_free(p->device_x);
    espl_cuda_free(p->device_y);
    espl_cuda_free(p->device_floats);
}

/* Outputs of ref, spread over the strides of y and poisoned elsewhere. */
static void expect(struct product *p, enum espl_nm_output output, enum espl_nm_activation what,
                   bool all_terms)
{
    struct espl_error err;
    struct espl_backend *ref = NULL;
    const size_t rows = p->packed.layout.rows;
    const size_t padded = (rows + 3) / 4 * 4;
    const size_t bytes = espl_nm_output_bytes(output);
    uint8_t *dense = malloc(p->tokens * rows * bytes);
    assert_non_null(dense);
    struct espl_nm_epilogue epilogue = {output,
                                        what,
                                        p->floats,
                                        all_terms ? p->floats + 2 * padded : NULL,
                                        all_terms ? p->floats + padded : NULL,
                                        11.0F};
    cuda_check(espl_backend_open("ref", 1, &ref, &err), &err);
    cuda_check(espl_backend_ops(ref)->spmm_nm_int8(ref, &p->packed, p->x, p->tokens, &epilogue,
                                                   dense, &err),
               &err);
    espl_backend_close(ref);
    memset(p->expected, POISON, p->y_bytes);
    for (size_t t = 0; t < p->tokens; t++) {
        memcpy(p->expected + t * p->operands.y_stride * bytes, dense + t * rows * bytes,
               rows * bytes);
    }
    free(dense);
    float *on_device = p->device_floats;
    epilogue.row_scales = on_device;
    epilogue.token_scales = all_terms ? on_device + 2 * padded : NULL;
    epilogue.bias = all_terms ? on_device + padded : NULL;
    p->operands.epilogue = epilogue;
}

/* An element of y as an integer that counts steps of its type. */
static int step_of(enum espl_nm_output output, const uint8_t *y, size_t i)
{
    if (output == ESPL_NM_FP16) {
        uint16_t half = 0;
        memcpy(&half, y + 2 * i, 2);
        return (half & 0x8000) != 0 ? -(half & 0x7FFF) : half;
    }
    return ((const int8_t *)y)[i];
}

static void compare(const struct product *p, const uint8_t *y, const char *what)
{
    const struct espl_nm_layout *layout = &p->packed.layout;
    const enum espl_nm_output output = p->operands.epilogue.output;
    const size_t bytes = espl_nm_output_bytes(output);
    const bool steps = p->operands.epilogue.activation == ESPL_NM_GELU && bytes < 4;
    if (memcmp(y, p->expected, p->y_bytes) == 0) {
        return;
    }
    for (size_t i = 0; i < p->y_bytes / bytes; i++) {
        const bool same = memcmp(y + i * bytes, p->expected + i * bytes, bytes) == 0;
        if (!same &&
            !(steps && abs(step_of(output, y, i) - step_of(output, p->expected, i)) <= 1)) {
            fail_msg("%s: %u:%u V=%u, %zu x %zu, %zu tokens, output %d: element %zu of row %zu is "
                     "wrong",
                     what, layout->n, layout->m, layout->v, layout->rows, layout->cols, p->tokens,
                     (int)output, i % p->operands.y_stride, i / p->operands.y_stride);
        }
    }
}

static void run_choice(struct product *p, const struct espl_cuda_nm_choice *wanted, bool overlap)
{
    struct espl_error err;
    struct espl_cuda_nm *nm = NULL;
    char what[80];
    cuda_check(espl_cuda_nm_create(p->matrix, p->tokens, wanted, &nm, &err), &err);
    const struct espl_cuda_nm_choice c = espl_cuda_nm_chosen(nm);
    cuda_check(espl_cuda_fill(p->device_y, POISON, p->y_bytes, &err), &err);
    cuda_check(espl_cuda_nm_run(nm, NULL, &p->operands, overlap, NULL, &err), &err);
    cuda_check(espl_cuda_download(p->y, p->device_y, p->y_bytes, &err), &err);
    (void)snprintf(what, sizeof what, "tile %ux%u, %u splits, %u tiles", c.tile_tokens, c.tile_rows,
                   c.splits, c.tiles);
    compare(p, p->y, what);
    espl_cuda_nm_destroy(nm);
}

static void run_all_choices(struct product *p)
{
    struct espl_cuda_nm_choice choices[MOST_CHOICES];
    const size_t count = espl_cuda_nm_choices(p->matrix, choices, MOST_CHOICES);
    assert_in_range(count, 1, MOST_CHOICES);
    run_choice(p, NULL, false);
    for (size_t i = 0; i < count; i++) {
        run_choice(p, &choices[i], i % 2 != 0);
    }
}

static const unsigned shared[] = {1, 8, 16, 32, 64};

static void test_sums__all_patterns_and_tails(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{1, 1, 1},      {16, 128, 16}, {64, 256, 33},
                                       {100, 391, 70}, {131, 72, 18}, {208, 520, 150}};
    static const unsigned windows[] = {8, 4, 16};
    struct espl_rng rng = espl_rng_stream(51, "cuda-nm", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (size_t k = 0; k < 15; k++) {
            const unsigned m = windows[k % 3];
            for (unsigned n = 1; n <= m; n += m == 16 ? 5 : 1) {
                struct product p;
                const struct espl_nm_layout layout = {shapes[i][0], shapes[i][1], n, m,
                                                      shared[k / 3]};
                make_product(&rng, &layout, shapes[i][2], n % 2 == 0 ? NM_SPARSE : NM_FULL_RANGE,
                             &p);
                expect(&p, ESPL_NM_INT32, ESPL_NM_LINEAR, false);
                run_all_choices(&p);
                free_product(&p);
            }
        }
    }
}

static void test_sums__extremes(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(52, "cuda-nm", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (unsigned n = 1; n <= 8; n++) {
        struct product p;
        const struct espl_nm_layout layout = {48, 4096, n, 8, n % 2 == 0 ? 16 : 1};
        make_product(&rng, &layout, 20, NM_EXTREME, &p);
        expect(&p, ESPL_NM_INT32, ESPL_NM_LINEAR, false);
        run_all_choices(&p);
        free_product(&p);
    }
}

/* As many columns as there may be, every product 128 x 128. */
static void test_sums__most_columns(void **state)
{
    (void)state;
    struct espl_error err;
    struct product p;
    struct espl_rng rng = espl_rng_stream(53, "cuda-nm", 0);
    const struct espl_nm_layout layout = {16, ESPL_NM_MAX_COLS, 8, 8, 64};
    if (!cuda_has_device()) {
        skip();
    }
    make_product(&rng, &layout, 16, NM_EXTREME, &p);
    memset(p.packed.values, 0x80, p.packed.value_bytes);
    struct espl_nm_sizes sizes;
    cuda_check(espl_nm_sizes_of(&layout, &sizes, &err), &err);
    for (size_t row = 0; row < 16; row++) { /* the one column beyond the matrix */
        p.packed.values[espl_nm_value_at(&layout, &sizes, row, 131071 / 8, 7)] = 0;
    }
    memset(p.x, 0x80, 16 * layout.cols);
    espl_cuda_nm_matrix_destroy(p.matrix);
    cuda_check(espl_cuda_nm_matrix_create(&p.packed, &p.matrix, &err), &err);
    espl_cuda_free(p.device_x);
    upload_activations(&rng, &p);
    expect(&p, ESPL_NM_INT32, ESPL_NM_LINEAR, false);
    int32_t first = 0;
    memcpy(&first, p.expected, sizeof first);
    assert_int_equal(first, 2147467264);
    run_all_choices(&p);
    free_product(&p);
}

static void test_outputs__every_epilogue(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{64, 256, 33}, {101, 200, 17}, {384, 768, 20}};
    struct espl_rng rng = espl_rng_stream(54, "cuda-nm", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (unsigned n = 1; n <= 8; n++) {
            struct product p;
            const struct espl_nm_layout layout = {shapes[i][0], shapes[i][1], n, 8,
                                                  shared[(i + n) % 5]};
            make_product(&rng, &layout, shapes[i][2], NM_FULL_RANGE, &p);
            for (unsigned k = 0; k < 12; k++) {
                expect(&p, k % 2 == 0 ? ESPL_NM_FP16 : ESPL_NM_INT8,
                       (enum espl_nm_activation)(k / 2 % 3), k / 6 == 0);
                run_choice(&p, NULL, k % 4 == 0);
                if (k < 2) {
                    run_all_choices(&p);
                }
            }
            free_product(&p);
        }
    }
}

static void test_operands__refused(void **state)
{
    (void)state;
    struct espl_error err;
    struct product p;
    struct espl_cuda_nm *nm = NULL;
    struct espl_rng rng = espl_rng_stream(55, "cuda-nm", 0);
    const struct espl_nm_layout layout = {64, 250, 2, 8, 16};
    if (!cuda_has_device()) {
        skip();
    }
    make_product(&rng, &layout, 16, NM_FULL_RANGE, &p);
    expect(&p, ESPL_NM_FP16, ESPL_NM_LINEAR, true);
    cuda_check(espl_cuda_nm_create(p.matrix, 16, NULL, &nm, &err), &err);
    for (unsigned k = 0; k < 8; k++) {
        struct espl_cuda_nm_operands wrong = p.operands;
        wrong.tokens = k == 0 ? 0 : k == 1 ? 17 : wrong.tokens;
        wrong.x_stride = k == 2 ? 240 : k == 3 ? 264 : wrong.x_stride;
        wrong.y_stride = k == 4 ? 63 : wrong.y_stride;
        wrong.x += k == 5 ? 8 : 0;
        wrong.y = k == 6 ? (uint8_t *)wrong.y + 1 : wrong.y;
        wrong.epilogue.row_scales = k == 7 ? NULL : wrong.epilogue.row_scales;
        assert_int_equal(espl_cuda_nm_run(nm, NULL, &wrong, false, NULL, &err), ESPL_E_UNSUPPORTED);
    }
    espl_cuda_nm_destroy(nm);
    static const struct espl_cuda_nm_choice wrong[] = {
        {16, 32, 3, 1}, {16, 32, 8, 2}, {48, 32, 1, 1}, {16, 24, 1, 1}, {16, 32, 0, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(espl_cuda_nm_create(p.matrix, 16, &wrong[i], &nm, &err),
                         ESPL_E_UNSUPPORTED);
    }
    free_product(&p);
}

/* A thread that fills the device with stores until it is told to stop. In CUDA's per-thread default
 * stream its kernels run beside those of the test. */
static void *const own_stream = (void *)2; /* cudaStreamPerThread */

struct noise {
    struct product p;
    pthread_mutex_t lock;
    bool stop;
};

static bool noise_stopped(struct noise *noise)
{
    (void)pthread_mutex_lock(&noise->lock);
    const bool stop = noise->stop;
    (void)pthread_mutex_unlock(&noise->lock);
    return stop;
}

static void *make_noise(void *pointer)
{
    struct noise *noise = pointer;
    struct espl_error err;
    struct espl_cuda_nm *nm = NULL;
    if (espl_cuda_nm_create(noise->p.matrix, noise->p.tokens, NULL, &nm, &err) != ESPL_OK) {
        return pointer;
    }
    void *failed = NULL;
    while (failed == NULL && !noise_stopped(noise)) {
        for (unsigned i = 0; failed == NULL && i < 50; i++) {
            if (espl_cuda_nm_run(nm, NULL, &noise->p.operands, false, own_stream, &err) !=
                ESPL_OK) {
                failed = pointer;
            }
        }
    }
    espl_cuda_nm_destroy(nm);
    return failed;
}

/* The second product reads what the first one writes, and may start before that has ended. */
static void test_overlap__waits_for_activations(void **state)
{
    (void)state;
    const size_t rounds = cuda_launches();
    struct espl_error err;
    struct product first;
    struct product second;
    struct espl_cuda_nm *nm[2] = {NULL, NULL};
    struct espl_rng rng = espl_rng_stream(57, "cuda-nm", 0);
    const struct espl_nm_layout wide = {512, 1024, 4, 8, 16};
    const struct espl_nm_layout narrow = {128, 512, 2, 8, 16};
    if (!cuda_has_device()) {
        skip();
    }
    make_product(&rng, &wide, 200, NM_FULL_RANGE, &first);
    make_product(&rng, &narrow, 200, NM_FULL_RANGE, &second);
    first.operands.y_stride = 512;
    expect(&first, ESPL_NM_INT8, ESPL_NM_LINEAR, true);
    memcpy(second.x, first.expected, (size_t)200 * 512);
    expect(&second, ESPL_NM_INT32, ESPL_NM_LINEAR, false);
    second.operands.x = first.device_y;
    second.operands.x_stride = 512;
    cuda_check(espl_cuda_nm_create(first.matrix, 200, NULL, &nm[0], &err), &err);
    cuda_check(espl_cuda_nm_create(second.matrix, 200, NULL, &nm[1], &err), &err);
    for (unsigned round = 0; round < rounds; round++) {
        cuda_check(espl_cuda_fill(first.device_y, POISON, first.y_bytes, &err), &err);
        cuda_check(espl_cuda_fill(second.device_y, POISON, second.y_bytes, &err), &err);
        cuda_check(espl_cuda_nm_run(nm[0], NULL, &first.operands, true, NULL, &err), &err);
        cuda_check(espl_cuda_nm_run(nm[1], NULL, &second.operands, true, NULL, &err), &err);
        cuda_check(espl_cuda_download(second.y, second.device_y, second.y_bytes, &err), &err);
        compare(&second, second.y, "second of two");
    }
    espl_cuda_nm_destroy(nm[0]);
    espl_cuda_nm_destroy(nm[1]);
    free_product(&first);
    free_product(&second);
}

enum { BATCH = 20 };

static void stress(struct product *p, const struct espl_cuda_nm_choice *wanted)
{
    struct espl_error err;
    struct espl_cuda_nm *nm = NULL;
    uint8_t *all = malloc(BATCH * p->y_bytes);
    void *device = NULL;
    assert_non_null(all);
    cuda_check(espl_cuda_alloc(BATCH * p->y_bytes, &device, &err), &err);
    cuda_check(espl_cuda_nm_create(p->matrix, p->tokens, wanted, &nm, &err), &err);
    for (size_t left = cuda_launches(); left > 0;) {
        const size_t count = left < BATCH ? left : BATCH;
        left -= count;
        cuda_check(espl_cuda_fill(device, POISON, BATCH * p->y_bytes, &err), &err);
        for (size_t i = 0; i < count; i++) {
            struct espl_cuda_nm_operands operands = p->operands;
            operands.y = (uint8_t *)device + i * p->y_bytes;
            cuda_check(espl_cuda_nm_run(nm, NULL, &operands, i % 2 != 0, own_stream, &err), &err);
        }
        cuda_check(espl_cuda_download(all, device, BATCH * p->y_bytes, &err), &err);
        for (size_t i = 0; i < count; i++) {
            compare(p, all + i * p->y_bytes, "under store load");
        }
    }
    espl_cuda_nm_destroy(nm);
    espl_cuda_free(device);
    free(all);
}

static void test_stress__200_launches_under_store_load(void **state)
{
    (void)state;
    static const struct espl_nm_layout layouts[] = {
        {256, 1024, 1, 8, 16}, {256, 1024, 2, 8, 16}, {256, 1024, 4, 8, 32}, {256, 1024, 8, 8, 64},
        {256, 1024, 2, 8, 1},  {256, 1024, 4, 8, 1},  {320, 640, 3, 8, 16},  {256, 640, 2, 8, 64},
        {512, 640, 4, 8, 32},  {528, 256, 2, 8, 64}}; /* blocks that change their weights */
    pthread_t thread;
    struct noise noise = {.stop = false};
    struct espl_rng rng = espl_rng_stream(56, "cuda-nm", 0);
    const struct espl_nm_layout store = {2048, 64, 1, 8, 16};
    if (!cuda_has_device()) {
        skip();
    }
    make_product(&rng, &store, 4096, NM_FULL_RANGE, &noise.p);
    noise.p.operands.epilogue = (struct espl_nm_epilogue){.output = ESPL_NM_INT32};
    assert_int_equal(pthread_mutex_init(&noise.lock, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, make_noise, &noise), 0);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        static const struct espl_cuda_nm_choice choices[] = {
            {16, 32, 4, 1}, {32, 32, 2, 2}, {16, 16, 8, 1}, {16, 32, 1, 4}};
        static const struct espl_cuda_nm_choice large[] = {{128, 256, 1, 1}, {64, 256, 1, 2}};
        struct product p;
        make_product(&rng, &layouts[i], i < 7 ? 128 : i < 9 ? 1000 : 4200, NM_FULL_RANGE, &p);
        expect(&p, i % 2 == 0 ? ESPL_NM_INT32 : ESPL_NM_FP16, ESPL_NM_RELU, true);
        stress(&p, i < 7 ? &choices[i % 4] : &large[0]);
        stress(&p, i == 7 || i == 9 ? &large[1] : NULL);
        free_product(&p);
    }
    (void)pthread_mutex_lock(&noise.lock);
    noise.stop = true;
    (void)pthread_mutex_unlock(&noise.lock);
    void *failed = NULL;
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    (void)pthread_mutex_destroy(&noise.lock);
    free_product(&noise.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums__all_patterns_and_tails),
        cmocka_unit_test(test_sums__extremes),
        cmocka_unit_test(test_sums__most_columns),
        cmocka_unit_test(test_outputs__every_epilogue),
        cmocka_unit_test(test_operands__refused),
        cmocka_unit_test(test_overlap__waits_for_activations),
        cmocka_unit_test(test_stress__200_launches_under_store_load),
    };
    cuda_filter_tests(); /* for compute-sanitizer: all of them take too long there */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

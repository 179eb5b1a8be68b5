/* Dense products through cuBLAS against sums of integers, which are exact. Skipped without a CUDA
 * device; what a machine without cuBLAS or CUDA is told is tested everywhere. */
#include "espalier/cuda_blas.h"
#include "espalier/cuda_memory.h"
#include "kernels/cuda_arrays.h"
#include "kernels/cuda_device.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 5, IN = 24, OUT = 16, BATCH = 3, X_STRIDE = 32, W_STRIDE = 40, Y_STRIDE = 24 };

static const float untouched = -77.0F;

/* -3 to 3, different at every place. */
static int value(size_t salt, size_t place)
{
    return (int)((place * 7 + place / 5 + salt) % 7) - 3;
}

static uint16_t half_of(int v)
{
    static const uint16_t halves[] = {0x0000, 0x3C00, 0x4000, 0x4200};
    return (uint16_t)(v < 0 ? 0x8000 | halves[-v] : halves[v]);
}

static uint16_t *upload_values(size_t salt, size_t count)
{
    uint16_t *host = malloc(count * sizeof *host);
    assert_non_null(host);
    for (size_t i = 0; i < count; i++) {
        host[i] = half_of(value(salt, i));
    }
    uint16_t *device = cuda_array(host, count * sizeof *host);
    free(host);
    return device;
}

static int expected(const struct espl_cuda_blas_product *p, size_t member, size_t t, size_t o)
{
    int sum = 0;
    for (size_t i = 0; i < p->in; i++) {
        const size_t w = p->transposed ? i * p->w_stride + o : o * p->w_stride + i;
        sum +=
            value(1, member * p->x_step + t * p->x_stride + i) * value(2, member * p->w_step + w);
    }
    return sum;
}

static void expect_product(struct espl_cuda_blas_product p)
{
    enum { X_VALUES = TOKENS * X_STRIDE, W_VALUES = IN * W_STRIDE, Y_VALUES = TOKENS * Y_STRIDE };
    struct espl_error err;
    struct espl_cuda_blas *blas = NULL;
    float start[BATCH * Y_VALUES];
    float result[BATCH * Y_VALUES];
    cuda_check(espl_cuda_blas_create(&blas, &err), &err);
    for (size_t i = 0; i < BATCH * (size_t)Y_VALUES; i++) {
        start[i] = untouched;
    }
    uint16_t *x = upload_values(1, BATCH * (size_t)X_VALUES);
    uint16_t *w = upload_values(2, BATCH * (size_t)W_VALUES);
    p.x = x;
    p.w = w;
    p.y = cuda_array(start, sizeof start);
    cuda_check(espl_cuda_blas_run(blas, &p, NULL, &err), &err);
    cuda_check(espl_cuda_download(result, p.y, sizeof result, &err), &err);
    for (size_t member = 0; member < p.batch; member++) {
        for (size_t t = 0; t < p.tokens; t++) {
            for (size_t o = 0; o < p.y_stride; o++) {
                const size_t place = member * p.y_step + t * p.y_stride + o;
                const float before = p.add || o >= p.out ? untouched : 0.0F;
                const float sum = o < p.out ? p.scale * (float)expected(&p, member, t, o) : 0.0F;
                uint16_t word = 0;
                if (p.float_result) {
                    assert_float_equal(result[place], before + sum, 0.0F);
                } else if (o < p.out) {
                    memcpy(&word, (const char *)result + place * sizeof word, sizeof word);
                    assert_float_equal(cuda_float_of_half(word), sum, 0.0F);
                }
            }
        }
    }
    espl_cuda_free(x);
    espl_cuda_free(w);
    espl_cuda_free(p.y);
    espl_cuda_blas_destroy(blas);
}

static const struct espl_cuda_blas_product plain = {.tokens = TOKENS,
                                                    .in = IN,
                                                    .out = OUT,
                                                    .x_stride = X_STRIDE,
                                                    .w_stride = W_STRIDE,
                                                    .y_stride = Y_STRIDE,
                                                    .batch = 1,
                                                    .scale = 1.0F};

static void test_one_product__exact_sums(void **state)
{
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    struct espl_cuda_blas_product p = plain;
    expect_product(p); /* FP16 results */
    p.float_result = true;
    p.scale = 0.5F;
    expect_product(p);
    p.add = true;
    expect_product(p);
    p.transposed = true;
    expect_product(p);
}

static void test_many_products__each_its_own(void **state)
{
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    struct espl_cuda_blas_product p = plain;
    p.batch = BATCH;
    p.x_step = TOKENS * X_STRIDE;
    p.w_step = IN * W_STRIDE;
    p.y_step = TOKENS * Y_STRIDE;
    p.float_result = true;
    expect_product(p);
    p.transposed = true;
    expect_product(p);
    p.w_step = 0;
    expect_product(p);
}

static void test_sizes_that_do_not_fit__refused(void **state)
{
    struct espl_error err;
    struct espl_cuda_blas *blas = NULL;
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    cuda_check(espl_cuda_blas_create(&blas, &err), &err);
    struct espl_cuda_blas_product p = plain;
    p.tokens = (size_t)1 << 31;
    assert_int_equal(espl_cuda_blas_run(blas, &p, NULL, &err), ESPL_E_UNSUPPORTED);
    p = plain;
    p.batch = 0;
    assert_int_equal(espl_cuda_blas_run(blas, &p, NULL, &err), ESPL_E_UNSUPPORTED);
    espl_cuda_blas_destroy(blas);
}

static void test_no_device__says_so(void **state)
{
    static struct espl_cuda_info info;
    struct espl_error err;
    struct espl_cuda_blas *blas = NULL;
    (void)state;
    if (espl_cuda_probe(&info, &err) == ESPL_OK) {
        skip();
    }
    assert_int_not_equal(espl_cuda_blas_create(&blas, &err), ESPL_OK);
    assert_null(blas);
    assert_true(strlen(err.message) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_product__exact_sums),
        cmocka_unit_test(test_many_products__each_its_own),
        cmocka_unit_test(test_sizes_that_do_not_fit__refused),
        cmocka_unit_test(test_no_device__says_so),
    };
    cuda_filter_tests();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

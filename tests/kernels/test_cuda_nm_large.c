/* The N:M kernels on the CUDA device against the reference backend: those of large products with
 * all outputs, and many launches of all kinds while other kernels store. Skipped on machines
 * without a CUDA device. */
#include "espalier/cuda_memory.h"
#include "espalier/cuda_probe.h"
#include "kernels/cuda_device.h"
#include "kernels/cuda_nm_product.h"

#include <pthread.h>
#include <stdlib.h>

/* Kernels of large products (compute capability 9.0; elsewhere the choices do not exist). */
static const struct espl_cuda_nm_choice ring_choice = {128, 256, 1, 1};
static const struct espl_cuda_nm_choice stay_choice = {64, 192, 1, 3};

/* Rows that end within a block of rows, tokens within a tile, columns within a block, and several
 * tiles a group. */
static void test_outputs__large_kernels(void **state)
{
    (void)state;
    static const struct espl_nm_layout layouts[] = {
        {208, 200, 1, 8, 16}, {400, 392, 2, 8, 16}, {208, 384, 2, 8, 32},
        {208, 390, 2, 8, 64}, {400, 384, 4, 8, 64}, {272, 384, 4, 8, 32},
        {48, 3840, 2, 8, 64}, {80, 1664, 4, 8, 64}, {80, 1664, 4, 8, 32}};
    struct espl_rng rng = espl_rng_stream(57, "cuda-nm", 0);
    struct espl_cuda_info info;
    struct espl_error err;
    if (!cuda_has_device()) {
        skip();
    }
    cuda_check(espl_cuda_probe(&info, &err), &err);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const struct espl_cuda_nm_choice *own = i < 6 ? &stay_choice : &ring_choice;
        struct nm_product p;
        nm_product_make(&rng, &layouts[i], cuda_small() ? 70 : 150, NM_FULL_RANGE, &p);
        if (info.devices[0].compute_major == 9) {
            assert_true(nm_product_has(&p, own));
            assert_false(nm_product_has(&p, i < 6 ? &ring_choice : &stay_choice));
            nm_product_expect(&p, ESPL_NM_INT32, ESPL_NM_LINEAR, false);
            nm_product_run(&p, own, false);
            for (unsigned k = 0; k < 12; k += i % 3 == 0 ? 1 : 5) { /* all, or of each output one */
                nm_product_expect(&p, k % 2 == 0 ? ESPL_NM_FP16 : ESPL_NM_INT8,
                                  (enum espl_nm_activation)(k / 2 % 3), k / 6 == 0);
                nm_product_run(&p, own, k % 4 == 0);
            }
        }
        nm_product_free(&p);
    }
}

/* Products of one kernel that take more and less shared memory, all made before the first runs. */
static void test_shared_memory__of_several_products(void **state)
{
    (void)state;
    enum { PRODUCTS = 3 };
    static const size_t cols[PRODUCTS] = {1536, 3072, 384};
    struct espl_rng rng = espl_rng_stream(59, "cuda-nm", 0);
    struct espl_error err;
    struct nm_product p[PRODUCTS];
    struct espl_cuda_nm *nm[PRODUCTS];
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < PRODUCTS; i++) {
        const struct espl_nm_layout layout = {64, cols[i], 2, 8, 64};
        nm_product_make(&rng, &layout, 70, NM_FULL_RANGE, &p[i]);
        nm_product_expect(&p[i], ESPL_NM_FP16, ESPL_NM_LINEAR, true);
        const bool large = nm_product_has(&p[i], &stay_choice);
        cuda_check(espl_cuda_nm_create(p[i].matrix, 70, large ? &stay_choice : NULL, &nm[i], &err),
                   &err);
    }
    for (size_t i = 0; i < PRODUCTS; i++) {
        cuda_check(espl_cuda_fill(p[i].device_y, NM_PRODUCT_POISON, p[i].y_bytes, &err), &err);
        cuda_check(espl_cuda_nm_run(nm[i], NULL, &p[i].operands, false, NULL, &err), &err);
        cuda_check(espl_cuda_download(p[i].y, p[i].device_y, p[i].y_bytes, &err), &err);
        nm_product_compare(&p[i], p[i].y, "after smaller and larger ones");
        espl_cuda_nm_destroy(nm[i]);
        nm_product_free(&p[i]);
    }
}

/* A thread that fills the device with stores until it is told to stop. In CUDA's per-thread default
 * stream its kernels run beside those of the test. */
static void *const own_stream = (void *)2; /* cudaStreamPerThread */

struct noise {
    struct nm_product p;
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
enum { BATCH = 20 };

static void stress(struct nm_product *p, const struct espl_cuda_nm_choice *wanted)
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
        cuda_check(espl_cuda_fill(device, NM_PRODUCT_POISON, BATCH * p->y_bytes, &err), &err);
        for (size_t i = 0; i < count; i++) {
            struct espl_cuda_nm_operands operands = p->operands;
            operands.y = (uint8_t *)device + i * p->y_bytes;
            cuda_check(espl_cuda_nm_run(nm, NULL, &operands, i % 2 != 0, own_stream, &err), &err);
        }
        cuda_check(espl_cuda_download(all, device, BATCH * p->y_bytes, &err), &err);
        for (size_t i = 0; i < count; i++) {
            nm_product_compare(p, all + i * p->y_bytes, "under store load");
        }
    }
    espl_cuda_nm_destroy(nm);
    espl_cuda_free(device);
    free(all);
}

static void test_stress__200_launches_under_store_load(void **state)
{
    (void)state;
    static const struct espl_cuda_nm_choice small[] = {
        {16, 32, 4, 1}, {32, 32, 2, 2}, {16, 16, 8, 1}, {16, 32, 1, 4}};
    static const struct {
        struct espl_nm_layout layout;
        size_t tokens;
        const struct espl_cuda_nm_choice *choice; /* beside the rule's */
    } cases[] = {
        {{256, 1024, 1, 8, 16}, 128, &small[0]},
        {{256, 1024, 2, 8, 16}, 128, &small[1]},
        {{256, 1024, 4, 8, 32}, 128, &small[2]},
        {{256, 1024, 8, 8, 64}, 128, &small[3]},
        {{256, 1024, 2, 8, 1}, 128, &small[0]},
        {{256, 1024, 4, 8, 1}, 128, &small[1]},
        {{320, 640, 3, 8, 16}, 128, &small[2]},
        {{256, 640, 2, 8, 64}, 1000, &stay_choice},
        {{256, 1664, 4, 8, 32}, 500, &ring_choice},
        {{256, 3072, 2, 8, 64}, 500, &stay_choice}, /* three stages */
        {{256, 3840, 2, 8, 32}, 500, &ring_choice},
        {{640, 640, 2, 8, 16}, 1000, &stay_choice},
        {{640, 640, 2, 8, 32}, 1000, &stay_choice},
        {{640, 640, 4, 8, 64}, 1000, &stay_choice},
        {{640, 640, 4, 8, 32}, 1000, &stay_choice},
        {{400, 256, 2, 8, 64}, 12608, &stay_choice}, /* several tiles a group, blocks that change */
        {{400, 128, 2, 8, 16}, 12608, &stay_choice}}; /* their weights between */
    pthread_t thread;
    struct noise noise = {.stop = false};
    struct espl_rng rng = espl_rng_stream(56, "cuda-nm", 0);
    const struct espl_nm_layout store = {2048, 64, 1, 8, 16};
    if (!cuda_has_device()) {
        skip();
    }
    nm_product_make(&rng, &store, cuda_small() ? 256 : 4096, NM_FULL_RANGE, &noise.p);
    noise.p.operands.epilogue = (struct espl_nm_epilogue){.output = ESPL_NM_INT32};
    assert_int_equal(pthread_mutex_init(&noise.lock, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, make_noise, &noise), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct nm_product p;
        const size_t tokens = cuda_small() && cases[i].tokens > 200 ? 200 : cases[i].tokens;
        nm_product_make(&rng, &cases[i].layout, tokens, NM_FULL_RANGE, &p);
        nm_product_expect(&p, i % 2 == 0 && tokens < 12608 ? ESPL_NM_INT32 : ESPL_NM_FP16,
                          ESPL_NM_RELU, true);
        if (nm_product_has(&p, cases[i].choice)) { /* large ones are not on every device */
            stress(&p, cases[i].choice);
        }
        stress(&p, NULL);
        nm_product_free(&p);
    }
    (void)pthread_mutex_lock(&noise.lock);
    noise.stop = true;
    (void)pthread_mutex_unlock(&noise.lock);
    void *failed = NULL;
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    (void)pthread_mutex_destroy(&noise.lock);
    nm_product_free(&noise.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outputs__large_kernels),
        cmocka_unit_test(test_shared_memory__of_several_products),
        cmocka_unit_test(test_stress__200_launches_under_store_load),
    };
    cuda_filter_tests(); /* for compute-sanitizer: all of them take too long there */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

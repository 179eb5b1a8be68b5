/* All reference image models on their whole test sets: logits of the first four pictures, and top-1
 * under every uniform N:8, against golden.json; and the rate of the evaluation. */
#include "core/fs.h"
#include "kernels/bench/cases.h"
#include "unit/vision_golden.h"

#include "support/cmocka_all.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

static double now(void)
{
    struct timespec time = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double golden_top1(const struct vision_golden *golden, unsigned level)
{
    char path[4096];
    char name[16];
    (void)snprintf(name, sizeof name, "%u:8", level);
    assert_int_equal(espl_fs_join(path, golden->model, "golden.json", NULL), ESPL_OK);
    json_t *json = json_load_file(path, 0, NULL);
    const json_t *value = json_object_get(json_object_get(json, "uniform_top1"), name);
    assert_true(json_is_number(value));
    const double top1 = json_number_value(value);
    json_decref(json);
    return top1;
}

static void check_model(const char *name)
{
    struct vision_golden golden;
    if (!vision_golden_open(name, true, &golden)) {
        print_message("%s or its pictures are not here\n", name);
        vision_golden_close(&golden);
        skip();
    }
    vision_golden_check_logits(&golden);
    double sgemm = 0.0;
    assert_int_equal(
        espl_blas_sgemm_rate(espl_backend_threads(golden.backend), 2048, 3, &sgemm, NULL), ESPL_OK);
    for (unsigned level = 1; level <= VISION_GOLDEN_LEVELS; level++) {
        const double start = now();
        const struct espl_vision_tally tally = vision_golden_measure(&golden, level, NULL);
        const double rate = (double)tally.images *
                            espl_vision_flop(espl_model_get_config(golden.fixture.model)) /
                            (now() - start);
        const double top1 = 100.0 * (double)tally.top1 / (double)tally.images;
        const double expected = golden_top1(&golden, level);
        print_message("%s %u:8 top-1 %.2f (golden %.2f), %.1f GFLOP/s, %.0f %% of sgemm\n", name,
                      level, top1, expected, rate * 1e-9, 100.0 * rate / sgemm);
        assert_int_equal(tally.images, 10000);
        assert_true(fabs(top1 - expected) <= 0.05 + 1e-9);
    }
    vision_golden_close(&golden);
}

static void test_deit_fmnist(void **state)
{
    (void)state;
    check_model("deit-fmnist-dense");
    check_model("deit-fmnist-supernet");
}

static void test_deit_cifar10(void **state)
{
    (void)state;
    check_model("deit-cifar10-dense");
    check_model("deit-cifar10-supernet");
}

static void test_swin_cifar10(void **state)
{
    (void)state;
    check_model("swin-cifar10-dense");
    check_model("swin-cifar10-supernet");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deit_fmnist),
        cmocka_unit_test(test_deit_cifar10),
        cmocka_unit_test(test_swin_cifar10),
    };
    return cmocka_run_group_tests_name("vision_golden_full", tests, NULL, NULL);
}

/* The reference image models on 500 pictures: logits, and top-1, top-5, loss and KL under uniform
 * N:8 masks, against a PyTorch implementation of its own (tests/data/images/README.md). */
#include "unit/golden_data.h"
#include "unit/vision_golden.h"

#include "support/cmocka_all.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

enum { PICTURES = 500 };

static double number_at(const json_t *golden, const char *member, unsigned level)
{
    const json_t *value = json_array_get(json_object_get(golden, member), level - 1);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* One picture of 500 may stand on the edge between two classes; sums of logarithms may not. */
static void check_level(const json_t *golden, unsigned level, const struct espl_vision_tally *tally)
{
    assert_int_equal(tally->images, PICTURES);
    assert_in_range(tally->top1 + 1, (uintmax_t)number_at(golden, "top1", level),
                    (uintmax_t)number_at(golden, "top1", level) + 2);
    assert_in_range(tally->top5 + 1, (uintmax_t)number_at(golden, "top5", level),
                    (uintmax_t)number_at(golden, "top5", level) + 2);
    assert_float_equal(tally->loss / PICTURES, number_at(golden, "loss", level), 2e-5);
    assert_float_equal(tally->kl / PICTURES, number_at(golden, "kl", level), 2e-5);
}

/* N from 8 down in steps of `step`; the slow test tries them all. */
static void check_model(const char *name, unsigned step)
{
    struct vision_golden golden;
    char path[GOLDEN_PATH];
    if (!vision_golden_open(name, false, &golden)) {
        print_message("%s or its pictures are not here\n", name);
        vision_golden_close(&golden);
        skip();
    }
    golden_path("images/quality-500.json", path);
    json_t *expected = json_load_file(path, 0, NULL);
    float *base = calloc(PICTURES * 10, sizeof *base);
    assert_non_null(base);
    for (unsigned level = VISION_GOLDEN_LEVELS; level >= 1 && level <= VISION_GOLDEN_LEVELS;
         level -= step) {
        const struct espl_vision_tally tally = vision_golden_measure(&golden, level, base);
        check_level(json_object_get(expected, name), level, &tally);
    }
    free(base);
    json_decref(expected);
    vision_golden_close(&golden);
}

static void test_logits(void **state)
{
    (void)state;
    const char *const names[] = {"deit-fmnist-dense", "deit-fmnist-supernet"};
    for (size_t i = 0; i < 2; i++) {
        struct vision_golden golden;
        assert_true(vision_golden_open(names[i], false, &golden)); /* they ship */
        vision_golden_check_logits(&golden);
        vision_golden_close(&golden);
    }
}

static void test_fashion__dense(void **state)
{
    (void)state;
    check_model("deit-fmnist-dense", 3);
}

static void test_fashion__supernet(void **state)
{
    (void)state;
    check_model("deit-fmnist-supernet", 3);
}

/* Larger: 8:8 and 2:8 here. */
static void test_cifar__deit(void **state)
{
    (void)state;
    check_model("deit-cifar10-supernet", 6);
}

static void test_cifar__swin(void **state)
{
    (void)state;
    check_model("swin-cifar10-supernet", 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_fashion__dense),
        cmocka_unit_test(test_fashion__supernet),
        cmocka_unit_test(test_cifar__deit),
        cmocka_unit_test(test_cifar__swin),
    };
    return cmocka_run_group_tests_name("vision_golden", tests, NULL, NULL);
}

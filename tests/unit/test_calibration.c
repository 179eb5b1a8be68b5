/* What stages with calibration windows share: sizes from a description, room for hidden states,
 * distances. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "prune_fixture.h"

#include "stages/calibration/chains.h"
#include "stages/calibration/distance.h"

#include <math.h>
#include <string.h>

static void test_info__what_a_description_leaves_out_is_zero(void **state)
{
    (void)state;
    json_t *description = json_pack("{s:i, s:i}", "windows", 12, "vocab_size", -3);
    struct espl_calibration_info info = espl_calibration_info_from_json(description);
    assert_int_equal(info.windows, 12);
    assert_int_equal(info.tokens, 0);
    assert_int_equal(info.vocab, 0);
    json_decref(description);
    info = espl_calibration_info_from_json(NULL);
    assert_int_equal(info.windows, 0);
}

static void test_check__windows_of_one_token(void **state)
{
    (void)state;
    const struct espl_model_config config = prune_llama_config();
    const struct espl_calibration_info one = {4, 1, 0};
    /* Rope has no last position, so longer windows are possible. */
    const struct espl_calibration_info longer = {4, 65, 50};
    struct espl_error err;
    assert_int_equal(espl_calibration_check(&config, &one, &err), ESPL_E_JOB);
    assert_string_equal(err.message, "calibration windows of 1 tokens are too short");
    assert_string_equal(err.blame, "input:tokens");
    assert_int_equal(espl_calibration_check(&config, &longer, &err), ESPL_OK);
}

/* 24 values a token of 4 bytes: chains of 8 and 11 windows of 16 tokens, and what is peeked at, all
 * windows or one batch of 8. */
static void test_estimate__counts_every_window_that_is_kept(void **state)
{
    (void)state;
    const struct espl_model_config config = prune_llama_config();
    const struct espl_calibration_info info = {11, 16, 0};
    const struct espl_chain_counts batch = {{8, 11}, 0};
    const struct espl_chain_counts all = {{8, 11}, 11};
    struct espl_estimate one = {.note = "a note"};
    struct espl_estimate other = {.note = "a note"};
    espl_chains_estimate(&config, &info, &batch, &one);
    espl_chains_estimate(&config, &info, &all, &other);
    assert_int_equal(other.host_bytes - one.host_bytes, (11 - 8) * 16 * 24 * 4);
    assert_int_equal(one.scratch_bytes, 0);
    assert_string_equal(one.note, "a note");
}

static void test_estimate__large_sets_go_to_a_file(void **state)
{
    (void)state;
    const struct espl_model_config config = prune_llama_config();
    const struct espl_calibration_info info = {8192, 2048, 0};
    const struct espl_chain_counts counts = {{8, 8192}, 0};
    struct espl_estimate est = {.note = "a note"};
    espl_chains_estimate(&config, &info, &counts, &est);
    /* windows of 2048 tokens go through a block in twos */
    assert_int_equal(est.scratch_bytes, UINT64_C(8202) * 2048 * 24 * 4);
    assert_string_equal(est.note, "a note; hidden states in a mapped file");
}

static void test_distance__collects_over_calls(void **state)
{
    (void)state;
    const float x[4] = {1, 2, 3, 4}, y[4] = {1, 2, 0, 0};
    struct espl_distance distance = {0.0, 0.0};
    assert_true(espl_distance_value(&distance) == 0.0);
    espl_distance_add(&distance, x, y, 2);
    assert_true(espl_distance_value(&distance) == 0.0);
    espl_distance_add(&distance, x + 2, y + 2, 2);
    assert_true(espl_distance_value(&distance) == sqrt(25.0 / 5.0));
    struct espl_distance from_zero = {0.0, 0.0};
    espl_distance_add(&from_zero, x, y + 2, 2);
    assert_true(isinf(espl_distance_value(&from_zero)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info__what_a_description_leaves_out_is_zero),
        cmocka_unit_test(test_check__windows_of_one_token),
        cmocka_unit_test(test_estimate__counts_every_window_that_is_kept),
        cmocka_unit_test(test_estimate__large_sets_go_to_a_file),
        cmocka_unit_test(test_distance__collects_over_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Channel orders, and the sizes that follow from a width. */
#include "stages/quant_common/channel_order.h"
#include "support/cmocka_all.h"

#include <math.h>
#include <string.h>

static void test_ascending__ties_keep_their_order(void **state)
{
    (void)state;
    static const double statistic[7] = {2.0, 0.0, 5.0, 2.0, 0.0, -0.0, 2.0};
    static const int32_t expected[7] = {1, 4, 5, 0, 3, 6, 2};
    int32_t order[7], inverse[7];
    struct espl_error err;
    assert_int_equal(espl_reorder_ascending(statistic, 7, order, &err), ESPL_OK);
    assert_memory_equal(order, expected, sizeof expected);
    espl_reorder_invert(order, 7, inverse);
    for (int32_t i = 0; i < 7; i++) {
        assert_int_equal(inverse[order[i]], i);
    }
    espl_reorder_identity(7, order);
    assert_int_equal(order[6], 6);
}

static void test_ascending__refuses_nan(void **state)
{
    (void)state;
    const double statistic[3] = {1.0, NAN, 2.0};
    const double infinite[1] = {INFINITY};
    int32_t order[3];
    struct espl_error err;
    assert_int_equal(espl_reorder_ascending(statistic, 3, order, &err), ESPL_E_NUMERIC);
    assert_non_null(strstr(err.message, "channel 1 "));
    assert_int_equal(espl_reorder_ascending(infinite, 1, order, &err), ESPL_E_NUMERIC);
    assert_int_equal(espl_reorder_ascending(NULL, 0, order, &err), ESPL_OK);
}

static void test_check__permutations_only(void **state)
{
    (void)state;
    static const int32_t good[4] = {3, 1, 0, 2};
    static const int32_t twice[4] = {3, 1, 1, 2};
    static const int32_t beyond[4] = {3, 4, 0, 2};
    static const int32_t negative[2] = {-1, 0};
    struct espl_error err;
    assert_int_equal(espl_reorder_check(good, 4, &err), ESPL_OK);
    assert_int_equal(espl_reorder_check(twice, 4, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "place 2 "));
    assert_int_equal(espl_reorder_check(beyond, 4, &err), ESPL_E_CORRUPT);
    assert_int_equal(espl_reorder_check(negative, 2, &err), ESPL_E_CORRUPT);
}

static void test_gather__columns_rows_and_masks(void **state)
{
    (void)state;
    static const float from[6] = {0.0F, 1.0F, 2.0F, 10.0F, 11.0F, 12.0F};
    static const float columns[6] = {2.0F, 0.0F, 1.0F, 12.0F, 10.0F, 11.0F};
    static const float rows[6] = {10.0F, 11.0F, 12.0F, 0.0F, 1.0F, 2.0F};
    static const int32_t order[3] = {2, 0, 1};
    static const int32_t row_order[2] = {1, 0};
    static const uint8_t mask[2] = {0x03, 0x04}; /* 110, 001 */
    const struct espl_matrix_shape shape = {2, 3};
    float to[6];
    uint8_t gathered[2];
    espl_reorder_columns(&shape, from, order, to);
    assert_memory_equal(to, columns, sizeof to);
    espl_reorder_rows(&shape, from, row_order, to);
    assert_memory_equal(to, rows, sizeof to);
    espl_reorder_mask(&shape, mask, order, row_order, gathered); /* 100, 011 */
    assert_int_equal(gathered[0], 0x01);
    assert_int_equal(gathered[1], 0x06);
    espl_reorder_mask(&shape, mask, NULL, NULL, gathered);
    assert_memory_equal(gathered, mask, sizeof mask);
}

static void test_mask__wider_than_a_byte(void **state)
{
    (void)state;
    const struct espl_matrix_shape shape = {1, 19};
    static const uint8_t mask[3] = {0x01, 0x80, 0x04}; /* 0, 15, 18 */
    int32_t order[19];
    uint8_t to[3];
    for (int32_t i = 0; i < 19; i++) {
        order[i] = 18 - i;
    }
    espl_reorder_mask(&shape, mask, order, NULL, to); /* 18, 3, 0 */
    assert_int_equal(to[0], 0x09);
    assert_int_equal(to[1], 0x00);
    assert_int_equal(to[2], 0x04);
}

static void test_auto__by_width(void **state)
{
    (void)state;
    static const size_t widths[][3] = {{64, 0, 64},      {192, 0, 64},      {256, 32, 32},
                                       {320, 32, 32},    {512, 64, 64},     {768, 64, 64},
                                       {1024, 128, 128}, {4096, 128, 128},  {11008, 128, 128},
                                       {100, 0, 0},      {13824, 128, 128}, {896, 64, 64}};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        assert_int_equal(espl_outliers_auto(widths[i][0]), widths[i][1]);
        assert_int_equal(espl_group_auto(widths[i][0] - widths[i][1]), widths[i][2]);
    }
}

static void test_group__legal_sizes(void **state)
{
    (void)state;
    char text[128];
    assert_true(espl_group_is_legal(100, 0));
    assert_true(espl_group_is_legal(192, 64));
    assert_true(espl_group_is_legal(512, 256));
    assert_true(espl_group_is_legal(100, 4));
    assert_false(espl_group_is_legal(192, 96)); /* neither divides 128 nor is whole blocks */
    assert_false(espl_group_is_legal(192, 128));
    assert_false(espl_group_is_legal(0, 32));
    espl_group_list(896, text);
    assert_string_equal(text, "896, 128, 64, 32, 16, 8");
    espl_group_list(100, text);
    assert_string_equal(text, "none of 8 or more"); /* 4, 2 and 1 are legal */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ascending__ties_keep_their_order),
        cmocka_unit_test(test_ascending__refuses_nan),
        cmocka_unit_test(test_check__permutations_only),
        cmocka_unit_test(test_gather__columns_rows_and_masks),
        cmocka_unit_test(test_mask__wider_than_a_byte),
        cmocka_unit_test(test_auto__by_width),
        cmocka_unit_test(test_group__legal_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

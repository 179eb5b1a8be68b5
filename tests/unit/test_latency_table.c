/* Lookup tables: the monotone envelope by hand, medians and spreads, errors. */
#include "support/cmocka_all.h"

#include "search/latency_table.h"

#include <math.h>
#include <string.h>

/* One shape, M = 4, two kernels. Kernel 0 is dense and runs at 4 only; kernel 1 has a slow 3:4. */
static void make_table(struct espl_latency_table *table)
{
    struct espl_error err;
    assert_int_equal(espl_latency_table_create(1, 4, 2, table, &err), ESPL_OK);
    table->shapes[0] = (struct espl_latency_shape){.tokens = 64, .in = 32, .out = 16};
    table->raw[espl_latency_index(table, 0, 4, 0)] = 10.0;
    table->raw[espl_latency_index(table, 0, 4, 1)] = 11.0;
    table->raw[espl_latency_index(table, 0, 3, 1)] = 12.0;
    table->raw[espl_latency_index(table, 0, 2, 1)] = 6.0;
    table->raw[espl_latency_index(table, 0, 1, 1)] = 6.5;
}

static void test_close__envelope_and_choices(void **state)
{
    (void)state;
    struct espl_latency_table table;
    make_table(&table);
    assert_int_equal(espl_latency_table_close(&table, NULL), ESPL_OK);
    const double envelope[] = {6.0, 6.0, 10.0, 10.0};
    const uint8_t kernel[] = {1, 1, 0, 0};
    const uint8_t level[] = {2, 2, 4, 4}; /* 1:4 runs on the kernel for 2:4, 3:4 as dense */
    for (unsigned n = 1; n <= 4; n++) {
        assert_true(espl_latency_cost(&table, 0, n) == envelope[n - 1]);
        assert_int_equal(table.chosen_kernel[n - 1], kernel[n - 1]);
        assert_int_equal(table.chosen_level[n - 1], level[n - 1]);
    }
    espl_latency_table_free(&table);
}

static void test_close__equal_costs_take_the_sparser_level_and_the_lower_kernel(void **state)
{
    (void)state;
    struct espl_latency_table table;
    make_table(&table);
    table.raw[espl_latency_index(&table, 0, 4, 1)] = 10.0;
    table.raw[espl_latency_index(&table, 0, 1, 1)] = 6.0;
    assert_int_equal(espl_latency_table_close(&table, NULL), ESPL_OK);
    assert_int_equal(table.chosen_kernel[3], 0);
    assert_int_equal(table.chosen_level[0], 1);
    espl_latency_table_free(&table);
}

static void test_close__levels_not_measured_use_denser_ones(void **state)
{
    (void)state;
    struct espl_latency_table table;
    make_table(&table);
    table.raw[espl_latency_index(&table, 0, 1, 1)] = (double)NAN;
    table.raw[espl_latency_index(&table, 0, 3, 1)] = (double)NAN;
    assert_int_equal(espl_latency_table_close(&table, NULL), ESPL_OK);
    assert_true(espl_latency_cost(&table, 0, 1) == 6.0);
    assert_true(espl_latency_cost(&table, 0, 3) == 10.0);
    espl_latency_table_free(&table);
}

static void test_close__needs_the_dense_layer(void **state)
{
    (void)state;
    struct espl_latency_table table;
    struct espl_error err;
    make_table(&table);
    table.raw[espl_latency_index(&table, 0, 4, 0)] = (double)NAN;
    table.raw[espl_latency_index(&table, 0, 4, 1)] = (double)NAN;
    assert_int_equal(espl_latency_table_close(&table, &err), ESPL_E_KIND);
    assert_string_equal(err.message,
                        "latency table: the dense layer of 16 x 32 at 64 tokens was not measured");
    espl_latency_table_free(&table);
}

static void test_close__refuses_costs_that_are_none(void **state)
{
    (void)state;
    const double bad[] = {0.0, -1.0, INFINITY};
    for (size_t i = 0; i < 3; i++) {
        struct espl_latency_table table;
        struct espl_error err;
        make_table(&table);
        table.raw[espl_latency_index(&table, 0, 2, 1)] = bad[i];
        assert_int_equal(espl_latency_table_close(&table, &err), ESPL_E_NUMERIC);
        espl_latency_table_free(&table);
    }
}

static void test_create__refuses_sizes(void **state)
{
    (void)state;
    struct espl_latency_table table;
    assert_int_equal(espl_latency_table_create(1, 17, 1, &table, NULL), ESPL_E_KIND);
    assert_int_equal(espl_latency_table_create(0, 8, 1, &table, NULL), ESPL_E_KIND);
    assert_int_equal(espl_latency_table_create(1, 8, 17, &table, NULL), ESPL_E_KIND);
    espl_latency_table_free(&table);
}

static void test_find__by_all_three_sizes(void **state)
{
    (void)state;
    struct espl_latency_table table;
    make_table(&table);
    const struct espl_latency_shape there = {.tokens = 64, .in = 32, .out = 16};
    const struct espl_latency_shape other = {.tokens = 65, .in = 32, .out = 16};
    assert_int_equal(espl_latency_find(&table, &there), 0);
    assert_int_equal(espl_latency_find(&table, &other), 1);
    espl_latency_table_free(&table);
}

static void test_summarise__median_and_spread(void **state)
{
    (void)state;
    double odd[] = {5, 1, 3};
    double even[] = {4, 1, 3, 2};
    double twenty[20];
    double median = 0.0;
    double spread = 0.0;
    espl_latency_summarise(odd, 3, &median, &spread);
    assert_true(median == 3.0 && spread == 2.0);
    espl_latency_summarise(even, 4, &median, &spread);
    assert_true(median == 2.5 && spread == 1.5);
    for (size_t i = 0; i < 20; i++) {
        twenty[i] = (double)(20 - i);
    }
    twenty[0] = 1e9; /* one disturbed measurement moves neither */
    espl_latency_summarise(twenty, 20, &median, &spread);
    assert_true(median == 10.5);
    assert_true(spread == 8.5); /* values 2 and 19 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close__envelope_and_choices),
        cmocka_unit_test(test_close__equal_costs_take_the_sparser_level_and_the_lower_kernel),
        cmocka_unit_test(test_close__levels_not_measured_use_denser_ones),
        cmocka_unit_test(test_close__needs_the_dense_layer),
        cmocka_unit_test(test_close__refuses_costs_that_are_none),
        cmocka_unit_test(test_create__refuses_sizes),
        cmocka_unit_test(test_find__by_all_three_sizes),
        cmocka_unit_test(test_summarise__median_and_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

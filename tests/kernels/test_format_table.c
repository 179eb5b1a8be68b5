/* All formats behind one interface: encoders against closed forms, part by part; the figures of the
 * UnionSparse paper's Fig. 4; devices. */
#include "espalier/formats.h"
#include "kernels/bench/cases.h"
#include "kernels/iebme_fixture.h"
#include "support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 512, COLS = 1024 };

static void close_to(const char *what, double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance)) {
        fail_msg("%s: %.17g is not %.17g within %g", what, value, expected, tolerance);
    }
}

static void compare_parts(const struct espl_format *format, const int8_t *codes, unsigned bits,
                          double s)
{
    struct espl_traffic found;
    const struct espl_traffic expected = espl_format_expected(format, ROWS, COLS, bits, s);
    assert_int_equal(espl_format_measure(format, codes, ROWS, COLS, bits, ESPL_IEBME_SCOPE_NONE,
                                         NULL, &found, NULL),
                     ESPL_OK);
    const double total = espl_traffic_bytes_per_weight(&expected) * ROWS * COLS;
    close_to(format->name, espl_traffic_bytes_per_weight(&found) * ROWS * COLS, total,
             0.01 * total);
    close_to(format->name, found.payload_bytes, expected.payload_bytes, 0.01 * total);
    close_to(format->name, found.padding_bytes, expected.padding_bytes, 0.01 * total);
    close_to(format->name, found.metadata_bytes, expected.metadata_bytes,
             0.01 * (expected.metadata_bytes + 1.0));
}

static void test_formats__every_part_within_one_percent(void **state)
{
    (void)state;
    static const unsigned widths[3] = {2, 4, 8};
    static const double sparsities[] = {0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.9};
    struct espl_rng rng = espl_rng_stream(11, "format-table", 0);
    for (size_t w = 0; w < 3; w++) {
        for (size_t i = 0; i < sizeof sparsities / sizeof sparsities[0]; i++) {
            int8_t *codes = fixture_codes(&rng, ROWS, COLS, widths[w], sparsities[i]);
            for (const struct espl_format *f = espl_formats; f->name != NULL; f++) {
                /* near a tie `auto` mixes tiles, which the form of one choice does not know */
                if (f->is_peer || f->areas != ESPL_IEBME_AUTO) {
                    compare_parts(f, codes, widths[w], sparsities[i]);
                }
            }
            free(codes);
        }
    }
}

static double pmr(const char *name, unsigned bits, double s, bool effective)
{
    const struct espl_format *format = espl_format_find(name);
    assert_non_null(format);
    const struct espl_traffic traffic = espl_format_expected(format, 28672, 8192, bits, s);
    return effective ? espl_traffic_pmr_effective(&traffic) : espl_traffic_pmr(&traffic);
}

/* Metadata bits a kept weight: CSR 32, Tiled-CSL 16; a bitmap has one bit a weight, a union mask of
 * Q areas 1 / Q. Offsets change these by less than 5 %, by 13 % at Q = 4. */
static void test_expected__figure_4_of_the_paper(void **state)
{
    (void)state;
    static const unsigned widths[3] = {16, 8, 4};
    for (size_t i = 0; i < 3; i++) {
        const double b = widths[i];
        close_to("csr32", pmr("csr32", widths[i], 0.5, false), b / 32.0, 0.005 * b / 32.0);
        close_to("tiled-csl", pmr("tiled-csl", widths[i], 0.5, false), b / 16.0, 0.005 * b / 16.0);
        close_to("tca-bme", pmr("tca-bme", widths[i], 0.5, false), 0.5 * b / (1.0 + 160.0 / 4096.0),
                 1e-9);
        close_to("2x2", pmr("iebme-2x2", widths[i], 0.5, false), 0.5 * b / (0.25 + 1.0 / 32.0),
                 1e-9);
    }
    /* at half, 2x2 stores 15/16 of the weights: 2 of 4 bits are payload, 1.75 stored zeros */
    close_to("2x2 effective", pmr("iebme-2x2", 4, 0.5, true), 2.0 / (0.25 + 1.0 / 32.0 + 1.75),
             1e-9);
    /* the order of the figure, and what it leaves out */
    assert_true(pmr("csr32", 4, 0.4, false) < pmr("tiled-csl", 4, 0.4, false));
    assert_true(pmr("tiled-csl", 4, 0.4, false) < pmr("tca-bme", 4, 0.4, false));
    assert_true(pmr("tca-bme", 4, 0.4, false) < pmr("iebme-2x2", 4, 0.4, false));
    assert_true(pmr("iebme-2x2", 4, 0.4, true) < pmr("tca-bme", 4, 0.4, true));
}

static void test_expected__auto_is_the_smallest(void **state)
{
    (void)state;
    const struct espl_format *automatic = espl_format_find("iebme-auto");
    const struct espl_format *single = espl_format_find("iebme-1x1");
    const struct espl_format *dense = espl_format_find("dense");
    for (int s = 0; s <= 100; s += 5) {
        const double sparsity = s / 100.0;
        const struct espl_traffic best = espl_format_expected(automatic, 64, 64, 4, sparsity);
        for (unsigned a = 0; a < ESPL_IEBME_UNIFORM_CHOICES; a++) {
            const struct espl_format choice = {"", false, (enum espl_iebme_areas)a,
                                               ESPL_PEER_DENSE};
            const struct espl_traffic other = espl_format_expected(&choice, 64, 64, 4, sparsity);
            assert_true(espl_traffic_bytes_per_weight(&best) <=
                        espl_traffic_bytes_per_weight(&other));
        }
    }
    const struct espl_traffic at_half = espl_format_expected(automatic, 64, 64, 4, 0.5);
    const struct espl_traffic single_at_half = espl_format_expected(single, 64, 64, 4, 0.5);
    assert_memory_equal(&at_half, &single_at_half, sizeof at_half);
    const struct espl_traffic low = espl_format_expected(automatic, 64, 64, 4, 0.1);
    const struct espl_traffic dense_low = espl_format_expected(dense, 64, 64, 4, 0.1);
    assert_memory_equal(&low, &dense_low, sizeof low);
}

static void test_measure__orders_are_counted(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(12, "format-orders", 0);
    int8_t *codes = fixture_codes(&rng, ROWS, COLS, 4, 0.5);
    const struct espl_format *single = espl_format_find("iebme-1x1");
    struct espl_iebme_layout layout = {ROWS, COLS, 4, ESPL_IEBME_1X1, ESPL_IEBME_SCOPE_TILE};
    uint64_t *orders = fixture_orders(&rng, &layout);
    struct espl_traffic plain;
    struct espl_traffic permuted;
    assert_int_equal(espl_format_measure(single, codes, ROWS, COLS, 4, ESPL_IEBME_SCOPE_NONE, NULL,
                                         &plain, NULL),
                     ESPL_OK);
    assert_int_equal(espl_format_measure(single, codes, ROWS, COLS, 4, ESPL_IEBME_SCOPE_TILE,
                                         orders, &permuted, NULL),
                     ESPL_OK);
    /* 8 bytes a tile, all of it metadata */
    close_to("metadata", permuted.metadata_bytes - plain.metadata_bytes, ROWS / 16 * COLS / 64 * 8,
             0.0);
    close_to("payload", permuted.payload_bytes, plain.payload_bytes, 0.0);
    free(orders);
    free(codes);
}

static void test_measure__refuses_what_the_index_cannot_hold(void **state)
{
    (void)state;
    enum { WIDE = 65537 };
    struct espl_error err;
    struct espl_traffic traffic;
    int8_t *codes = calloc(WIDE, 1);
    assert_non_null(codes);
    assert_int_equal(espl_format_measure(espl_format_find("csr16"), codes, 1, WIDE, 4,
                                         ESPL_IEBME_SCOPE_NONE, NULL, &traffic, &err),
                     ESPL_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "CSR with 2-byte columns cannot index"));
    free(codes);
}

static void test_tables__names_are_found(void **state)
{
    (void)state;
    for (const struct espl_format *f = espl_formats; f->name != NULL; f++) {
        assert_ptr_equal(espl_format_find(f->name), f);
    }
    assert_null(espl_format_find("csr"));
    for (const struct espl_device_rate *d = espl_device_rates; d->name != NULL; d++) {
        assert_ptr_equal(espl_device_rate_find(d->name), d);
        assert_true(d->bandwidth > 1e9 && d->int8_rate >= 0.0);
        assert_true(strlen(d->source) > 0 && strlen(d->title) > 0);
    }
    assert_null(espl_device_rate_find("cpu"));
}

static void test_memory_rate__reads_what_was_written(void **state)
{
    (void)state;
    double rate = 0.0;
    struct espl_error err;
    assert_int_equal(espl_memory_read_rate(1, 1 << 20, 2, &rate, NULL), ESPL_OK);
    assert_true(rate > 1e6 && rate < 1e14);
    assert_int_equal(espl_memory_read_rate(1, 32, 2, &rate, &err), ESPL_E_NOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats__every_part_within_one_percent),
        cmocka_unit_test(test_expected__figure_4_of_the_paper),
        cmocka_unit_test(test_expected__auto_is_the_smallest),
        cmocka_unit_test(test_measure__orders_are_counted),
        cmocka_unit_test(test_measure__refuses_what_the_index_cannot_hold),
        cmocka_unit_test(test_tables__names_are_found),
        cmocka_unit_test(test_memory_rate__reads_what_was_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

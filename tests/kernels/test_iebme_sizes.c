/* Bytes: closed forms against the encoders, break-even tables, what `auto` picks, PMR, compute
 * intensity and roofline time. */
#include "espalier/formats.h"
#include "kernels/iebme_fixture.h"
#include "support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 512, COLS = 1024 };

static void close_to(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance)) {
        fail_msg("%.17g is not %.17g within %g", value, expected, tolerance);
    }
}

static struct espl_iebme_plan plan_codes(const int8_t *codes, unsigned bits,
                                         enum espl_iebme_areas areas)
{
    struct espl_error err;
    struct espl_iebme_plan plan;
    const struct espl_iebme_layout layout = {ROWS, COLS, bits, areas, ESPL_IEBME_SCOPE_NONE};
    if (espl_iebme_plan(codes, &layout, NULL, &plan, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return plan;
}

static unsigned areas_of(enum espl_iebme_areas areas)
{
    unsigned rows = 0;
    unsigned cols = 0;
    espl_iebme_areas_grid(areas, &rows, &cols);
    return rows * cols;
}

/* ---- closed forms ---- */

static void test_closed_forms__encoder_within_one_percent(void **state)
{
    (void)state;
    static const unsigned widths[3] = {2, 4, 8};
    static const double sparsities[] = {0.0, 0.1, 0.3, 0.4, 0.5, 0.6, 0.7, 0.9};
    struct espl_rng rng = espl_rng_stream(5, "iebme-sizes", 0);
    for (size_t w = 0; w < 3; w++) {
        for (size_t i = 0; i < sizeof sparsities / sizeof sparsities[0]; i++) {
            const unsigned bits = widths[w];
            const double s = sparsities[i];
            int8_t *codes = fixture_codes(&rng, ROWS, COLS, bits, s);
            const struct espl_iebme_plan plan = plan_codes(codes, bits, ESPL_IEBME_AUTO);
            for (unsigned a = 0; a < ESPL_IEBME_UNIFORM_CHOICES; a++) {
                const double expected =
                    espl_iebme_expected_bits(areas_of((enum espl_iebme_areas)a), bits, s);
                const double found = 8.0 * (double)plan.choice_bytes[a] / (ROWS * COLS);
                close_to(found, expected, 0.01 * expected);
            }
            for (unsigned f = 0; f < ESPL_PEER_FORMATS; f++) {
                size_t sections[ESPL_PEER_SECTIONS];
                uint64_t bytes = 0;
                const enum espl_peer_format format = (enum espl_peer_format)f;
                const double expected = espl_peer_expected_bits(format, bits, s, COLS);
                assert_int_equal(
                    espl_peer_plan(format, codes, ROWS, COLS, bits, sections, &bytes, NULL),
                    ESPL_OK);
                close_to(8.0 * (double)bytes / (ROWS * COLS), expected, 0.01 * expected);
            }
            free(codes);
        }
    }
}

/* Parts too small for the test above, by hand, INT4 at half with 1024 columns: a Tiled-CSL tile of
 * 128 x 64 has an offset and 0 to 3 entries of fill, a TCA-BME tile of 64 x 64 has five offsets and
 * 0 to 15 bytes of fill in steps of a code. */
static void test_closed_forms__small_parts_by_hand(void **state)
{
    (void)state;
    close_to(espl_peer_expected_bits(ESPL_PEER_TILED_CSL, 4, 0.5, 1024),
             20.0 * 0.5 + (32.0 + 1.5 * 20.0) / 8192.0, 1e-12);
    close_to(espl_peer_expected_bits(ESPL_PEER_TILED_CSL_HALF, 4, 0.5, 1024),
             32.0 * 0.5 + (32.0 + 1.5 * 32.0) / 8192.0, 1e-12);
    close_to(espl_peer_expected_bits(ESPL_PEER_TCA_BME, 4, 0.5, 1024),
             1.0 + 4.0 * 0.5 + (160.0 + 62.0) / 4096.0, 1e-12);
    close_to(espl_peer_expected_bits(ESPL_PEER_CSR16, 4, 0.5, 1024), 20.0 * 0.5 + 32.0 / 1024.0,
             1e-12);
    close_to(espl_peer_expected_bits(ESPL_PEER_CSR32, 4, 0.5, 1024), 36.0 * 0.5 + 32.0 / 1024.0,
             1e-12);
}

static void test_closed_forms__table_of_the_docs(void **state)
{
    (void)state;
    /* s; 1x1, Q = 2, 4, 8 at INT4 without offsets; entropy bound */
    static const double table[][6] = {
        {0.4, 3.40, 3.86, 4.15, 4.12, 3.37}, {0.5, 3.00, 3.50, 4.00, 4.11, 3.00},
        {0.6, 2.60, 3.06, 3.73, 4.06, 2.57}, {0.7, 2.20, 2.54, 3.29, 3.89, 2.08},
        {0.8, 1.80, 1.94, 2.61, 3.45, 1.52}, {0.9, 1.40, 1.26, 1.63, 2.40, 0.87},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        for (unsigned q = 0; q < 4; q++) {
            close_to(espl_iebme_expected_bits_bare(1u << q, 4, table[i][0]), table[i][q + 1],
                     0.0051);
        }
        close_to(espl_sparse_entropy_bits(4, table[i][0]), table[i][5], 0.0051);
    }
}

/* Where f changes sign in [low, high], by bisection. */
static double crossing(double (*f)(double s, unsigned areas, unsigned bits), unsigned areas,
                       unsigned bits, double low, double high)
{
    const bool positive = f(low, areas, bits) > 0.0;
    for (unsigned n = 0; n < 60; n++) {
        const double middle = (low + high) / 2.0;
        if ((f(middle, areas, bits) > 0.0) == positive) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static double over_dense(double s, unsigned areas, unsigned bits)
{
    return espl_iebme_expected_bits_bare(areas, bits, s) - bits;
}

static double over_single(double s, unsigned areas, unsigned bits)
{
    return espl_iebme_expected_bits_bare(areas, bits, s) -
           espl_iebme_expected_bits_bare(1, bits, s);
}

static void test_break_even__table_of_the_docs(void **state)
{
    (void)state;
    static const unsigned widths[3] = {2, 4, 8};
    static const double table[3][4] = {
        {0.500, 0.500, 0.595, 0.707}, {0.250, 0.354, 0.500, 0.648}, {0.125, 0.250, 0.420, 0.595}};
    for (size_t w = 0; w < 3; w++) {
        for (unsigned q = 0; q < 4; q++) {
            close_to(espl_iebme_break_even(1u << q, widths[w]), table[w][q], 0.0006);
            close_to(crossing(over_dense, 1u << q, widths[w], 0.0, 1.0),
                     espl_iebme_break_even(1u << q, widths[w]), 1e-12);
        }
    }
    /* where a union mask beats single elements */
    close_to(crossing(over_single, 2, 4, 0.0, 0.5), 0.146, 0.0006);
    close_to(crossing(over_single, 2, 4, 0.5, 1.0 - 1e-9), 0.854, 0.0006);
    close_to(crossing(over_single, 4, 4, 0.0, 0.5), 0.189, 0.0006);
    close_to(crossing(over_single, 4, 4, 0.5, 1.0 - 1e-9), 0.927, 0.0006);
    close_to(crossing(over_single, 4, 2, 0.0, 0.6), 0.40, 0.006);
    close_to(crossing(over_single, 4, 2, 0.6, 1.0 - 1e-9), 0.81, 0.006);
}

/* ---- auto ---- */

static void test_auto__single_elements_at_half(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(6, "iebme-half", 0);
    int8_t *codes = fixture_codes(&rng, ROWS, COLS, 4, 0.5);
    const struct espl_iebme_plan plan = plan_codes(codes, 4, ESPL_IEBME_AUTO);
    assert_int_equal(plan.layout.areas, ESPL_IEBME_1X1);
    assert_int_equal(plan.tile_choice[ESPL_IEBME_1X1], plan.tiles);
    free(codes);
}

static void test_auto__follows_the_mask(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(7, "iebme-auto", 0);
    int8_t *codes = fixture_codes(&rng, ROWS, COLS, 4, 0.1);
    assert_int_equal(plan_codes(codes, 4, ESPL_IEBME_AUTO).layout.areas, ESPL_IEBME_DENSE);
    for (size_t c = 0; c < COLS; c++) { /* whole columns are 0: rows agree */
        const bool kept = espl_rng_below(&rng, 2) != 0;
        for (size_t r = 0; r < ROWS; r++) {
            codes[r * COLS + c] = kept ? 3 : 0;
        }
    }
    assert_int_equal(plan_codes(codes, 4, ESPL_IEBME_AUTO_MATRIX).layout.areas, ESPL_IEBME_4X1);
    free(codes);
}

static void test_auto__never_above_the_best_single_choice(void **state)
{
    (void)state;
    static const unsigned widths[3] = {2, 4, 8};
    struct espl_rng rng = espl_rng_stream(8, "iebme-best", 0);
    unsigned mixed = 0;
    for (unsigned n = 0; n < 500; n++) {
        struct espl_iebme_plan plan;
        struct espl_iebme_plan single;
        struct espl_iebme_layout layout = {1 + (size_t)espl_rng_below(&rng, 64),
                                           1 + (size_t)espl_rng_below(&rng, 400), widths[n % 3],
                                           ESPL_IEBME_AUTO, ESPL_IEBME_SCOPE_NONE};
        int8_t *codes = fixture_codes(&rng, layout.rows, layout.cols, layout.bits, 0.0);
        for (size_t r = 0; r < layout.rows; r++) { /* density changes along the row */
            for (size_t c = 0; c < layout.cols; c++) {
                if (espl_rng_unit(&rng) < (double)(c / 64 % 5) / 4.0) {
                    codes[r * layout.cols + c] = 0;
                }
            }
        }
        assert_int_equal(espl_iebme_plan(codes, &layout, NULL, &plan, NULL), ESPL_OK);
        for (unsigned a = 0; a <= ESPL_IEBME_MIXED; a++) {
            layout.areas = (enum espl_iebme_areas)a;
            assert_int_equal(espl_iebme_plan(codes, &layout, NULL, &single, NULL), ESPL_OK);
            assert_int_equal(single.bytes, plan.choice_bytes[a]);
            assert_true(plan.bytes <= single.bytes);
            assert_true(plan.layout.areas == ESPL_IEBME_MIXED || a == ESPL_IEBME_MIXED ||
                        plan.bytes < single.bytes ||
                        areas_of(layout.areas) <= areas_of(plan.layout.areas));
        }
        mixed += plan.layout.areas == ESPL_IEBME_MIXED ? 1 : 0;
        free(codes);
    }
    assert_true(mixed > 50);
}

/* ---- traffic ---- */

static void test_traffic__worked_by_hand(void **state)
{
    (void)state;
    /* 4 x 8 INT4, half of it 0: payload 8 bytes; 24 bytes in all, 12 of them metadata */
    const struct espl_traffic t = espl_traffic_of_bytes(4, 8, 4, 16, 24.0, 12.0);
    close_to(t.payload_bytes, 8.0, 0.0);
    close_to(t.padding_bytes, 4.0, 0.0);
    close_to(espl_traffic_pmr(&t), 8.0 / 12.0, 1e-15);
    close_to(espl_traffic_pmr_effective(&t), 0.5, 1e-15);
    close_to(espl_traffic_bytes_per_weight(&t), 0.75, 1e-15);
    /* eq. 2 with M = 4, N = 2, s = 1/2, B_w = 1/2, PMR = 2/3: 8 / (1/2 4 1/2 5/2 + 1/2 2) */
    close_to(espl_traffic_intensity(&t, 2.0, espl_traffic_pmr(&t)), 8.0 / 3.5, 1e-14);
    /* 24 + 8 2 1/2 + 4 2 4 = 64 bytes at 8 bytes a second; 128 operations at 4 a second */
    close_to(espl_traffic_roofline_seconds(&t, 2.0, 4.0, 8.0, 0.0), 8.0, 1e-14);
    close_to(espl_traffic_roofline_seconds(&t, 2.0, 4.0, 8.0, 4.0), 32.0, 1e-14);
    const struct espl_traffic dense = espl_traffic_of_bytes(4, 8, 4, 32, 16.0, 0.0);
    assert_true(isinf(espl_traffic_pmr(&dense)));
    /* no metadata: 2 4 2 / (1/2 4 + 1/2 2) */
    close_to(espl_traffic_intensity(&dense, 2.0, INFINITY), 16.0 / 3.0, 1e-14);
}

static void test_traffic__pmr_of_random_masks_at_half(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(9, "iebme-pmr", 0);
    int8_t *codes = fixture_codes(&rng, ROWS, COLS, 4, 0.5);
    /* kept 2 bits a weight; mask 1/Q and 1/32 of offsets; padding 4 (1/2 - (1/2)^Q) */
    static const struct {
        enum espl_iebme_areas areas;
        double pmr, effective;
    } expected[] = {
        {ESPL_IEBME_1X1, 2.0 / (1.0 + 1.0 / 32), 2.0 / (1.0 + 1.0 / 32)},
        {ESPL_IEBME_2X1, 2.0 / (0.5 + 1.0 / 32), 2.0 / (1.5 + 1.0 / 32)},
        {ESPL_IEBME_2X2, 2.0 / (0.25 + 1.0 / 32), 2.0 / (2.0 + 1.0 / 32)},
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const struct espl_iebme_plan plan = plan_codes(codes, 4, expected[i].areas);
        const struct espl_traffic traffic = espl_traffic_of_iebme(&plan);
        close_to(espl_traffic_pmr(&traffic), expected[i].pmr, 0.01 * expected[i].pmr);
        close_to(espl_traffic_pmr_effective(&traffic), expected[i].effective,
                 0.01 * expected[i].effective);
    }
    free(codes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_forms__encoder_within_one_percent),
        cmocka_unit_test(test_closed_forms__small_parts_by_hand),
        cmocka_unit_test(test_closed_forms__table_of_the_docs),
        cmocka_unit_test(test_break_even__table_of_the_docs),
        cmocka_unit_test(test_auto__single_elements_at_half),
        cmocka_unit_test(test_auto__follows_the_mask),
        cmocka_unit_test(test_auto__never_above_the_best_single_choice),
        cmocka_unit_test(test_traffic__worked_by_hand),
        cmocka_unit_test(test_traffic__pmr_of_random_masks_at_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

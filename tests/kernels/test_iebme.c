/* The canonical IE-BME form: the worked example of docs/formats/ie-bme.md, round trips, refusals.
 */
#include "kernels/formats/iebme_internal.h"
#include "kernels/iebme_fixture.h"
#include "support/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

static void decode_equals(const struct espl_iebme_matrix *matrix, const int8_t *codes)
{
    struct espl_error err;
    const size_t count = matrix->layout.rows * matrix->layout.cols;
    int8_t *decoded = malloc(count);
    assert_non_null(decoded);
    memset(decoded, 77, count);
    if (espl_iebme_decode(matrix, decoded, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    assert_memory_equal(decoded, codes, count);
    free(decoded);
}

/* ---- the worked example ---- */

static const uint16_t example_rows[4] = {0x36DB, 0x6DB6, 0x5B6D, 0xB6DA};

/* codes (16, 128): the example's tile, then one with a single weight. */
static void fill_example(int8_t codes[16 * 128])
{
    int8_t next = 1;
    memset(codes, 0, 16 * 128);
    for (size_t q = 0; q < 4; q++) {
        for (size_t i = 0; i < 4; i++) {
            for (size_t j = 0, k = 0; j < 16; j++) {
                if ((example_rows[i] >> j & 1u) == 0) {
                    continue;
                }
                if ((k + q) % 4 != 3) {
                    codes[(q / 2 * 8 + i) * 128 + q % 2 * 32 + j] = next++;
                }
                k++;
            }
        }
    }
    codes[64] = -5;
}

static void test_worked_example__as_documented(void **state)
{
    (void)state;
    static const int8_t first_rows[4][12] = {
        {1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9, 10},
        {33, 34, 0, 35, 36, 37, 0, 38, 39, 40, 41, 42},
        {65, 0, 66, 67, 68, 0, 69, 70, 71, 0, 72, 0},
        {0, 93, 94, 95, 0, 96, 97, 98, 0, 99, 0, 100},
    };
    const struct espl_iebme_layout layout = {16, 128, 8, ESPL_IEBME_2X2, ESPL_IEBME_SCOPE_NONE};
    struct espl_iebme_plan plan;
    struct espl_iebme_matrix matrix;
    int8_t codes[16 * 128];
    fill_example(codes);
    fixture_encode(codes, &layout, NULL, &plan, &matrix);
    assert_int_equal(matrix.mask_words, 8);
    assert_int_equal(matrix.masks[0], UINT64_C(0x00006DB6000036DB));
    assert_int_equal(matrix.masks[1], UINT64_C(0x0000B6DA00005B6D));
    assert_int_equal(matrix.masks[2], 0);
    assert_int_equal(matrix.masks[3], 0);
    assert_int_equal(matrix.offset_count, 2);
    assert_int_equal(matrix.offsets[0], 0);
    assert_int_equal(matrix.offsets[1], 160);
    for (size_t q = 0; q < 4; q++) {
        assert_memory_equal(matrix.values + 40 * q, first_rows[q], 12);
    }
    /* the second tile: one group, its value in stream 0 and three stored zeros */
    assert_int_equal(matrix.masks[4], 1);
    assert_int_equal((int8_t)matrix.values[160], -5);
    assert_int_equal(matrix.value_bytes, 164);
    assert_int_equal(plan.values, 164);
    assert_int_equal(plan.mask_ones, 41);
    assert_int_equal(plan.nonzeros, 121);
    assert_int_equal(plan.bytes, 8 * 8 + 2 * 4 + 164);
    assert_int_equal(espl_iebme_validate(&matrix, NULL), ESPL_OK);
    decode_equals(&matrix, codes);
    espl_iebme_matrix_free(&matrix);
}

static void test_nibbles__low_first(void **state)
{
    (void)state;
    static const int8_t codes[5] = {1, -1, 3, -8, 5};
    static const uint8_t expected[3] = {0xF1, 0x83, 0x05};
    const struct espl_iebme_layout layout = {1, 5, 4, ESPL_IEBME_1X1, ESPL_IEBME_SCOPE_NONE};
    struct espl_iebme_plan plan;
    struct espl_iebme_matrix matrix;
    fixture_encode(codes, &layout, NULL, &plan, &matrix);
    assert_int_equal(matrix.value_bytes, 3);
    assert_memory_equal(matrix.values, expected, 3);
    assert_int_equal(matrix.masks[0], 0x1F);
    decode_equals(&matrix, codes);
    espl_iebme_matrix_free(&matrix);
}

static void test_crumbs__low_first(void **state)
{
    (void)state;
    static const int8_t codes[5] = {1, -1, -2, 1, -2};
    static const uint8_t expected[2] = {0x6D, 0x02}; /* 01 10 11 01 read from the right */
    const struct espl_iebme_layout layout = {1, 5, 2, ESPL_IEBME_1X1, ESPL_IEBME_SCOPE_NONE};
    struct espl_iebme_plan plan;
    struct espl_iebme_matrix matrix;
    fixture_encode(codes, &layout, NULL, &plan, &matrix);
    assert_int_equal(matrix.value_bytes, 2);
    assert_memory_equal(matrix.values, expected, 2);
    decode_equals(&matrix, codes);
    espl_iebme_matrix_free(&matrix);
}

static void test_permutation__row_moves_and_comes_back(void **state)
{
    (void)state;
    const struct espl_iebme_layout layout = {16, 64, 8, ESPL_IEBME_1X1, ESPL_IEBME_SCOPE_TILE};
    /* rows 0 and 1 change places: nibble 0 is 1, nibble 1 is 0 */
    const uint64_t order = UINT64_C(0xFEDCBA9876543201);
    struct espl_iebme_plan plan;
    struct espl_iebme_matrix matrix;
    int8_t codes[16 * 64] = {0};
    codes[3] = 11;      /* row 0 */
    codes[64 + 5] = 22; /* row 1 */
    fixture_encode(codes, &layout, &order, &plan, &matrix);
    assert_int_equal(matrix.masks[0], 1u << 5); /* encoded row 0 holds row 1 */
    assert_int_equal(matrix.masks[1], 1u << 3);
    assert_int_equal(matrix.values[0], 22);
    assert_int_equal(matrix.values[1], 11);
    decode_equals(&matrix, codes);
    espl_iebme_matrix_free(&matrix);
}

/* ---- round trips ---- */

static double any_sparsity(struct espl_rng *rng)
{
    const uint64_t kind = espl_rng_below(rng, 10);
    if (kind < 2) {
        return kind == 0 ? 0.0 : 1.0;
    }
    return espl_rng_unit(rng);
}

static void test_round_trip__ten_thousand_matrices(void **state)
{
    (void)state;
    enum { MATRICES = 10000 };
    static const unsigned widths[3] = {2, 4, 8};
    unsigned seen[ESPL_IEBME_AUTO + 1][3] = {{0}};
    struct espl_rng rng = espl_rng_stream(1, "iebme-round-trip", 0);
    for (unsigned n = 0; n < MATRICES; n++) {
        struct espl_iebme_plan plan;
        struct espl_iebme_matrix matrix;
        const struct espl_iebme_layout layout = {
            1 + (size_t)espl_rng_below(&rng, 40), 1 + (size_t)espl_rng_below(&rng, 200),
            widths[n % 3], (enum espl_iebme_areas)(n % (ESPL_IEBME_AUTO + 1)),
            (enum espl_iebme_scope)espl_rng_below(&rng, 3)};
        int8_t *codes =
            fixture_codes(&rng, layout.rows, layout.cols, layout.bits, any_sparsity(&rng));
        uint64_t *orders = fixture_orders(&rng, &layout);
        fixture_encode(codes, &layout, orders, &plan, &matrix);
        assert_int_equal(espl_iebme_validate(&matrix, NULL), ESPL_OK);
        decode_equals(&matrix, codes);
        assert_int_equal(plan.bytes, 8 * matrix.mask_words + 4 * matrix.offset_count +
                                         matrix.value_bytes + matrix.tag_count +
                                         8 * matrix.order_count);
        seen[layout.areas][layout.scope]++;
        espl_iebme_matrix_free(&matrix);
        free(orders);
        free(codes);
    }
    for (size_t a = 0; a <= ESPL_IEBME_AUTO; a++) {
        for (size_t s = 0; s < 3; s++) {
            assert_true(seen[a][s] > 100);
        }
    }
}

static void test_paths__all_decode_alike(void **state)
{
    (void)state;
    static const unsigned widths[3] = {2, 4, 8};
    struct espl_rng rng = espl_rng_stream(2, "iebme-paths", 0);
    unsigned compared = 0;
    for (unsigned n = 0; n < 600; n++) {
        struct espl_iebme_plan plan;
        struct espl_iebme_matrix matrix;
        const struct espl_iebme_layout layout = {
            16, 1 + (size_t)espl_rng_below(&rng, 300), widths[n % 3],
            (enum espl_iebme_areas)(n % (ESPL_IEBME_MIXED + 1)), ESPL_IEBME_SCOPE_TILE};
        int8_t *codes = fixture_codes(&rng, 16, layout.cols, layout.bits, any_sparsity(&rng));
        uint64_t *orders = fixture_orders(&rng, &layout);
        const size_t panel = espl_iebme_tile_cols(&layout) * ESPL_IEBME_TILE_VALUES;
        int8_t *plain = malloc(panel);
        int8_t *other = malloc(panel);
        assert_non_null(plain);
        assert_non_null(other);
        fixture_encode(codes, &layout, orders, &plan, &matrix);
        memset(plain, 1, panel);
        espl_iebme_decode_stripe_with(&matrix, 0, 0, espl_iebme_expander(ESPL_IEBME_PLAIN), plain);
        for (size_t r = 0; r < 16; r++) {
            assert_memory_equal(plain + r * panel / 16, codes + r * layout.cols, layout.cols);
        }
        for (unsigned p = 1; p < ESPL_IEBME_PATHS; p++) {
            espl_iebme_expand_fn *expand = espl_iebme_expander((enum espl_iebme_path)p);
            if (expand != NULL) {
                memset(other, 1, panel);
                espl_iebme_decode_stripe_with(&matrix, 0, 0, expand, other);
                assert_memory_equal(other, plain, panel);
                compared++;
            }
        }
        espl_iebme_matrix_free(&matrix);
        free(plain);
        free(other);
        free(orders);
        free(codes);
    }
    print_message("%u comparisons with the plain path\n", compared);
}

/* ---- refusals ---- */

static void test_plan__refuses(void **state)
{
    (void)state;
    struct espl_error err;
    struct espl_iebme_plan plan;
    int8_t codes[64] = {0};
    struct espl_iebme_layout layout = {1, 64, 4, ESPL_IEBME_1X1, ESPL_IEBME_SCOPE_NONE};
    codes[37] = 8;
    assert_int_equal(espl_iebme_plan(codes, &layout, NULL, &plan, &err), ESPL_E_CORRUPT);
    assert_string_equal(err.message, "code 8 at row 0, column 37 does not fit 4 bits");
    codes[37] = -9;
    assert_int_equal(espl_iebme_plan(codes, &layout, NULL, &plan, &err), ESPL_E_CORRUPT);
    codes[37] = -8;
    assert_int_equal(espl_iebme_plan(codes, &layout, NULL, &plan, &err), ESPL_OK);
    layout.bits = 3;
    assert_int_equal(espl_iebme_plan(codes, &layout, NULL, &plan, &err), ESPL_E_UNSUPPORTED);
    layout.bits = 4;
    layout.rows = 0;
    assert_int_equal(espl_iebme_plan(codes, &layout, NULL, &plan, &err), ESPL_E_UNSUPPORTED);
    layout.rows = SIZE_MAX / 2;
    assert_int_equal(espl_iebme_plan(codes, &layout, NULL, &plan, &err), ESPL_E_UNSUPPORTED);
    layout.rows = 1;
    layout.areas = (enum espl_iebme_areas)13;
    assert_int_equal(espl_iebme_plan(codes, &layout, NULL, &plan, &err), ESPL_E_UNSUPPORTED);
    layout.areas = ESPL_IEBME_AUTO;
    layout.scope = ESPL_IEBME_SCOPE_TILE;
    const uint64_t twice = UINT64_C(0xFEDCBA9876543211);
    assert_int_equal(espl_iebme_plan(codes, &layout, &twice, &plan, &err), ESPL_E_CORRUPT);
}

static void test_encode__refuses_other_codes(void **state)
{
    (void)state;
    struct espl_error err;
    struct espl_iebme_plan plan;
    struct espl_iebme_matrix matrix = {.masks = NULL};
    int8_t codes[16 * 64] = {0};
    const struct espl_iebme_layout layout = {16, 64, 4, ESPL_IEBME_1X1, ESPL_IEBME_SCOPE_NONE};
    codes[0] = 1;
    assert_int_equal(espl_iebme_plan(codes, &layout, NULL, &plan, &err), ESPL_OK);
    memset(codes, 1, sizeof codes);
    assert_int_equal(espl_iebme_encode(codes, NULL, &plan, &matrix, &err), ESPL_E_INTERNAL);
    assert_null(matrix.masks);
    memset(codes, 0, sizeof codes);
    assert_int_equal(espl_iebme_encode(codes, NULL, &plan, &matrix, &err), ESPL_E_INTERNAL);
}

/* One change of a good matrix and the word that the refusal must say. */
static void expect_refusal(struct espl_iebme_matrix *matrix, const char *word)
{
    struct espl_error err;
    assert_int_equal(espl_iebme_validate(matrix, &err), ESPL_E_CORRUPT);
    if (strstr(err.message, word) == NULL) {
        fail_msg("'%s' does not say '%s'", err.message, word);
    }
}

static void test_validate__says_what_is_wrong(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(3, "iebme-refusals", 0);
    const struct espl_iebme_layout layout = {30, 130, 4, ESPL_IEBME_MIXED, ESPL_IEBME_SCOPE_STRIPE};
    struct espl_iebme_plan plan;
    struct espl_iebme_matrix matrix;
    int8_t *codes = fixture_codes(&rng, layout.rows, layout.cols, layout.bits, 0.5);
    uint64_t *orders = fixture_orders(&rng, &layout);
    fixture_encode(codes, &layout, orders, &plan, &matrix);
    matrix.offsets[1]++;
    expect_refusal(&matrix, "values of tile 1 start at");
    matrix.offsets[1]--;
    const uint8_t tag = matrix.tags[2];
    matrix.tags[2] = 10;
    expect_refusal(&matrix, "tile 2 has areas with unknown code 10");
    matrix.tags[2] = tag;
    matrix.orders[0] ^= 1;
    expect_refusal(&matrix, "row order 0 is not a permutation");
    matrix.orders[0] ^= 1;
    matrix.mask_words--;
    expect_refusal(&matrix, "masks end before tile");
    matrix.mask_words++;
    matrix.offset_count--;
    expect_refusal(&matrix, "offsets");
    matrix.offset_count++;
    matrix.value_bytes--;
    expect_refusal(&matrix, "value bytes");
    matrix.value_bytes++;
    assert_int_equal(espl_iebme_validate(&matrix, NULL), ESPL_OK);
    /* the matrix claimed narrower by one column: its last one becomes padding */
    matrix.layout.cols--;
    expect_refusal(&matrix, "beyond the matrix");
    matrix.layout.cols++;
    espl_iebme_matrix_free(&matrix);
    free(orders);
    free(codes);
}

static void test_validate__refuses_loose_ends(void **state)
{
    (void)state;
    const struct espl_iebme_layout layout = {16, 64, 4, ESPL_IEBME_2X2, ESPL_IEBME_SCOPE_NONE};
    struct espl_iebme_plan plan;
    struct espl_iebme_matrix matrix;
    int8_t codes[16 * 64] = {3};
    fixture_encode(codes, &layout, NULL, &plan, &matrix);
    assert_int_equal(matrix.value_bytes, 2);
    matrix.values[0] = 0; /* the only value of the only group */
    expect_refusal(&matrix, "marks a place where all values are 0");
    espl_iebme_matrix_free(&matrix);

    const struct espl_iebme_layout single = {16, 64, 4, ESPL_IEBME_1X1, ESPL_IEBME_SCOPE_NONE};
    fixture_encode(codes, &single, NULL, &plan, &matrix);
    matrix.values[0] |= 0x10;
    expect_refusal(&matrix, "bits behind the last value are not 0");
    espl_iebme_matrix_free(&matrix);
}

static void test_areas__names_and_grids(void **state)
{
    (void)state;
    for (unsigned a = 0; a <= ESPL_IEBME_AUTO; a++) {
        enum espl_iebme_areas parsed = ESPL_IEBME_AUTO;
        assert_true(
            espl_iebme_areas_parse(espl_iebme_areas_name((enum espl_iebme_areas)a), &parsed));
        assert_int_equal(parsed, a);
    }
    enum espl_iebme_areas areas = ESPL_IEBME_AUTO;
    assert_false(espl_iebme_areas_parse("3x1", &areas));
    assert_null(espl_iebme_areas_name((enum espl_iebme_areas)13));
    assert_true(espl_iebme_areas_from_grid(4, 2, &areas));
    assert_int_equal(areas, ESPL_IEBME_4X2);
    assert_false(espl_iebme_areas_from_grid(3, 2, &areas));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worked_example__as_documented),
        cmocka_unit_test(test_nibbles__low_first),
        cmocka_unit_test(test_crumbs__low_first),
        cmocka_unit_test(test_permutation__row_moves_and_comes_back),
        cmocka_unit_test(test_round_trip__ten_thousand_matrices),
        cmocka_unit_test(test_paths__all_decode_alike),
        cmocka_unit_test(test_plan__refuses),
        cmocka_unit_test(test_encode__refuses_other_codes),
        cmocka_unit_test(test_validate__says_what_is_wrong),
        cmocka_unit_test(test_validate__refuses_loose_ends),
        cmocka_unit_test(test_areas__names_and_grids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

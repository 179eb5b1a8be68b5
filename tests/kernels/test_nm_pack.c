/* Packed N:M matrices: every layout there and back, what is detected and refused, each byte's place
 * against a second reading of docs/formats/nm-pack.md, and damaged matrices. */
#include "kernels/formats/nm_wide.h"
#include "kernels/nm_fixture.h"
#include "support/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

static const unsigned shared[] = {1, 8, 16, 32, 64};
enum { SHARED = sizeof shared / sizeof shared[0] };

static void expect_round_trip(const int8_t *codes, const struct espl_nm_matrix *matrix)
{
    struct espl_error err;
    const size_t count = matrix->layout.rows * matrix->layout.cols;
    int8_t *decoded = malloc(count);
    assert_non_null(decoded);
    memset(decoded, 77, count);
    if (espl_nm_decode(matrix, decoded, &err) != ESPL_OK) {
        fail_msg("%u:%u V=%u, %zu x %zu: %s", matrix->layout.n, matrix->layout.m, matrix->layout.v,
                 matrix->layout.rows, matrix->layout.cols, err.message);
    }
    assert_memory_equal(decoded, codes, count);
    free(decoded);
}

static void test_round_trip__all_layouts_and_tails(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{1, 1},    {16, 128}, {64, 256}, {65, 129},
                                      {79, 100}, {130, 8},  {33, 391}, {200, 260}};
    static const unsigned windows[] = {4, 8, 16};
    struct espl_rng rng = espl_rng_stream(31, "nm-pack", 0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t k = 0; k < 3 * SHARED; k++) {
            const unsigned m = windows[k % 3];
            for (unsigned n = 1; n <= m; n++) {
                struct espl_nm_layout layout = {sizes[i][0], sizes[i][1], n, m, shared[k / 3]};
                struct espl_nm_matrix matrix;
                int8_t *codes = nm_fixture_codes(&rng, &layout, n % 2 ? NM_SPARSE : NM_FULL_RANGE);
                nm_fixture_encode(codes, &layout, &matrix);
                assert_int_equal(matrix.layout.v, layout.v);
                expect_round_trip(codes, &matrix);
                espl_nm_free(&matrix);
                free(codes);
            }
        }
    }
}

static void test_detect__largest_shared_rows(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(32, "nm-pack", 0);
    for (size_t k = 0; k < SHARED; k++) {
        for (unsigned n = 1; n < 8; n++) {
            struct espl_error err;
            struct espl_nm_layout layout = {200, 264, n, 8, shared[k]};
            int8_t *codes = nm_fixture_codes(&rng, &layout, NM_FULL_RANGE);
            unsigned v = 0;
            assert_int_equal(espl_nm_detect(codes, &layout, &v, &err), ESPL_OK);
            assert_int_equal(v, shared[k]);
            for (size_t j = k + 1; j < SHARED; j++) { /* more is refused, not compacted */
                struct espl_nm_matrix matrix;
                layout.v = shared[j];
                assert_int_equal(espl_nm_encode(codes, &layout, &matrix, &err), ESPL_E_KIND);
                assert_null(matrix.values);
            }
            layout.v = 0;
            struct espl_nm_matrix matrix;
            nm_fixture_encode(codes, &layout, &matrix);
            assert_int_equal(matrix.layout.v, shared[k]);
            expect_round_trip(codes, &matrix);
            espl_nm_free(&matrix);
            free(codes);
        }
    }
}

/* One weight too many in one window, anywhere: V falls to what still holds, and at last nothing. */
static void test_detect__one_weight_decides(void **state)
{
    (void)state;
    struct espl_error err;
    struct espl_rng rng = espl_rng_stream(33, "nm-pack", 0);
    const struct espl_nm_layout layout = {150, 200, 2, 8, 64};
    for (unsigned trial = 0; trial < 50; trial++) {
        unsigned v = 0;
        int8_t *codes = nm_fixture_codes(&rng, &layout, NM_FULL_RANGE);
        const size_t row = (size_t)espl_rng_below(&rng, 128);
        const size_t start = (size_t)espl_rng_below(&rng, 25) * 8;
        for (unsigned p = 0; p < 8; p++) { /* this row's two weights move to other places */
            codes[row * 200 + start + p] = codes[(row ^ 1) * 200 + start + p] == 0 ? 5 : 0;
        }
        assert_int_equal(espl_nm_detect(codes, &layout, &v, &err), ESPL_E_KIND);
        assert_non_null(strstr(err.message, "6 of columns"));
        unsigned kept = 0;
        for (unsigned p = 0; p < 8; p++) { /* the first two of the six stay */
            kept += codes[row * 200 + start + p] != 0 ? 1 : 0;
            codes[row * 200 + start + p] = kept > 2 ? 0 : codes[row * 200 + start + p];
        }
        assert_int_equal(espl_nm_detect(codes, &layout, &v, &err), ESPL_OK);
        assert_int_equal(v, 1);
        free(codes);
    }
}

/* The byte that the text of the format says: lane 4 g + t, word `tile` of register r. */
static void test_values__stand_where_the_format_says(void **state)
{
    (void)state;
    static const unsigned cases[][2] = {{1, 8}, {2, 8}, {3, 8}, {4, 8},  {5, 8},
                                        {7, 8}, {8, 8}, {2, 4}, {3, 16}, {6, 16}};
    struct espl_rng rng = espl_rng_stream(34, "nm-pack", 0);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const unsigned n = cases[k][0];
        const unsigned m = cases[k][1];
        const unsigned registers = (8 * n + m - 1) / m;
        const struct espl_nm_layout layout = {48, 256, n, m, n == m ? 64 : 16};
        struct espl_nm_matrix matrix;
        int8_t *codes = nm_fixture_codes(&rng, &layout, NM_FULL_RANGE);
        nm_fixture_encode(codes, &layout, &matrix);
        const uint8_t *unit = matrix.values;
        for (unsigned b = 0; b < 3 * 2; b++, unit += 256u * registers) {
            for (unsigned lane = 0; lane < 32; lane++) {
                for (unsigned tile = 0; tile < 2; tile++) {
                    const unsigned g = lane / 4;
                    const size_t row = b / 2 * 16 + g / 2 * 4 + tile * 2 + g % 2;
                    unsigned at = 0; /* of the stream */
                    for (unsigned c = 0; c < 32; c++) {
                        const size_t col = b % 2 * 128 + c / 16 * 64 + lane % 4 * 16 + c % 16;
                        const int8_t code = codes[row * 256 + col];
                        if (code == 0) {
                            continue;
                        }
                        const unsigned r = at / 4;
                        const unsigned byte =
                            r == registers - 1 && r % 2 == 0
                                ? r / 2 * 512 + lane * 8 + tile * 4 + at % 4
                                : r / 2 * 512 + lane * 16 + r % 2 * 8 + tile * 4 + at % 4;
                        assert_int_equal((int8_t)unit[byte], code);
                        at++;
                    }
                    assert_int_equal(at, 32 * n / m);
                }
            }
        }
        espl_nm_free(&matrix);
        free(codes);
    }
}

/* The order of the kernel for large products, against the words of its header. */
static void test_wide__every_byte_moved(void **state)
{
    (void)state;
    struct espl_error err;
    struct espl_rng rng = espl_rng_stream(37, "nm-pack", 0);
    for (unsigned k = 0; k < 12; k++) {
        const size_t unit_rows = k < 6 ? ESPL_NM_WIDE_ROWS : ESPL_NM_STAY_ROWS;
        const struct espl_nm_layout layout = {300, 200, k % 2 == 0 ? 2 : 4, 8, 16u << k % 6 / 2};
        const size_t chunk = layout.v < 32 ? layout.v : 32;
        struct espl_nm_matrix matrix;
        struct espl_nm_sizes sizes;
        uint8_t *units = NULL;
        size_t bytes = 0;
        int8_t *codes = nm_fixture_codes(&rng, &layout, NM_FULL_RANGE);
        nm_fixture_encode(codes, &layout, &matrix);
        assert_int_equal(espl_nm_sizes_of(&layout, &sizes, &err), ESPL_OK);
        assert_int_equal(espl_nm_wide_encode(&matrix, unit_rows, &units, &bytes, &err), ESPL_OK);
        const size_t unit = unit_rows * 16 * layout.n + unit_rows / layout.v * 8 * layout.n;
        assert_int_equal(espl_nm_wide_unit(&layout, unit_rows), unit);
        assert_int_equal(bytes, 2 * 2 * unit);
        for (size_t i = 0; i < (size_t)304 * 2 * 16 * layout.n; i++) {
            const size_t row = i / (2 * 16 * layout.n);
            const size_t block = i / (16 * layout.n) % 2;
            const size_t window = i / (4 * layout.n) % 4; /* of the lane */
            const size_t lane = i / layout.n % 4;
            const unsigned slot = (unsigned)(i % layout.n);
            const size_t at = window * layout.n + slot;
            const size_t r = row % chunk / (chunk / 4) * 2 + row % 2;
            const size_t eight = row % layout.v / 32 * 4 + row % (chunk / 4) / 2;
            const size_t to = (row / unit_rows * 2 + block) * unit +
                              row % unit_rows / layout.v * (layout.v * 16 * layout.n) +
                              at / 8 * (layout.v * 32) + eight * 256 + at / 4 % 2 * 128 + r * 16 +
                              lane * 4 + at % 4;
            const size_t from = espl_nm_value_at(
                &layout, &sizes, row, block * 16 + window / 2 * 8 + lane * 2 + window % 2, slot);
            assert_int_equal(units[to], matrix.values[from]);
        }
        const size_t selectors = 8 * layout.n; /* second group of the first unit */
        assert_memory_equal(units + unit_rows * 16 * layout.n + selectors,
                            matrix.patterns + 2 * selectors, selectors);
        free(units);
        espl_nm_free(&matrix);
        free(codes);
    }
    const struct espl_nm_matrix other = {.layout = {64, 128, 3, 8, 64}};
    uint8_t *none = NULL;
    size_t bytes = 0;
    assert_int_equal(espl_nm_wide_encode(&other, ESPL_NM_WIDE_ROWS, &none, &bytes, &err),
                     ESPL_E_UNSUPPORTED);
}

/* The worked example of the text. */
static void test_patterns__worked_example(void **state)
{
    (void)state;
    int8_t codes[16 * 128] = {0};
    struct espl_nm_matrix matrix;
    struct espl_nm_layout layout = {16, 128, 2, 8, 16};
    for (unsigned row = 0; row < 16; row++) { /* columns 1, 6 | 8, 11 and 64 + 5, 64 + 7 */
        codes[row * 128 + 1] = (int8_t)(row + 1);
        codes[row * 128 + 6] = (int8_t)(row + 21);
        codes[row * 128 + 8] = (int8_t)(row + 41);
        codes[row * 128 + 11] = (int8_t)(row + 61);
        codes[row * 128 + 69] = (int8_t) - (int8_t)row;
        codes[row * 128 + 71] = -100;
    }
    nm_fixture_encode(codes, &layout, &matrix);
    assert_int_equal(matrix.pattern_bytes, 16);
    assert_int_equal(matrix.value_bytes, 512);
    static const uint8_t lane_0[] = {0x61, 0x30, 0x75, 0x10}; /* then 0 and 1 in every window */
    static const uint8_t others[] = {0x10, 0x10, 0x10, 0x10};
    assert_memory_equal(matrix.patterns, lane_0, 4);
    assert_memory_equal(matrix.patterns + 4, others, 4);
    static const uint8_t row_0[] = {1, 21, 41, 61};
    static const uint8_t row_2[] = {3, 23, 43, 63};
    assert_memory_equal(matrix.values, row_0, 4);
    assert_memory_equal(matrix.values + 4, row_2, 4);
    assert_int_equal(matrix.values[9], 156);  /* register 1, row 0: 0, -100, 0, 0 */
    assert_int_equal(matrix.values[12], 254); /* row 2: -2 */
    espl_nm_free(&matrix);
    layout.v = 1;
    nm_fixture_encode(codes, &layout, &matrix);
    assert_int_equal(matrix.pattern_bytes, 256);
    static const uint8_t masks[] = {0x42, 0x09, 0xA0, 0x03, 0x42, 0x09, 0xA0, 0x03, 0x42};
    assert_memory_equal(matrix.patterns + 8 * 4 * 7, masks, 8);
    assert_int_equal(matrix.patterns[8], 0x03);
    espl_nm_free(&matrix);
    layout.v = 8;
    nm_fixture_encode(codes, &layout, &matrix);
    assert_int_equal(matrix.pattern_bytes, 32);
    assert_memory_equal(matrix.patterns + 16, masks, 4);
    espl_nm_free(&matrix);
}

static void test_layouts__refused(void **state)
{
    (void)state;
    struct espl_error err;
    struct espl_nm_sizes sizes;
    static const struct espl_nm_layout wrong[] = {
        {16, 128, 0, 8, 16},    {16, 128, 9, 8, 16},         {16, 128, 2, 6, 16},
        {16, 128, 2, 8, 4},     {0, 128, 2, 8, 16},          {16, 0, 2, 8, 16},
        {16, 131072, 2, 8, 16}, {16, 128, 2, 8, 128},        {16, 128, 2, 0, 16},
        {SIZE_MAX, 8, 2, 8, 1}, {SIZE_MAX, 131071, 8, 8, 64}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(espl_nm_sizes_of(&wrong[i], &sizes, &err), ESPL_E_UNSUPPORTED);
    }
}

static void *copy_of(const void *data, size_t bytes)
{
    void *copy = malloc(bytes != 0 ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    return copy;
}

static void damage(struct espl_rng *rng, struct espl_nm_matrix *matrix)
{
    static const size_t sides[] = {0, 1, 15, 16, 17, 64, 129, 4096, SIZE_MAX / 16, SIZE_MAX};
    const size_t side = sides[espl_rng_below(rng, sizeof sides / sizeof sides[0])];
    const size_t pattern_bits = matrix->pattern_bytes * 8;
    const uint64_t bit = espl_rng_below(rng, (pattern_bits > 0 ? pattern_bits : 1));
    switch (espl_rng_below(rng, 8)) {
    case 0:
        matrix->layout.rows = side;
        break;
    case 1:
        matrix->layout.cols = side;
        break;
    case 2:
        matrix->layout.n = (unsigned)espl_rng_below(rng, 18);
        break;
    case 3:
        matrix->layout.m = 1u << espl_rng_below(rng, 6);
        break;
    case 4:
        matrix->layout.v = 1u << espl_rng_below(rng, 8);
        break;
    case 5:
        matrix->value_bytes = (size_t)espl_rng_below(rng, matrix->value_bytes + 1);
        break;
    case 6:
        matrix->values[espl_rng_below(rng, matrix->value_bytes)] ^= 0x10;
        break;
    default:
        if (pattern_bits > 0) {
            matrix->patterns[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
}

/* Exact copies, so that the address sanitizer sees every step outside. What is accepted decodes to
 * codes that are N of M. */
static void test_damage__refused_or_consistent(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(35, "nm-pack", 0);
    unsigned refused = 0;
    for (unsigned trial = 0; trial < 6000; trial++) {
        struct espl_error err;
        static const unsigned windows[] = {4, 8, 16};
        const unsigned m = windows[trial % 3];
        const struct espl_nm_layout layout = {
            1 + (size_t)espl_rng_below(&rng, 40), 1 + (size_t)espl_rng_below(&rng, 150),
            1 + (unsigned)espl_rng_below(&rng, m), m, shared[espl_rng_below(&rng, SHARED)]};
        struct espl_nm_matrix whole;
        int8_t *codes = nm_fixture_codes(&rng, &layout, NM_SPARSE);
        nm_fixture_encode(codes, &layout, &whole);
        struct espl_nm_matrix matrix = whole;
        matrix.values = copy_of(whole.values, whole.value_bytes);
        matrix.patterns =
            whole.patterns != NULL ? copy_of(whole.patterns, whole.pattern_bytes) : NULL;
        damage(&rng, &matrix);
        if (espl_nm_check(&matrix, &err) == ESPL_OK) {
            int8_t *decoded = malloc(matrix.layout.rows * matrix.layout.cols);
            struct espl_nm_matrix again;
            assert_non_null(decoded);
            assert_int_equal(espl_nm_decode(&matrix, decoded, &err), ESPL_OK);
            nm_fixture_encode(decoded, &matrix.layout, &again);
            expect_round_trip(decoded, &again);
            espl_nm_free(&again);
            free(decoded);
        } else {
            refused++;
            assert_true(err.code == ESPL_E_CORRUPT || err.code == ESPL_E_UNSUPPORTED);
        }
        espl_nm_free(&matrix);
        espl_nm_free(&whole);
        free(codes);
    }
    assert_in_range(refused, 3000, 5900);
}

/* Each kind of damage that sizes do not show is found where it is. */
static void test_check__finds_each_damage(void **state)
{
    (void)state;
    struct espl_error err;
    struct espl_rng rng = espl_rng_stream(36, "nm-pack", 0);
    const struct espl_nm_layout layout = {20, 100, 2, 8, 16};
    struct espl_nm_matrix matrix;
    int8_t *codes = nm_fixture_codes(&rng, &layout, NM_FULL_RANGE);
    nm_fixture_encode(codes, &layout, &matrix);
    matrix.patterns[0] ^= 0x88; /* places of 8 and more */
    assert_int_equal(espl_nm_check(&matrix, &err), ESPL_E_CORRUPT);
    matrix.patterns[0] = 0x33; /* the same place twice */
    assert_int_equal(espl_nm_check(&matrix, &err), ESPL_E_CORRUPT);
    matrix.patterns[0] = 0x23; /* descending */
    assert_int_equal(espl_nm_check(&matrix, &err), ESPL_E_CORRUPT);
    matrix.patterns[0] = 0x32;
    assert_int_equal(espl_nm_check(&matrix, &err), ESPL_OK);
    struct espl_nm_sizes sizes;
    assert_int_equal(espl_nm_sizes_of(&layout, &sizes, &err), ESPL_OK);
    matrix.values[espl_nm_value_at(&layout, &sizes, 20, 0, 0)] = 1; /* below the last row */
    assert_int_equal(espl_nm_check(&matrix, &err), ESPL_E_CORRUPT);
    matrix.values[espl_nm_value_at(&layout, &sizes, 20, 0, 0)] = 0;
    matrix.values[espl_nm_value_at(&layout, &sizes, 3, 13, 0)] = 1; /* column 104 or later */
    assert_int_equal(espl_nm_check(&matrix, &err), ESPL_E_CORRUPT);
    espl_nm_free(&matrix);
    free(codes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip__all_layouts_and_tails),
        cmocka_unit_test(test_detect__largest_shared_rows),
        cmocka_unit_test(test_detect__one_weight_decides),
        cmocka_unit_test(test_values__stand_where_the_format_says),
        cmocka_unit_test(test_wide__every_byte_moved),
        cmocka_unit_test(test_patterns__worked_example),
        cmocka_unit_test(test_layouts__refused),
        cmocka_unit_test(test_damage__refused_or_consistent),
        cmocka_unit_test(test_check__finds_each_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

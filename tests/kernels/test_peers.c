/* The peers' formats: bytes by hand, round trips, damage. */
#include "espalier/formats.h"
#include "kernels/iebme_fixture.h"
#include "support/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

static void encode(enum espl_peer_format format, const int8_t *codes, size_t rows, size_t cols,
                   unsigned bits, struct espl_peer_matrix *matrix)
{
    struct espl_error err;
    if (espl_peer_encode(format, codes, rows, cols, bits, matrix, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
}

static void expect_section(const struct espl_peer_matrix *matrix, size_t section, const void *bytes,
                           size_t count)
{
    assert_int_equal(matrix->section_bytes[section], count);
    assert_memory_equal(matrix->section[section], bytes, count);
}

static void test_dense_and_csr__by_hand(void **state)
{
    (void)state;
    static const int8_t codes[2 * 3] = {0, -1, 0, 5, 0, 7};
    static const uint8_t packed[4] = {0xF0, 0x00, 0x05, 0x07};
    static const uint8_t values[2] = {0x5F, 0x07};
    static const uint16_t columns[3] = {1, 0, 2};
    static const uint32_t wide_columns[3] = {1, 0, 2};
    static const uint32_t offsets[3] = {0, 1, 3};
    struct espl_peer_matrix matrix;
    encode(ESPL_PEER_DENSE, codes, 2, 3, 4, &matrix);
    expect_section(&matrix, 0, packed, sizeof packed);
    espl_peer_free(&matrix);
    encode(ESPL_PEER_CSR16, codes, 2, 3, 4, &matrix);
    expect_section(&matrix, 0, values, sizeof values);
    expect_section(&matrix, 1, columns, sizeof columns);
    expect_section(&matrix, 2, offsets, sizeof offsets);
    espl_peer_free(&matrix);
    encode(ESPL_PEER_CSR32, codes, 2, 3, 4, &matrix);
    expect_section(&matrix, 1, wide_columns, sizeof wide_columns);
    espl_peer_free(&matrix);
}

static void test_tiled_csl__by_hand(void **state)
{
    (void)state;
    /* tile 0: three entries and one of fill; tile 1 (columns from 64 on): one and three */
    int8_t codes[130 * 65] = {0};
    codes[0] = 1;             /* place 0 */
    codes[2 * 65 + 3] = -3;   /* place 131 */
    codes[127 * 65 + 63] = 7; /* place 8191 */
    codes[64] = -8;           /* tile 1, place 0 */
    static const uint32_t halves[8] = {0x00003C00, 0x0083C200, 0x1FFF4700, 0, 0x0000C800};
    static const uint16_t places[8] = {0, 131, 8191, 0, 0};
    static const uint8_t values[4] = {0xD1, 0x07, 0x08, 0x00};
    static const uint32_t offsets[5] = {0, 1, 2, 2, 2};
    struct espl_peer_matrix matrix;
    encode(ESPL_PEER_TILED_CSL_HALF, codes, 130, 65, 4, &matrix);
    expect_section(&matrix, 0, halves, sizeof halves);
    expect_section(&matrix, 1, offsets, sizeof offsets);
    espl_peer_free(&matrix);
    encode(ESPL_PEER_TILED_CSL, codes, 130, 65, 4, &matrix);
    expect_section(&matrix, 0, values, sizeof values);
    expect_section(&matrix, 1, places, sizeof places);
    expect_section(&matrix, 2, offsets, sizeof offsets);
    espl_peer_free(&matrix);
}

static void test_tca_bme__by_hand(void **state)
{
    (void)state;
    int8_t codes[64 * 65] = {0};
    codes[0] = 1;             /* bitmap 0, bit 0 */
    codes[8 * 65 + 1] = 2;    /* down first: bitmap 1, bit 1 */
    codes[1 * 65 + 8] = 3;    /* then right: bitmap 2, bit 8 */
    codes[9 * 65 + 9] = 4;    /* bitmap 3, bit 9 */
    codes[0 * 65 + 16] = 5;   /* next block: bitmap 4 */
    codes[16 * 65 + 63] = -1; /* second median tile, fourth block, top right: 16 + 12 + 2 */
    codes[63 * 65 + 64] = -2; /* second global tile, fourth median tile */
    uint64_t bitmaps[128] = {0};
    bitmaps[0] = 1;
    bitmaps[1] = 1u << 1;
    bitmaps[2] = 1u << 8;
    bitmaps[3] = 1u << 9;
    bitmaps[4] = 1;
    bitmaps[30] = 1u << 7;
    bitmaps[64 + 48 + 1] = UINT64_C(1) << 56;
    static const uint8_t values[32] = {0x21, 0x43, 0xF5, [16] = 0x0E};
    static const uint32_t global_offsets[3] = {0, 1, 2};
    static const uint32_t median_offsets[8] = {0, 5, 6, 6, 0, 0, 0, 0};
    struct espl_peer_matrix matrix;
    encode(ESPL_PEER_TCA_BME, codes, 64, 65, 4, &matrix);
    expect_section(&matrix, 0, values, sizeof values);
    expect_section(&matrix, 1, bitmaps, sizeof bitmaps);
    expect_section(&matrix, 2, global_offsets, sizeof global_offsets);
    expect_section(&matrix, 3, median_offsets, sizeof median_offsets);
    espl_peer_free(&matrix);
}

static void test_round_trip__all_formats(void **state)
{
    (void)state;
    static const unsigned widths[3] = {2, 4, 8};
    struct espl_rng rng = espl_rng_stream(13, "peers", 0);
    for (unsigned n = 0; n < 360; n++) {
        struct espl_error err;
        struct espl_peer_matrix matrix;
        size_t sections[ESPL_PEER_SECTIONS];
        uint64_t bytes = 0;
        uint64_t stored = 0;
        const enum espl_peer_format format = (enum espl_peer_format)(n % ESPL_PEER_FORMATS);
        const unsigned bits = widths[n / ESPL_PEER_FORMATS % 3];
        const size_t rows = 1 + (size_t)espl_rng_below(&rng, 150);
        const size_t cols = 1 + (size_t)espl_rng_below(&rng, 150);
        int8_t *codes = fixture_codes(&rng, rows, cols, bits, espl_rng_unit(&rng));
        int8_t *decoded = malloc(rows * cols);
        assert_non_null(decoded);
        encode(format, codes, rows, cols, bits, &matrix);
        assert_int_equal(espl_peer_plan(format, codes, rows, cols, bits, sections, &bytes, &err),
                         ESPL_OK);
        for (size_t s = 0; s < ESPL_PEER_SECTIONS; s++) {
            assert_int_equal(sections[s], matrix.section_bytes[s]);
            stored += matrix.section_bytes[s];
        }
        assert_int_equal(stored, bytes);
        if (espl_peer_decode(&matrix, decoded, &err) != ESPL_OK) {
            fail_msg("%s", err.message);
        }
        assert_memory_equal(decoded, codes, rows * cols);
        espl_peer_free(&matrix);
        free(decoded);
        free(codes);
    }
}

/* Refused or decoded to other codes; never a step outside the arrays. */
static void test_decode__survives_damage(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(14, "peer-damage", 0);
    unsigned refused = 0;
    for (unsigned n = 0; n < 6000; n++) {
        struct espl_error err;
        struct espl_peer_matrix matrix;
        int8_t codes[70 * 70];
        fixture_fill_codes(&rng, codes, sizeof codes, 4, 0.7);
        encode((enum espl_peer_format)(n % ESPL_PEER_FORMATS), codes, 70, 70, 4, &matrix);
        const size_t s = (size_t)espl_rng_below(&rng, ESPL_PEER_SECTIONS);
        if (matrix.section_bytes[s] > 0 && n % 4 != 0) {
            matrix.section[s][espl_rng_below(&rng, matrix.section_bytes[s])] ^=
                (uint8_t)(1u << espl_rng_below(&rng, 8));
        } else if (n % 8 == 0) {
            matrix.section_bytes[s] /= 2;
        } else {
            matrix.cols = 1 + (size_t)espl_rng_below(&rng, 70);
        }
        if (espl_peer_decode(&matrix, codes, &err) != ESPL_OK) {
            assert_int_equal(err.code, ESPL_E_CORRUPT);
            refused++;
        }
        espl_peer_free(&matrix);
    }
    assert_true(refused > 1000);
}

static void test_plan__refuses(void **state)
{
    (void)state;
    struct espl_error err;
    size_t sections[ESPL_PEER_SECTIONS];
    uint64_t bytes = 0;
    static const int8_t codes[65537] = {0};
    assert_int_equal(espl_peer_plan(ESPL_PEER_CSR16, codes, 1, 65537, 4, sections, &bytes, &err),
                     ESPL_E_UNSUPPORTED);
    assert_int_equal(espl_peer_plan(ESPL_PEER_CSR16, codes, 1, 65536, 4, sections, &bytes, &err),
                     ESPL_OK);
    assert_int_equal(espl_peer_plan(ESPL_PEER_DENSE, codes, 1, 8, 3, sections, &bytes, &err),
                     ESPL_E_UNSUPPORTED);
    assert_int_equal(espl_peer_plan(ESPL_PEER_DENSE, codes, 0, 8, 4, sections, &bytes, &err),
                     ESPL_E_UNSUPPORTED);
    assert_int_equal(
        espl_peer_plan((enum espl_peer_format)6, codes, 1, 8, 4, sections, &bytes, &err),
        ESPL_E_UNSUPPORTED);
    assert_string_equal(espl_peer_name(ESPL_PEER_TCA_BME), "tca-bme");
    assert_null(espl_peer_name((enum espl_peer_format)6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense_and_csr__by_hand),
        cmocka_unit_test(test_tiled_csl__by_hand),
        cmocka_unit_test(test_tca_bme__by_hand),
        cmocka_unit_test(test_round_trip__all_formats),
        cmocka_unit_test(test_decode__survives_damage),
        cmocka_unit_test(test_plan__refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

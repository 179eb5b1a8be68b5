/* The device layout: single weights at the documented bytes, sizes as measured on the prototype,
 * round trips, refusals. */
#include "kernels/iebme_fixture.h"
#include "support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void encode_device(const int8_t *codes, size_t rows, size_t cols, enum espl_iebme_areas unit,
                          size_t slice, struct espl_iebme_device *device)
{
    struct espl_error err;
    struct espl_iebme_plan plan;
    struct espl_iebme_matrix matrix = {.masks = NULL};
    const struct espl_iebme_layout layout = {rows, cols, 4, ESPL_IEBME_AUTO, ESPL_IEBME_SCOPE_NONE};
    fixture_encode(codes, &layout, NULL, &plan, &matrix);
    if (espl_iebme_device_encode(&matrix, unit, slice, device, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    espl_iebme_matrix_free(&matrix);
}

/* The only bytes of data that are not 0 are those listed, in ascending order. */
static void expect_bytes(const struct espl_iebme_device *device, const size_t (*expected)[2],
                         size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < device->data_bytes; i++) {
        if (device->data[i] != 0) {
            if (found >= count) {
                fail_msg("byte %zu is not 0", i);
                return;
            }
            assert_int_equal(i, expected[found][0]);
            assert_int_equal(device->data[i], expected[found][1]);
            found++;
        }
    }
    assert_int_equal(found, count);
}

static void test_1x1__bytes_as_documented(void **state)
{
    (void)state;
    struct espl_iebme_device device = {.index = NULL};
    int8_t codes[16 * 512] = {0};
    codes[2 * 512 + 32 * 3 + 8 * 1 + 5] = 5;   /* row 2: g = 2, block 3, t = 1, bit 5: lane 9 */
    codes[10 * 512 + 32 * 3 + 8 * 1 + 0] = -3; /* row g + 8 of the same lane and block */
    encode_device(codes, 16, 512, ESPL_IEBME_1X1, 0, &device);
    assert_int_equal(device.slice, 512);
    assert_int_equal(device.chunks, 1);
    assert_int_equal(device.index[0], 0);
    assert_int_equal(device.index[1], 9); /* 1024 bytes of masks, one row of words */
    assert_int_equal(device.data_bytes, 9 * 128 + 256);
    /* block 3 is in word 1, bytes 2 (row g) and 3 (row g + 8); words 0..3 of lane 9 start at 144;
     * stream: nibble 0 = 5, nibble 1 = -3, in word 0 of lane 9 */
    const size_t expected[][2] = {
        {16 * 9 + 4 + 2, 1u << 5}, {16 * 9 + 4 + 3, 1u << 0}, {1024 + 4 * 9, 0xD5}};
    expect_bytes(&device, expected, 3);
    espl_iebme_device_free(&device);
}

static void test_1x1__far_words_as_documented(void **state)
{
    (void)state;
    struct espl_iebme_device device = {.index = NULL};
    int8_t codes[16 * 512] = {0};
    for (size_t c = 0; c < 9; c++) { /* nine weights of lane 31: row 7 and t = 3; blocks 0 and 8 */
        codes[7 * 512 + (c < 8 ? 24 + c : 32 * 8 + 24)] = 1;
    }
    encode_device(codes, 16, 512, ESPL_IEBME_1X1, 512, &device);
    assert_int_equal(device.index[1], 10);
    /* block 8 is word 4: the second group of four, 512 bytes on; nibble 8 is in word 1 */
    const size_t expected[][2] = {{16 * 31, 0xFF},           {512 + 16 * 31, 1},
                                  {1024 + 4 * 31, 0x11},     {1024 + 4 * 31 + 1, 0x11},
                                  {1024 + 4 * 31 + 2, 0x11}, {1024 + 4 * 31 + 3, 0x11},
                                  {1024 + 128 + 4 * 31, 1}};
    expect_bytes(&device, expected, 7);
    espl_iebme_device_free(&device);
}

static void test_1x2__bytes_as_documented(void **state)
{
    (void)state;
    struct espl_iebme_device device = {.index = NULL};
    int8_t codes[16 * 256] = {0};
    codes[1 * 256 + 64 * 2 + 8 * 2 + 6] = 7;       /* row 1, block 2 of 64, lane 6, bit 6 */
    codes[1 * 256 + 64 * 2 + 32 + 8 * 2 + 6] = -1; /* its pair, 32 columns on */
    codes[8 * 256 + 64 * 3 + 32] = 2;              /* row 8: lane 0, block 3, high nibble alone */
    encode_device(codes, 16, 256, ESPL_IEBME_1X2, 0, &device);
    assert_int_equal(device.slice, 256);
    assert_int_equal(device.index[1], 3); /* 256 bytes of masks, one row of words */
    const size_t expected[][2] = {
        {0 * 8 + 4 + 3, 1}, {6 * 8 + 4 + 0, 1u << 6}, {256, 0x20}, {256 + 4 * 6, 0xF7}};
    expect_bytes(&device, expected, 4);
    espl_iebme_device_free(&device);
}

static void test_2x1__bytes_as_documented(void **state)
{
    (void)state;
    struct espl_iebme_device device = {.index = NULL};
    int8_t codes[16 * 512] = {0};
    codes[3 * 512 + 32 * 5 + 8 * 1 + 2] = 4;   /* row 3, block 5: lane 13, bit 2: low nibble */
    codes[11 * 512 + 32 * 5 + 8 * 1 + 2] = -2; /* row 11, the same position: high nibble */
    codes[11 * 512 + 32 * 6 + 8 * 1 + 7] = 1;  /* row 11 alone, block 6, bit 7 */
    encode_device(codes, 16, 512, ESPL_IEBME_2X1, 0, &device);
    assert_int_equal(device.index[1], 5); /* 512 bytes of masks, one row of words */
    /* a byte a block: blocks 5 and 6 are bytes 1 and 2 of word 1, lane 13 */
    const size_t expected[][2] = {{16 * 13 + 4 + 1, 1u << 2},
                                  {16 * 13 + 4 + 2, 1u << 7},
                                  {512 + 4 * 13, 0xE4},
                                  {512 + 4 * 13 + 1, 0x10}};
    expect_bytes(&device, expected, 4);
    espl_iebme_device_free(&device);
}

static void test_2x2__bytes_as_documented(void **state)
{
    (void)state;
    struct espl_iebme_device device = {.index = NULL};
    int8_t codes[16 * 512] = {0};
    /* block 1 of 64, lane 9 (row 2, t = 1), bit 0: one position, four weights */
    codes[2 * 512 + 64 + 8] = 1;
    codes[10 * 512 + 64 + 8] = 2;
    codes[2 * 512 + 96 + 8] = 3;
    codes[10 * 512 + 96 + 8] = 4;
    for (size_t c = 0; c < 4; c++) { /* four more positions: the fifth begins a second word */
        codes[2 * 512 + 128 + 8 + c] = 5;
    }
    encode_device(codes, 16, 512, ESPL_IEBME_2X2, 0, &device);
    assert_int_equal(device.index[1], 6); /* 256 bytes of masks, two words of two streams */
    /* two words a lane: word 0, bytes 1 and 2; stream words alternate */
    const size_t expected[][2] = {{8 * 9 + 1, 1},
                                  {8 * 9 + 2, 15},
                                  {256 + 4 * 9, 0x21},
                                  {256 + 4 * 9 + 1, 5},
                                  {256 + 4 * 9 + 2, 5},
                                  {256 + 4 * 9 + 3, 5},
                                  {256 + 128 + 4 * 9, 0x43},
                                  {256 + 256 + 4 * 9, 5}};
    expect_bytes(&device, expected, 8);
    espl_iebme_device_free(&device);
}

static void test_dense__bytes_as_documented(void **state)
{
    (void)state;
    struct espl_iebme_device device = {.index = NULL};
    int8_t codes[17 * 256] = {0};
    codes[0] = 1;                          /* lane 0, word 0, byte 0, low */
    codes[4] = 2;                          /* the same byte, high */
    codes[13 * 256 + 32 * 2 + 8 + 3] = -8; /* row 13: g = 5, second row; block 2, t = 1: lane 21 */
    codes[16 * 256 + 7] = 3;               /* next stripe: chunk 1, lane 0, byte 3, high */
    encode_device(codes, 17, 256, ESPL_IEBME_DENSE, 256, &device);
    assert_int_equal(device.chunks, 2);
    assert_int_equal(device.index[2], 16); /* 2048 bytes a chunk */
    assert_int_equal(device.index[3], 16);
    /* word 2 * 2 + 1 = 5: second group of four, place 1 */
    const size_t expected[][2] = {{0, 0x21}, {512 + 16 * 21 + 4 * 1 + 3, 0x08}, {2048 + 3, 0x30}};
    expect_bytes(&device, expected, 3);
    espl_iebme_device_free(&device);
}

static void test_sizes__as_the_prototype_measured(void **state)
{
    (void)state;
    enum { ROWS = 256, COLS = 8192 };
    static const struct {
        enum espl_iebme_areas unit;
        double sparsity, bits;
    } measured[] = {
        {ESPL_IEBME_1X1, 0.4, 3.71}, {ESPL_IEBME_1X1, 0.5, 3.31}, {ESPL_IEBME_1X1, 0.6, 2.91},
        {ESPL_IEBME_1X1, 0.7, 2.50}, {ESPL_IEBME_1X2, 0.4, 4.16}, {ESPL_IEBME_1X2, 0.5, 3.85},
        {ESPL_IEBME_1X2, 0.6, 3.45}, {ESPL_IEBME_1X2, 0.7, 2.95}, {ESPL_IEBME_DENSE, 0.5, 4.00},
    };
    struct espl_rng rng = espl_rng_stream(10, "device-sizes", 0);
    for (size_t i = 0; i < sizeof measured / sizeof measured[0]; i++) {
        struct espl_iebme_device device = {.index = NULL};
        int8_t *codes = fixture_codes(&rng, ROWS, COLS, 4, measured[i].sparsity);
        encode_device(codes, ROWS, COLS, measured[i].unit, 512, &device);
        const double bits =
            8.0 * (double)(device.data_bytes - ESPL_IEBME_DEVICE_TAIL) / (ROWS * COLS);
        if (fabs(bits - measured[i].bits) > 0.01 * measured[i].bits) {
            fail_msg("%.3f bits a weight, measured %.2f", bits, measured[i].bits);
        }
        espl_iebme_device_free(&device);
        free(codes);
    }
}

/* Each chunk in the form that was made for it, and in the bytes that this form takes alone. */
static void test_mixed__each_chunk_in_its_smallest_form(void **state)
{
    (void)state;
    static const enum espl_iebme_areas kinds[5] = {ESPL_IEBME_1X1, ESPL_IEBME_1X2, ESPL_IEBME_2X1,
                                                   ESPL_IEBME_2X2, ESPL_IEBME_DENSE};
    enum { STRIPES = 3, SLICES = 5, ROWS = STRIPES * 16, COLS = SLICES * 512 };
    struct espl_rng rng = espl_rng_stream(13, "device-mixed", 0);
    struct espl_iebme_device mixed = {.index = NULL};
    struct espl_iebme_device alone[5] = {{.index = NULL}};
    int8_t *codes = fixture_patchwork(&rng, ROWS, COLS);
    int8_t *decoded = malloc(ROWS * COLS);
    assert_non_null(decoded);
    encode_device(codes, ROWS, COLS, ESPL_IEBME_MIXED, 0, &mixed);
    for (size_t k = 0; k < 5; k++) {
        encode_device(codes, ROWS, COLS, kinds[k], 0, &alone[k]);
    }
    for (size_t c = 0; c < STRIPES * SLICES; c++) {
        const size_t k = (c / SLICES + c % SLICES) % 5;
        const uint32_t word = mixed.index[2 * c + 1];
        assert_int_equal(word >> 24, kinds[k]);
        assert_int_equal(word & 0xFFFFFF, alone[k].index[2 * c + 1]);
        assert_int_equal(espl_iebme_device_length(word), word & 0xFFFFFF);
        assert_memory_equal(mixed.data + (size_t)mixed.index[2 * c] * 128,
                            alone[k].data + (size_t)alone[k].index[2 * c] * 128,
                            (size_t)(word & 0xFFFFFF) * 128);
    }
    assert_int_equal(espl_iebme_device_decode(&mixed, decoded, NULL), ESPL_OK);
    assert_memory_equal(decoded, codes, ROWS * COLS);
    mixed.index[7] = (mixed.index[7] & 0xFFFFFF) | 5u << 24; /* 2x4 */
    assert_int_equal(espl_iebme_device_decode(&mixed, decoded, NULL), ESPL_E_CORRUPT);
    for (size_t k = 0; k < 5; k++) {
        espl_iebme_device_free(&alone[k]);
    }
    espl_iebme_device_free(&mixed);
    free(decoded);
    free(codes);
}

static void test_round_trip__back_to_the_canonical_bytes(void **state)
{
    (void)state;
    static const enum espl_iebme_areas units[6] = {ESPL_IEBME_1X1,   ESPL_IEBME_1X2,
                                                   ESPL_IEBME_2X1,   ESPL_IEBME_2X2,
                                                   ESPL_IEBME_DENSE, ESPL_IEBME_MIXED};
    static const size_t slices[3] = {0, 256, 512};
    struct espl_rng rng = espl_rng_stream(11, "device-round-trip", 0);
    for (unsigned n = 0; n < 300; n++) {
        struct espl_iebme_plan plan;
        struct espl_iebme_matrix matrix;
        struct espl_iebme_matrix again;
        struct espl_iebme_device device = {.index = NULL};
        const struct espl_iebme_layout layout = {
            1 + (size_t)espl_rng_below(&rng, 40), 1 + (size_t)espl_rng_below(&rng, 1200), 4,
            (enum espl_iebme_areas)espl_rng_below(&rng, ESPL_IEBME_AUTO + 1),
            (enum espl_iebme_scope)espl_rng_below(&rng, 3)};
        int8_t *codes = fixture_codes(&rng, layout.rows, layout.cols, 4,
                                      n % 10 == 0 ? 1.0 : espl_rng_unit(&rng));
        uint64_t *orders = fixture_orders(&rng, &layout);
        int8_t *decoded = malloc(layout.rows * layout.cols);
        assert_non_null(decoded);
        fixture_encode(codes, &layout, orders, &plan, &matrix);
        assert_int_equal(
            espl_iebme_device_encode(&matrix, units[n % 6], slices[n / 6 % 3], &device, NULL),
            ESPL_OK);
        assert_int_equal((uintptr_t)device.data % 128, 0);
        memset(decoded, 99, layout.rows * layout.cols);
        assert_int_equal(espl_iebme_device_decode(&device, decoded, NULL), ESPL_OK);
        assert_memory_equal(decoded, codes, layout.rows * layout.cols);
        fixture_encode(decoded, &plan.layout, matrix.orders, &plan, &again);
        assert_int_equal(again.value_bytes, matrix.value_bytes);
        assert_memory_equal(again.masks, matrix.masks, matrix.mask_words * sizeof *matrix.masks);
        assert_memory_equal(again.values, matrix.values, matrix.value_bytes);
        assert_memory_equal(again.offsets, matrix.offsets,
                            matrix.offset_count * sizeof *matrix.offsets);
        espl_iebme_device_free(&device);
        espl_iebme_matrix_free(&again);
        espl_iebme_matrix_free(&matrix);
        free(decoded);
        free(orders);
        free(codes);
    }
}

static void test_decode__refuses_damage(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(12, "device-damage", 0);
    unsigned refused = 0;
    for (unsigned n = 0; n < 3000; n++) {
        struct espl_iebme_device device = {.index = NULL};
        int8_t codes[20 * 300];
        const enum espl_iebme_areas unit = n % 5 == 0   ? ESPL_IEBME_MIXED
                                           : n % 2 != 0 ? ESPL_IEBME_1X1
                                                        : ESPL_IEBME_1X2;
        fixture_fill_codes(&rng, codes, sizeof codes, 4, 0.5);
        encode_device(codes, 20, 300, unit, 256, &device);
        if (n % 3 == 0) {
            device.index[espl_rng_below(&rng, 2 * device.chunks)] ^=
                1u << espl_rng_below(&rng, n % 2 != 0 ? 4 : 32);
        } else if (n % 3 == 1) { /* masks fuller than the payload behind them */
            memset(device.data, 0xFF, 64);
        } else {
            device.data_bytes -= 128 * (1 + (size_t)espl_rng_below(&rng, 3));
        }
        if (espl_iebme_device_decode(&device, codes, NULL) != ESPL_OK) {
            refused++;
        }
        espl_iebme_device_free(&device);
    }
    assert_true(refused > 2000);
}

static void test_encode__refuses(void **state)
{
    (void)state;
    struct espl_error err;
    struct espl_iebme_plan plan;
    struct espl_iebme_matrix matrix;
    struct espl_iebme_device device = {.index = NULL};
    int8_t codes[64] = {1};
    struct espl_iebme_layout layout = {1, 64, 8, ESPL_IEBME_1X1, ESPL_IEBME_SCOPE_NONE};
    fixture_encode(codes, &layout, NULL, &plan, &matrix);
    assert_int_equal(espl_iebme_device_encode(&matrix, ESPL_IEBME_1X1, 0, &device, &err),
                     ESPL_E_UNSUPPORTED);
    assert_string_equal(err.message, "the device layout holds 4-bit codes, not 8");
    espl_iebme_matrix_free(&matrix);
    layout.bits = 4;
    fixture_encode(codes, &layout, NULL, &plan, &matrix);
    assert_int_equal(espl_iebme_device_encode(&matrix, ESPL_IEBME_4X4, 0, &device, &err),
                     ESPL_E_UNSUPPORTED);
    assert_int_equal(espl_iebme_device_encode(&matrix, ESPL_IEBME_1X1, 128, &device, &err),
                     ESPL_E_UNSUPPORTED);
    assert_null(device.data);
    espl_iebme_matrix_free(&matrix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_1x1__bytes_as_documented),
        cmocka_unit_test(test_1x1__far_words_as_documented),
        cmocka_unit_test(test_1x2__bytes_as_documented),
        cmocka_unit_test(test_2x1__bytes_as_documented),
        cmocka_unit_test(test_2x2__bytes_as_documented),
        cmocka_unit_test(test_dense__bytes_as_documented),
        cmocka_unit_test(test_sizes__as_the_prototype_measured),
        cmocka_unit_test(test_mixed__each_chunk_in_its_smallest_form),
        cmocka_unit_test(test_round_trip__back_to_the_canonical_bytes),
        cmocka_unit_test(test_decode__refuses_damage),
        cmocka_unit_test(test_encode__refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

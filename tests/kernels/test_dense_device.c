/* Dense weights in the order of the GPU kernels: single codes at the documented bytes, round trips,
 * refusals. */
#include "espalier/dense_device.h"
#include "kernels/iebme_fixture.h"
#include "support/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

static void encode(const int8_t *codes, size_t rows, size_t cols, unsigned bits,
                   struct espl_dense_device *device)
{
    struct espl_error err;
    if (espl_dense_device_encode(codes, rows, cols, bits, device, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
}

/* The only bytes that differ from `filler` are those listed, in ascending order. */
static void expect_bytes(const struct espl_dense_device *device, uint8_t filler,
                         const size_t (*expected)[2], size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < device->data_bytes; i++) {
        if (device->data[i] != filler) {
            assert_true(found < count);
            assert_int_equal(i, expected[found][0]);
            assert_int_equal(device->data[i], expected[found][1]);
            found++;
        }
    }
    assert_int_equal(found, count);
}

static void test_int4__bytes_as_documented(void **state)
{
    (void)state;
    struct espl_dense_device device = {.data = NULL};
    int8_t codes[17 * 300] = {0};
    codes[0] = -3;                   /* row 0: lane 0, low nibble, stored + 8 */
    codes[8 * 300 + 0] = -3;         /* row 8: high nibble of the same byte */
    codes[2 * 300 + 4] = 1;          /* row 2, block 0, late column 0: lane 8, word 1 */
    codes[2 * 300 + 32] = 2;         /* row 2, block 1, early column 0: lane 8, word 2 */
    codes[5 * 300 + 32 * 3 + 6] = 7; /* row 5, block 3, late column 2: lane 20, word 3 */
    codes[16 * 300 + 256 + 8] = 1;   /* second stripe, second unit, t = 1 */
    encode(codes, 17, 300, 4, &device);
    assert_int_equal(device.stripes, 2);
    assert_int_equal(device.depth, 2);
    assert_int_equal(device.data_bytes, 4 * 2048);
    const size_t expected[][2] = {{0, 0xD5},
                                  {16 * 8 + 4, 9},
                                  {16 * 8 + 8, 10},
                                  {512 + 16 * 20 + 4 * 3 + 2, 15},
                                  {3 * 2048 + 16, 9}};
    expect_bytes(&device, 8, expected, 5);
    espl_dense_device_free(&device);
}

static void test_int2_and_int3__bytes_as_documented(void **state)
{
    (void)state;
    struct espl_dense_device device = {.data = NULL};
    int8_t codes[16 * 256] = {0};
    codes[1 * 256 + 32 * 5 + 1] = -2; /* row 1, block 5: lane 4, second group, word 1, bits 0-1 */
    codes[9 * 256 + 32 * 5 + 5] = 1;  /* row 9, late column 1: bits 6-7 of the same byte */
    codes[2 * 256 + 4] = 1;           /* row 2, late column 0: lane 8, bits 2-3 */
    codes[10 * 256 + 1] = -1;         /* row 10, early column 1: lane 8, bits 4-5 */
    encode(codes, 16, 256, 2, &device);
    assert_int_equal(device.data_bytes, 1024);
    const size_t expected2[][2] = {
        {16 * 8, 1u << 2}, {16 * 8 + 1, 3u << 4}, {512 + 16 * 4 + 4 + 1, 0x42}};
    expect_bytes(&device, 0, expected2, 3);
    espl_dense_device_free(&device);

    codes[1 * 256 + 32 * 5 + 1] = -3; /* 101: high bits 10, low bit 1 */
    codes[9 * 256 + 32 * 5 + 5] = 2;  /* 010: high bits 01, low bit 0 */
    codes[2 * 256 + 4] = 1;           /* 001: low bit alone, row 2, late: bit 1 of lane 8's word */
    codes[10 * 256 + 1] = 1;          /* 001, row 10, early column 1: bit 2 of the next byte */
    encode(codes, 16, 256, 3, &device);
    assert_int_equal(device.data_bytes, 1536);
    const size_t expected3[][2] = {{512 + 16 * 4 + 4 + 1, 0x42},
                                   {1024 + 16 * 4 + 8 + 1, 1u << 4},
                                   {1024 + 16 * 8, 1u << 1},
                                   {1024 + 16 * 8 + 1, 1u << 2}};
    expect_bytes(&device, 0, expected3, 4);
    espl_dense_device_free(&device);
}

static void test_round_trip__any_shape(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(31, "dense-device", 0);
    for (unsigned n = 0; n < 90; n++) {
        struct espl_dense_device device = {.data = NULL};
        const unsigned bits = 2 + n % 3;
        const size_t rows = 1 + (size_t)espl_rng_below(&rng, 50);
        const size_t cols = 1 + (size_t)espl_rng_below(&rng, 900);
        int8_t *codes = fixture_codes(&rng, rows, cols, bits, espl_rng_unit(&rng));
        int8_t *decoded = malloc(rows * cols);
        assert_non_null(decoded);
        encode(codes, rows, cols, bits, &device);
        assert_int_equal((uintptr_t)device.data % 128, 0);
        espl_dense_device_decode(&device, decoded);
        assert_memory_equal(decoded, codes, rows * cols);
        espl_dense_device_free(&device);
        free(decoded);
        free(codes);
    }
}

static void test_refusals__say_what_does_not_fit(void **state)
{
    (void)state;
    struct espl_error err;
    struct espl_dense_device device = {.data = NULL};
    const int8_t codes[2] = {1, 4};
    assert_int_equal(espl_dense_device_encode(codes, 1, 2, 5, &device, &err), ESPL_E_UNSUPPORTED);
    assert_int_equal(espl_dense_device_encode(codes, 0, 2, 4, &device, &err), ESPL_E_UNSUPPORTED);
    assert_int_equal(espl_dense_device_encode(codes, 1, 2, 3, &device, &err), ESPL_E_CORRUPT);
    assert_string_equal(err.message, "code 4 at row 0, column 1 does not fit in 3 bits");
    const int8_t low[2] = {-4, -5};
    assert_int_equal(espl_dense_device_encode(low, 1, 2, 3, &device, &err), ESPL_E_CORRUPT);
    assert_string_equal(err.message, "code -5 at row 0, column 1 does not fit in 3 bits");
    assert_null(device.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_int4__bytes_as_documented),
        cmocka_unit_test(test_int2_and_int3__bytes_as_documented),
        cmocka_unit_test(test_round_trip__any_shape),
        cmocka_unit_test(test_refusals__say_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

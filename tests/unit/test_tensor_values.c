#include "cli/tensor_values.h"

#include "support/test_folder.h"

#include <math.h>
#include <string.h>

/* An artifact with one dataset "/x", open for reading. */
static struct espl_artifact *make(const char *name, const struct espl_tensor_info *info,
                                  const void *data)
{
    char path[ESPL_PATH_MAX];
    struct espl_artifact *artifact = NULL;
    assert_int_equal(espl_fs_join(path, test_folder, name, NULL), ESPL_OK);
    assert_int_equal(espl_artifact_create(path, "unit/1", &artifact, NULL), ESPL_OK);
    assert_int_equal(espl_artifact_write(artifact, info, data, NULL), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, NULL, NULL), ESPL_OK);
    assert_int_equal(espl_artifact_open(path, &artifact, NULL), ESPL_OK);
    return artifact;
}

static struct espl_artifact *make_f32(const char *name, const float *values, uint64_t rows,
                                      uint64_t cols)
{
    const uint64_t shape[] = {rows, cols};
    const struct espl_tensor_info info = espl_tensor_info_make("/x", ESPL_DTYPE_F32, 2, shape);
    return make(name, &info, values);
}

static void test_measure__counts_and_range(void **state)
{
    (void)state;
    static const float values[] = {0.0f, -2.0f, 3.0f, NAN, INFINITY, -0.0f};
    struct espl_artifact *artifact = make_f32("a.h5", values, 2, 3);
    struct espl_tensor_stats stats;
    assert_int_equal(
        espl_tensor_measure(artifact, espl_artifact_find(artifact, "/x"), &stats, NULL), ESPL_OK);
    assert_int_equal(stats.count, 6);
    assert_int_equal(stats.nonzero, 4); /* NaN and infinity are not zero */
    assert_int_equal(stats.nan, 1);
    assert_int_equal(stats.infinite, 1);
    assert_true(stats.min == -2.0 && stats.max == 3.0);
    assert_true(stats.mean == 0.25); /* (0 - 2 + 3 - 0) / 4 finite values */
    espl_artifact_close(artifact);
}

static void test_first_values__of_every_type(void **state)
{
    (void)state;
    static const struct {
        enum espl_dtype dtype;
        unsigned char bytes[16]; /* two elements, little-endian */
        double values[2];
    } cases[] = {
        {ESPL_DTYPE_U8, {200, 1}, {200, 1}},
        {ESPL_DTYPE_I8, {0xFF, 127}, {-1, 127}},
        {ESPL_DTYPE_U16, {0xFF, 0xFF, 1, 0}, {65535, 1}},
        {ESPL_DTYPE_I32, {0xFE, 0xFF, 0xFF, 0xFF, 5}, {-2, 5}},
        {ESPL_DTYPE_U32, {0xFF, 0xFF, 0xFF, 0xFF, 5}, {4294967295.0, 5}},
        {ESPL_DTYPE_I64, {0xFD, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 7}, {-3, 7}},
        {ESPL_DTYPE_U64, {0, 1, 0, 0, 0, 0, 0, 0, 7}, {256, 7}},
        {ESPL_DTYPE_F16, {0x00, 0x3E, 0x00, 0xC0}, {1.5, -2}},
        {ESPL_DTYPE_BF16, {0xC0, 0x3F, 0x00, 0xC0}, {1.5, -2}},
        {ESPL_DTYPE_F32, {0, 0, 0xC0, 0x3F, 0, 0, 0, 0xC0}, {1.5, -2}},
        {ESPL_DTYPE_F64, {0, 0, 0, 0, 0, 0, 0xF8, 0x3F, 0, 0, 0, 0, 0, 0, 0, 0xC0}, {1.5, -2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        const uint64_t shape[] = {2};
        const struct espl_tensor_info info = espl_tensor_info_make("/x", cases[i].dtype, 1, shape);
        struct espl_artifact *artifact = make("t.h5", &info, cases[i].bytes);
        double values[8];
        size_t count = 0;
        assert_int_equal(espl_tensor_first_values(artifact, espl_artifact_find(artifact, "/x"),
                                                  values, 8, &count, NULL),
                         ESPL_OK);
        assert_int_equal(count, 2);
        assert_true(values[0] == cases[i].values[0]);
        assert_true(values[1] == cases[i].values[1]);
        espl_artifact_close(artifact);
    }
}

static void test_first_words__to_the_last_bit(void **state)
{
    (void)state;
    static const uint64_t words[] = {UINT64_C(0xFEDCBA9876543211), 7};
    const uint64_t shape[] = {2};
    const struct espl_tensor_info info = espl_tensor_info_make("/x", ESPL_DTYPE_U64, 1, shape);
    struct espl_artifact *artifact = make("w.h5", &info, words);
    uint64_t read[8];
    size_t count = 0;
    assert_int_equal(espl_tensor_first_words(artifact, espl_artifact_find(artifact, "/x"), read, 8,
                                             &count, NULL),
                     ESPL_OK);
    assert_int_equal(count, 2);
    assert_memory_equal(read, words, sizeof words);
    espl_artifact_close(artifact);
}

/* Two rows of eleven bits in two bytes each; the pad bits are not elements. */
static void test_measure__bit_masks(void **state)
{
    (void)state;
    static const uint8_t mask[] = {0x01, 0x04, 0xFF, 0x07};
    const uint64_t shape[] = {2, 2};
    struct espl_tensor_info info = espl_tensor_info_make("/x", ESPL_DTYPE_U8, 2, shape);
    (void)snprintf(info.packing, sizeof info.packing, "bitmask-lsb0");
    info.logical_shape[0] = 2;
    info.logical_shape[1] = 11;
    struct espl_artifact *artifact = make("m.h5", &info, mask);
    const struct espl_tensor_info *stored = espl_artifact_find(artifact, "/x");
    struct espl_tensor_stats stats;
    double values[16];
    size_t count = 0;
    assert_int_equal(espl_tensor_measure(artifact, stored, &stats, NULL), ESPL_OK);
    assert_int_equal(stats.count, 22);
    assert_int_equal(stats.nonzero, 13); /* bits 0 and 10, then all eleven */
    assert_int_equal(espl_tensor_first_values(artifact, stored, values, 11, &count, NULL), ESPL_OK);
    assert_true(values[0] == 1.0 && values[9] == 0.0 && values[10] == 1.0);
    char shape_text[ESPL_SHAPE_TEXT];
    espl_tensor_shape_text(stored, shape_text);
    assert_string_equal(shape_text, "2 x 11");
    espl_artifact_close(artifact);
}

/* Two rows of three codes of 4 bits (low nibble first, the last nibble is padding), and of 3
 * bits. */
static void test_first_values__of_packed_rows(void **state)
{
    (void)state;
    static const struct {
        const char *packing;
        uint8_t bytes[4];
        double values[6];
    } cases[] = {
        {"int4-lsb0", {0xF7, 0x08, 0x21, 0x03}, {7, -1, -8, 1, 2, 3}},
        /* 3, -4, -1 = 011 100 111 from the lowest bit: 1 1110 0011; then 1, 2, -2: 1 1001 0001 */
        {"int3-lsb0", {0xE3, 0x01, 0x91, 0x01}, {3, -4, -1, 1, 2, -2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        const uint64_t shape[] = {2, 2};
        struct espl_tensor_info info = espl_tensor_info_make("/x", ESPL_DTYPE_U8, 2, shape);
        (void)snprintf(info.packing, sizeof info.packing, "%s", cases[i].packing);
        info.logical_shape[0] = 2;
        info.logical_shape[1] = 3;
        struct espl_artifact *artifact = make("c.h5", &info, cases[i].bytes);
        double values[8];
        size_t count = 0;
        assert_int_equal(espl_tensor_first_values(artifact, espl_artifact_find(artifact, "/x"),
                                                  values, 8, &count, NULL),
                         ESPL_OK);
        assert_int_equal(count, 6);
        assert_memory_equal(values, cases[i].values, sizeof cases[i].values);
        espl_artifact_close(artifact);
    }
}

/* A list of five 4-bit codes in three bytes: the last nibble is no element. One of 3-bit codes has
 * no whole codes in its bytes and is refused. */
static void test_measure__packed_list(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0xF7, 0x08, 0x72};
    const uint64_t shape[] = {3};
    struct espl_tensor_info info = espl_tensor_info_make("/x", ESPL_DTYPE_U8, 1, shape);
    (void)snprintf(info.packing, sizeof info.packing, "int4-lsb0");
    info.logical_shape[0] = 5;
    struct espl_artifact *artifact = make("l.h5", &info, bytes);
    struct espl_tensor_stats stats;
    assert_int_equal(
        espl_tensor_measure(artifact, espl_artifact_find(artifact, "/x"), &stats, NULL), ESPL_OK);
    assert_int_equal(stats.count, 5);
    assert_int_equal(stats.nonzero, 4); /* 7, -1, -8, 0, 2 */
    assert_true(stats.min == -8.0 && stats.max == 7.0 && stats.mean == 0.0);
    espl_artifact_close(artifact);
    (void)snprintf(info.packing, sizeof info.packing, "int3-lsb0");
    artifact = make("l.h5", &info, bytes);
    assert_int_equal(
        espl_tensor_measure(artifact, espl_artifact_find(artifact, "/x"), &stats, NULL),
        ESPL_E_UNSUPPORTED);
    espl_artifact_close(artifact);
}

static void test_compare__counts_and_largest(void **state)
{
    (void)state;
    static const float a[] = {1.0f, 2.0f, NAN, 4.0f, 0.0f, 6.0f};
    static const float b[] = {1.0f, 2.5f, NAN, 1.0f, -0.0f, 6.0f};
    struct espl_artifact *one = make_f32("a.h5", a, 3, 2);
    struct espl_artifact *two = make_f32("b.h5", b, 3, 2);
    struct espl_tensor_difference difference;
    assert_int_equal(espl_tensor_compare(one, espl_artifact_find(one, "/x"), two,
                                         espl_artifact_find(two, "/x"), &difference, NULL),
                     ESPL_OK);
    assert_int_equal(difference.count, 6);
    assert_int_equal(difference.differing, 2);
    assert_true(difference.max_abs == 3.0);
    espl_artifact_close(one);
    espl_artifact_close(two);
}

static void test_compare__nan_against_a_number_is_infinite(void **state)
{
    (void)state;
    static const float a[] = {NAN};
    static const float b[] = {1.0f};
    struct espl_artifact *one = make_f32("a.h5", a, 1, 1);
    struct espl_artifact *two = make_f32("b.h5", b, 1, 1);
    struct espl_tensor_difference difference;
    assert_int_equal(espl_tensor_compare(one, espl_artifact_find(one, "/x"), two,
                                         espl_artifact_find(two, "/x"), &difference, NULL),
                     ESPL_OK);
    assert_int_equal(difference.differing, 1);
    assert_true(isinf(difference.max_abs));
    espl_artifact_close(one);
    espl_artifact_close(two);
}

static struct espl_artifact *make_words(const char *name, enum espl_dtype dtype,
                                        const uint64_t words[3])
{
    const uint64_t shape[] = {3};
    const struct espl_tensor_info info = espl_tensor_info_make("/x", dtype, 1, shape);
    return make(name, &info, words);
}

/* Masks and row orders differ in bits that a double does not hold. */
static void test_compare__words_to_the_last_bit(void **state)
{
    (void)state;
    static const uint64_t a[] = {UINT64_C(0xfedcba9876543210), 7, UINT64_MAX};
    static const struct {
        enum espl_dtype dtype;
        uint64_t last; /* of the other one */
        double largest;
    } cases[] = {{ESPL_DTYPE_U64, UINT64_MAX - 2, 15.0},
                 {ESPL_DTYPE_I64, 19, 20.0}}; /* -1 against 19 */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        const uint64_t other[] = {a[0] - 15, a[1], cases[i].last};
        struct espl_artifact *one = make_words("a.h5", cases[i].dtype, a);
        struct espl_artifact *two = make_words("b.h5", cases[i].dtype, other);
        struct espl_tensor_difference difference;
        assert_int_equal(espl_tensor_compare(one, espl_artifact_find(one, "/x"), two,
                                             espl_artifact_find(two, "/x"), &difference, NULL),
                         ESPL_OK);
        assert_int_equal(difference.count, 3);
        assert_int_equal(difference.differing, 2);
        assert_true(difference.max_abs == cases[i].largest);
        espl_artifact_close(one);
        espl_artifact_close(two);
    }
}

/* More rows than one piece holds: 600 rows of 1,000 values. */
static void test_measure__several_pieces(void **state)
{
    (void)state;
    enum { ROWS = 600, COLS = 1000 };
    static float values[ROWS * COLS];
    for (size_t i = 0; i < ROWS * COLS; ++i) {
        values[i] = i % 3 == 0 ? 0.0f : 1.0f;
    }
    values[ROWS * COLS - 1] = 9.0f;
    struct espl_artifact *artifact = make_f32("a.h5", values, ROWS, COLS);
    struct espl_tensor_stats stats;
    assert_int_equal(
        espl_tensor_measure(artifact, espl_artifact_find(artifact, "/x"), &stats, NULL), ESPL_OK);
    assert_int_equal(stats.count, 600000);
    assert_int_equal(stats.nonzero, 400000);
    assert_true(stats.max == 9.0);
    espl_artifact_close(artifact);
}

static void test_open__impossible_packings(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {1, 2};
    const uint64_t shape[] = {2};
    struct espl_tensor_info info = espl_tensor_info_make("/x", ESPL_DTYPE_U8, 1, shape);
    struct espl_artifact *artifact = make("a.h5", &info, bytes);
    struct espl_tensor_stats stats;
    struct espl_error err = {0};
    /* A mask that claims more bits than its bytes hold. */
    (void)snprintf(info.packing, sizeof info.packing, "bitmask-lsb0");
    info.logical_shape[0] = 17;
    assert_int_equal(espl_tensor_measure(artifact, &info, &stats, &err), ESPL_E_CORRUPT);
    (void)snprintf(info.packing, sizeof info.packing, "int4-pairs");
    assert_int_equal(espl_tensor_measure(artifact, &info, &stats, &err), ESPL_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "int4-pairs"));
    espl_artifact_close(artifact);
}

#define WITH_FOLDER(test) \
    cmocka_unit_test_setup_teardown(test, test_folder_set_up, test_folder_tear_down)

int main(void)
{
    espl_artifact_library_init();
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(test_measure__counts_and_range),
        WITH_FOLDER(test_first_values__of_every_type),
        WITH_FOLDER(test_first_words__to_the_last_bit),
        WITH_FOLDER(test_measure__bit_masks),
        WITH_FOLDER(test_first_values__of_packed_rows),
        WITH_FOLDER(test_measure__packed_list),
        WITH_FOLDER(test_compare__counts_and_largest),
        WITH_FOLDER(test_compare__words_to_the_last_bit),
        WITH_FOLDER(test_compare__nan_against_a_number_is_infinite),
        WITH_FOLDER(test_measure__several_pieces),
        WITH_FOLDER(test_open__impossible_packings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Decoding and resizing pictures, against Pillow; what is wrong with a picture is said. */
#include "core/fs.h"
#include "core/hash.h"
#include "datasets/image_resize.h"
#include "unit/golden_data.h"

#include "support/cmocka_all.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum espl_status decode(const char *name, struct espl_picture *picture,
                               struct espl_error *err)
{
    char path[GOLDEN_PATH];
    char member[128];
    size_t len = 0;
    (void)snprintf(member, sizeof member, "images/pictures/%s", name);
    golden_path(member, path);
    uint8_t *bytes = golden_read(path, &len);
    espl_error_clear(err);
    const enum espl_status status = espl_picture_decode(bytes, len, picture, err);
    free(bytes);
    return status;
}

static json_t *expected_json(void)
{
    char path[GOLDEN_PATH];
    golden_path("images/expected.json", path);
    json_t *json = json_load_file(path, 0, NULL);
    assert_non_null(json);
    return json;
}

static void expect_hash(const uint8_t *bytes, size_t len, const json_t *expected, const char *what)
{
    char hex[ESPL_SHA256_HEX];
    assert_int_equal(espl_sha256_bytes(bytes, len, hex, NULL), ESPL_OK);
    if (strcmp(hex, json_string_value(json_object_get(expected, "sha256"))) != 0) {
        fail_msg("%s: other pixels than Pillow's", what);
    }
}

static size_t number(const json_t *object, const char *name)
{
    return (size_t)json_integer_value(json_object_get(object, name));
}

static void test_decode(void **state)
{
    (void)state;
    json_t *json = expected_json();
    const char *name = NULL;
    json_t *item = NULL;
    size_t seen = 0;
    json_object_foreach(json_object_get(json, "decoded"), name, item)
    {
        struct espl_picture picture;
        struct espl_error err = {0};
        if (decode(name, &picture, &err) != ESPL_OK) {
            fail_msg("%s: %s", name, err.message);
        }
        assert_int_equal(picture.width, number(item, "width"));
        assert_int_equal(picture.height, number(item, "height"));
        assert_int_equal(picture.channels, number(item, "channels"));
        expect_hash(picture.pixels, picture.width * picture.height * picture.channels, item, name);
        espl_picture_free(&picture);
        seen++;
    }
    assert_int_equal(seen, 9);
    json_decref(json);
}

static void test_refusals(void **state)
{
    (void)state;
    const struct {
        const char *name;
        enum espl_status code;
        const char *message; /* its beginning */
    } bad[] = {
        {"empty.jpg", ESPL_E_CORRUPT, "the file is empty"},
        {"text.jpg", ESPL_E_UNSUPPORTED, "it is neither a JPEG nor a PNG file"},
        {"cmyk.jpg", ESPL_E_UNSUPPORTED, "it is a CMYK JPEG"},
        {"sixteen-bits.png", ESPL_E_UNSUPPORTED, "it is a PNG with 16 bits a channel"},
        {"truncated.jpg", ESPL_E_CORRUPT, "the JPEG is truncated or damaged: "},
        {"truncated.png", ESPL_E_CORRUPT, "the PNG is truncated: the file ends in the middle"},
        {"damaged.png", ESPL_E_CORRUPT, "the PNG is damaged: "},
        {"zero-size.png", ESPL_E_CORRUPT, "the PNG is damaged: "},
        {"huge.png", ESPL_E_UNSUPPORTED, "the picture is 60000 x 60000 pixels, more than "},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct espl_picture picture;
        struct espl_error err = {0};
        assert_int_equal(decode(bad[i].name, &picture, &err), bad[i].code);
        if (strncmp(err.message, bad[i].message, strlen(bad[i].message)) != 0) {
            fail_msg("%s: '%s'", bad[i].name, err.message);
        }
        assert_null(picture.pixels);
    }
}

/* Every cut of a file is an error, none of them anything worse. */
static void test_truncation(void **state)
{
    (void)state;
    static const char *const names[] = {"colour.jpg", "progressive.jpg", "palette.png",
                                        "interlaced.png"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[GOLDEN_PATH];
        char member[128];
        size_t len = 0;
        (void)snprintf(member, sizeof member, "images/pictures/%s", names[i]);
        golden_path(member, path);
        uint8_t *bytes = golden_read(path, &len);
        for (size_t cut = 0; cut + 12 < len; cut += 7) { /* a PNG's last 12 bytes hold nothing */
            struct espl_picture picture;
            uint8_t *copy = malloc(cut == 0 ? 1 : cut); /* so that reads behind it are seen */
            assert_non_null(copy);
            memcpy(copy, bytes, cut);
            assert_int_not_equal(espl_picture_decode(copy, cut, &picture, NULL), ESPL_OK);
            free(copy);
        }
        free(bytes);
    }
}

static void test_fit(void **state)
{
    (void)state;
    json_t *json = expected_json();
    const json_t *list = json_object_get(json, "fitted");
    assert_int_equal(json_array_size(list), 13);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *file = json_string_value(json_object_get(item, "file"));
        const char *filter = json_string_value(json_object_get(item, "interpolation"));
        const size_t size = number(item, "size");
        const double crop_pct = json_number_value(json_object_get(item, "crop_pct"));
        const struct espl_picture_fit fit = {
            .size = size,
            .resized = espl_picture_resized_side(size, crop_pct),
            .channels = number(item, "channels"),
            .filter = strcmp(filter, "bicubic") == 0 ? ESPL_FILTER_BICUBIC : ESPL_FILTER_BILINEAR,
        };
        struct espl_picture picture;
        struct espl_error err = {0};
        char what[160];
        uint8_t *out = malloc(size * size * fit.channels);
        assert_non_null(out);
        assert_int_equal(decode(file, &picture, &err), ESPL_OK);
        assert_int_equal(espl_picture_fit(&picture, &fit, out, &err), ESPL_OK);
        (void)snprintf(what, sizeof what, "%s to %zu at %g, %s", file, size, crop_pct, filter);
        expect_hash(out, size * size * fit.channels, item, what);
        espl_picture_free(&picture);
        free(out);
    }
    json_decref(json);
}

/* timm's and torchvision's numbers: 224 / 0.9 and 224 / 0.875, halves of a pixel to the even one.
 */
static void test_sizes(void **state)
{
    (void)state;
    assert_int_equal(espl_picture_resized_side(224, 0.9), 248);
    assert_int_equal(espl_picture_resized_side(224, 0.875), 256);
    assert_int_equal(espl_picture_resized_side(224, 1.0), 224);
    assert_int_equal(espl_picture_resized_side(384, 0.95), 404);
    /* Margins of 1, 3 and 5 pixels start at 0, 2 and 2. */
    const size_t sides[] = {11, 13, 15};
    const uint8_t firsts[] = {0, 2, 2};
    for (size_t i = 0; i < 3; i++) {
        uint8_t pixels[10 * 15];
        uint8_t out[100];
        for (size_t p = 0; p < 10 * sides[i]; p++) {
            pixels[p] = (uint8_t)(p % sides[i]);
        }
        const struct espl_picture picture = {sides[i], 10, 1, pixels};
        const struct espl_picture_fit fit = {10, 10, 1, ESPL_FILTER_BICUBIC};
        assert_int_equal(espl_picture_fit(&picture, &fit, out, NULL), ESPL_OK);
        assert_int_equal(out[0], firsts[i]);
    }
}

/* A thread of a picture would become longer than any picture may be. */
static void test_fit__too_long(void **state)
{
    (void)state;
    uint8_t pixels[2000] = {0};
    uint8_t out[100 * 100];
    struct espl_error err = {0};
    const struct espl_picture picture = {2000, 1, 1, pixels};
    const struct espl_picture_fit fit = {100, 100, 1, ESPL_FILTER_BILINEAR};
    assert_int_equal(espl_picture_fit(&picture, &fit, out, &err), ESPL_E_UNSUPPORTED);
    assert_string_equal(err.message, "the picture is 2000 x 1 pixels: with the shorter side at 100 "
                                     "the longer one is 200000, at most 65535 can be");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),     cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_truncation), cmocka_unit_test(test_fit),
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_fit__too_long),
    };
    return cmocka_run_group_tests_name("images", tests, NULL, NULL);
}

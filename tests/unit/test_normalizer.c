#include "datasets/normalizer.h"

#include "support/cmocka_all.h"
#include "token_fixture.h"

#include <stdlib.h>
#include <string.h>

/* The normalised text, in a buffer that the caller frees. */
static enum espl_status normalise(const json_t *value, const char *text, size_t len, size_t limit,
                                  struct espl_buf *out, struct espl_error *err)
{
    struct espl_normalizer *normalizer = NULL;
    espl_buf_init(out, limit);
    enum espl_status status = espl_normalizer_parse(value, &normalizer, err);
    if (status != ESPL_OK) {
        assert_null(normalizer);
        return status;
    }
    struct espl_buf spare;
    espl_buf_init(&spare, limit);
    struct espl_regex_matcher *const matcher = espl_regex_matcher_create();
    assert_non_null(matcher);
    status = espl_normalizer_apply(normalizer, matcher, text, len, out, &spare, err);
    espl_regex_matcher_destroy(matcher);
    espl_buf_free(&spare);
    espl_normalizer_destroy(normalizer);
    return status;
}

static void test_apply__equals_the_reference(void **state)
{
    (void)state;
    json_t *const root = token_fixture_json("tokenizers/normalizers.json");
    const json_t *const texts = json_object_get(root, "texts");
    const json_t *const cases = json_object_get(root, "cases");
    assert_true(json_array_size(cases) >= 15);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *const item = json_array_get(cases, i);
        const json_t *const value = json_object_get(item, "normalizer");
        for (size_t t = 0; t < json_array_size(texts); t++) {
            const json_t *const text = json_array_get(texts, t);
            const json_t *const expected = json_array_get(json_object_get(item, "results"), t);
            struct espl_error err = {0};
            struct espl_buf out;
            token_fixture_ok(normalise(value, json_string_value(text), json_string_length(text),
                                       1 << 16, &out, &err),
                             &err);
            if (out.len != json_string_length(expected) ||
                memcmp(espl_buf_text(&out), json_string_value(expected), out.len) != 0) {
                char *const asked = json_dumps(value, 0);
                fail_msg("%s on text %zu gives '%s'", asked, t, espl_buf_text(&out));
            }
            espl_buf_free(&out);
        }
    }
    json_decref(root);
}

static void expect_refusal(const char *json, enum espl_status expected, const char *part)
{
    json_t *const value = json_loads(json, 0, NULL);
    assert_non_null(value);
    struct espl_error err = {0};
    struct espl_buf out;
    const enum espl_status status = normalise(value, "a", 1, 100, &out, &err);
    if (status != expected || strstr(err.message, part) == NULL) {
        fail_msg("%s: status %d: %s", json, (int)status, err.message);
    }
    espl_buf_free(&out);
    json_decref(value);
}

static void test_parse__refuses_by_name(void **state)
{
    (void)state;
    expect_refusal("{\"type\":\"Precompiled\"}", ESPL_E_UNSUPPORTED,
                   "field 'normalizer.type' is 'Precompiled'");
    expect_refusal("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
                   "{\"type\":\"BertNormalizer\"}]}",
                   ESPL_E_UNSUPPORTED, "'normalizer.normalizers[1].type' is 'BertNormalizer'");
    expect_refusal("{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"String\":\"\"}}",
                   ESPL_E_UNSUPPORTED, "'normalizer.pattern.String' is ''");
    expect_refusal("{\"type\":\"Replace\",\"content\":\"$1\",\"pattern\":{\"Regex\":\"(a)\"}}",
                   ESPL_E_UNSUPPORTED, "'normalizer.content' is '$1'");
    expect_refusal("{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"Regex\":\"\\\\G\"}}",
                   ESPL_E_UNSUPPORTED, "unknown escape");
    expect_refusal("{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}}", ESPL_E_CORRUPT,
                   "'normalizer.content' must be a string");
    expect_refusal("{\"type\":\"Strip\",\"strip_left\":\"yes\"}", ESPL_E_CORRUPT,
                   "'normalizer.strip_left' must be true or false");
    expect_refusal("{\"type\":\"Prepend\",\"prepend\":null}", ESPL_E_CORRUPT,
                   "'normalizer.prepend' must be a string, got null");
    expect_refusal("{\"type\":\"Sequence\",\"normalizers\":{}}", ESPL_E_CORRUPT,
                   "must be an array");
}

static void test_apply__growth_is_bounded(void **state)
{
    (void)state;
    json_t *const step = json_pack("{s:s, s:s, s:{s:s}}", "type", "Replace", "content",
                                   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "pattern", "String", "a");
    json_t *const list = json_array();
    for (int i = 0; i < 20; i++) { /* 32^20 characters in the end */
        assert_int_equal(json_array_append(list, step), 0);
    }
    json_t *const value = json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", list);
    struct espl_error err = {0};
    struct espl_buf out;
    assert_int_equal(normalise(value, "a", 1, 100000, &out, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "larger than 100000 bytes"));
    espl_buf_free(&out);
    json_decref(value);
    json_decref(step);
}

static void test_moves_start(void **state)
{
    (void)state;
    struct espl_error err = {0};
    struct espl_normalizer *normalizer = NULL;
    json_t *value = json_pack("{s:s}", "type", "NFC");
    token_fixture_ok(espl_normalizer_parse(value, &normalizer, &err), &err);
    assert_false(espl_normalizer_moves_start(normalizer));
    espl_normalizer_destroy(normalizer);
    json_decref(value);
    value = json_pack("{s:s, s:s}", "type", "Prepend", "prepend", "_");
    token_fixture_ok(espl_normalizer_parse(value, &normalizer, &err), &err);
    assert_true(espl_normalizer_moves_start(normalizer));
    espl_normalizer_destroy(normalizer);
    json_decref(value);
    assert_false(espl_normalizer_moves_start(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_apply__equals_the_reference),
        cmocka_unit_test(test_parse__refuses_by_name),
        cmocka_unit_test(test_apply__growth_is_bounded),
        cmocka_unit_test(test_moves_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

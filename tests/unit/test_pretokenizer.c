#include "datasets/pretokenizer.h"

#include "support/cmocka_all.h"
#include "token_fixture.h"

#include <stdlib.h>
#include <string.h>

static const char fixture[] = "tokenizers/pre_tokenizers.json";

static enum espl_status collect_word(void *user, const char *word, size_t len,
                                     struct espl_error *err)
{
    (void)err;
    return json_array_append_new(user, json_stringn(word, len)) == 0 ? ESPL_OK : ESPL_E_NOMEM;
}

static json_t *words_of(const json_t *value, const char *text, size_t len, bool first)
{
    struct espl_error err = {0};
    struct espl_pretokenizer *chain = NULL;
    token_fixture_ok(espl_pretokenizer_parse(value, false, &chain, &err), &err);
    struct espl_regex_matcher *const matcher = espl_regex_matcher_create();
    assert_non_null(matcher);
    json_t *const words = json_array();
    struct espl_pretokenizer_run run;
    espl_pretokenizer_run_init(&run, matcher, len, collect_word, words);
    token_fixture_ok(espl_pretokenizer_apply(chain, &run, text, len, first, &err), &err);
    espl_pretokenizer_run_free(&run);
    espl_regex_matcher_destroy(matcher);
    espl_pretokenizer_destroy(chain);
    return words;
}

static void test_apply__equals_the_reference(void **state)
{
    (void)state;
    json_t *const root = token_fixture_json(fixture);
    const json_t *const texts = json_object_get(root, "texts");
    const json_t *const cases = json_object_get(root, "cases");
    assert_true(json_array_size(cases) > 70);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *const item = json_array_get(cases, i);
        const json_t *const value = json_object_get(item, "pre_tokenizer");
        for (size_t t = 0; t < json_array_size(texts); t++) {
            const json_t *const text = json_array_get(texts, t);
            json_t *const words =
                words_of(value, json_string_value(text), json_string_length(text), true);
            const json_t *const expected = json_array_get(json_object_get(item, "words"), t);
            if (!json_equal(words, expected)) {
                char *const asked = json_dumps(value, 0);
                char *const got = json_dumps(words, 0);
                fail_msg("%s on text %zu gives %s", asked, t, got);
            }
            json_decref(words);
        }
    }
    json_decref(root);
}

static void test_apply__first_only_at_the_beginning(void **state)
{
    (void)state;
    json_t *const value = json_pack("{s:s, s:s, s:s}", "type", "Metaspace", "replacement",
                                    "\xe2\x96\x81", "prepend_scheme", "first");
    json_t *words = words_of(value, "ab", 2, true);
    assert_string_equal(json_string_value(json_array_get(words, 0)), "\xe2\x96\x81"
                                                                     "ab");
    json_decref(words);
    words = words_of(value, "ab", 2, false);
    assert_string_equal(json_string_value(json_array_get(words, 0)), "ab");
    json_decref(words);
    json_decref(value);
}

static void expect_refusal(const char *json, bool start_moves, enum espl_status expected,
                           const char *part)
{
    json_t *const value = json_loads(json, 0, NULL);
    assert_non_null(value);
    struct espl_error err = {0};
    struct espl_pretokenizer *chain = NULL;
    const enum espl_status status = espl_pretokenizer_parse(value, start_moves, &chain, &err);
    if (status != expected || strstr(err.message, part) == NULL) {
        fail_msg("%s: status %d: %s", json, (int)status, err.message);
    }
    assert_null(chain);
    json_decref(value);
}

static void test_parse__refuses_by_name(void **state)
{
    (void)state;
    expect_refusal("{\"type\":\"UnicodeScripts\"}", false, ESPL_E_UNSUPPORTED,
                   "field 'pre_tokenizer.type' is 'UnicodeScripts'");
    expect_refusal("{\"type\":\"BertPreTokenizer\"}", false, ESPL_E_UNSUPPORTED,
                   "BertPreTokenizer");
    expect_refusal("{\"type\":7}", false, ESPL_E_CORRUPT, "must be a string, got an integer");
    expect_refusal("{}", false, ESPL_E_CORRUPT, "'pre_tokenizer.type' must be a string");
    expect_refusal("{\"type\":\"Sequence\"}", false, ESPL_E_CORRUPT,
                   "'pre_tokenizer.pretokenizers' must be an array");
    expect_refusal("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},"
                   "{\"type\":\"Fancy\"}]}",
                   false, ESPL_E_UNSUPPORTED, "'pre_tokenizer.pretokenizers[1].type' is 'Fancy'");
    expect_refusal("{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Sideways\"}",
                   false, ESPL_E_UNSUPPORTED, "'pre_tokenizer.behavior' is 'Sideways'");
    expect_refusal("{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},\"behavior\":\"Removed\"}",
                   false, ESPL_E_UNSUPPORTED, "'pre_tokenizer.pattern' has 0 bytes");
    expect_refusal("{\"type\":\"Split\",\"pattern\":\"a\",\"behavior\":\"Removed\"}", false,
                   ESPL_E_CORRUPT, "'pre_tokenizer.pattern.String' must be a string");
    expect_refusal("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"^a\"},\"behavior\":\"Removed\"}",
                   false, ESPL_E_UNSUPPORTED, "line anchors");
    expect_refusal("{\"type\":\"ByteLevel\",\"use_regex\":1}", false, ESPL_E_CORRUPT,
                   "'pre_tokenizer.use_regex' must be true or false");
    expect_refusal("{\"type\":\"Metaspace\",\"replacement\":\"ab\"}", false, ESPL_E_CORRUPT,
                   "must be one character");
    expect_refusal("{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\"}",
                   true, ESPL_E_UNSUPPORTED, "'pre_tokenizer.prepend_scheme' is 'first'");
    expect_refusal("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},"
                   "{\"type\":\"ByteLevel\"}]}",
                   false, ESPL_E_UNSUPPORTED, "second ByteLevel");
}

static void test_parse__bounds_nesting_and_steps(void **state)
{
    (void)state;
    json_t *value = json_pack("{s:s}", "type", "WhitespaceSplit");
    for (int i = 0; i < 9; i++) {
        value = json_pack("{s:s, s:[o]}", "type", "Sequence", "pretokenizers", value);
    }
    char *const deep = json_dumps(value, 0);
    expect_refusal(deep, false, ESPL_E_CORRUPT, "not so deeply nested");
    free(deep);
    json_decref(value);
    json_t *const list = json_array();
    for (int i = 0; i < 33; i++) {
        assert_int_equal(json_array_append_new(list, json_pack("{s:s}", "type", "WhitespaceSplit")),
                         0);
    }
    value = json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", list);
    char *const wide = json_dumps(value, 0);
    expect_refusal(wide, false, ESPL_E_UNSUPPORTED, "more than 32 steps");
    free(wide);
    json_decref(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_apply__equals_the_reference),
        cmocka_unit_test(test_apply__first_only_at_the_beginning),
        cmocka_unit_test(test_parse__refuses_by_name),
        cmocka_unit_test(test_parse__bounds_nesting_and_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

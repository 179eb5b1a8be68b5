/* Time per byte must not grow with the length of a word: a book without a cut is one word. */
#include "datasets/tokenizer.h"

#include "support/cmocka_all.h"
#include "token_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* No normaliser, no pre-tokeniser: every text is one word. "aa" to 2^6 times "a" merge. */
static struct espl_tokenizer *doubling_tokenizer(void)
{
    json_t *const vocab = json_object();
    json_t *const merges = json_array();
    char text[65] = "";
    for (int i = 0; i <= 6; i++) {
        const size_t len = (size_t)1 << i;
        memset(text, 'a', len);
        text[len] = '\0';
        assert_int_equal(json_object_set_new(vocab, text, json_integer(i)), 0);
        if (i < 6) {
            assert_int_equal(json_array_append_new(merges, json_pack("[s, s]", text, text)), 0);
        }
    }
    json_t *const root = json_pack("{s:{s:o, s:o}}", "model", "vocab", vocab, "merges", merges);
    char *const json = json_dumps(root, 0);
    json_decref(root);
    struct espl_error err = {0};
    struct espl_tokenizer *tokenizer = NULL;
    token_fixture_ok(espl_tokenizer_parse(json, strlen(json), NULL, 0, &tokenizer, &err), &err);
    free(json);
    return tokenizer;
}

/* Processor time: other programs on the machine do not count. */
static double encode_seconds(const struct espl_tokenizer *tokenizer, const char *text, size_t len,
                             size_t *count)
{
    struct espl_error err = {0};
    int32_t *ids = NULL;
    const clock_t start = clock();
    token_fixture_ok(espl_tokenizer_encode(tokenizer, text, len, false, &ids, count, &err), &err);
    const clock_t end = clock();
    free(ids);
    return (double)(end - start) / CLOCKS_PER_SEC;
}

/* Eight times the text: n log n with its cache misses needs up to 16 times as long, a quadratic
 * loop 64 times. The constant covers clock ticks. */
static void expect_not_quadratic(const struct espl_tokenizer *tokenizer, const char *unit,
                                 const char *name)
{
    enum { LARGE = 1 << 20, SMALL = LARGE / 8 };
    const size_t unit_len = strlen(unit);
    char *const text = malloc(LARGE + unit_len);
    assert_non_null(text);
    for (size_t at = 0; at < LARGE; at += unit_len) {
        memcpy(text + at, unit, unit_len);
    }
    size_t small_count = 0;
    size_t large_count = 0;
    const double small = encode_seconds(tokenizer, text, SMALL / unit_len * unit_len, &small_count);
    const double large = encode_seconds(tokenizer, text, LARGE / unit_len * unit_len, &large_count);
    printf("'%s': 128 KB %.3f s, 1 MB %.3f s, %zu ids\n", name, small, large, large_count);
    assert_true(small_count > 0 && large_count >= 7 * small_count);
    assert_true(large < 32.0 * small + 0.2);
    free(text);
}

static void test_encode__one_letter_is_not_quadratic(void **state)
{
    (void)state;
    struct espl_tokenizer *const tokenizer = doubling_tokenizer();
    expect_not_quadratic(tokenizer, "a", "a");
    static const char text[] =
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    struct espl_error err = {0};
    int32_t *ids = NULL;
    size_t count = 0;
    token_fixture_ok(espl_tokenizer_encode(tokenizer, text, 64 + 7, false, &ids, &count, &err),
                     &err);
    const int32_t expected[] = {6, 2, 1, 0}; /* 64 + 4 + 2 + 1 letters */
    assert_int_equal(count, 4);
    assert_memory_equal(ids, expected, sizeof expected);
    free(ids);
    espl_tokenizer_destroy(tokenizer);
}

/* A metaspace tokenizer without pre-tokeniser: long words are cut where no merge can cross. */
static void test_encode__long_words_are_linear(void **state)
{
    (void)state;
    size_t json_len = 0;
    char *const json = token_fixture_read("tokenizers/metaspace-llama2/tokenizer.json", &json_len);
    struct espl_error err = {0};
    struct espl_tokenizer *tokenizer = NULL;
    token_fixture_ok(espl_tokenizer_parse(json, json_len, NULL, 0, &tokenizer, &err), &err);
    free(json);
    static const char *const units[] = {"a",  " ",          "e\xe2\x96\x81",    "\xc3\xa9",
                                        "\n", "the quick ", "\xf0\x9f\x98\x80", "x\xcc\x81"};
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        expect_not_quadratic(tokenizer, units[u], u == 4 ? "\\n" : units[u]);
    }
    espl_tokenizer_destroy(tokenizer);
}

/* The same word, once short enough to be merged whole and once behind 4 KB that make it long. */
static void test_encode__cuts_change_nothing(void **state)
{
    (void)state;
    size_t json_len = 0;
    char *const json = token_fixture_read("tokenizers/metaspace-llama2/tokenizer.json", &json_len);
    json_t *const cases = token_fixture_json("tokenizers/metaspace-llama2/cases.json");
    struct espl_error err = {0};
    struct espl_tokenizer *tokenizer = NULL;
    token_fixture_ok(espl_tokenizer_parse(json, json_len, NULL, 0, &tokenizer, &err), &err);
    free(json);
    /* '\r' is unknown to this vocabulary and becomes a byte token, which nothing merges with. */
    char fill[4096];
    memset(fill, '\r', sizeof fill);
    size_t compared = 0;
    const json_t *const list = json_object_get(cases, "cases");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const text = json_object_get(json_array_get(list, i), "text");
        const json_t *const expected = json_object_get(json_array_get(list, i), "ids");
        const size_t len = json_string_length(text);
        if (strchr(json_string_value(text), '<') != NULL || len < 4) {
            continue; /* a special token would end the word */
        }
        char *const joined = malloc(len + sizeof fill);
        assert_non_null(joined);
        memcpy(joined, json_string_value(text), len);
        memcpy(joined + len, fill, sizeof fill);
        int32_t *ids = NULL;
        size_t count = 0;
        token_fixture_ok(
            espl_tokenizer_encode(tokenizer, joined, len + sizeof fill, false, &ids, &count, &err),
            &err);
        assert_int_equal(count, json_array_size(expected) + sizeof fill);
        for (size_t k = 0; k < json_array_size(expected); k++) {
            assert_int_equal(ids[k], json_integer_value(json_array_get(expected, k)));
        }
        compared++;
        free(ids);
        free(joined);
    }
    assert_true(compared > 40);
    json_decref(cases);
    espl_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode__one_letter_is_not_quadratic),
        cmocka_unit_test(test_encode__long_words_are_linear),
        cmocka_unit_test(test_encode__cuts_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

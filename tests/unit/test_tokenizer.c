/* Token ids against those of the reference library (tests/data/tokenizers/README.md). */
#include "datasets/tokenizer.h"

#include "support/cmocka_all.h"
#include "token_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const fixtures[] = {
    "byte-level-gpt2", "byte-level-llama3", "byte-level-qwen2", "metaspace-llama2",
    "metaspace-first", "metaspace-gemma",   "classic-options",  NULL};

static struct espl_tokenizer *load_fixture(const char *name, const char *config)
{
    char path[128];
    (void)snprintf(path, sizeof path, "tokenizers/%s/tokenizer.json", name);
    size_t len = 0;
    char *const json = token_fixture_read(path, &len);
    struct espl_error err = {0};
    struct espl_tokenizer *tokenizer = NULL;
    token_fixture_ok(espl_tokenizer_parse(json, len, config, config != NULL ? strlen(config) : 0,
                                          &tokenizer, &err),
                     &err);
    free(json);
    return tokenizer;
}

/* ids == before + middle + after */
static bool ids_equal(const int32_t *ids, size_t count, const json_t *before, const json_t *middle,
                      const json_t *after)
{
    const json_t *const parts[] = {before, middle, after};
    size_t at = 0;
    for (size_t p = 0; p < 3; p++) {
        for (size_t i = 0; i < json_array_size(parts[p]); i++) {
            if (at >= count || json_integer_value(json_array_get(parts[p], i)) != ids[at]) {
                return false;
            }
            at++;
        }
    }
    return at == count;
}

static void check_fixture(const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof path, "tokenizers/%s/cases.json", name);
    json_t *const root = token_fixture_json(path);
    const json_t *const cases = json_object_get(root, "cases");
    const json_t *const before = json_object_get(root, "before");
    const json_t *const after = json_object_get(root, "after");
    assert_true(json_array_size(cases) > 100);
    struct espl_tokenizer *const tokenizer = load_fixture(name, NULL);
    const json_t *const bos = json_array_get(before, 0);
    assert_int_equal(espl_tokenizer_bos(tokenizer), bos != NULL ? json_integer_value(bos) : -1);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *const item = json_array_get(cases, i);
        const json_t *const text = json_object_get(item, "text");
        const json_t *const expected = json_object_get(item, "ids");
        for (int special = 0; special < 2; special++) {
            struct espl_error err = {0};
            int32_t *ids = NULL;
            size_t count = 0;
            token_fixture_ok(espl_tokenizer_encode(tokenizer, json_string_value(text),
                                                   json_string_length(text), special != 0, &ids,
                                                   &count, &err),
                             &err);
            if (!ids_equal(ids, count, special ? before : NULL, expected, special ? after : NULL)) {
                char *const shown = json_dumps(item, 0);
                fail_msg("%s, special %d: %s", name, special, shown);
            }
            free(ids);
        }
    }
    espl_tokenizer_destroy(tokenizer);
    json_decref(root);
}

static void test_encode__equals_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; fixtures[i] != NULL; i++) {
        check_fixture(fixtures[i]);
    }
}

static void test_encode__refuses_invalid_utf8(void **state)
{
    (void)state;
    struct espl_tokenizer *const tokenizer = load_fixture("byte-level-gpt2", NULL);
    struct espl_error err = {0};
    int32_t *ids = NULL;
    size_t count = 0;
    assert_int_equal(
        espl_tokenizer_encode(tokenizer, "caf\xe9 au lait", 12, true, &ids, &count, &err),
        ESPL_E_CORRUPT);
    assert_string_equal(err.message, "text is not valid UTF-8: byte 0xe9 at offset 3");
    assert_null(ids);
    espl_tokenizer_destroy(tokenizer);
}

static void test_accessors(void **state)
{
    (void)state;
    struct espl_tokenizer *const tokenizer = load_fixture("byte-level-llama3", NULL);
    char path[ESPL_PATH_MAX];
    token_fixture_path(path, "tokenizers/byte-level-llama3/tokenizer.json");
    struct espl_error err = {0};
    char hex[ESPL_SHA256_HEX];
    token_fixture_ok(espl_sha256_file(path, hex, &err), &err);
    assert_string_equal(espl_tokenizer_sha256(tokenizer), hex);
    assert_int_equal(espl_tokenizer_vocab_size(tokenizer), 804); /* 800 and four added ones */
    espl_tokenizer_destroy(tokenizer);
}

struct config_case {
    const char *fixture;
    const char *config;
    int32_t bos;
    int32_t first[2]; /* of "ab" with special tokens; -1 = any */
    size_t extra;     /* ids more than without special tokens */
};

/* byte-level-qwen2 has no template, byte-level-gpt2 puts </s> (2) in front. */
static const struct config_case config_cases[] = {
    {"byte-level-qwen2", NULL, -1, {-1, -1}, 0},
    {"byte-level-qwen2", "{}", -1, {-1, -1}, 0},
    {"byte-level-qwen2", "{\"bos_token\":\"<|endoftext|>\"}", -1, {-1, -1}, 0},
    {"byte-level-qwen2",
     "{\"add_bos_token\":false,\"bos_token\":\"<|endoftext|>\"}",
     -1,
     {-1, -1},
     0},
    {"byte-level-qwen2",
     "{\"add_bos_token\":true,\"bos_token\":\"<|endoftext|>\"}",
     700,
     {700, -1},
     1},
    {"byte-level-qwen2",
     "{\"add_bos_token\":true,\"bos_token\":{\"content\":\"<|im_start|>\",\"lstrip\":false}}",
     701,
     {701, -1},
     1},
    {"byte-level-qwen2",
     "{\"add_bos_token\":true,\"bos_token\":\"<|im_start|>\",\"add_eos_token\":true,"
     "\"eos_token\":\"<|im_end|>\"}",
     701,
     {701, -1},
     2},
    /* Never doubled: the template already has it. */
    {"byte-level-gpt2", "{\"add_bos_token\":true,\"bos_token\":\"</s>\"}", 2, {2, -1}, 1},
    {"byte-level-gpt2", "{\"add_bos_token\":true,\"bos_token\":\"<s>\"}", 2, {2, -1}, 1},
    /* The template stands, except in classes that are built from the flag. */
    {"byte-level-gpt2", "{\"add_bos_token\":false,\"bos_token\":\"</s>\"}", 2, {2, -1}, 1},
    {"metaspace-llama2",
     "{\"add_bos_token\":false,\"bos_token\":\"<s>\",\"tokenizer_class\":\"LlamaTokenizer\"}",
     -1,
     {-1, -1},
     0},
    {"metaspace-llama2",
     "{\"add_bos_token\":true,\"bos_token\":\"<s>\",\"tokenizer_class\":\"LlamaTokenizer\"}",
     1,
     {1, -1},
     1},
};

static void test_config__bos_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof config_cases / sizeof config_cases[0]; i++) {
        const struct config_case *const c = &config_cases[i];
        struct espl_tokenizer *const tokenizer = load_fixture(c->fixture, c->config);
        struct espl_error err = {0};
        int32_t *bare = NULL;
        int32_t *ids = NULL;
        size_t bare_count = 0;
        size_t count = 0;
        token_fixture_ok(espl_tokenizer_encode(tokenizer, "ab", 2, false, &bare, &bare_count, &err),
                         &err);
        token_fixture_ok(espl_tokenizer_encode(tokenizer, "ab", 2, true, &ids, &count, &err), &err);
        assert_int_equal(espl_tokenizer_bos(tokenizer), c->bos);
        assert_int_equal(count, bare_count + c->extra);
        assert_int_equal(ids[0], c->first[0] >= 0 ? c->first[0] : bare[0]);
        assert_memory_equal(ids + (c->bos >= 0 ? 1 : 0), bare, bare_count * sizeof *bare);
        free(bare);
        free(ids);
        espl_tokenizer_destroy(tokenizer);
    }
}

static void test_load__folder_and_file(void **state)
{
    (void)state;
    char folder[ESPL_PATH_MAX];
    char file[ESPL_PATH_MAX];
    token_fixture_path(folder, "tokenizers/byte-level-gpt2");
    token_fixture_path(file, "tokenizers/byte-level-gpt2/tokenizer.json");
    struct espl_error err = {0};
    struct espl_tokenizer *a = NULL;
    struct espl_tokenizer *b = NULL;
    token_fixture_ok(espl_tokenizer_load(folder, &a, &err), &err);
    token_fixture_ok(espl_tokenizer_load(file, &b, &err), &err);
    assert_string_equal(espl_tokenizer_sha256(a), espl_tokenizer_sha256(b));
    espl_tokenizer_destroy(a);
    espl_tokenizer_destroy(b);
    a = NULL;
    token_fixture_path(folder, "tokenizers");
    assert_int_equal(espl_tokenizer_load(folder, &a, &err), ESPL_E_NOTFOUND);
    assert_non_null(strstr(err.message, "cannot find tokenizer"));
    assert_null(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode__equals_the_reference),
        cmocka_unit_test(test_encode__refuses_invalid_utf8),
        cmocka_unit_test(test_accessors),
        cmocka_unit_test(test_config__bos_rules),
        cmocka_unit_test(test_load__folder_and_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a tokenizer.json must not do, and what it may: one small file, changed piece by piece. */
#include "datasets/tokenizer.h"

#include "support/cmocka_all.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* A model of four tokens; %s: more members of the model, then of the root. */
static const char model_format[] =
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"c\":3},"
    "\"merges\":[\"a b\"]%s}%s}";

static enum espl_status parse(const char *json, const char *config, struct espl_tokenizer **out,
                              struct espl_error *err)
{
    return espl_tokenizer_parse(json, strlen(json), config, config != NULL ? strlen(config) : 0,
                                out, err);
}

static void expect_refusal(const char *json, const char *config, enum espl_status expected,
                           const char *part)
{
    struct espl_error err = {0};
    struct espl_tokenizer *tokenizer = NULL;
    const enum espl_status status = parse(json, config, &tokenizer, &err);
    if (status != expected || strstr(err.message, part) == NULL) {
        fail_msg("%s: status %d: %s", json, (int)status, err.message);
    }
    assert_null(tokenizer);
}

static void expect_model_refusal(const char *model_more, const char *root_more,
                                 enum espl_status expected, const char *part)
{
    char json[2048];
    (void)snprintf(json, sizeof json, model_format, model_more, root_more);
    expect_refusal(json, NULL, expected, part);
}

/* Encodes with the small model and compares; ids ends with -1. */
static void expect_ids(const char *model_more, const char *root_more, const char *text,
                       const int32_t *expected)
{
    char json[2048];
    (void)snprintf(json, sizeof json, model_format, model_more, root_more);
    struct espl_error err = {0};
    struct espl_tokenizer *tokenizer = NULL;
    if (parse(json, NULL, &tokenizer, &err) != ESPL_OK) {
        fail_msg("%s: %s", json, err.message);
    }
    int32_t *ids = NULL;
    size_t count = 0;
    if (espl_tokenizer_encode(tokenizer, text, strlen(text), true, &ids, &count, &err) != ESPL_OK) {
        fail_msg("%s: %s", json, err.message);
    }
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(ids[i], expected[i]);
    }
    assert_int_equal(expected[count], -1);
    free(ids);
    espl_tokenizer_destroy(tokenizer);
}

static void test_parse__json_and_shape(void **state)
{
    (void)state;
    expect_refusal("", NULL, ESPL_E_CORRUPT, "not valid JSON: line 1");
    expect_refusal("{\"model\":{}", NULL, ESPL_E_CORRUPT, "not valid JSON");
    expect_refusal("[]", NULL, ESPL_E_CORRUPT, "must hold a JSON object");
    expect_refusal("{}", NULL, ESPL_E_CORRUPT, "field 'model' must be an object");
    expect_refusal("{\"model\":{\"merges\":[]}}", NULL, ESPL_E_CORRUPT, "'model.vocab'");
    expect_refusal("{\"model\":{\"vocab\":{}}}", NULL, ESPL_E_CORRUPT, "'model.merges'");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":1,\"a\":2},\"merges\":[]}}", NULL, ESPL_E_CORRUPT,
                   "duplicate");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", NULL, ESPL_E_CORRUPT,
                   "id of token 'a' is -1");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":2147483647},\"merges\":[]}}", NULL, ESPL_E_CORRUPT,
                   "id of token 'a' is 2147483647");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":\"0\"},\"merges\":[]}}", NULL, ESPL_E_CORRUPT,
                   "must be an integer, got a string");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"aa\"]}}", NULL, ESPL_E_CORRUPT,
                   "'model.merges[0]' must hold two texts");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}", NULL, ESPL_E_CORRUPT,
                   "'model.merges[0]' must hold two texts");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", NULL, ESPL_E_CORRUPT,
                   "'model.merges[0]' must be a string or an array");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\",1]]}}", NULL, ESPL_E_CORRUPT,
                   "'model.merges[0]' must be a string or an array");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", NULL, ESPL_E_CORRUPT,
                   "'model.merges[0]' uses token 'b'");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", NULL, ESPL_E_CORRUPT,
                   "'model.merges[0]' uses token 'aa'");
}

static void test_parse__model_settings(void **state)
{
    (void)state;
    expect_refusal("{\"model\":{\"type\":\"Unigram\",\"vocab\":{},\"merges\":[]}}", NULL,
                   ESPL_E_UNSUPPORTED, "'model.type' is 'Unigram'");
    expect_model_refusal(",\"dropout\":0.1", "", ESPL_E_UNSUPPORTED, "'model.dropout'");
    expect_model_refusal(",\"continuing_subword_prefix\":\"##\"", "", ESPL_E_UNSUPPORTED,
                         "'model.continuing_subword_prefix' is '##'");
    expect_model_refusal(",\"end_of_word_suffix\":\"</w>\"", "", ESPL_E_UNSUPPORTED,
                         "'model.end_of_word_suffix' is '</w>'");
    expect_model_refusal(",\"fuse_unk\":\"no\"", "", ESPL_E_CORRUPT, "'model.fuse_unk'");
    expect_model_refusal(",\"unk_token\":5", "", ESPL_E_CORRUPT, "'model.unk_token'");
    const int32_t merged[] = {2, 3, -1};
    expect_ids("", "", "abc", merged);
    expect_ids(",\"dropout\":null,\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":null",
               "", "abc", merged);
    expect_ids(",\"dropout\":0.0", "", "abc", merged);
}

static void test_encode__unknown_characters(void **state)
{
    (void)state;
    const int32_t dropped[] = {2, -1};
    const int32_t single[] = {0, 3, 3, 1, -1};
    const int32_t fused[] = {0, 3, 1, -1};
    expect_ids("", "", "axyb", dropped); /* dropped, so "a" meets "b" */
    expect_ids(",\"unk_token\":\"c\"", "", "axyb", single);
    expect_ids(",\"unk_token\":\"c\",\"fuse_unk\":true", "", "axyb", fused);
    char json[2048];
    (void)snprintf(json, sizeof json, model_format, ",\"unk_token\":\"<unk>\"", "");
    struct espl_error err = {0};
    struct espl_tokenizer *tokenizer = NULL;
    assert_int_equal(parse(json, NULL, &tokenizer, &err), ESPL_OK);
    int32_t *ids = NULL;
    size_t count = 0;
    assert_int_equal(espl_tokenizer_encode(tokenizer, "ax", 2, true, &ids, &count, &err),
                     ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "unk_token is not in its vocabulary"));
    espl_tokenizer_destroy(tokenizer);
}

static void test_encode__merges_by_rank_then_place(void **state)
{
    (void)state;
    /* "bc" ranks before "ab": abc -> a bc; aaa -> aa a. */
    const char *const json =
        "{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"bc\":3,\"ab\":4,\"aa\":5},"
        "\"merges\":[[\"b\",\"c\"],[\"a\",\"b\"],[\"a\",\"a\"]]}}";
    struct espl_error err = {0};
    struct espl_tokenizer *tokenizer = NULL;
    assert_int_equal(parse(json, NULL, &tokenizer, &err), ESPL_OK);
    int32_t *ids = NULL;
    size_t count = 0;
    assert_int_equal(espl_tokenizer_encode(tokenizer, "abcaaab", 7, false, &ids, &count, &err),
                     ESPL_OK);
    const int32_t expected[] = {0, 3, 5, 4}; /* a bc aa ab */
    assert_int_equal(count, 4);
    assert_memory_equal(ids, expected, sizeof expected);
    free(ids);
    espl_tokenizer_destroy(tokenizer);
}

static void test_parse__added_tokens(void **state)
{
    (void)state;
    expect_model_refusal("", ",\"added_tokens\":{}", ESPL_E_CORRUPT, "'added_tokens' must be an");
    expect_model_refusal("", ",\"added_tokens\":[{\"id\":4}]", ESPL_E_CORRUPT,
                         "'added_tokens[0].content' must be a string");
    expect_model_refusal("", ",\"added_tokens\":[{\"content\":\"x\"}]", ESPL_E_CORRUPT,
                         "id of added_tokens[0] must be an integer");
    expect_model_refusal("", ",\"added_tokens\":[{\"content\":\"\",\"id\":4}]", ESPL_E_UNSUPPORTED,
                         "'added_tokens[0].content' has 0 bytes");
    expect_model_refusal("", ",\"added_tokens\":[{\"content\":\"a\",\"id\":4}]", ESPL_E_CORRUPT,
                         "token 'a' has id 4 in added_tokens and 0 in the vocabulary");
    expect_model_refusal(
        "", ",\"added_tokens\":[{\"content\":\"x\",\"id\":4},{\"content\":\"x\",\"id\":4}]",
        ESPL_E_CORRUPT, "'x' is listed twice");
    expect_model_refusal("",
                         ",\"normalizer\":{\"type\":\"Lowercase\"},\"added_tokens\":["
                         "{\"content\":\"XY\",\"id\":4},{\"content\":\"xY\",\"id\":5}]",
                         ESPL_E_UNSUPPORTED, "'XY' and 'xY' match the same text");
    expect_model_refusal("",
                         ",\"normalizer\":{\"type\":\"Strip\"},\"added_tokens\":["
                         "{\"content\":\"  \",\"id\":4}]",
                         ESPL_E_UNSUPPORTED, "empty once it is normalised");
    const int32_t longest[] = {5, 4, 2, -1};
    expect_ids("",
               ",\"added_tokens\":[{\"content\":\"<a\",\"id\":4},{\"content\":\"<a>\",\"id\":5}]",
               "<a><aab", longest);
}

static void test_parse__post_processor(void **state)
{
    (void)state;
    expect_model_refusal("", ",\"post_processor\":{\"type\":\"RobertaProcessing\"}",
                         ESPL_E_UNSUPPORTED, "'post_processor.type' is 'RobertaProcessing'");
    expect_model_refusal("", ",\"post_processor\":{\"type\":\"TemplateProcessing\"}",
                         ESPL_E_CORRUPT, "'post_processor.single' must be an array");
    expect_model_refusal("",
                         ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
                         "{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}],"
                         "\"special_tokens\":{}}",
                         ESPL_E_CORRUPT, "no ids for '<s>'");
    expect_model_refusal("",
                         ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
                         "{\"Sequence\":{\"id\":\"B\"}}]}",
                         ESPL_E_UNSUPPORTED, "the sequence 'A' once");
    expect_model_refusal("", ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}",
                         ESPL_E_UNSUPPORTED, "leaves out the text");
    /* The second processor wraps the first: 3, then 0, around the text; 1 at the end. */
    const int32_t nested[] = {3, 0, 2, 1, -1};
    expect_ids("",
               ",\"post_processor\":{\"type\":\"Sequence\",\"processors\":["
               "{\"type\":\"ByteLevel\"},{\"type\":\"TemplateProcessing\",\"single\":["
               "{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],"
               "\"special_tokens\":{\"x\":{\"ids\":[0]}}},{\"type\":\"TemplateProcessing\","
               "\"single\":[{\"SpecialToken\":{\"id\":\"y\"}},{\"Sequence\":{\"id\":\"A\"}},"
               "{\"SpecialToken\":{\"id\":\"z\"}}],\"special_tokens\":{\"y\":{\"ids\":[3]},"
               "\"z\":{\"ids\":[1]}}}]}",
               "ab", nested);
}

static void test_parse__config(void **state)
{
    (void)state;
    char json[2048];
    (void)snprintf(json, sizeof json, model_format, "", "");
    expect_refusal(json, "{", ESPL_E_CORRUPT, "tokenizer_config.json is not valid JSON");
    expect_refusal(json, "[]", ESPL_E_CORRUPT, "tokenizer_config.json must hold a JSON object");
    expect_refusal(json, "{\"add_bos_token\":1}", ESPL_E_CORRUPT, "'tokenizer_config.json.add_bos");
    expect_refusal(json, "{\"add_bos_token\":true,\"bos_token\":\"<s>\"}", ESPL_E_CORRUPT,
                   "its 'bos_token' is not a token");
    expect_refusal(json, "{\"add_bos_token\":true}", ESPL_E_CORRUPT, "its 'bos_token' is not a");
    expect_refusal(json, "{\"add_bos_token\":true,\"bos_token\":[1]}", ESPL_E_CORRUPT,
                   "'bos_token' of tokenizer_config.json must be");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse__json_and_shape),
        cmocka_unit_test(test_parse__model_settings),
        cmocka_unit_test(test_encode__unknown_characters),
        cmocka_unit_test(test_encode__merges_by_rank_then_place),
        cmocka_unit_test(test_parse__added_tokens),
        cmocka_unit_test(test_parse__post_processor),
        cmocka_unit_test(test_parse__config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "stages/tokens/documents.h"

#include "support/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The documents of a text, joined with '|'. */
static void expect_documents(enum espl_document_mode mode, const char *text, const char *expected)
{
    struct espl_document_spans spans = {0};
    struct espl_error err = {0};
    assert_int_equal(espl_documents_find(mode, text, 0, strlen(text), &spans, &err), ESPL_OK);
    char out[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < spans.count; i++) {
        used += (size_t)snprintf(out + used, sizeof out - used, "%s%.*s", i > 0 ? "|" : "",
                                 (int)spans.spans[i].len, text + spans.spans[i].start);
    }
    assert_string_equal(out, expected);
    free(spans.spans);
}

static void test_find__whole(void **state)
{
    (void)state;
    expect_documents(ESPL_DOCUMENTS_WHOLE, "a\n\nb\n", "a\n\nb\n");
    expect_documents(ESPL_DOCUMENTS_WHOLE, "", "");
}

static void test_find__lines(void **state)
{
    (void)state;
    expect_documents(ESPL_DOCUMENTS_LINES, "a\nb\n", "a|b");
    expect_documents(ESPL_DOCUMENTS_LINES, "a\r\n\n  \t\r\n b \nlast", "a| b |last");
    expect_documents(ESPL_DOCUMENTS_LINES, "\n\n", "");
    expect_documents(ESPL_DOCUMENTS_JSONL, "{}\n{\"a\":1}", "{}|{\"a\":1}");
}

static void test_find__paragraphs(void **state)
{
    (void)state;
    expect_documents(ESPL_DOCUMENTS_PARAGRAPHS, "a\nb\n\nc\n", "a\nb|c");
    expect_documents(ESPL_DOCUMENTS_PARAGRAPHS, "\n\na\r\nb\r\n \r\n\r\nc", "a\r\nb|c");
    expect_documents(ESPL_DOCUMENTS_PARAGRAPHS, "one", "one");
    expect_documents(ESPL_DOCUMENTS_PARAGRAPHS, " \n\t\n", "");
}

static void test_find__offset(void **state)
{
    (void)state;
    struct espl_document_spans spans = {0};
    struct espl_error err = {0};
    const char *const text = "skip\nx\ny";
    assert_int_equal(espl_documents_find(ESPL_DOCUMENTS_LINES, text, 5, 3, &spans, &err), ESPL_OK);
    assert_int_equal(spans.count, 2);
    assert_int_equal(spans.spans[0].start, 5);
    assert_int_equal(spans.spans[1].start, 7);
    free(spans.spans);
}

static void test_json_text(void **state)
{
    (void)state;
    struct espl_error err = {0};
    char *text = NULL;
    size_t len = 0;
    const char *const good = "{\"id\": 3, \"text\": \"caf\\u00e9\\n\"}";
    assert_int_equal(espl_documents_json_text(good, strlen(good), "a.jsonl", 1, &text, &len, &err),
                     ESPL_OK);
    assert_int_equal(len, 6);
    assert_string_equal(text, "caf\xc3\xa9\n");
    free(text);
    const char *const bad = "{\"text\": ";
    assert_int_equal(espl_documents_json_text(bad, strlen(bad), "a.jsonl", 7, &text, &len, &err),
                     ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "line 7 of 'a.jsonl' is not a JSON object"));
    const char *const other = "{\"content\": \"x\"}";
    assert_int_equal(
        espl_documents_json_text(other, strlen(other), "a.jsonl", 8, &text, &len, &err),
        ESPL_E_CORRUPT);
    assert_string_equal(err.message, "line 8 of 'a.jsonl' has no \"text\" field with a string");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find__whole),      cmocka_unit_test(test_find__lines),
        cmocka_unit_test(test_find__paragraphs), cmocka_unit_test(test_find__offset),
        cmocka_unit_test(test_json_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

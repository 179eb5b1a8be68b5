#include "engine/diagnostics.h"

#include "engine/source_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void start(struct espl_diagnostics *diags, const char *source)
{
    struct espl_error err = {0};
    assert_int_equal(espl_diagnostics_init(diags, &err), ESPL_OK);
    assert_int_equal(espl_diagnostics_set_source(diags, "job.yaml", source, strlen(source), &err),
                     ESPL_OK);
}

static void expect(struct espl_diagnostics *diags, bool colour, const char *expected)
{
    struct espl_buf text;
    espl_buf_init(&text, 1 << 20);
    espl_diagnostics_render(diags, colour, &text);
    assert_string_equal(espl_buf_text(&text), expected);
    espl_buf_free(&text);
    espl_diagnostics_free(diags);
}

static struct espl_srcpos at(unsigned line, unsigned column, unsigned length)
{
    return (struct espl_srcpos){"job.yaml", line, column, length};
}

static void test_render__one_error_with_help(void **state)
{
    (void)state;
    struct espl_diagnostics diags;
    start(&diags, "version: 1\nname: x\n      patern: [1]\n");
    const struct espl_srcpos place = at(3, 7, 6);
    struct espl_diagnostic *item =
        espl_diagnostics_add(&diags, ESPL_E_JOB, &place, "unknown parameter '%s'", "patern");
    espl_diagnostic_hint(item, "did you mean 'patterns'?");
    expect(&diags, false,
           "job.yaml:3:7: error: unknown parameter 'patern'\n"
           "    3 |       patern: [1]\n"
           "      |       ^^^^^^\n"
           "help: did you mean 'patterns'?\n");
}

static void test_render__several_places_notes_and_context(void **state)
{
    (void)state;
    struct espl_diagnostics diags;
    start(&diags, "in: a\nin: b\n");
    struct espl_srcpos place = at(2, 5, 1);
    struct espl_diagnostic *item = espl_diagnostics_add(&diags, ESPL_E_JOB, &place, "a cycle");
    espl_diagnostic_remark(item, "'x' needs '%s'", "b");
    place = at(1, 5, 1);
    espl_diagnostic_also(item, &place, "'b' needs 'x'");
    espl_diagnostic_note(item, "seen before");
    (void)espl_context(&item->error, "while planning");
    (void)espl_context(&item->error, "while starting");
    expect(&diags, false,
           "job.yaml:2:5: error: a cycle\n"
           "    2 | in: b\n"
           "      |     ^ 'x' needs 'b'\n"
           "    1 | in: a\n"
           "      |     ^ 'b' needs 'x'\n"
           "note: while planning\n"
           "note: while starting\n"
           "note: seen before\n");
}

static void test_render__sorts_drops_duplicates_and_counts(void **state)
{
    (void)state;
    struct espl_diagnostics diags;
    start(&diags, "a\nb\n");
    const struct espl_srcpos option = {.file = "--set a.b"};
    const struct espl_srcpos second = at(2, 1, 1);
    const struct espl_srcpos first = at(1, 1, 1);
    (void)espl_diagnostics_add(&diags, ESPL_E_USAGE, &option, "third");
    (void)espl_diagnostics_add(&diags, ESPL_E_JOB, &second, "second");
    (void)espl_diagnostics_add(&diags, ESPL_E_JOB, &first, "first");
    (void)espl_diagnostics_add(&diags, ESPL_E_JOB, &second, "second");
    (void)espl_diagnostics_add(&diags, ESPL_E_NOSPACE, NULL, "no place");
    espl_diagnostics_sort(&diags);
    assert_int_equal(diags.count, 4);
    assert_int_equal(espl_diagnostics_status(&diags), ESPL_E_JOB);
    expect(&diags, false,
           "job.yaml:1:1: error: first\n"
           "    1 | a\n"
           "      | ^\n"
           "\n"
           "job.yaml:2:1: error: second\n"
           "    2 | b\n"
           "      | ^\n"
           "\n"
           "error: no place\n"
           "\n"
           "--set a.b: error: third\n"
           "\n"
           "4 errors\n");
}

static void test_render__limit(void **state)
{
    (void)state;
    struct espl_diagnostics diags;
    struct espl_error err = {0};
    start(&diags, "");
    for (size_t i = 0; i < ESPL_MAX_DIAGNOSTICS; i++) {
        assert_non_null(espl_diagnostics_add(&diags, ESPL_E_JOB, NULL, "error %zu", i));
    }
    for (size_t i = 0; i < 3; i++) {
        struct espl_diagnostic *none = espl_diagnostics_add(&diags, ESPL_E_JOB, NULL, "more");
        assert_null(none);
        espl_diagnostic_hint(none, "does nothing");
    }
    assert_int_equal(espl_diagnostics_fail(&diags, "job.yaml", &err), ESPL_E_JOB);
    assert_string_equal(err.message, "23 errors in job.yaml");
    struct espl_buf text;
    espl_buf_init(&text, 1 << 20);
    espl_diagnostics_render(&diags, false, &text);
    assert_non_null(strstr(espl_buf_text(&text), "\n23 errors; the first 20 are shown\n"));
    espl_buf_free(&text);
    espl_diagnostics_free(&diags);
}

static void test_render__caret_under_the_right_character(void **state)
{
    (void)state;
    struct espl_diagnostics diags;
    /* Two-byte letters are one column, CJK characters two, a combining accent none, a tab a tab. */
    start(&diags, "\xc3\xa9t\xc3\xa9: x\n\xe6\xbc\xa2\xe5\xad\x97: x\ne\xcc\x81: x\n\ta: x");
    struct espl_srcpos place = at(1, 6, 1);
    (void)espl_diagnostics_add(&diags, ESPL_E_JOB, &place, "one");
    place = at(2, 5, 1);
    (void)espl_diagnostics_add(&diags, ESPL_E_JOB, &place, "two");
    place = at(3, 5, 1);
    (void)espl_diagnostics_add(&diags, ESPL_E_JOB, &place, "three");
    place = at(4, 5, 1);
    (void)espl_diagnostics_add(&diags, ESPL_E_JOB, &place, "four");
    place = at(2, 1, 2);
    (void)espl_diagnostics_add(&diags, ESPL_E_JOB, &place, "wide");
    expect(&diags, false,
           "job.yaml:1:6: error: one\n"
           "    1 | \xc3\xa9t\xc3\xa9: x\n"
           "      |      ^\n"
           "\n"
           "job.yaml:2:5: error: two\n"
           "    2 | \xe6\xbc\xa2\xe5\xad\x97: x\n"
           "      |       ^\n"
           "\n"
           "job.yaml:3:5: error: three\n"
           "    3 | e\xcc\x81: x\n"
           "      |    ^\n"
           "\n"
           "job.yaml:4:5: error: four\n"
           "    4 | \ta: x\n"
           "      | \t   ^\n"
           "\n"
           "job.yaml:2:1: error: wide\n"
           "    2 | \xe6\xbc\xa2\xe5\xad\x97: x\n"
           "      | ^^^^\n"
           "\n"
           "5 errors\n");
}

static void test_render__place_at_the_end_or_beyond(void **state)
{
    (void)state;
    struct espl_diagnostics diags;
    start(&diags, "key:\n");
    struct espl_srcpos place = at(1, 5, 3);
    (void)espl_diagnostics_add(&diags, ESPL_E_JOB, &place, "end of the line");
    place = at(2, 1, 1);
    (void)espl_diagnostics_add(&diags, ESPL_E_JOB, &place, "end of the file");
    const struct espl_srcpos other = {"tokenizer.json", 1, 1, 1};
    (void)espl_diagnostics_add(&diags, ESPL_E_CORRUPT, &other, "another file");
    expect(&diags, false,
           "job.yaml:1:5: error: end of the line\n"
           "    1 | key:\n"
           "      |     ^\n"
           "\n"
           "job.yaml:2:1: error: end of the file\n"
           "\n"
           "tokenizer.json:1:1: error: another file\n"
           "\n"
           "3 errors\n");
}

static void test_render__long_line_is_cut_around_the_caret(void **state)
{
    (void)state;
    char source[1001];
    struct espl_diagnostics diags;
    for (size_t i = 0; i < 1000; i++) {
        source[i] = (char)('0' + i % 10);
    }
    source[1000] = '\0';
    start(&diags, source);
    const struct espl_srcpos place = at(1, 501, 2);
    (void)espl_diagnostics_add(&diags, ESPL_E_JOB, &place, "far out");
    struct espl_buf text;
    espl_buf_init(&text, 1 << 20);
    espl_diagnostics_render(&diags, false, &text);
    /* Characters 401 to 560 are shown: the caret stands under the 101st of them. */
    const char *line = strstr(espl_buf_text(&text), "    1 | ...0123");
    assert_non_null(line);
    const char *carets = strstr(line, "\n      | ");
    assert_non_null(carets);
    assert_int_equal(carets - line, 8 + 3 + 160 + 3);
    assert_int_equal(strspn(carets + 9, " "), 3 + 100);
    assert_string_equal(carets + 9 + 103, "^^\n");
    espl_buf_free(&text);
    espl_diagnostics_free(&diags);
}

static void test_render__colour(void **state)
{
    (void)state;
    struct espl_diagnostics diags;
    start(&diags, "a\n");
    const struct espl_srcpos place = at(1, 1, 1);
    struct espl_diagnostic *item = espl_diagnostics_add(&diags, ESPL_E_JOB, &place, "bad");
    espl_diagnostic_hint(item, "do better");
    expect(&diags, true,
           "\033[1mjob.yaml:1:1:\033[0m \033[1;31merror:\033[0m bad\n"
           "    1 | a\n"
           "      | \033[1;31m^\033[0m\n"
           "\033[1;36mhelp:\033[0m do better\n");
}

static void test_line__all_yaml_breaks(void **state)
{
    (void)state;
    static const char source[] = "\xef\xbb\xbf"
                                 "a\r\nb\rc\xc2\x85"
                                 "d\xe2\x80\xa8"
                                 "e\n";
    const char *line = NULL;
    size_t len = 0;
    for (unsigned number = 1; number <= 5; number++) {
        assert_true(espl_text_line(source, sizeof source - 1, number, &line, &len));
        assert_int_equal(len, 1);
        assert_int_equal(line[0], 'a' + (int)number - 1);
    }
    assert_false(espl_text_line(source, sizeof source - 1, 6, &line, &len));
    assert_false(espl_text_line("", 0, 1, &line, &len));
}

static void test_decode__refuses_malformed_bytes(void **state)
{
    (void)state;
    static const char *const bad[] = {"\x80",         "\xc3",         "\xc0\xaf",
                                      "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "\xff",         "\xe6\xbc",     "\xf0\x80\x80\x80"};
    uint32_t code_point = 0;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(espl_text_decode(bad[i], strlen(bad[i]), &code_point), 0);
    }
    assert_int_equal(espl_text_decode("\xf4\x8f\xbf\xbf", 4, &code_point), 4);
    assert_int_equal(code_point, 0x10ffff);
}

static void test_clip__cuts_at_a_character(void **state)
{
    (void)state;
    char out[ESPL_CLIP_TEXT];
    espl_text_clip("short\ttext\n", out);
    assert_string_equal(out, "short text ");
    espl_text_clip("012345678901234567890123456789012345678901234567X", out);
    assert_string_equal(out, "012345678901234567890123456789012345678901234567...");
    espl_text_clip("\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2"
                   "\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2"
                   "\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2"
                   "\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2",
                   out);
    assert_int_equal(strlen(out), 63);
    assert_string_equal(out + 60, "...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_render__one_error_with_help),
        cmocka_unit_test(test_render__several_places_notes_and_context),
        cmocka_unit_test(test_render__sorts_drops_duplicates_and_counts),
        cmocka_unit_test(test_render__limit),
        cmocka_unit_test(test_render__caret_under_the_right_character),
        cmocka_unit_test(test_render__place_at_the_end_or_beyond),
        cmocka_unit_test(test_render__long_line_is_cut_around_the_caret),
        cmocka_unit_test(test_render__colour),
        cmocka_unit_test(test_line__all_yaml_breaks),
        cmocka_unit_test(test_decode__refuses_malformed_bytes),
        cmocka_unit_test(test_clip__cuts_at_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "datasets/token_regex.h"

#include "support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

/* The matches of a pattern as "start-end start-end ...". */
static enum espl_status matches_of(const char *pattern, const char *text, char *out, size_t size,
                                   struct espl_error *err)
{
    struct espl_token_regex *regex = NULL;
    enum espl_status status = espl_token_regex_create(pattern, strlen(pattern), &regex, err);
    struct espl_regex_matcher *const matcher = espl_regex_matcher_create();
    assert_non_null(matcher);
    struct espl_regex_walk walk = {0};
    bool found = status == ESPL_OK;
    size_t used = 0;
    out[0] = '\0';
    while (found) {
        size_t start = 0;
        size_t end = 0;
        status = espl_token_regex_next(regex, matcher, text, strlen(text), &walk, &found, &start,
                                       &end, err);
        if (status != ESPL_OK) {
            break;
        }
        if (found) {
            used += (size_t)snprintf(out + used, size - used, "%s%zu-%zu", used > 0 ? " " : "",
                                     start, end);
        }
    }
    espl_regex_matcher_destroy(matcher);
    espl_token_regex_destroy(regex);
    return status;
}

static void expect_matches(const char *pattern, const char *text, const char *expected)
{
    char out[512];
    struct espl_error err = {0};
    const enum espl_status status = matches_of(pattern, text, out, sizeof out, &err);
    if (status != ESPL_OK) {
        fail_msg("%s: %s", pattern, err.message);
    }
    assert_string_equal(out, expected);
}

static void test_next__walks(void **state)
{
    (void)state;
    expect_matches("a+", "baac a", "1-3 5-6");
    expect_matches("x", "abc", "");
    expect_matches("x?", "axb", "0-0 1-2 3-3"); /* no empty match right behind a match */
    expect_matches("x?", "\xc3\xa9x", "0-0 2-3");
}

/* Where Oniguruma and a plain PCRE2 pattern differ. */
static void test_translate__oniguruma_meaning(void **state)
{
    (void)state;
    expect_matches("\\s+",
                   "a\xe1\xa0\x8e\xc2\x85"
                   "b",
                   "4-6");                                   /* U+180E is no space, U+0085 is */
    expect_matches("\\w+", "x\xc2\xbd \xcc\x81", "0-3 4-6"); /* fractions of Latin-1 count */
    expect_matches("[\\w]+", "x\xc2\xbd", "0-1");            /* but not in a class */
    expect_matches("\\bx", "\xc2\xbdx x", "4-5");
    expect_matches("\\v", "\n\v", "1-2"); /* one character, not a class */
    expect_matches("\\u00e9", "\xc3\xa9", "0-2");
    expect_matches(".", "\n\r", "1-2");
    expect_matches("(?i:k)", "kK\xe2\x84\xaa", "0-1 1-2 2-5");
    expect_matches("[^\\S]", "a b", "1-2");
    expect_matches("\\p{Greek}", "\xce\xb1", "0-2");
    expect_matches("]}", "]}", "0-2");
}

struct refusal {
    const char *pattern;
    const char *part; /* of the message */
};

static const struct refusal refusals[] = {
    {"^a", "'^' at byte 0"},
    {"a$", "'$' at byte 1"},
    {"ab(?<name>c)", "'(?<n' at byte 2"},
    {"(?=a", "open group"},
    {"a)", "no group to close"},
    {"[a[b]]", "nested classes"},
    {"[a&&b]", "intersections"},
    {"[[:alpha:]]", "nested classes"},
    {"[]a]", "empty or open class"},
    {"[a", "empty or open class"},
    {"[\\d-x]", "'-'"},
    {"[a-\\d]", "cannot end a range"},
    {"\\h", "unknown escape"},
    {"\\R", "unknown escape"},
    {"\\1", "unknown escape"},
    {"\\Q", "unknown escape"},
    {"[\\b]", "unknown escape in a class"},
    {"\\p{Nonsense}", "unknown property"},
    {"\\pL", "\\p{Name}"},
    {"(?i:\\p{Lu})", "case property"},
    {"\\xe9", "code point"},
    {"\\x{110000}", "code point"},
    {"\\ud800", "code point"},
    {"a{,2}", "write {n}"},
    {"a{1,2}+", "different things"},
    {"a{2}?", "different things"},
    {"a(?i)b", "unknown kind of group"},
    {"a\\", "backslash"},
};

static void test_translate__refuses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct espl_error err = {0};
        char out[512];
        const enum espl_status status = matches_of(refusals[i].pattern, "a", out, sizeof out, &err);
        if ((status != ESPL_E_UNSUPPORTED && status != ESPL_E_CORRUPT) ||
            strstr(err.message, refusals[i].part) == NULL) {
            fail_msg("pattern %s: %s", refusals[i].pattern, err.message);
        }
    }
}

static void test_create__syntax_error(void **state)
{
    (void)state;
    struct espl_token_regex *regex = NULL;
    struct espl_error err = {0};
    assert_int_equal(espl_token_regex_create("a**", 3, &regex, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "cannot compile"));
    assert_null(regex);
    assert_int_equal(espl_token_regex_create("\xff", 1, &regex, &err), ESPL_E_CORRUPT);
    assert_int_equal(espl_token_regex_create("a\0b", 3, &regex, &err), ESPL_E_CORRUPT);
}

static void test_next__has_a_limit(void **state)
{
    (void)state;
    char out[512];
    struct espl_error err = {0};
    const enum espl_status status =
        matches_of("(?:a?a?a?)*b|(?:(?:a+)+)+c", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                   out, sizeof out, &err);
    assert_int_equal(status, ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "gave up"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_next__walks),
        cmocka_unit_test(test_translate__oniguruma_meaning),
        cmocka_unit_test(test_translate__refuses),
        cmocka_unit_test(test_create__syntax_error),
        cmocka_unit_test(test_next__has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "datasets/unicode.h"

#include "support/cmocka_all.h"

#include <string.h>

struct utf8_case {
    const char *text;
    size_t len;
    size_t invalid_at; /* len = valid */
};

/* Borders of the well-formed sequences, Unicode standard table 3-7. */
static const struct utf8_case utf8_cases[] = {
    {"", 0, 0},
    {"plain", 5, 5},
    {"\xc2\x80\xdf\xbf", 4, 4},
    {"\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf", 12, 12},
    {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", 8, 8},
    {"a\x80", 2, 1},              /* lone continuation */
    {"a\xc1\xbf", 3, 1},          /* overlong */
    {"a\xe0\x9f\xbf", 4, 1},      /* overlong */
    {"a\xf0\x8f\xbf\xbf", 5, 1},  /* overlong */
    {"ab\xed\xa0\x80", 5, 2},     /* surrogate */
    {"ab\xf4\x90\x80\x80", 6, 2}, /* above U+10FFFF */
    {"ab\xf5\x80\x80\x80", 6, 2}, /* no such lead byte */
    {"abc\xc3", 4, 3},            /* cut off */
    {"abc\xe2\x82", 5, 3},        /* cut off */
    {"abc\xf0\x9f\x98", 6, 3},    /* cut off */
    {"abc\xe2\x28\xa1", 6, 3},    /* wrong continuation */
    {"\xe2\x82\xac\xff", 4, 3},
};

static void test_invalid_at__borders(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof utf8_cases / sizeof utf8_cases[0]; i++) {
        const struct utf8_case *const c = &utf8_cases[i];
        assert_int_equal(espl_utf8_invalid_at(c->text, c->len), c->invalid_at);
    }
}

static void test_decode__inverts_encode(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0x10FFFFu; code++) {
        if (code >= 0xD800u && code <= 0xDFFFu) {
            continue;
        }
        char bytes[4];
        const size_t len = espl_utf8_encode(code, bytes);
        uint32_t back = UINT32_MAX;
        uint32_t last = UINT32_MAX;
        assert_int_equal(espl_utf8_invalid_at(bytes, len), len);
        assert_int_equal(espl_utf8_decode(bytes, &back), len);
        assert_int_equal(espl_utf8_decode_last(bytes, len, &last), len);
        assert_int_equal(back, code);
        assert_int_equal(last, code);
    }
}

static void test_is_space__is_white_space(void **state)
{
    (void)state;
    static const uint32_t spaces[] = {0x9,    0xA,    0xB,    0xC,    0xD,    0x20,   0x85,
                                      0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                      0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028,
                                      0x2029, 0x202F, 0x205F, 0x3000};
    size_t found = 0;
    for (uint32_t code = 0; code <= 0x10FFFFu; code++) {
        if (espl_unicode_is_space(code)) {
            assert_true(found < sizeof spaces / sizeof spaces[0]);
            assert_int_equal(code, spaces[found]);
            found++;
        }
    }
    assert_int_equal(found, sizeof spaces / sizeof spaces[0]);
}

static void test_classes__examples(void **state)
{
    (void)state;
    static const uint32_t words[] = {'a',    'Z',    '7',    '_',    0xE9,   0x301,
                                     0x4E00, 0x2160, 0x24B6, 0x200D, 0x1F130};
    static const uint32_t not_words[] = {' ', '-', 0xBD, 0x2460, 0x20AC, 0x1F600, 0x180E};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        assert_true(espl_unicode_is_word(words[i]));
    }
    for (size_t i = 0; i < sizeof not_words / sizeof not_words[0]; i++) {
        assert_false(espl_unicode_is_word(not_words[i]));
    }
    assert_true(espl_unicode_is_numeric('0'));
    assert_true(espl_unicode_is_numeric(0xBD));
    assert_true(espl_unicode_is_numeric(0x216B));
    assert_false(espl_unicode_is_numeric(0x4E00));
    assert_true(espl_unicode_is_punctuation('$'));
    assert_true(espl_unicode_is_punctuation('~'));
    assert_true(espl_unicode_is_punctuation(0x2019));
    assert_false(espl_unicode_is_punctuation(0x20AC));
    assert_false(espl_unicode_is_punctuation('a'));
}

static void test_lower__two_characters(void **state)
{
    (void)state;
    uint32_t out[2] = {0, 0};
    assert_int_equal(espl_unicode_lower(0x130, out), 2);
    assert_int_equal(out[0], 'i');
    assert_int_equal(out[1], 0x307);
    assert_int_equal(espl_unicode_lower(0x3A3, out), 1);
    assert_int_equal(out[0], 0x3C3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_invalid_at__borders),
        cmocka_unit_test(test_decode__inverts_encode),
        cmocka_unit_test(test_is_space__is_white_space),
        cmocka_unit_test(test_classes__examples),
        cmocka_unit_test(test_lower__two_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

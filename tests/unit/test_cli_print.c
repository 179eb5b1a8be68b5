/* Tables that fit a terminal, and the facts of program and machine. */
#include "cli/environment.h"
#include "cli/print.h"
#include "support/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_table(const char *columns_text, const char *const *cells, size_t count,
                        const char *expected)
{
    static const struct espl_column columns[] = {{.title = "name"},
                                                 {.title = "why", .gives_way = true},
                                                 {.title = "text", .gives_way = true}};
    struct espl_table *table = NULL;
    char *text = NULL;
    size_t size = 0;
    struct espl_error err;
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    if (columns_text != NULL) {
        assert_int_equal(setenv("COLUMNS", columns_text, 1), 0);
    } else {
        assert_int_equal(unsetenv("COLUMNS"), 0);
    }
    assert_int_equal(espl_table_create(columns, 3, &table, &err), ESPL_OK);
    for (size_t i = 0; i < count; i++) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", cells[i]);
    }
    assert_int_equal(espl_table_print(table, stream, 2, false, &err), ESPL_OK);
    assert_int_equal(fclose(stream), 0);
    assert_string_equal(text, expected);
    espl_table_destroy(table);
    free(text);
}

/* Texts of files stand in cells: no terminal obeys them, and none breaks a line. */
static void test_table__control_characters(void **state)
{
    static const char *const cells[] = {"a\nb", "\033[2J", "c"};
    (void)state;
    check_table(NULL, cells, 3,
                "  name  why   text\n"
                "  a?b   ?[2J  c\n");
}

static void test_table__is_not_cut_without_a_terminal(void **state)
{
    static const char *const cells[] = {"a", "a reason of some length", "words that go on and on"};
    (void)state;
    check_table(NULL, cells, 3,
                "  name  why                      text\n"
                "  a     a reason of some length  words that go on and on\n");
}

static void test_table__fits_the_terminal(void **state)
{
    static const char *const cells[] = {
        "a", "a reason of some length", "words that go on and on", "b", "short", ""};
    (void)state;
    /* 2 + 4 + 2 + 15 + 2 + 15 = 40 */
    check_table("40", cells, 6,
                "  name  why              text\n"
                "  a     a reason of ...  words that go\n"
                "                         on and on\n"
                "  b     short\n");
}

static void test_table__stops_at_twelve_columns(void **state)
{
    static const char *const cells[] = {"a", "a reason of some length", "unbreakableword"};
    (void)state;
    check_table("20", cells, 3,
                "  name  why           text\n"
                "  a     a reason ...  unbreakablew\n"
                "                      ord\n");
}

static void test_text_width__counts_columns(void **state)
{
    static const char *const cells[] = {"\xe6\xbc\xa2\xe5\xad\x97", "x", "y"}; /* two wide ones */
    (void)state;
    assert_int_equal(espl_text_width("abc"), 3);
    assert_int_equal(espl_text_width("\xc3\xbc"), 1);
    assert_int_equal(espl_text_width("\xe6\xbc\xa2\xe5\xad\x97"), 4);
    assert_int_equal(espl_text_width("e\xcc\x81"), 1); /* a combining accent */
    assert_int_equal(espl_text_width("\xff"), 1);      /* not UTF-8 */
    check_table(NULL, cells, 3, "  name  why  text\n  \xe6\xbc\xa2\xe5\xad\x97  x    y\n");
}

static void test_facts__compiler_and_device(void **state)
{
    char compiler[64];
    char first[1024];
    char second[1024];
    unsigned version[3] = {0};
    (void)state;
    espl_cli_compiler(compiler, sizeof compiler);
    const char *digits = strpbrk(compiler, "0123456789");
    assert_non_null(digits);
    assert_int_equal(sscanf(digits, "%u.%u.%u", &version[0], &version[1], &version[2]), 3);
    assert_true(strncmp(compiler, "gcc ", 4) == 0 || strncmp(compiler, "clang ", 6) == 0);
    espl_cli_device_fingerprint("cpu", first, sizeof first);
    espl_cli_device_fingerprint("cpu", second, sizeof second);
    assert_string_equal(first, second);
    assert_int_equal(strncmp(first, "cpu; cpu ", 9), 0);
    assert_non_null(strstr(first, " cores, openblas "));
    assert_null(strstr(first, "gpu"));
    espl_cli_device_fingerprint("auto", second, sizeof second);
    assert_int_equal(strncmp(second, "auto; cpu ", 10), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table__is_not_cut_without_a_terminal),
        cmocka_unit_test(test_table__control_characters),
        cmocka_unit_test(test_table__fits_the_terminal),
        cmocka_unit_test(test_table__stops_at_twelve_columns),
        cmocka_unit_test(test_text_width__counts_columns),
        cmocka_unit_test(test_facts__compiler_and_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

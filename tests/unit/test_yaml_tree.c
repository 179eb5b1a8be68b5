#include "engine/yaml_tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct espl_arena *arena;
static struct espl_diagnostics diags;

static int set_up(void **state)
{
    (void)state;
    arena = espl_arena_create((size_t)1 << 27);
    return arena != NULL && espl_diagnostics_init(&diags, NULL) == ESPL_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    espl_diagnostics_free(&diags);
    espl_arena_destroy(arena);
    return 0;
}

static const struct espl_node *parse_bytes(const char *text, size_t len)
{
    const struct espl_node *root = NULL;
    struct espl_error err = {0};
    assert_int_equal(espl_diagnostics_set_source(&diags, "job.yaml", text, len, &err), ESPL_OK);
    assert_int_equal(espl_yaml_parse("job.yaml", text, len, arena, &diags, &root, &err), ESPL_OK);
    return root;
}

static void expect_error_bytes(const char *text, size_t len, const char *expected)
{
    struct espl_buf rendered;
    const struct espl_node *root = parse_bytes(text, len);
    espl_buf_init(&rendered, 1 << 20);
    espl_diagnostics_sort(&diags);
    espl_diagnostics_render(&diags, false, &rendered);
    assert_string_equal(espl_buf_text(&rendered), expected);
    espl_buf_free(&rendered);
    (void)root;
    diags.count = 0;
}

static void expect_error(const char *text, const char *expected)
{
    expect_error_bytes(text, strlen(text), expected);
}

static void expect_place(const struct espl_node *node, unsigned line, unsigned column,
                         unsigned length)
{
    assert_string_equal(node->at.file, "job.yaml");
    assert_int_equal(node->at.line, line);
    assert_int_equal(node->at.column, column);
    assert_int_equal(node->at.length, length);
}

static void test_parse__places_and_styles(void **state)
{
    (void)state;
    static const char text[] = "\xef\xbb\xbf"
                               "\xc3\xa9: no\n"
                               "b: [1, \"2:4\", '']\n"
                               "c: {d: 2:4}\n"
                               "e:\n"
                               "f: ~\n";
    const struct espl_node *root = parse_bytes(text, sizeof text - 1);
    assert_int_equal(diags.count, 0);
    assert_int_equal(root->type, ESPL_NODE_MAPPING);
    assert_int_equal(root->count, 5);
    expect_place(root->keys[0], 1, 1, 1);
    assert_string_equal(root->items[0]->text, "no");
    expect_place(root->items[0], 1, 4, 2);
    const struct espl_node *list = espl_node_get(root, "b", NULL);
    assert_int_equal(list->type, ESPL_NODE_SEQUENCE);
    assert_int_equal(list->count, 3);
    expect_place(list->items[1], 2, 8, 5);
    assert_true(list->items[1]->quoted);
    assert_false(list->items[0]->quoted);
    assert_false(espl_node_is_null(list->items[2]));
    const struct espl_node *key = NULL;
    const struct espl_node *mapping = espl_node_get(root, "c", &key);
    expect_place(key, 3, 1, 1);
    assert_string_equal(espl_node_get(mapping, "d", NULL)->text, "2:4");
    assert_true(espl_node_is_null(espl_node_get(root, "e", NULL)));
    assert_true(espl_node_is_null(espl_node_get(root, "f", NULL)));
    assert_null(espl_node_get(root, "g", NULL));
    assert_null(espl_node_get(list, "g", NULL));
}

static void test_parse__aliases_are_shared(void **state)
{
    (void)state;
    static const char text[] = "a: &x {b: 1}\nc: *x\n";
    const struct espl_node *root = parse_bytes(text, sizeof text - 1);
    assert_int_equal(diags.count, 0);
    assert_ptr_equal(espl_node_get(root, "a", NULL), espl_node_get(root, "c", NULL));
}

static void test_parse__duplicate_keys_show_both_places(void **state)
{
    (void)state;
    expect_error("seed: 1\nname: x\nseed: 2\n", "job.yaml:3:1: error: duplicate key 'seed'\n"
                                                "    3 | seed: 2\n"
                                                "      | ^^^^ given again here\n"
                                                "    1 | seed: 1\n"
                                                "      | ^^^^ first given here\n");
    /* In a nested mapping too, and every repetition refers to the first. */
    expect_error("a: {b: 1, \"b\": 2, b: 3}\n", "job.yaml:1:11: error: duplicate key 'b'\n"
                                                "    1 | a: {b: 1, \"b\": 2, b: 3}\n"
                                                "      |           ^^^ given again here\n"
                                                "    1 | a: {b: 1, \"b\": 2, b: 3}\n"
                                                "      |     ^ first given here\n"
                                                "\n"
                                                "job.yaml:1:19: error: duplicate key 'b'\n"
                                                "    1 | a: {b: 1, \"b\": 2, b: 3}\n"
                                                "      |                   ^ given again here\n"
                                                "    1 | a: {b: 1, \"b\": 2, b: 3}\n"
                                                "      |     ^ first given here\n"
                                                "\n"
                                                "2 errors\n");
}

static void test_parse__tabs(void **state)
{
    (void)state;
    expect_error("a:\n\tb: 1\n", "job.yaml:2:1: error: a tab is used for indentation\n"
                                 "    2 | \tb: 1\n"
                                 "      | ^\n"
                                 "help: YAML is indented with spaces: replace the tab by spaces\n");
    expect_error("a:\n  b: 1\n \tc: 2\n",
                 "job.yaml:3:2: error: a tab is used for indentation\n"
                 "    3 |  \tc: 2\n"
                 "      |  ^\n"
                 "help: YAML is indented with spaces: replace the tab by spaces\n");
}

static void test_parse__syntax_errors(void **state)
{
    (void)state;
    expect_error("a: b: c\n",
                 "job.yaml:1:5: error: not valid YAML: a second ':' in one line\n"
                 "    1 | a: b: c\n"
                 "      |     ^\n"
                 "help: put a value that contains ': ' in quotes; start a nested mapping on a new "
                 "line\n");
    expect_error("a: [1, 2\nb: 3\n", "job.yaml:2:2: error: not valid YAML: expected ',' or ']'\n"
                                     "    2 | b: 3\n"
                                     "      |  ^\n"
                                     "    1 | a: [1, 2\n"
                                     "      |    ^ the list that starts here\n");
    expect_error("a:\n  - x\n b: 1\n",
                 "job.yaml:3:2: error: not valid YAML: expected a 'key: value' line here\n"
                 "    3 |  b: 1\n"
                 "      |  ^\n"
                 "    1 | a:\n"
                 "      | ^ in the mapping that starts here\n"
                 "help: check the indentation of this line and of the line above\n");
    expect_error("a: @x\n", "job.yaml:1:4: error: not valid YAML: this character cannot start a "
                            "value\n"
                            "    1 | a: @x\n"
                            "      |    ^\n"
                            "help: put the value in quotes\n");
    expect_error("a: \"x\nb: 3\n",
                 "job.yaml:1:4: error: not valid YAML: the file ends inside a quoted text\n"
                 "    1 | a: \"x\n"
                 "      |    ^ the quoted text that starts here\n"
                 "help: close the quote\n");
}

static void test_parse__whole_file_errors(void **state)
{
    (void)state;
    expect_error("", "job.yaml:1:1: error: the file is empty\n");
    expect_error("# only a comment\n", "job.yaml:1:1: error: the file is empty\n"
                                       "    1 | # only a comment\n"
                                       "      | ^\n");
    expect_error("- a\n- b\n",
                 "job.yaml:1:1: error: a job file is a mapping of 'key: value' lines, got a list\n"
                 "    1 | - a\n"
                 "      | ^\n"
                 "help: its keys are version, name, seed, device, limits and stages\n");
    expect_error("a: 1\n---\nb: 1\n", "job.yaml:2:1: error: a second document starts here\n"
                                      "    2 | ---\n"
                                      "      | ^^^\n"
                                      "help: a job file is one document: remove this '---'\n");
    expect_error("a: !!int 3\n", "job.yaml:1:4: error: tags are not used here: "
                                 "'tag:yaml.org,2002:int'\n"
                                 "    1 | a: !!int 3\n"
                                 "      |    ^^^^^^^\n"
                                 "help: leave it out: the type of a value is known from its key\n");
    expect_error("? [a]\n: b\n", "job.yaml:1:3: error: a key must be a text, got a list\n"
                                 "    1 | ? [a]\n"
                                 "      |   ^\n");
}

static void test_parse__bytes_that_are_not_text(void **state)
{
    (void)state;
    expect_error("a: 1\nb: \xe9t\n", "job.yaml:2:4: error: the file is not UTF-8: byte 0xe9\n"
                                     "    2 | b: ?t\n"
                                     "      |    ^\n"
                                     "help: save the file as UTF-8\n");
    expect_error("a: \x07\n", "job.yaml:1:4: error: character U+0007 is not allowed\n"
                              "    1 | a: ?\n"
                              "      |    ^\n"
                              "help: remove it, or write it as \"\\u0007\" in double quotes\n");
    expect_error_bytes("a: \0b\n", 6,
                       "job.yaml:1:4: error: character U+0000 is not allowed\n"
                       "    1 | a: ?b\n"
                       "      |    ^\n"
                       "help: remove it, or write it as \"\\u0000\" in double quotes\n");
    expect_error("a: \"\\0\"\n", "job.yaml:1:4: error: a text must not hold the character U+0000\n"
                                 "    1 | a: \"\\0\"\n"
                                 "      |    ^^^^\n");
    /* UTF-16 with its byte order mark. */
    expect_error_bytes("\xff\xfe"
                       "a\0",
                       4,
                       "job.yaml:1:1: error: the file is not UTF-8: byte 0xff\n"
                       "    1 | ??a?\n"
                       "      | ^\n"
                       "help: save the file as UTF-8\n");
}

static void test_parse__aliases_that_cannot_be(void **state)
{
    (void)state;
    expect_error("a: *x\n", "job.yaml:1:4: error: alias '*x' has no anchor '&x' before it\n"
                            "    1 | a: *x\n"
                            "      |    ^^\n");
    expect_error("a: &x\n  b: *x\n", "job.yaml:2:6: error: alias '*x' contains itself\n"
                                     "    2 |   b: *x\n"
                                     "      |      ^^\n");
}

static void test_parse__alias_bomb_is_refused(void **state)
{
    (void)state;
    /* Nine levels of nine aliases each would be 9^9 values. */
    struct espl_buf text;
    espl_buf_init(&text, 1 << 16);
    espl_buf_puts(&text, "a0: &a0 x\n");
    for (int level = 1; level <= 9; level++) {
        espl_buf_printf(&text, "a%d: &a%d [", level, level);
        for (int i = 0; i < 9; i++) {
            espl_buf_printf(&text, "%s*a%d", i > 0 ? "," : "", level - 1);
        }
        espl_buf_puts(&text, "]\n");
    }
    assert_null(parse_bytes(espl_buf_text(&text), text.len));
    assert_int_equal(diags.count, 1);
    assert_string_equal(diags.items[0].error.message, "the file has more than 20000 values");
    espl_buf_free(&text);
}

static void test_parse__depth_and_size_limits(void **state)
{
    (void)state;
    char deep[256] = "a: ";
    memset(deep + 3, '[', 31);
    deep[34] = '1';
    memset(deep + 35, ']', 31);
    /* root, 31 lists and the scalar are 33 levels. */
    assert_null(parse_bytes(deep, strlen(deep)));
    assert_string_equal(diags.items[0].error.message, "nested deeper than 32 levels");
    diags.count = 0;
    memmove(deep + 3, deep + 4, strlen(deep + 3));
    deep[strlen(deep) - 1] = '\0';
    assert_non_null(parse_bytes(deep, strlen(deep)));
    assert_int_equal(diags.count, 0);
    /* An alias brings its own depth along. */
    struct espl_buf text;
    espl_buf_init(&text, 4 << 20);
    espl_buf_puts(&text,
                  "a: &x [[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]\nb: [[[[[[[[[[[[[[[[[[*x]]]]]]]]]]"
                  "]]]]]]]]\n");
    assert_null(parse_bytes(espl_buf_text(&text), text.len));
    assert_string_equal(diags.items[0].error.message, "nested deeper than 32 levels");
    diags.count = 0;
    espl_buf_reset(&text);
    espl_buf_puts(&text, "a: [");
    for (int i = 0; i < 20001; i++) {
        espl_buf_puts(&text, "1,");
    }
    espl_buf_puts(&text, "]\n");
    assert_null(parse_bytes(espl_buf_text(&text), text.len));
    assert_string_equal(diags.items[0].error.message, "the file has more than 20000 values");
    diags.count = 0;
    espl_buf_reset(&text);
    while (text.len <= ESPL_YAML_MAX_BYTES) {
        espl_buf_puts(&text, "# a comment that only fills the file up to its limit\n");
    }
    assert_null(parse_bytes(espl_buf_text(&text), text.len));
    assert_string_equal(diags.items[0].error.message, "the file is larger than 1048576 bytes");
    espl_buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_parse__places_and_styles, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parse__aliases_are_shared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parse__duplicate_keys_show_both_places, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_parse__tabs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parse__syntax_errors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parse__whole_file_errors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parse__bytes_that_are_not_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parse__aliases_that_cannot_be, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parse__alias_bomb_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parse__depth_and_size_limits, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The option tables: parsing, suggestions, help. */
#include "cli/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct espl_option table[] = {
    {.name = "set", .argument = "PATH=VALUE", .repeatable = true, .help = "override"},
    {.name = "graph", .argument = "ascii|dot", .help = "print the graph"},
    {.name = "keep-going", .letter = 'k', .help = "go on"},
    {.name = "count", .letter = 'n', .argument = "N", .help = "how many"},
    {0},
};

static const struct espl_command command = {
    .name = "run",
    .summary = "run a job",
    .positional = "JOB",
    .min_positional = 1,
    .max_positional = 1,
    .options = table,
    .description = "More words.",
};

/* Parses words that end with NULL. */
static enum espl_status parse(const struct espl_command *of, char *const *words,
                              struct espl_parsed *parsed, struct espl_error *err)
{
    int count = 0;
    while (words[count] != NULL) {
        count++;
    }
    return espl_options_parse(of, count, words, parsed, err);
}

static void expect_error(char *const *words, const char *message, const char *hint)
{
    struct espl_parsed parsed;
    struct espl_error err;
    espl_error_clear(&err);
    assert_int_equal(parse(&command, words, &parsed, &err), ESPL_E_USAGE);
    assert_string_equal(err.message, message);
    assert_string_equal(err.hint, hint);
    assert_null(parsed.items);
}

static void test_parse__all_forms(void **state)
{
    (void)state;
    struct espl_parsed parsed;
    char *words[] = {"--set", "a.b=1", "--set=c.d=x=y", "-k", "-n3", "job.yaml", "--graph",
                     "dot",   "-q",    "-vq",           NULL};
    const char **values = NULL;
    size_t count = 0;
    assert_int_equal(parse(&command, words, &parsed, NULL), ESPL_OK);
    assert_true(espl_args_has(&parsed.args, "keep-going"));
    assert_true(espl_args_has(&parsed.args, "quiet"));
    assert_true(espl_args_has(&parsed.args, "verbose"));
    assert_false(espl_args_has(&parsed.args, "json"));
    assert_string_equal(espl_args_value(&parsed.args, "count", "0"), "3");
    assert_string_equal(espl_args_value(&parsed.args, "graph", "ascii"), "dot");
    assert_string_equal(espl_args_value(&parsed.args, "store", "results"), "results");
    assert_int_equal(parsed.args.positional_count, 1);
    assert_string_equal(parsed.args.positional[0], "job.yaml");
    assert_int_equal(espl_args_collect(&parsed.args, "set", &values, &count, NULL), ESPL_OK);
    assert_int_equal(count, 2);
    assert_string_equal(values[0], "a.b=1");
    assert_string_equal(values[1], "c.d=x=y");
    free(values);
    assert_int_equal(espl_args_collect(&parsed.args, "graph", &values, &count, NULL), ESPL_OK);
    assert_int_equal(count, 1);
    free(values);
    espl_options_free(&parsed);
}

static void test_parse__dash_is_an_argument_and_two_dashes_end_options(void **state)
{
    (void)state;
    struct espl_parsed parsed;
    char *dash[] = {"-", NULL};
    assert_int_equal(parse(&command, dash, &parsed, NULL), ESPL_OK);
    assert_string_equal(parsed.args.positional[0], "-");
    espl_options_free(&parsed);
    char *ended[] = {"--", "--graph", NULL};
    assert_int_equal(parse(&command, ended, &parsed, NULL), ESPL_OK);
    assert_string_equal(parsed.args.positional[0], "--graph");
    assert_int_equal(parsed.args.count, 0);
    espl_options_free(&parsed);
}

static void test_parse__mistakes(void **state)
{
    (void)state;
    char *unknown[] = {"job.yaml", "--keep-goin", NULL};
    expect_error(unknown, "unknown option '--keep-goin'", "did you mean '--keep-going'?");
    char *far[] = {"job.yaml", "--frobnicate=1", NULL};
    expect_error(far, "unknown option '--frobnicate'", "see `espalier run --help`");
    char *letter[] = {"job.yaml", "-kz", NULL};
    expect_error(letter, "unknown option '-z'", "see `espalier run --help`");
    char *missing[] = {"job.yaml", "--graph", NULL};
    expect_error(missing, "option '--graph' needs a value: ascii|dot", "see `espalier run --help`");
    char *choice[] = {"job.yaml", "--graph=do", NULL};
    expect_error(choice, "option '--graph' cannot be 'do'", "choose one of ascii|dot");
    char *empty_choice[] = {"job.yaml", "--graph=", NULL};
    expect_error(empty_choice, "option '--graph' cannot be ''", "choose one of ascii|dot");
    char *value[] = {"job.yaml", "--keep-going=yes", NULL};
    expect_error(value, "option '--keep-going' takes no value", "see `espalier run --help`");
    char *twice[] = {"job.yaml", "-n1", "-n2", NULL};
    expect_error(twice, "option '--count' is given twice", "see `espalier run --help`");
    char *none[] = {NULL};
    expect_error(none, "'run' needs JOB", "see `espalier run --help`");
    char *many[] = {"a", "b", NULL};
    expect_error(many, "unexpected argument 'b'", "the form is: espalier run [options] JOB");
}

static void test_parse__help_needs_no_arguments(void **state)
{
    (void)state;
    struct espl_parsed parsed;
    char *words[] = {"-h", NULL};
    assert_int_equal(parse(&command, words, &parsed, NULL), ESPL_OK);
    assert_true(espl_args_has(&parsed.args, "help"));
    espl_options_free(&parsed);
}

static void test_help__shows_both_tables(void **state)
{
    (void)state;
    struct espl_buf text;
    espl_buf_init(&text, 1 << 16);
    espl_options_help(&command, &text);
    static const char start[] = "usage: espalier run [options] JOB\n"
                                "\n"
                                "run a job\n"
                                "\n"
                                "More words.\n"
                                "\n"
                                "options\n"
                                "      --set=PATH=VALUE                 override (repeatable)\n"
                                "      --graph=ascii|dot                print the graph\n"
                                "  -k, --keep-going                     go on\n"
                                "  -n, --count=N                        how many\n"
                                "\n"
                                "common options\n";
    assert_int_equal(strncmp(espl_buf_text(&text), start, sizeof start - 1), 0);
    for (const struct espl_option *row = espl_common_options; row->name != NULL; row++) {
        assert_non_null(strstr(espl_buf_text(&text), row->name));
    }
    espl_buf_free(&text);
}

static void test_overview__lists_verbs(void **state)
{
    (void)state;
    struct espl_buf text;
    const struct espl_command *const commands[] = {&command, NULL};
    espl_buf_init(&text, 1 << 16);
    espl_options_overview(commands, &text);
    assert_non_null(strstr(espl_buf_text(&text), "\n  run          run a job\n"));
    espl_buf_free(&text);
    assert_ptr_equal(espl_command_find(commands, "run"), &command);
    assert_null(espl_command_find(commands, "ru"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse__all_forms),
        cmocka_unit_test(test_parse__dash_is_an_argument_and_two_dashes_end_options),
        cmocka_unit_test(test_parse__mistakes),
        cmocka_unit_test(test_parse__help_needs_no_arguments),
        cmocka_unit_test(test_help__shows_both_tables),
        cmocka_unit_test(test_overview__lists_verbs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

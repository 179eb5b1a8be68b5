#include "cli/cli.h"

#include "cli/command.h"
#include "cli/options.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "core/suggest.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_VERBS = 64, HELP_BYTES = 1 << 20, COMMAND_LINE_BYTES = 1 << 20 };

/* ---- finding the verb ---- */

/* Index of the verb in argv: the first word that is no option (nor the value of one); argc when
 * there is none. */
static int find_verb(int argc, char *const *argv)
{
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (word[0] != '-') {
            return i;
        }
        for (const struct espl_option *row = espl_common_options; row->name != NULL; row++) {
            if (strncmp(word, "--", 2) == 0 && strcmp(word + 2, row->name) == 0 &&
                row->argument != NULL) {
                i++; /* its value is the next word */
                break;
            }
        }
    }
    return argc;
}

static enum espl_status fail_unknown_verb(const char *word, struct espl_error *err)
{
    const char *names[MAX_VERBS];
    size_t count = 0;
    for (size_t i = 0; espl_commands[i] != NULL && count < MAX_VERBS; i++) {
        names[count++] = espl_commands[i]->name;
    }
    (void)espl_fail(err, ESPL_E_USAGE, "unknown verb '%s'", word);
    const char *near = espl_suggest(word, names, count);
    return near != NULL ? espl_hint(err, "did you mean '%s'?", near)
                        : espl_hint(err, "see `espalier --help`");
}

/* ---- what every verb gets ---- */

/* The command line as a shell would take it again. */
static bool quote_words(int argc, char *const *argv, struct espl_buf *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./:=,+@%";
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        (void)espl_buf_puts(out, i > 0 ? " " : "");
        if (word[0] != '\0' && strspn(word, plain) == strlen(word)) {
            (void)espl_buf_puts(out, word);
            continue;
        }
        (void)espl_buf_puts(out, "'");
        for (const char *at = word; *at != '\0'; at++) {
            if (*at == '\'') {
                (void)espl_buf_puts(out, "'\\''");
            } else {
                (void)espl_buf_add(out, at, 1);
            }
        }
        (void)espl_buf_puts(out, "'");
    }
    return !out->failed;
}

static bool wants_colour(const struct espl_args *args, FILE *stream)
{
    const char *choice = espl_args_value(args, "color", "auto");
    const char *no_colour = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");
    if (strcmp(choice, "auto") != 0) {
        return strcmp(choice, "always") == 0;
    }
    return isatty(fileno(stream)) && (no_colour == NULL || no_colour[0] == '\0') &&
           terminal != NULL && strcmp(terminal, "dumb") != 0;
}

static enum espl_progress_style choose_progress(const struct espl_args *args, FILE *stream)
{
    const char *choice = espl_args_value(args, "progress", "auto");
    if (strcmp(choice, "bar") == 0) {
        return ESPL_PROGRESS_BAR;
    }
    if (strcmp(choice, "lines") == 0) {
        return ESPL_PROGRESS_LINES;
    }
    return strcmp(choice, "none") == 0 ? ESPL_PROGRESS_NONE : espl_progress_choose(stream);
}

static void fill_cli(struct espl_cli *cli, const struct espl_args *args)
{
    cli->args = args;
    cli->json = espl_args_has(args, "json");
    cli->quiet = espl_args_has(args, "quiet");
    cli->verbose = espl_args_has(args, "verbose");
    cli->colour_out = wants_colour(args, cli->out);
    cli->colour_err = wants_colour(args, cli->err_stream);
    cli->progress = choose_progress(args, cli->err_stream);
    cli->store_dir = espl_args_value(args, "store", "results");
}

static void print_help(const struct espl_cli *cli, const struct espl_command *command)
{
    struct espl_buf text;
    espl_buf_init(&text, HELP_BYTES);
    if (command != NULL) {
        espl_options_help(command, &text);
    } else {
        espl_options_overview(espl_commands, &text);
    }
    (void)fputs(espl_buf_text(&text), cli->out);
    espl_buf_free(&text);
}

/* ---- running ---- */

/* Is the other end of the pipe or socket closed? Asked when an earlier write failed, whose errno is
 * no longer known. */
static bool reader_is_gone(FILE *stream)
{
    struct pollfd end = {.fd = fileno(stream), .events = POLLOUT};
    return poll(&end, 1, 0) > 0 && (end.revents & (POLLERR | POLLHUP)) != 0;
}

/* Data that did not reach its reader is a failure, also when the verb went well; but a reader may
 * go away when it has seen enough. */
static enum espl_status flush_output(const struct espl_cli *cli, enum espl_status status,
                                     struct espl_error *err)
{
    errno = 0;
    if ((fflush(cli->out) == 0 && ferror(cli->out) == 0) || errno == EPIPE ||
        reader_is_gone(cli->out)) {
        return status;
    }
    if (status != ESPL_OK) {
        return status;
    }
    return errno != 0 ? espl_fail_errno(err, errno, "cannot write to standard output")
                      : espl_fail(err, ESPL_E_IO, "standard output is not whole: a write failed");
}

static enum espl_status run_verb(struct espl_cli *cli, const struct espl_command *command,
                                 struct espl_error *err)
{
    const char *root = espl_args_value(cli->args, "root", NULL);
    if (espl_args_has(cli->args, "help")) {
        print_help(cli, command);
        return ESPL_OK;
    }
    if (root != NULL && chdir(root) != 0) {
        return espl_fail_errno(err, errno, "cannot work in folder '%s'", root);
    }
    return command->run(cli, err);
}

/* The words without the verb: options may stand before it. */
static char **words_without(int argc, char **argv, int verb)
{
    char **words = calloc((size_t)argc, sizeof *words);
    size_t count = 0;
    for (int i = 1; i < argc && words != NULL; i++) {
        if (i != verb) {
            words[count++] = argv[i];
        }
    }
    return words;
}

static enum espl_status dispatch(struct espl_cli *cli, int argc, char **argv,
                                 struct espl_error *err)
{
    struct espl_parsed parsed;
    const int verb = find_verb(argc, argv);
    const struct espl_command *command = NULL;
    memset(&parsed, 0, sizeof parsed);
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        (void)fprintf(cli->out, "espalier %s\n", ESPL_TOOL_VERSION);
        return flush_output(cli, ESPL_OK, err);
    }
    if (verb < argc) {
        command = espl_command_find(espl_commands, argv[verb]);
        if (command == NULL) {
            return fail_unknown_verb(argv[verb], err);
        }
    }
    char **words = words_without(argc, argv, verb);
    if (words == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the command line");
    }
    enum espl_status status =
        espl_options_parse(command, verb < argc ? argc - 2 : argc - 1, words, &parsed, err);
    if (status == ESPL_OK) {
        fill_cli(cli, &parsed.args);
        if (command != NULL) {
            status = run_verb(cli, command, err);
        } else if (espl_args_has(&parsed.args, "help")) {
            print_help(cli, NULL);
        } else {
            (void)espl_fail(err, ESPL_E_USAGE, "no verb given");
            status = espl_hint(err, "see `espalier --help`");
        }
        status = flush_output(cli, status, err);
    }
    cli->args = NULL;
    espl_options_free(&parsed);
    free(words);
    return status;
}

int espl_cli_main(int argc, char **argv, const volatile int *stop_signal,
                  const volatile int *stop_count)
{
    struct espl_error err;
    struct espl_buf command_line;
    const struct espl_args none = {0};
    struct espl_cli cli = {
        .out = stdout,
        .err_stream = stderr,
        .stop_signal = stop_signal,
        .stop_count = stop_count,
        .program = argc > 0 ? argv[0] : "espalier",
    };
    espl_error_clear(&err);
    fill_cli(&cli, &none); /* for errors of the command line itself */
    espl_buf_init(&command_line, COMMAND_LINE_BYTES);
    (void)quote_words(argc, argv, &command_line); /* a longer one is recorded as far as it fits */
    cli.command_line = espl_buf_text(&command_line);
    enum espl_status status = dispatch(&cli, argc, argv, &err);
    /* The verbs know only that there was a signal. */
    if (status == ESPL_E_CANCELLED && stop_signal != NULL && *stop_signal == SIGTERM) {
        status = ESPL_E_TERMINATED;
        err.code = status;
    }
    if (status != ESPL_OK) {
        espl_print_error(&cli, &err);
    }
    espl_buf_free(&command_line);
    return espl_status_exit_code(status);
}

#include "cli/options.h"

#include "core/suggest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 128 };

const struct espl_option espl_common_options[] = {
    {.name = "store",
     .argument = "DIR",
     .complete = ESPL_COMPLETE_FILE,
     .help = "results folder, default \"results\""},
    {.name = "root",
     .argument = "DIR",
     .complete = ESPL_COMPLETE_FILE,
     .help = "work in this folder: relative paths start there"},
    {.name = "json", .help = "print JSON with a versioned schema"},
    {.name = "color",
     .argument = "auto|always|never",
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "colour; auto honours NO_COLOR and TERM"},
    {.name = "progress",
     .argument = "auto|bar|lines|none",
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "how to show progress; auto draws a bar on a terminal"},
    {.name = "quiet", .letter = 'q', .help = "no talk on stderr besides errors"},
    {.name = "verbose", .letter = 'v', .help = "more talk on stderr"},
    {.name = "help", .letter = 'h', .help = "this text"},
    {0},
};

static bool is_named(const struct espl_arg *item, const char *name)
{
    return item->option != NULL && strcmp(item->option->name, name) == 0;
}

bool espl_args_has(const struct espl_args *args, const char *name)
{
    for (size_t i = 0; i < args->count; i++) {
        if (is_named(&args->items[i], name)) {
            return true;
        }
    }
    return false;
}

const char *espl_args_value(const struct espl_args *args, const char *name, const char *fallback)
{
    const char *value = fallback;
    for (size_t i = 0; i < args->count; i++) {
        if (is_named(&args->items[i], name)) {
            value = args->items[i].value;
        }
    }
    return value;
}

enum espl_status espl_args_collect(const struct espl_args *args, const char *name,
                                   const char ***values, size_t *count, struct espl_error *err)
{
    const char **list = NULL;
    size_t found = 0;
    *values = NULL;
    *count = 0;
    for (size_t i = 0; i < args->count; i++) {
        found += is_named(&args->items[i], name) ? 1 : 0;
    }
    if (found == 0) {
        return ESPL_OK;
    }
    list = calloc(found, sizeof *list);
    if (list == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the values of --%s", name);
    }
    for (size_t i = 0; i < args->count; i++) {
        if (is_named(&args->items[i], name)) {
            list[(*count)++] = args->items[i].value;
        }
    }
    *values = list;
    return ESPL_OK;
}

const struct espl_command *espl_command_find(const struct espl_command *const *commands,
                                             const char *name)
{
    for (size_t i = 0; commands[i] != NULL; i++) {
        if (strcmp(commands[i]->name, name) == 0) {
            return commands[i];
        }
    }
    return NULL;
}

/* ---- parsing ---- */

struct parser {
    const struct espl_command *command;
    int argc;
    char *const *argv;
    int at; /* next word */
    struct espl_parsed *out;
};

static const char *verb_of(const struct parser *parser)
{
    return parser->command != NULL ? parser->command->name : NULL;
}

/* "see `espalier run --help`" */
static enum espl_status hint_help(const struct parser *parser, struct espl_error *err)
{
    const char *verb = verb_of(parser);
    return espl_hint(err, "see `espalier %s%s--help`", verb != NULL ? verb : "",
                     verb != NULL ? " " : "");
}

static const struct espl_option *find_option(const struct parser *parser, const char *name,
                                             size_t len)
{
    for (size_t t = 0; parser->out->tables[t] != NULL; t++) {
        for (const struct espl_option *row = parser->out->tables[t]; row->name != NULL; row++) {
            if (strlen(row->name) == len && strncmp(row->name, name, len) == 0) {
                return row;
            }
        }
    }
    return NULL;
}

static const struct espl_option *find_letter(const struct parser *parser, char letter)
{
    for (size_t t = 0; parser->out->tables[t] != NULL; t++) {
        for (const struct espl_option *row = parser->out->tables[t]; row->name != NULL; row++) {
            if (row->letter != 0 && row->letter == letter) {
                return row;
            }
        }
    }
    return NULL;
}

static enum espl_status fail_unknown(const struct parser *parser, const char *name, size_t len,
                                     struct espl_error *err)
{
    const char *names[MAX_NAMES];
    size_t count = 0;
    char word[64];
    for (size_t t = 0; parser->out->tables[t] != NULL; t++) {
        for (const struct espl_option *row = parser->out->tables[t]; row->name != NULL; row++) {
            if (count < MAX_NAMES) {
                names[count++] = row->name;
            }
        }
    }
    (void)snprintf(word, sizeof word, "%.*s", (int)(len < 60 ? len : 60), name);
    (void)espl_fail(err, ESPL_E_USAGE, "unknown option '--%s'", word);
    const char *near = espl_suggest(word, names, count);
    return near != NULL ? espl_hint(err, "did you mean '--%s'?", near) : hint_help(parser, err);
}

/* Is `value` one of the words of "a|b|c"? */
static bool is_choice(const char *choices, const char *value)
{
    const size_t len = strlen(value);
    for (const char *at = choices; *at != '\0';) {
        const size_t word = strcspn(at, "|");
        if (word == len && strncmp(at, value, len) == 0) {
            return true;
        }
        at += word + (at[word] == '|' ? 1 : 0);
    }
    return false;
}

static enum espl_status add_item(struct parser *parser, const struct espl_option *option,
                                 const char *value, struct espl_error *err)
{
    struct espl_args *args = &parser->out->args;
    if (option->argument != NULL && value != NULL && strchr(option->argument, '|') != NULL &&
        !is_choice(option->argument, value)) {
        (void)espl_fail(err, ESPL_E_USAGE, "option '--%s' cannot be '%s'", option->name, value);
        return espl_hint(err, "choose one of %s", option->argument);
    }
    for (size_t i = 0; i < args->count && !option->repeatable && option->argument != NULL; i++) {
        if (args->items[i].option == option) {
            (void)espl_fail(err, ESPL_E_USAGE, "option '--%s' is given twice", option->name);
            return hint_help(parser, err);
        }
    }
    parser->out->items[args->count++] = (struct espl_arg){.option = option, .value = value};
    return ESPL_OK;
}

static enum espl_status take_value(struct parser *parser, const struct espl_option *option,
                                   const char **value, struct espl_error *err)
{
    if (parser->at >= parser->argc) {
        (void)espl_fail(err, ESPL_E_USAGE, "option '--%s' needs a value: %s", option->name,
                        option->argument);
        return hint_help(parser, err);
    }
    *value = parser->argv[parser->at++];
    return ESPL_OK;
}

static enum espl_status parse_long(struct parser *parser, const char *word, struct espl_error *err)
{
    const char *name = word + 2;
    const size_t len = strcspn(name, "=");
    const char *value = name[len] == '=' ? name + len + 1 : NULL;
    const struct espl_option *option = find_option(parser, name, len);
    if (option == NULL) {
        return fail_unknown(parser, name, len, err);
    }
    if (option->argument == NULL && value != NULL) {
        (void)espl_fail(err, ESPL_E_USAGE, "option '--%s' takes no value", option->name);
        return hint_help(parser, err);
    }
    enum espl_status status = ESPL_OK;
    if (option->argument != NULL && value == NULL) {
        status = take_value(parser, option, &value, err);
    }
    return status == ESPL_OK ? add_item(parser, option, value, err) : status;
}

static enum espl_status parse_letters(struct parser *parser, const char *word,
                                      struct espl_error *err)
{
    for (const char *at = word + 1; *at != '\0'; at++) {
        const struct espl_option *option = find_letter(parser, *at);
        const char *value = NULL;
        enum espl_status status = ESPL_OK;
        if (option == NULL) {
            (void)espl_fail(err, ESPL_E_USAGE, "unknown option '-%c'", *at);
            return hint_help(parser, err);
        }
        if (option->argument != NULL && at[1] != '\0') {
            return add_item(parser, option, at + 1, err);
        }
        if (option->argument != NULL) {
            status = take_value(parser, option, &value, err);
        }
        if (status == ESPL_OK) {
            status = add_item(parser, option, value, err);
        }
        if (status != ESPL_OK) {
            return status;
        }
    }
    return ESPL_OK;
}

static enum espl_status check_positionals(const struct parser *parser, struct espl_error *err)
{
    const struct espl_command *command = parser->command;
    const size_t count = parser->out->args.positional_count;
    if (command == NULL || espl_args_has(&parser->out->args, "help")) {
        return ESPL_OK;
    }
    const char *form = command->positional != NULL ? command->positional : "";
    if (count < command->min_positional) {
        (void)espl_fail(err, ESPL_E_USAGE, "'%s' needs %s", command->name, form);
        return hint_help(parser, err);
    }
    if (count > command->max_positional) {
        (void)espl_fail(err, ESPL_E_USAGE, "unexpected argument '%s'",
                        parser->out->args.positional[command->max_positional]);
        return espl_hint(err, "the form is: espalier %s [options]%s%s", command->name,
                         form[0] != '\0' ? " " : "", form);
    }
    return ESPL_OK;
}

static enum espl_status parse_words(struct parser *parser, struct espl_error *err)
{
    bool options_ended = false;
    while (parser->at < parser->argc) {
        const char *word = parser->argv[parser->at++];
        enum espl_status status = ESPL_OK;
        if (options_ended || word[0] != '-' || word[1] == '\0') {
            parser->out->positional[parser->out->args.positional_count++] = word;
        } else if (strcmp(word, "--") == 0) {
            options_ended = true;
        } else if (word[1] == '-') {
            status = parse_long(parser, word, err);
        } else {
            status = parse_letters(parser, word, err);
        }
        if (status != ESPL_OK) {
            return status;
        }
    }
    return check_positionals(parser, err);
}

enum espl_status espl_options_parse(const struct espl_command *command, int argc, char *const *argv,
                                    struct espl_parsed *out, struct espl_error *err)
{
    size_t most = 1;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < argc; i++) {
        most += strlen(argv[i]) + 1; /* a word of n letters holds at most n switches */
    }
    out->items = calloc(most, sizeof *out->items);
    out->positional = calloc((size_t)argc + 1, sizeof *out->positional);
    if (out->items == NULL || out->positional == NULL) {
        espl_options_free(out);
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the command line");
    }
    size_t tables = 0;
    if (command != NULL && command->options != NULL) {
        out->tables[tables++] = command->options;
    }
    out->tables[tables] = espl_common_options;
    out->args.tables = out->tables;
    out->args.items = out->items;
    out->args.positional = out->positional;
    struct parser parser = {.command = command, .argc = argc, .argv = argv, .out = out};
    const enum espl_status status = parse_words(&parser, err);
    if (status != ESPL_OK) {
        espl_options_free(out);
    }
    return status;
}

void espl_options_free(struct espl_parsed *parsed)
{
    if (parsed != NULL) {
        free(parsed->items);
        free(parsed->positional);
        memset(parsed, 0, sizeof *parsed);
    }
}

/* ---- help ---- */

void espl_options_overview(const struct espl_command *const *commands, struct espl_buf *out)
{
    (void)espl_buf_puts(out, "espalier " ESPL_TOOL_VERSION
                             ": compress a model by a job, step by step\n\n"
                             "usage: espalier VERB [options] [arguments]\n\n"
                             "verbs\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        (void)espl_buf_printf(out, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
    }
    (void)espl_buf_puts(out, "\n`espalier VERB --help` tells more; `espalier --version` prints "
                             "the version.\nstart with: espalier run jobs/quickstart.yaml\n");
}

static void help_options(const char *title, const struct espl_option *table, struct espl_buf *out)
{
    if (table == NULL || table->name == NULL) {
        return;
    }
    (void)espl_buf_printf(out, "\n%s\n", title);
    for (const struct espl_option *row = table; row->name != NULL; row++) {
        char left[96];
        char letter[8] = "    ";
        if (row->letter != 0) {
            (void)snprintf(letter, sizeof letter, "-%c, ", row->letter);
        }
        (void)snprintf(left, sizeof left, "%s--%s%s%s", letter, row->name,
                       row->argument != NULL ? "=" : "",
                       row->argument != NULL ? row->argument : "");
        /* A long left side pushes the help to its own line. */
        if (strlen(left) > 36) {
            (void)espl_buf_printf(out, "  %s\n  %-36s", left, "");
        } else {
            (void)espl_buf_printf(out, "  %-36s", left);
        }
        (void)espl_buf_printf(out, " %s%s\n", row->help, row->repeatable ? " (repeatable)" : "");
    }
}

void espl_options_help(const struct espl_command *command, struct espl_buf *out)
{
    const char *form = command->positional != NULL ? command->positional : "";
    (void)espl_buf_printf(out, "usage: espalier %s [options]%s%s\n\n%s\n", command->name,
                          form[0] != '\0' ? " " : "", form, command->summary);
    if (command->description != NULL) {
        (void)espl_buf_printf(out, "\n%s\n", command->description);
    }
    help_options("options", command->options, out);
    help_options("common options", espl_common_options, out);
}

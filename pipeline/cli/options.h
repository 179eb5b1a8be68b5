/* The option tables at work: parsing, --help, suggestions. Completion reads the same tables. */
#ifndef ESPL_CLI_OPTIONS_H
#define ESPL_CLI_OPTIONS_H

#include "cli/command.h"
#include "core/buf.h"

#include <stddef.h>

/** Result of espl_options_parse(); `args` borrows from argv and from this. */
struct espl_parsed {
    struct espl_args args;
    const struct espl_option *tables[3];
    struct espl_arg *items;
    const char **positional;
};

/** Parses the words after the verb: --name value, --name=value, -n value, -nvalue, bundled
 * switches,
 *  "--" ends options, "-" is a positional. A negative number is an option like any other, so give
 * it as --name=-1. Choices ("a|b|c" as argument) are checked. With --help the positional count is
 * not checked. command: NULL = only the common options, any number of positionals. Errors: USAGE
 * with a did-you-mean hint, NOMEM. Free with espl_options_free(). */
enum espl_status espl_options_parse(const struct espl_command *command, int argc, char *const *argv,
                                    struct espl_parsed *out, struct espl_error *err);
void espl_options_free(struct espl_parsed *parsed);

/** Values of a repeatable option in the order given. *values: malloc'ed array of borrowed texts,
 *  NULL when there are none. */
enum espl_status espl_args_collect(const struct espl_args *args, const char *name,
                                   const char ***values, size_t *count, struct espl_error *err);

/** The verb with this name, or NULL. */
const struct espl_command *espl_command_find(const struct espl_command *const *commands,
                                             const char *name);
/** `espalier --help`: all verbs with their summaries. */
void espl_options_overview(const struct espl_command *const *commands, struct espl_buf *out);
/** `espalier VERB --help`. */
void espl_options_help(const struct espl_command *command, struct espl_buf *out);

#endif

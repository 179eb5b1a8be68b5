/* What verbs print: tables, colour, terminal width, JSON, errors and warnings. Words come first:
 * colour is never the only signal. */
#ifndef ESPL_CLI_PRINT_H
#define ESPL_CLI_PRINT_H

#include "cli/command.h"
#include "engine/diagnostics.h"
#include "engine/job.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum espl_style {
    ESPL_STYLE_PLAIN,
    ESPL_STYLE_BOLD,
    ESPL_STYLE_DIM,
    ESPL_STYLE_GOOD,
    ESPL_STYLE_WARN,
    ESPL_STYLE_BAD,
    ESPL_STYLE_NOTE
};

/** ANSI sequences, "" when colour is off or the style is plain. */
const char *espl_style_on(bool colour, enum espl_style style);
const char *espl_style_off(bool colour, enum espl_style style);

/** Columns of the terminal behind a stream; COLUMNS, else 100, when it is not a terminal. */
unsigned espl_print_width(FILE *stream);
/** As above, but 0 = no limit when there is neither a terminal nor COLUMNS: what goes into a file
 * is not cut. */
unsigned espl_print_limit(FILE *stream);
/** Columns that UTF-8 text takes on a terminal. */
size_t espl_text_width(const char *text);

/** A log that prints warnings and errors as warnings. cli: borrowed as long as the log is used. */
struct espl_log espl_print_log(struct espl_cli *cli);

struct espl_column {
    const char *title;
    bool right;       /* numbers */
    size_t max_width; /* longer texts are cut with "..."; 0 = never */
    bool gives_way;   /* becomes narrower when the table is wider than the terminal */
};

struct espl_table;

/** columns: borrowed for the life of the table. */
enum espl_status espl_table_create(const struct espl_column *columns, size_t count,
                                   struct espl_table **out, struct espl_error *err);
void espl_table_destroy(struct espl_table *table);
/** Fills the next cell; after the last column a new row begins. A failed allocation is reported by
 *  espl_table_print(). */
void espl_table_cell(struct espl_table *table, enum espl_style style, const char *fmt, ...)
    ESPL_PRINTF(3, 4);
/** The next cell: a number, or "-" when it is not finite. */
void espl_table_number(struct espl_table *table, int decimals, double value);
/** A free line between rows that ignores the columns. Only at the start of a row. */
void espl_table_line(struct espl_table *table, const char *fmt, ...) ESPL_PRINTF(2, 3);
/** Prints titles (unless all are "") and rows, two spaces between columns, no trailing blanks. On a
 * terminal a table that is too wide takes room from its columns that give way, widest first: the
 * last column goes on in the next line, others lose their ends. */
enum espl_status espl_table_print(struct espl_table *table, FILE *stream, size_t indent,
                                  bool colour, struct espl_error *err);

/** Help text, every line of which ends with a newline. On a terminal a line that is too wide goes
 * on in the next one, below its last column: what follows the first two blanks between words. */
enum espl_status espl_print_lines(FILE *stream, const char *text, struct espl_error *err);

/** One JSON value as indented text with a newline on cli->out. Takes the reference, also on
 *  failure; NULL is reported as out of memory. */
enum espl_status espl_print_json_take(const struct espl_cli *cli, json_t *value,
                                      struct espl_error *err);
/** A number, or null when it is not finite. New reference. */
json_t *espl_print_json_number(double value);
/** One line, compact: for JSON lines. Takes the reference. */
enum espl_status espl_print_json_line_take(const struct espl_cli *cli, json_t *value,
                                           struct espl_error *err);

/** "error: ..." with place, context as notes, and help, on cli->err_stream. A cancelled run prints
 *  "interrupted: ...". Statuses that only carry an exit code (PENDING, or an empty message) print
 *  nothing. */
void espl_print_error(const struct espl_cli *cli, const struct espl_error *err);
/** As espl_print_error() for an error about a job: its source lines come from the job as it was
 * read, so they are right for standard input and for a file that changed since. */
void espl_print_job_error(const struct espl_cli *cli, const struct espl_job *job,
                          const struct espl_error *err);
/** All problems of a job file in the form of docs/errors.md, on cli->err_stream. */
void espl_print_diagnostics(const struct espl_cli *cli, const struct espl_diagnostics *diags);
/** "warning: ..." on cli->err_stream. */
void espl_print_warning(const struct espl_cli *cli, const char *fmt, ...) ESPL_PRINTF(2, 3);
/** Talk on cli->err_stream, dropped with --quiet. */
void espl_print_talk(const struct espl_cli *cli, const char *fmt, ...) ESPL_PRINTF(2, 3);

#endif

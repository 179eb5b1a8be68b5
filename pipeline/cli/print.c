#include "cli/print.h"

#include "core/tame.h"
#include "core/units.h"
#include "engine/source_text.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    DEFAULT_WIDTH = 100,
    NARROWEST = 20,
    NARROWEST_COLUMN = 12,
    TABLE_LIMIT = 256 << 20,
    JOB_TEXT_LIMIT = 1 << 20
};

static const char *const style_texts[] = {
    [ESPL_STYLE_PLAIN] = "",        [ESPL_STYLE_BOLD] = "\033[1m",  [ESPL_STYLE_DIM] = "\033[2m",
    [ESPL_STYLE_GOOD] = "\033[32m", [ESPL_STYLE_WARN] = "\033[33m", [ESPL_STYLE_BAD] = "\033[31m",
    [ESPL_STYLE_NOTE] = "\033[36m",
};

const char *espl_style_on(bool colour, enum espl_style style)
{
    return colour ? style_texts[style] : "";
}

const char *espl_style_off(bool colour, enum espl_style style)
{
    return colour && style != ESPL_STYLE_PLAIN ? "\033[0m" : "";
}

unsigned espl_print_limit(FILE *stream)
{
    struct winsize size;
    int64_t columns = 0;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col >= NARROWEST) {
        return size.ws_col;
    }
    const char *text = getenv("COLUMNS");
    if (text != NULL && espl_parse_int(text, &columns) && columns >= NARROWEST &&
        columns <= 10000) {
        return (unsigned)columns;
    }
    return 0;
}

unsigned espl_print_width(FILE *stream)
{
    const unsigned limit = espl_print_limit(stream);
    return limit > 0 ? limit : DEFAULT_WIDTH;
}

/* Bytes and columns of the character at `text`; a byte that is no UTF-8 stands for itself. */
static size_t read_character(const char *text, size_t len, unsigned *columns)
{
    uint32_t code_point = 0;
    const size_t step = espl_text_decode(text, len, &code_point);
    *columns = step > 0 ? espl_code_point_width(code_point) : 1;
    return step > 0 ? step : 1;
}

size_t espl_text_width(const char *text)
{
    const size_t len = strlen(text);
    size_t width = 0;
    for (size_t at = 0; at < len;) {
        unsigned columns = 0;
        at += read_character(text + at, len - at, &columns);
        width += columns;
    }
    return width;
}

/* ---- tables ---- */

/* Cells in the order they came; a free line is one cell with `line` set. */
struct cell {
    struct cell *next;
    char *text;
    enum espl_style style;
    bool line;
};

struct espl_table {
    const struct espl_column *columns;
    size_t column_count;
    struct espl_arena *arena;
    struct cell *first;
    struct cell **last;
    size_t *widths;
    size_t next_column;
    bool failed;
};

/* Shortens text in place to `width` columns, the last three being dots. */
static void cut_text(char *text, size_t width)
{
    const size_t len = strlen(text);
    size_t used = 0;
    if (width < 4 || espl_text_width(text) <= width) {
        return;
    }
    for (size_t at = 0; at < len;) {
        unsigned columns = 0;
        const size_t step = read_character(text + at, len - at, &columns);
        if (used + columns > width - 3) {
            (void)snprintf(text + at, len + 1 - at, "...");
            return;
        }
        used += columns;
        at += step;
    }
}

enum espl_status espl_table_create(const struct espl_column *columns, size_t count,
                                   struct espl_table **out, struct espl_error *err)
{
    struct espl_arena *arena = espl_arena_create(TABLE_LIMIT);
    struct espl_table *table = arena != NULL ? espl_arena_alloc(arena, sizeof *table) : NULL;
    size_t *widths = arena != NULL ? espl_arena_array(arena, count, sizeof *widths) : NULL;
    if (table == NULL || widths == NULL) {
        espl_arena_destroy(arena);
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a table");
    }
    table->columns = columns;
    table->column_count = count;
    table->arena = arena;
    table->last = &table->first;
    table->widths = widths;
    for (size_t i = 0; i < count; i++) {
        widths[i] = espl_text_width(columns[i].title);
    }
    *out = table;
    return ESPL_OK;
}

void espl_table_destroy(struct espl_table *table)
{
    if (table != NULL) {
        espl_arena_destroy(table->arena);
    }
}

static struct cell *add_cell(struct espl_table *table, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    const int len = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    struct cell *cell = espl_arena_alloc(table->arena, sizeof *cell);
    char *text = len >= 0 ? espl_arena_alloc(table->arena, (size_t)len + 1) : NULL;
    if (cell == NULL || text == NULL) {
        table->failed = true;
        return NULL;
    }
    (void)vsnprintf(text, (size_t)len + 1, fmt, args);
    cell->text = text;
    *table->last = cell;
    table->last = &cell->next;
    return cell;
}

void espl_table_cell(struct espl_table *table, enum espl_style style, const char *fmt, ...)
{
    va_list args;
    const size_t column = table->next_column;
    va_start(args, fmt);
    struct cell *cell = add_cell(table, fmt, args);
    va_end(args);
    table->next_column = column + 1 < table->column_count ? column + 1 : 0;
    if (cell == NULL) {
        return;
    }
    espl_text_tame(cell->text);
    cell->style = style;
    if (table->columns[column].max_width > 0) {
        cut_text(cell->text, table->columns[column].max_width);
    }
    const size_t width = espl_text_width(cell->text);
    if (width > table->widths[column]) {
        table->widths[column] = width;
    }
}

void espl_table_number(struct espl_table *table, int decimals, double value)
{
    if (isfinite(value)) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%.*f", decimals, value);
    } else {
        espl_table_cell(table, ESPL_STYLE_DIM, "-");
    }
}

void espl_table_line(struct espl_table *table, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    struct cell *cell = add_cell(table, fmt, args);
    va_end(args);
    if (cell != NULL) {
        cell->line = true;
    }
}

static void print_blanks(FILE *stream, size_t count)
{
    if (count > 0) {
        (void)fprintf(stream, "%*s", (int)count, "");
    }
}

/* Prints one cell after *pending blanks and says in *pending how many belong before the next. */
static void print_cell(FILE *stream, const struct espl_table *table, size_t column,
                       const char *text, bool colour, enum espl_style style, size_t *pending)
{
    const size_t width = espl_text_width(text);
    const size_t fill = table->widths[column] > width ? table->widths[column] - width : 0;
    const bool right = table->columns[column].right;
    if (text[0] == '\0') {
        *pending += fill + 2;
        return;
    }
    print_blanks(stream, *pending + (right ? fill : 0));
    (void)fprintf(stream, "%s%s%s", espl_style_on(colour, style), text,
                  espl_style_off(colour, style));
    *pending = 2 + (right ? 0 : fill);
}

/* Bytes of `text` that fit into `width` columns, cut between words when there are several. */
static size_t fitting_bytes(const char *text, size_t width)
{
    const size_t len = strlen(text);
    size_t used = 0;
    size_t at = 0;
    size_t word_end = 0;
    while (at < len) {
        unsigned columns = 0;
        const size_t step = read_character(text + at, len - at, &columns);
        if (used + columns > width) {
            break;
        }
        word_end = text[at] == ' ' ? at : word_end;
        used += columns;
        at += step;
    }
    if (at == len || text[at] == ' ' || word_end == 0) {
        return at > 0 ? at : len;
    }
    return word_end;
}

/* A text of `width` columns that begins at column `start` goes on in the next lines, below itself.
 * pending: blanks that are due before it. */
static void print_wrapped(FILE *stream, size_t width, size_t start, const char *text, bool colour,
                          enum espl_style style, size_t *pending)
{
    while (*text != '\0') {
        const size_t bytes = fitting_bytes(text, width);
        print_blanks(stream, *pending);
        (void)fprintf(stream, "%s%.*s%s", espl_style_on(colour, style), (int)bytes, text,
                      espl_style_off(colour, style));
        text += bytes;
        text += strspn(text, " ");
        if (*text != '\0') {
            (void)fputc('\n', stream);
            *pending = start;
        }
    }
}

/* Makes columns that give way narrower, the widest first, until the table fits or nothing is left
 * to take. */
static void fit_columns(struct espl_table *table, size_t indent, size_t limit)
{
    size_t total = indent;
    for (size_t i = 0; i < table->column_count; i++) {
        total += table->widths[i] + (i > 0 ? 2 : 0);
    }
    while (limit > 0 && total > limit) {
        size_t widest = SIZE_MAX;
        for (size_t i = 0; i < table->column_count; i++) {
            if (table->columns[i].gives_way && table->widths[i] > NARROWEST_COLUMN &&
                (widest == SIZE_MAX || table->widths[i] > table->widths[widest])) {
                widest = i;
            }
        }
        if (widest == SIZE_MAX) {
            return;
        }
        table->widths[widest]--;
        total--;
    }
}

enum espl_status espl_table_print(struct espl_table *table, FILE *stream, size_t indent,
                                  bool colour, struct espl_error *err)
{
    bool titled = false;
    size_t pending = indent;
    if (table->failed) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a table");
    }
    fit_columns(table, indent, espl_print_limit(stream));
    size_t last_start = indent; /* where the last column begins */
    for (size_t i = 0; i + 1 < table->column_count; i++) {
        last_start += table->widths[i] + 2;
    }
    for (size_t i = 0; i < table->column_count; i++) {
        titled = titled || table->columns[i].title[0] != '\0';
    }
    for (size_t i = 0; i < table->column_count && titled; i++) {
        print_cell(stream, table, i, table->columns[i].title, colour, ESPL_STYLE_BOLD, &pending);
    }
    if (titled) {
        (void)fputc('\n', stream);
    }
    size_t column = 0;
    pending = indent;
    for (struct cell *cell = table->first; cell != NULL; cell = cell->next) {
        if (cell->line) {
            print_blanks(stream, cell->text[0] != '\0' ? indent : 0);
            (void)fprintf(stream, "%s\n", cell->text);
            continue;
        }
        if (column + 1 == table->column_count && !table->columns[column].right) {
            print_wrapped(stream, table->widths[column], last_start, cell->text, colour,
                          cell->style, &pending);
        } else {
            cut_text(cell->text, table->widths[column]);
            print_cell(stream, table, column, cell->text, colour, cell->style, &pending);
        }
        column = column + 1 < table->column_count ? column + 1 : 0;
        if (column == 0) {
            (void)fputc('\n', stream);
            pending = indent;
        }
    }
    return ESPL_OK;
}

/* Where the last column of a line begins: after two blanks or more behind a first word, else after
 * the blanks at its start. */
static size_t last_column(const char *line)
{
    const size_t indent = strspn(line, " ");
    const char *gap = strstr(line + indent, "  ");
    return gap != NULL ? (size_t)(gap - line) + strspn(gap, " ") : indent;
}

static void print_line(FILE *stream, const char *line, size_t limit)
{
    const size_t start = last_column(line);
    size_t pending = 0;
    if (limit < start + NARROWEST_COLUMN) { /* also without a limit */
        (void)fprintf(stream, "%s\n", line);
        return;
    }
    (void)fprintf(stream, "%.*s", (int)start, line);
    print_wrapped(stream, limit - start, start, line + start, false, ESPL_STYLE_PLAIN, &pending);
    (void)fputc('\n', stream);
}

enum espl_status espl_print_lines(FILE *stream, const char *text, struct espl_error *err)
{
    char *copy = strdup(text);
    char *rest = copy;
    if (copy == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a text");
    }
    for (char *line = strsep(&rest, "\n"); rest != NULL; line = strsep(&rest, "\n")) {
        print_line(stream, line, espl_print_limit(stream));
    }
    free(copy);
    return ESPL_OK;
}

/* ---- JSON ---- */

static enum espl_status print_json(const struct espl_cli *cli, json_t *value, size_t flags,
                                   struct espl_error *err)
{
    char *text = value != NULL ? json_dumps(value, flags | JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    if (text == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the JSON output");
    }
    (void)fprintf(cli->out, "%s\n", text);
    free(text);
    return ESPL_OK;
}

json_t *espl_print_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

enum espl_status espl_print_json_take(const struct espl_cli *cli, json_t *value,
                                      struct espl_error *err)
{
    return print_json(cli, value, JSON_INDENT(2), err);
}

enum espl_status espl_print_json_line_take(const struct espl_cli *cli, json_t *value,
                                           struct espl_error *err)
{
    const enum espl_status status = print_json(cli, value, JSON_COMPACT, err);
    (void)fflush(cli->out); /* a reader follows; a closed pipe shows at the end */
    return status;
}

/* ---- talk ---- */

static void print_interrupted(const struct espl_cli *cli, const struct espl_error *err)
{
    const char *word = err->code == ESPL_E_TERMINATED ? "terminated" : "interrupted";
    (void)fprintf(cli->err_stream, "%s%s:%s %s\n", espl_style_on(cli->colour_err, ESPL_STYLE_WARN),
                  word, espl_style_off(cli->colour_err, ESPL_STYLE_WARN), err->message);
    if (err->hint[0] != '\0') {
        (void)fprintf(cli->err_stream, "%s\n", err->hint);
    }
}

/* source: text of the file that the error is in, NULL = then the place is printed without its line.
 */
static void print_placed(const struct espl_cli *cli, const struct espl_error *err, const char *file,
                         const char *source, size_t len)
{
    struct espl_diagnostics diags;
    struct espl_buf text;
    if (err->code == ESPL_OK || err->message[0] == '\0') {
        return;
    }
    if (err->code == ESPL_E_CANCELLED || err->code == ESPL_E_TERMINATED) {
        print_interrupted(cli, err);
        return;
    }
    if (espl_diagnostics_init(&diags, NULL) != ESPL_OK) {
        (void)fprintf(cli->err_stream, "error: %s\n", err->message);
        return;
    }
    if (source != NULL) {
        (void)espl_diagnostics_set_source(&diags, file, source, len, NULL); /* else without it */
    }
    espl_buf_init(&text, JOB_TEXT_LIMIT);
    espl_diagnostics_render_error(&diags, err, cli->colour_err, &text);
    if (err->code == ESPL_E_INTERNAL) {
        (void)espl_buf_puts(&text, "note: this is a bug in espalier; please report it with the "
                                   "command and this text\n");
    }
    (void)fputs(espl_buf_text(&text), cli->err_stream);
    espl_buf_free(&text);
    espl_diagnostics_free(&diags);
}

void espl_print_error(const struct espl_cli *cli, const struct espl_error *err)
{
    char *source = NULL;
    size_t len = 0;
    if (err->at.line > 0 &&
        espl_fs_read_file(err->at.file, JOB_TEXT_LIMIT, &source, &len, NULL) != ESPL_OK) {
        source = NULL;
    }
    print_placed(cli, err, err->at.file, source, len);
    free(source);
}

void espl_print_job_error(const struct espl_cli *cli, const struct espl_job *job,
                          const struct espl_error *err)
{
    print_placed(cli, err, strcmp(job->file, "-") == 0 ? "<stdin>" : job->file, job->text,
                 job->text_len);
}

void espl_print_diagnostics(const struct espl_cli *cli, const struct espl_diagnostics *diags)
{
    struct espl_buf text;
    espl_buf_init(&text, JOB_TEXT_LIMIT);
    espl_diagnostics_render(diags, cli->colour_err, &text);
    (void)fputs(espl_buf_text(&text), cli->err_stream);
    espl_buf_free(&text);
}

void espl_print_warning(const struct espl_cli *cli, const char *fmt, ...)
{
    va_list args;
    (void)fprintf(cli->err_stream, "%swarning:%s ", espl_style_on(cli->colour_err, ESPL_STYLE_WARN),
                  espl_style_off(cli->colour_err, ESPL_STYLE_WARN));
    va_start(args, fmt);
    (void)vfprintf(cli->err_stream, fmt, args);
    va_end(args);
    (void)fputc('\n', cli->err_stream);
}

static void print_log_line(void *user, enum espl_log_level level, const char *line)
{
    (void)level; /* the log drops what is below a warning */
    espl_print_warning(user, "%s", line);
}

struct espl_log espl_print_log(struct espl_cli *cli)
{
    return (struct espl_log){.write = print_log_line, .user = cli, .lowest = ESPL_LOG_WARN};
}

void espl_print_talk(const struct espl_cli *cli, const char *fmt, ...)
{
    va_list args;
    if (cli->quiet) {
        return;
    }
    va_start(args, fmt);
    (void)vfprintf(cli->err_stream, fmt, args);
    va_end(args);
    (void)fputc('\n', cli->err_stream);
}

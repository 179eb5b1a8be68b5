#include "engine/diagnostics.h"

#include "engine/source_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum espl_status espl_diagnostics_init(struct espl_diagnostics *diags, struct espl_error *err)
{
    *diags = (struct espl_diagnostics){0};
    diags->items = calloc(ESPL_MAX_DIAGNOSTICS, sizeof *diags->items);
    if (diags->items == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the list of errors");
    }
    return ESPL_OK;
}

void espl_diagnostics_free(struct espl_diagnostics *diags)
{
    if (diags != NULL) {
        free(diags->items);
        free(diags->source);
        *diags = (struct espl_diagnostics){0};
    }
}

enum espl_status espl_diagnostics_set_source(struct espl_diagnostics *diags, const char *file,
                                             const char *text, size_t len, struct espl_error *err)
{
    char *copy = malloc(len + 1);
    if (copy == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the text of '%s'", file);
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    free(diags->source);
    diags->source = copy;
    diags->source_len = len;
    (void)snprintf(diags->source_file, sizeof diags->source_file, "%s", file);
    return ESPL_OK;
}

static struct espl_diagnostic *next_item(struct espl_diagnostics *diags)
{
    if (diags->count == ESPL_MAX_DIAGNOSTICS) {
        diags->dropped++;
        return NULL;
    }
    struct espl_diagnostic *item = &diags->items[diags->count++];
    memset(item, 0, sizeof *item);
    return item;
}

static void format_field(char *out, size_t size, const char *fmt, va_list args)
    __attribute__((format(printf, 3, 0)));

static void format_field(char *out, size_t size, const char *fmt, va_list args)
{
    const int needed = vsnprintf(out, size, fmt, args);
    if (needed < 0) {
        out[0] = '\0';
    } else if ((size_t)needed >= size) {
        memcpy(out + size - 4, "...", 4);
    }
}

struct espl_diagnostic *espl_diagnostics_add(struct espl_diagnostics *diags, enum espl_status code,
                                             const struct espl_srcpos *at, const char *fmt, ...)
{
    struct espl_diagnostic *item = next_item(diags);
    if (item == NULL) {
        return NULL;
    }
    va_list args;
    va_start(args, fmt);
    format_field(item->error.message, sizeof item->error.message, fmt, args);
    va_end(args);
    item->error.code = code;
    if (at != NULL) {
        item->error.at = *at;
    }
    return item;
}

struct espl_diagnostic *espl_diagnostics_add_error(struct espl_diagnostics *diags,
                                                   const struct espl_srcpos *at,
                                                   const struct espl_error *error)
{
    struct espl_diagnostic *item = next_item(diags);
    if (item == NULL) {
        return NULL;
    }
    item->error = *error;
    if (error->at.line == 0 && error->at.file[0] == '\0' && at != NULL) {
        item->error.at = *at;
    }
    return item;
}

void espl_diagnostic_hint(struct espl_diagnostic *item, const char *fmt, ...)
{
    if (item != NULL) {
        va_list args;
        va_start(args, fmt);
        format_field(item->error.hint, sizeof item->error.hint, fmt, args);
        va_end(args);
    }
}

void espl_diagnostic_remark(struct espl_diagnostic *item, const char *fmt, ...)
{
    if (item != NULL) {
        va_list args;
        va_start(args, fmt);
        format_field(item->remark, sizeof item->remark, fmt, args);
        va_end(args);
    }
}

void espl_diagnostic_note(struct espl_diagnostic *item, const char *fmt, ...)
{
    if (item != NULL) {
        va_list args;
        va_start(args, fmt);
        format_field(item->note, sizeof item->note, fmt, args);
        va_end(args);
    }
}

void espl_diagnostic_also(struct espl_diagnostic *item, const struct espl_srcpos *at,
                          const char *fmt, ...)
{
    if (item != NULL && item->also_count < ESPL_MAX_DIAGNOSTIC_PLACES) {
        struct espl_diagnostic_place *place = &item->also[item->also_count++];
        place->at = *at;
        va_list args;
        va_start(args, fmt);
        format_field(place->remark, sizeof place->remark, fmt, args);
        va_end(args);
    }
}

/* Total order: located errors by place, then those without a place; equal places by text. */
static int compare_items(const void *left, const void *right)
{
    const struct espl_error *a = &((const struct espl_diagnostic *)left)->error;
    const struct espl_error *b = &((const struct espl_diagnostic *)right)->error;
    if ((a->at.line == 0) != (b->at.line == 0)) {
        return a->at.line == 0 ? 1 : -1;
    }
    if (a->at.line != b->at.line) {
        return a->at.line < b->at.line ? -1 : 1;
    }
    if (a->at.column != b->at.column) {
        return a->at.column < b->at.column ? -1 : 1;
    }
    const int by_file = strcmp(a->at.file, b->at.file);
    return by_file != 0 ? by_file : strcmp(a->message, b->message);
}

void espl_diagnostics_sort(struct espl_diagnostics *diags)
{
    if (diags->count == 0) {
        return;
    }
    qsort(diags->items, diags->count, sizeof *diags->items, compare_items);
    size_t kept = 1;
    for (size_t i = 1; i < diags->count; i++) {
        if (compare_items(&diags->items[kept - 1], &diags->items[i]) != 0) {
            if (kept != i) {
                diags->items[kept] = diags->items[i];
            }
            kept++;
        }
    }
    diags->count = kept;
}

enum espl_status espl_diagnostics_status(const struct espl_diagnostics *diags)
{
    return diags->count > 0 ? diags->items[0].error.code : ESPL_OK;
}

enum espl_status espl_diagnostics_fail(const struct espl_diagnostics *diags, const char *file,
                                       struct espl_error *err)
{
    const size_t count = diags->count + diags->dropped;
    if (count == 0) {
        return ESPL_OK;
    }
    return espl_fail(err, espl_diagnostics_status(diags), "%zu %s in %s", count,
                     count == 1 ? "error" : "errors",
                     strcmp(file, "-") == 0 ? "the job from standard input" : file);
}

/* ---- rendering ---- */

struct style {
    const char *bold, *error, *help, *off;
};

static const struct style plain_style = {"", "", "", ""};
static const struct style colour_style = {"\033[1m", "\033[1;31m", "\033[1;36m", "\033[0m"};

/* The part of a long line that is shown: characters [first, last], counted from 1. */
enum { SHOWN_CHARACTERS = 160, SHOWN_BEFORE_CARET = 100 };

struct window {
    unsigned first, last;
};

static struct window choose_window(const char *line, size_t line_len, unsigned column)
{
    unsigned characters = 0;
    for (size_t at = 0; at < line_len; characters++) {
        uint32_t code_point = 0;
        const size_t step = espl_text_decode(line + at, line_len - at, &code_point);
        at += step > 0 ? step : 1;
    }
    struct window window = {1, SHOWN_CHARACTERS};
    if (characters > SHOWN_CHARACTERS && column > SHOWN_BEFORE_CARET + 1) {
        window.first = column - SHOWN_BEFORE_CARET;
        window.last = window.first + SHOWN_CHARACTERS - 1;
    }
    return window;
}

/* Writes the source line into `text` and the caret line into `carets`. Tabs are kept in both, so
 * that the caret stands under its character whatever the tab width (the gutter is 8 wide). */
static void draw_line(const char *line, size_t line_len, const struct espl_srcpos *at,
                      struct espl_buf *text, struct espl_buf *carets)
{
    const unsigned length = at->length > 0 ? at->length : 1;
    const struct window window = choose_window(line, line_len, at->column);
    bool marked = false;
    if (window.first > 1) {
        espl_buf_puts(text, "...");
        espl_buf_puts(carets, "   ");
    }
    unsigned character = 0;
    for (size_t i = 0; i < line_len;) {
        uint32_t code_point = 0;
        size_t step = espl_text_decode(line + i, line_len - i, &code_point);
        const bool shown =
            step > 0 && (code_point == '\t' || (code_point >= 0x20 && code_point != 0x7f));
        const unsigned width = shown ? espl_code_point_width(code_point) : 1;
        step = step > 0 ? step : 1;
        character++;
        if (character > window.last) {
            espl_buf_puts(text, "...");
            break;
        }
        if (character >= window.first) {
            espl_buf_add(text, shown ? line + i : "?", shown ? step : 1);
            const bool under = character >= at->column && character - at->column < length;
            const bool before = character < at->column;
            for (unsigned column = 0; column < width && (under || before); column++) {
                espl_buf_puts(carets, under ? "^" : code_point == '\t' ? "\t" : " ");
            }
            marked = marked || (under && width > 0);
        }
        i += step;
    }
    if (!marked) {
        espl_buf_puts(carets, "^");
    }
}

static void render_snippet(const struct espl_diagnostics *diags, const struct espl_srcpos *at,
                           const char *remark, const struct style *style, struct espl_buf *out)
{
    const char *line = NULL;
    size_t line_len = 0;
    if (diags->source == NULL || at->line == 0 || strcmp(at->file, diags->source_file) != 0 ||
        !espl_text_line(diags->source, diags->source_len, at->line, &line, &line_len)) {
        return;
    }
    struct espl_buf text;
    struct espl_buf carets;
    espl_buf_init(&text, 4096);
    espl_buf_init(&carets, 4096);
    draw_line(line, line_len, at, &text, &carets);
    espl_buf_printf(out, "%5u | %s\n", at->line, espl_buf_text(&text));
    espl_buf_printf(out, "      | %s%s%s%s%s\n", style->error, espl_buf_text(&carets),
                    remark[0] != '\0' ? " " : "", remark, style->off);
    espl_buf_free(&carets);
    espl_buf_free(&text);
}

static void render_head(const struct espl_error *error, const struct style *style,
                        struct espl_buf *out)
{
    const struct espl_srcpos *at = &error->at;
    if (at->file[0] != '\0' && at->line > 0) {
        espl_buf_printf(out, "%s%s:%u:%u:%s ", style->bold, at->file, at->line, at->column,
                        style->off);
    } else if (at->file[0] != '\0') {
        espl_buf_printf(out, "%s%s:%s ", style->bold, at->file, style->off);
    }
    espl_buf_printf(out, "%serror:%s %s\n", style->error, style->off, error->message);
}

static void render_item(const struct espl_diagnostics *diags, const struct espl_diagnostic *item,
                        const struct style *style, struct espl_buf *out)
{
    const struct espl_error *error = &item->error;
    render_head(error, style, out);
    render_snippet(diags, &error->at, item->remark, style, out);
    for (size_t i = 0; i < item->also_count; i++) {
        render_snippet(diags, &item->also[i].at, item->also[i].remark, style, out);
    }
    for (const char *line = error->context; *line != '\0';) {
        const size_t len = strcspn(line, "\n");
        espl_buf_printf(out, "%snote:%s %.*s\n", style->help, style->off, (int)len, line);
        line += len + (line[len] == '\n' ? 1 : 0);
    }
    if (item->note[0] != '\0') {
        espl_buf_printf(out, "%snote:%s %s\n", style->help, style->off, item->note);
    }
    if (error->hint[0] != '\0') {
        espl_buf_printf(out, "%shelp:%s %s\n", style->help, style->off, error->hint);
    }
}

void espl_diagnostics_render(const struct espl_diagnostics *diags, bool colour,
                             struct espl_buf *out)
{
    const struct style *style = colour ? &colour_style : &plain_style;
    for (size_t i = 0; i < diags->count; i++) {
        if (i > 0) {
            espl_buf_puts(out, "\n");
        }
        render_item(diags, &diags->items[i], style, out);
    }
    if (diags->dropped > 0) {
        espl_buf_printf(out, "\n%zu errors; the first %zu are shown\n",
                        diags->count + diags->dropped, diags->count);
    } else if (diags->count > 1) {
        espl_buf_printf(out, "\n%zu errors\n", diags->count);
    }
}

void espl_diagnostics_render_error(const struct espl_diagnostics *diags,
                                   const struct espl_error *error, bool colour,
                                   struct espl_buf *out)
{
    const struct espl_diagnostic item = {.error = *error};
    render_item(diags, &item, colour ? &colour_style : &plain_style, out);
}

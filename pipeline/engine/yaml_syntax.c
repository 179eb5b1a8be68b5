#include "engine/yaml_syntax.h"

#include "engine/source_text.h"

#include <stdio.h>
#include <string.h>

static struct espl_srcpos position(const char *file, size_t line, size_t column)
{
    struct espl_srcpos at = {.line = (unsigned)line, .column = (unsigned)column, .length = 1};
    (void)snprintf(at.file, sizeof at.file, "%s", file);
    return at;
}

static bool allowed_character(uint32_t code_point)
{
    return code_point == '\t' || (code_point >= 0x20 && code_point < 0x7f) || code_point == 0x85 ||
           (code_point >= 0xa0 && code_point != 0xfeff && code_point != 0xfffe &&
            code_point != 0xffff);
}

bool espl_yaml_check_text(const char *file, const char *text, size_t len,
                          struct espl_diagnostics *diags)
{
    size_t line = 1;
    size_t column = 1;
    for (size_t at = 0; at < len;) {
        const size_t line_break = espl_text_break(text + at, len - at);
        if (line_break > 0) {
            at += line_break;
            line++;
            column = 1;
            continue;
        }
        uint32_t code_point = 0;
        const size_t step = espl_text_decode(text + at, len - at, &code_point);
        const struct espl_srcpos place = position(file, line, column);
        if (step == 0) {
            struct espl_diagnostic *item = espl_diagnostics_add(
                diags, ESPL_E_JOB, &place, "the file is not UTF-8: byte 0x%02x",
                (unsigned)(unsigned char)text[at]);
            espl_diagnostic_hint(item, "save the file as UTF-8");
            return false;
        }
        if (!allowed_character(code_point)) {
            struct espl_diagnostic *item = espl_diagnostics_add(
                diags, ESPL_E_JOB, &place, "character U+%04X is not allowed", (unsigned)code_point);
            espl_diagnostic_hint(item, "remove it, or write it as \"\\u%04x\" in double quotes",
                                 (unsigned)code_point);
            return false;
        }
        at += step;
        column++;
    }
    return true;
}

/* The column of a tab in the white space that starts a line, 0 = none there. */
static size_t tab_in_indentation(const char *text, size_t len, size_t line)
{
    const char *start = NULL;
    size_t line_len = 0;
    if (!espl_text_line(text, len, (unsigned)line, &start, &line_len)) {
        return 0;
    }
    for (size_t i = 0; i < line_len && (start[i] == ' ' || start[i] == '\t'); i++) {
        if (start[i] == '\t') {
            return i + 1;
        }
    }
    return 0;
}

/* libyaml's words -> ours. remark: beside the place where the thing began. */
struct syntax_help {
    const char *problem, *message, *remark, *hint;
};

static const struct syntax_help syntax_help[] = {
    {"mapping values are not allowed in this context", "a second ':' in one line", "",
     "put a value that contains ': ' in quotes; start a nested mapping on a new line"},
    {"found character that cannot start any token", "this character cannot start a value", "",
     "put the value in quotes"},
    {"did not find expected key", "expected a 'key: value' line here",
     "in the mapping that starts here", "check the indentation of this line and of the line above"},
    {"did not find expected '-' indicator", "expected a '- item' line here",
     "in the list that starts here", "check the indentation of this line and of the line above"},
    {"could not find expected ':'", "a line without ':' after its key", "this line",
     "write it as 'key: value'"},
    {"did not find expected ',' or ']'", "expected ',' or ']'", "the list that starts here", ""},
    {"did not find expected ',' or '}'", "expected ',' or '}'", "the mapping that starts here", ""},
    {"did not find expected node content", "expected a value", "", ""},
    {"found unexpected end of stream", "the file ends inside a quoted text",
     "the quoted text that starts here", "close the quote"},
    {"block sequence entries are not allowed in this context", "a list item is not possible here",
     "", "start the list on a line of its own below its key"},
    {"found unknown escape character", "unknown escape in a double-quoted text", "",
     "write \\\\ for a backslash, or use single quotes"},
};

void espl_yaml_report_syntax(const yaml_parser_t *parser, const char *file, const char *text,
                             size_t len, struct espl_diagnostics *diags)
{
    const yaml_mark_t mark = parser->problem_mark;
    const size_t tab = tab_in_indentation(text, len, mark.line + 1);
    if (tab > 0) {
        const struct espl_srcpos place = position(file, mark.line + 1, tab);
        espl_diagnostic_hint(
            espl_diagnostics_add(diags, ESPL_E_JOB, &place, "a tab is used for indentation"),
            "YAML is indented with spaces: replace the tab by spaces");
        return;
    }
    const char *problem = parser->problem != NULL ? parser->problem : "unknown problem";
    const struct syntax_help *help = NULL;
    for (size_t i = 0; i < sizeof syntax_help / sizeof syntax_help[0]; i++) {
        if (strcmp(problem, syntax_help[i].problem) == 0) {
            help = &syntax_help[i];
        }
    }
    const yaml_mark_t began = parser->context_mark;
    const char *remark = help != NULL && help->remark[0] != '\0' ? help->remark : parser->context;
    const bool has_start =
        parser->context != NULL && (began.line != mark.line || began.column != mark.column);
    const char *line = NULL;
    size_t line_len = 0;
    const struct espl_srcpos place = position(file, mark.line + 1, mark.column + 1);
    const struct espl_srcpos start = position(file, began.line + 1, began.column + 1);
    /* At the end of the file only the place where the open thing began helps. */
    const bool beyond = has_start && !espl_text_line(text, len, place.line, &line, &line_len);
    struct espl_diagnostic *item =
        espl_diagnostics_add(diags, ESPL_E_JOB, beyond ? &start : &place, "not valid YAML: %s",
                             help != NULL ? help->message : problem);
    if (help != NULL && help->hint[0] != '\0') {
        espl_diagnostic_hint(item, "%s", help->hint);
    }
    if (beyond) {
        espl_diagnostic_remark(item, "%s", remark);
    } else if (has_start) {
        espl_diagnostic_also(item, &start, "%s", remark);
    }
}

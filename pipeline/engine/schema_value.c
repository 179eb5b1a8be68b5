/* One parameter value: YAML node -> field of the parameter struct and canonical text. */
#include "engine/schema_internal.h"
#include "engine/source_text.h"

#include "core/suggest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct type_row {
    size_t size;
    const char *one, *many; /* "an integer", "integers" */
    const char *advice;     /* before ", for example X" */
    const char *example;
};

static const struct type_row type_rows[] = {
    [ESPL_PARAM_BOOL] = {sizeof(bool), "true or false", "true or false", "write", "true"},
    [ESPL_PARAM_INT] = {sizeof(int64_t), "an integer", "integers", "write a plain number", "1"},
    [ESPL_PARAM_REAL] = {sizeof(double), "a number", "numbers", "write a plain number", "0.5"},
    [ESPL_PARAM_STRING] = {sizeof(const char *), "a text", "texts", "", "text"},
    [ESPL_PARAM_ENUM] = {sizeof(int), "one of", "words out of", "", ""},
    [ESPL_PARAM_PATH] = {sizeof(const char *), "a path", "paths", "", "folder/file"},
    [ESPL_PARAM_DURATION] = {sizeof(double), "a duration with its unit",
                             "durations with their unit", "write a number and us, ms, s, min or h",
                             "45ms"},
    [ESPL_PARAM_SIZE] = {sizeof(uint64_t), "a size with its unit", "sizes with their unit",
                         "write a number and B, kB, MB, GB, TB, KiB, MiB, GiB or TiB", "5GB"},
    [ESPL_PARAM_NM] = {sizeof(struct espl_nm), "an N:M pattern", "N:M patterns",
                       "write N weights kept of every M columns, 1 <= N <= M <= 64", "2:4"},
    [ESPL_PARAM_GRID] = {sizeof(struct espl_grid), "rows and columns from 1 to 64, or none",
                         "rows and columns from 1 to 64", "write a mapping or RxC",
                         "{rows: 2, cols: 4}"},
};

static const double no_limit = 1e15;

size_t espl_schema_item_size(enum espl_param_type type)
{
    return type_rows[type].size;
}

bool espl_schema_has_min(const struct espl_param *param)
{
    return (param->min != 0.0 || param->max != 0.0) && param->min > -no_limit;
}

bool espl_schema_has_max(const struct espl_param *param)
{
    return (param->min != 0.0 || param->max != 0.0) && param->max < no_limit;
}

static void print_bound(const struct espl_param *param, double bound, char out[ESPL_UNIT_TEXT])
{
    if (param->type == ESPL_PARAM_SIZE) {
        espl_print_size((uint64_t)bound, out);
    } else if (param->type == ESPL_PARAM_DURATION) {
        espl_print_duration(bound, out);
    } else {
        espl_print_real(bound, out);
    }
}

/* "an integer from 16 to 1024", or in the plural. */
static void describe_item(const struct espl_param *param, bool many, struct espl_buf *out)
{
    const struct type_row *row = &type_rows[param->type];
    espl_buf_puts(out, many ? row->many : row->one);
    for (size_t i = 0; param->type == ESPL_PARAM_ENUM && param->choices[i] != NULL; i++) {
        espl_buf_printf(out, "%s%s", i == 0 ? " " : ", ", param->choices[i]);
    }
    char low[ESPL_UNIT_TEXT];
    char high[ESPL_UNIT_TEXT];
    print_bound(param, param->min, low);
    print_bound(param, param->max, high);
    if (espl_schema_has_min(param) && espl_schema_has_max(param)) {
        espl_buf_printf(out, " from %s to %s", low, high);
    } else if (espl_schema_has_min(param)) {
        espl_buf_printf(out, " of at least %s", low);
    } else if (espl_schema_has_max(param)) {
        espl_buf_printf(out, " of at most %s", high);
    }
    if ((param->flags & ESPL_PARAM_NULLABLE_NM) != 0) {
        espl_buf_puts(out, " or none");
    }
    if ((param->flags & ESPL_PARAM_AUTO_INT) != 0) {
        espl_buf_puts(out, " or auto");
    }
}

void espl_schema_describe_type(const struct espl_param *param, struct espl_buf *out)
{
    const bool list = (param->flags & ESPL_PARAM_LIST) != 0;
    if (list) {
        espl_buf_puts(out, "a list of ");
    }
    describe_item(param, list, out);
}

const char *espl_schema_example(const struct espl_param *param)
{
    if (param->default_text != NULL && (param->flags & ESPL_PARAM_LIST) == 0 &&
        strcmp(param->default_text, "none") != 0 && param->default_text[0] != '\0') {
        return param->default_text;
    }
    return type_rows[param->type].example;
}

/* What was found instead: "text '128 channels'", "5000", "a list". */
static void describe_found(const struct espl_param *param, const struct espl_node *node,
                           struct espl_buf *out)
{
    char shown[ESPL_CLIP_TEXT];
    double number = 0.0;
    bool truth = false;
    if (node->type != ESPL_NODE_SCALAR) {
        espl_buf_puts(out, node->type == ESPL_NODE_SEQUENCE ? "a list" : "a mapping");
    } else if (espl_node_is_null(node)) {
        espl_buf_puts(out, "nothing");
    } else if (node->text[0] == '\0') {
        espl_buf_puts(out, "an empty text");
    } else {
        espl_text_clip(node->text, shown);
        const bool plain = !node->quoted && (espl_parse_real(node->text, &number) ||
                                             espl_parse_bool(node->text, &truth));
        const char *word = plain || param->type == ESPL_PARAM_ENUM ? "" : "text ";
        const char *quote = plain ? "" : "'";
        espl_buf_printf(out, "%s%s%s%s", word, quote, shown, quote);
    }
}

/* "128" of "128 channels", when that would do: the best example is what the user meant. */
static bool leading_integer(const struct espl_param *param, const struct espl_node *node,
                            char out[ESPL_UNIT_TEXT])
{
    int64_t value = 0;
    if (param->type != ESPL_PARAM_INT || node->type != ESPL_NODE_SCALAR) {
        return false;
    }
    (void)snprintf(out, ESPL_UNIT_TEXT, "%.*s", (int)strspn(node->text, "0123456789"), node->text);
    const bool unlimited = param->min == 0.0 && param->max == 0.0;
    return espl_parse_int(out, &value) &&
           (unlimited || ((double)value >= param->min && (double)value <= param->max));
}

/* Advice for a scalar that is not of the type; nothing when only a range was missed. */
static void advise(const struct espl_param *param, const struct espl_node *node, bool typed,
                   struct espl_diagnostic *item)
{
    const struct type_row *row = &type_rows[param->type];
    const bool number = param->type == ESPL_PARAM_INT || param->type == ESPL_PARAM_REAL;
    if (param->type == ESPL_PARAM_ENUM && node->type == ESPL_NODE_SCALAR) {
        size_t count = 0;
        while (param->choices[count] != NULL) {
            count++;
        }
        const char *near = espl_suggest(node->text, param->choices, count);
        if (near != NULL) {
            espl_diagnostic_hint(item, "did you mean '%s'?", near);
        }
    } else if (typed || row->advice[0] == '\0') {
        return;
    } else if (param->type == ESPL_PARAM_BOOL) {
        espl_diagnostic_hint(item, "write true or false%s", node->quoted ? " without quotes" : "");
    } else {
        char meant[ESPL_UNIT_TEXT];
        espl_diagnostic_hint(item, "%s%s, for example %s", row->advice,
                             number && node->quoted ? " without quotes" : "",
                             leading_integer(param, node, meant) ? meant
                                                                 : espl_schema_example(param));
    }
}

static void report_value(const struct espl_param *param, const struct espl_node *node, bool typed,
                         bool in_list, struct espl_diagnostics *diags)
{
    struct espl_buf expected;
    struct espl_buf found;
    espl_buf_init(&expected, ESPL_TYPE_TEXT_LIMIT);
    espl_buf_init(&found, ESPL_TYPE_TEXT_LIMIT);
    if (in_list) {
        describe_item(param, false, &expected);
    } else {
        espl_schema_describe_type(param, &expected);
    }
    describe_found(param, node, &found);
    struct espl_diagnostic *item = espl_diagnostics_add(
        diags, ESPL_E_JOB, &node->at, "%s'%s' must be %s, got %s", in_list ? "each item of " : "",
        param->name, espl_buf_text(&expected), espl_buf_text(&found));
    if (item != NULL) {
        advise(param, node, typed, item);
    }
    espl_buf_free(&found);
    espl_buf_free(&expected);
}

static bool in_range(const struct espl_param *param, double value)
{
    return (!espl_schema_has_min(param) || value >= param->min) &&
           (!espl_schema_has_max(param) || value <= param->max);
}

void espl_schema_quote(const char *text, struct espl_buf *out)
{
    espl_buf_puts(out, "\"");
    const size_t len = strlen(text);
    for (size_t i = 0; i < len;) {
        uint32_t code_point = 0;
        size_t step = espl_text_decode(text + i, len - i, &code_point);
        if (step == 0) {
            code_point = 0xfffd;
            step = 1;
        }
        /* What YAML folds, forbids or counts as a line break must be escaped. */
        if (code_point == '"' || code_point == '\\') {
            espl_buf_printf(out, "\\%c", (int)code_point);
        } else if (code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0) ||
                   code_point == 0x2028 || code_point == 0x2029 || code_point == 0xfeff ||
                   code_point == 0xfffe || code_point == 0xffff || code_point == 0xfffd) {
            espl_buf_printf(out, "\\u%04x", (unsigned)code_point);
        } else {
            espl_buf_add(out, text + i, step);
        }
        i += step;
    }
    espl_buf_puts(out, "\"");
}

/* What reading a scalar came to. */
enum reading { READING_GOOD, READING_WRONG_TYPE, READING_OUT_OF_RANGE };

static enum reading read_number(const struct espl_param *param, const struct espl_node *node,
                                void *slot, char text[ESPL_UNIT_TEXT])
{
    double value = 0.0;
    if (param->type == ESPL_PARAM_INT) {
        int64_t *integer = slot;
        if ((param->flags & ESPL_PARAM_AUTO_INT) != 0 && strcmp(node->text, "auto") == 0) {
            *integer = -1;
            (void)snprintf(text, ESPL_UNIT_TEXT, "auto");
            return READING_GOOD;
        }
        if (node->quoted || !espl_parse_int(node->text, integer)) {
            return READING_WRONG_TYPE;
        }
        value = (double)*integer;
        (void)snprintf(text, ESPL_UNIT_TEXT, "%" PRId64, *integer);
    } else if (param->type == ESPL_PARAM_SIZE) {
        uint64_t *bytes = slot;
        if (!espl_parse_size(node->text, bytes)) {
            return READING_WRONG_TYPE;
        }
        value = (double)*bytes;
        (void)snprintf(text, ESPL_UNIT_TEXT, "%" PRIu64 "B", *bytes);
    } else {
        double *real = slot;
        const bool duration = param->type == ESPL_PARAM_DURATION;
        if (duration ? !espl_parse_duration(node->text, real)
                     : node->quoted || !espl_parse_real(node->text, real)) {
            return READING_WRONG_TYPE;
        }
        if (*real == 0.0) {
            *real = 0.0; /* -0 and 0 are one value */
        }
        value = *real;
        espl_print_real(value, text);
        if (duration) {
            (void)snprintf(text + strlen(text), ESPL_UNIT_TEXT - strlen(text), "s");
        }
    }
    return in_range(param, value) ? READING_GOOD : READING_OUT_OF_RANGE;
}

static enum reading read_enum(const struct espl_param *param, const struct espl_node *node,
                              void *slot, const char **canonical)
{
    for (int i = 0; param->choices[i] != NULL; i++) {
        if (strcmp(node->text, param->choices[i]) == 0) {
            *(int *)slot = i;
            *canonical = param->choices[i];
            return READING_GOOD;
        }
    }
    return READING_WRONG_TYPE;
}

static enum reading read_nm(const struct espl_param *param, const struct espl_node *node,
                            void *slot, char text[ESPL_UNIT_TEXT])
{
    struct espl_nm *nm = slot;
    if ((param->flags & ESPL_PARAM_NULLABLE_NM) != 0 && strcmp(node->text, "none") == 0) {
        *nm = (struct espl_nm){0, 0};
        (void)snprintf(text, ESPL_UNIT_TEXT, "none");
        return READING_GOOD;
    }
    if (!espl_parse_nm(node->text, nm)) {
        return READING_WRONG_TYPE;
    }
    (void)snprintf(text, ESPL_UNIT_TEXT, "%" PRIu32 ":%" PRIu32, nm->n, nm->m);
    return READING_GOOD;
}

static enum reading keep_grid(const struct espl_grid *grid, void *slot, char text[ESPL_UNIT_TEXT])
{
    *(struct espl_grid *)slot = *grid;
    if (grid->rows == 1 && grid->cols == 1) {
        (void)snprintf(text, ESPL_UNIT_TEXT, "none");
    } else {
        (void)snprintf(text, ESPL_UNIT_TEXT, "%" PRIu32 "x%" PRIu32, grid->rows, grid->cols);
    }
    return READING_GOOD;
}

/* {rows: R, cols: C}; a side that is left out is 1. */
static enum reading read_grid_mapping(const struct espl_node *node, void *slot,
                                      char text[ESPL_UNIT_TEXT])
{
    enum { LARGEST = 64 };
    struct espl_grid grid = {1, 1};
    for (size_t i = 0; i < node->count; i++) {
        const char *key = node->keys[i]->text;
        const struct espl_node *side = node->items[i];
        int64_t value = 0;
        if ((strcmp(key, "rows") != 0 && strcmp(key, "cols") != 0) ||
            side->type != ESPL_NODE_SCALAR || side->quoted || !espl_parse_int(side->text, &value)) {
            return READING_WRONG_TYPE;
        }
        if (value < 1 || value > LARGEST) {
            return READING_OUT_OF_RANGE;
        }
        *(key[0] == 'r' ? &grid.rows : &grid.cols) = (uint32_t)value;
    }
    return keep_grid(&grid, slot, text);
}

static enum reading read_grid(const struct espl_node *node, void *slot, char text[ESPL_UNIT_TEXT])
{
    struct espl_grid grid = {1, 1};
    if (node->type == ESPL_NODE_MAPPING && node->count > 0) {
        return read_grid_mapping(node, slot, text);
    }
    if (node->type != ESPL_NODE_SCALAR || espl_node_is_null(node) ||
        (strcmp(node->text, "none") != 0 && !espl_parse_grid(node->text, &grid))) {
        return READING_WRONG_TYPE;
    }
    return keep_grid(&grid, slot, text);
}

/* A node into a slot of the item type; all types but the grid are scalars. canonical: in the arena
 * or static. */
static enum reading read_scalar(const struct espl_param *param, const struct espl_node *node,
                                void *slot, struct espl_arena *arena, const char **canonical)
{
    char text[ESPL_UNIT_TEXT] = "";
    enum reading reading = READING_WRONG_TYPE;
    if (param->type != ESPL_PARAM_GRID &&
        (node->type != ESPL_NODE_SCALAR || espl_node_is_null(node))) {
        return READING_WRONG_TYPE;
    }
    switch (param->type) {
    case ESPL_PARAM_BOOL:
        if (!node->quoted && espl_parse_bool(node->text, slot)) {
            *canonical = *(bool *)slot ? "true" : "false";
            return READING_GOOD;
        }
        return READING_WRONG_TYPE;
    case ESPL_PARAM_ENUM:
        return read_enum(param, node, slot, canonical);
    case ESPL_PARAM_STRING:
    case ESPL_PARAM_PATH:
        /* "" means absent; where absent is not allowed, an empty text is a mistake. */
        if (node->text[0] == '\0' &&
            (param->default_text == NULL || param->default_text[0] != '\0')) {
            return READING_WRONG_TYPE;
        }
        *(const char **)slot = node->text;
        *canonical = node->text;
        return READING_GOOD;
    case ESPL_PARAM_NM:
        reading = read_nm(param, node, slot, text);
        break;
    case ESPL_PARAM_GRID:
        reading = read_grid(node, slot, text);
        break;
    case ESPL_PARAM_INT:
    case ESPL_PARAM_REAL:
    case ESPL_PARAM_DURATION:
    case ESPL_PARAM_SIZE:
        reading = read_number(param, node, slot, text);
        break;
    }
    if (reading == READING_GOOD) {
        *canonical = espl_arena_strdup(arena, text);
    }
    return reading;
}

static const char *out_of_memory(const struct espl_node *node, struct espl_diagnostics *diags)
{
    (void)espl_diagnostics_add(diags, ESPL_E_NOMEM, &node->at, "out of memory for a parameter");
    return NULL;
}

/* A sequence, or one scalar for a list of one. */
static const char *read_list(const struct espl_param *param, const struct espl_node *node,
                             struct espl_list *list, struct espl_arena *arena,
                             struct espl_diagnostics *diags)
{
    const bool sequence = node->type == ESPL_NODE_SEQUENCE;
    if (!sequence && (node->type != ESPL_NODE_SCALAR || espl_node_is_null(node))) {
        report_value(param, node, false, false, diags);
        return NULL;
    }
    const size_t count = sequence ? node->count : 1;
    const size_t size = espl_schema_item_size(param->type);
    unsigned char *items = espl_arena_array(arena, count, size);
    if (items == NULL) {
        return out_of_memory(node, diags);
    }
    struct espl_buf text;
    espl_buf_init(&text, ESPL_VALUE_TEXT_LIMIT);
    espl_buf_puts(&text, "[");
    bool good = true;
    for (size_t i = 0; i < count; i++) {
        const struct espl_node *item = sequence ? node->items[i] : node;
        const char *canonical = NULL;
        const enum reading reading = read_scalar(param, item, items + i * size, arena, &canonical);
        if (reading != READING_GOOD) {
            report_value(param, item, reading == READING_OUT_OF_RANGE, sequence, diags);
            good = false;
            continue;
        }
        espl_buf_puts(&text, i > 0 ? "," : "");
        const bool bare = param->type == ESPL_PARAM_BOOL || param->type == ESPL_PARAM_INT ||
                          param->type == ESPL_PARAM_REAL;
        if (canonical != NULL && bare) {
            espl_buf_puts(&text, canonical);
        } else if (canonical != NULL) {
            espl_schema_quote(canonical, &text);
        } else {
            text.failed = true;
        }
    }
    espl_buf_puts(&text, "]");
    const char *result =
        good && !text.failed ? espl_arena_strdup(arena, espl_buf_text(&text)) : NULL;
    espl_buf_free(&text);
    if (!good) {
        return NULL;
    }
    if (result == NULL) {
        return out_of_memory(node, diags);
    }
    *list = (struct espl_list){.count = count, .items = items};
    return result;
}

const char *espl_schema_read_value(const struct espl_param *param, const struct espl_node *node,
                                   void *field, struct espl_arena *arena,
                                   struct espl_diagnostics *diags)
{
    if ((param->flags & ESPL_PARAM_LIST) != 0) {
        return read_list(param, node, field, arena, diags);
    }
    const char *canonical = NULL;
    const enum reading reading = read_scalar(param, node, field, arena, &canonical);
    if (reading != READING_GOOD) {
        report_value(param, node, reading == READING_OUT_OF_RANGE, false, diags);
        return NULL;
    }
    return canonical != NULL ? canonical : out_of_memory(node, diags);
}

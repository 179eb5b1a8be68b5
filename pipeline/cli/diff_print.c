#include "cli/diff_print.h"

#include "cli/print.h"
#include "core/hash.h"
#include "report/figure_text.h"

#include <math.h>
#include <string.h>

enum { MAX_DEPTH = 8 /* of nested objects that are taken apart */ };

void espl_diff_values(struct espl_diff_section *section, const char *name, const json_t *a,
                      const json_t *b)
{
    if (a == NULL && b == NULL) {
        return;
    }
    if (a != NULL && b != NULL && json_equal(a, b)) {
        ++section->same;
        return;
    }
    if (section->entries == NULL) {
        section->entries = json_array();
    }
    (void)json_array_append_new(section->entries, json_pack("{s:s, s:O?, s:O?}", "name", name, "a",
                                                            (json_t *)a, "b", (json_t *)b));
}

static void diff_members(struct espl_diff_section *section, const char *prefix, const json_t *a,
                         const json_t *b, unsigned depth);

static void diff_member(struct espl_diff_section *section, const char *prefix, const char *name,
                        const json_t *a, const json_t *b, unsigned depth)
{
    char dotted[512];
    (void)snprintf(dotted, sizeof dotted, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", name);
    if ((json_is_object(a) || json_is_object(b)) && depth < MAX_DEPTH) {
        diff_members(section, dotted, a, b, depth + 1);
    } else {
        espl_diff_values(section, dotted, a, b);
    }
}

static void diff_members(struct espl_diff_section *section, const char *prefix, const json_t *a,
                         const json_t *b, unsigned depth)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)a, name, value)
    {
        diff_member(section, prefix, name, value, json_object_get(b, name), depth);
    }
    json_object_foreach((json_t *)b, name, value)
    {
        if (json_object_get(a, name) == NULL) {
            diff_member(section, prefix, name, NULL, value, depth);
        }
    }
}

void espl_diff_objects(struct espl_diff_section *section, const char *prefix, const json_t *a,
                       const json_t *b)
{
    diff_members(section, prefix, a, b, 0);
}

static void value_cell(struct espl_table *table, const json_t *value)
{
    char text[1024];
    if (value == NULL || json_is_null(value)) {
        espl_table_cell(table, ESPL_STYLE_DIM, "-");
        return;
    }
    if (json_is_real(value)) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%.6g", json_real_value(value));
        return;
    }
    espl_figure_param(value, text, sizeof text);
    /* Hashes and keys show their first digits: the rest says nothing to people. */
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.*s",
                    espl_sha256_is_hex(text) ? 16 : (int)sizeof text, text);
}

static void change_cell(struct espl_table *table, const json_t *a, const json_t *b)
{
    const double before = json_number_value(a);
    const double after = json_number_value(b);
    if (!json_is_number(a) || !json_is_number(b) || before == 0.0) {
        espl_table_cell(table, ESPL_STYLE_DIM, "-");
    } else {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%+.3g %%",
                        100.0 * (after - before) / fabs(before));
    }
}

enum espl_status espl_diff_print(const struct espl_cli *cli,
                                 const struct espl_diff_section *section, bool numbers,
                                 struct espl_error *err)
{
    const struct espl_column columns[] = {
        {.title = section->title, .max_width = 48},
        {.title = "a", .right = numbers, .max_width = numbers ? 0 : 60},
        {.title = "b", .right = numbers, .max_width = numbers ? 0 : 60},
        {.title = "change", .right = true}};
    struct espl_table *table = NULL;
    const size_t count = json_array_size(section->entries);
    if (count == 0) {
        if (section->same > 0) {
            fprintf(cli->out, "%s: all %zu equal\n", section->title, section->same);
        }
        return ESPL_OK;
    }
    enum espl_status status = espl_table_create(columns, numbers ? 4 : 3, &table, err);
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t i = 0; i < count; ++i) {
        const json_t *entry = json_array_get(section->entries, i);
        const json_t *a = json_object_get(entry, "a");
        const json_t *b = json_object_get(entry, "b");
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s",
                        json_string_value(json_object_get(entry, "name")));
        value_cell(table, a);
        value_cell(table, b);
        if (numbers) {
            change_cell(table, a, b);
        }
    }
    if (section->same > 0) {
        espl_table_line(table, "%zu more are equal", section->same);
    }
    status = espl_table_print(table, cli->out, 0, cli->colour_out, err);
    espl_table_destroy(table);
    return status;
}

json_t *espl_diff_json(const struct espl_diff_section *section)
{
    return json_pack("{s:o, s:I}", "different",
                     section->entries != NULL ? json_incref(section->entries) : json_array(),
                     "same", (json_int_t)section->same);
}

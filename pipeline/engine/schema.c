/* Parameter tables: a whole mapping, defaults, overrides. */
#include "engine/schema.h"

#include "core/suggest.h"
#include "engine/schema_internal.h"
#include "engine/source_text.h"

#include <string.h>

size_t espl_schema_count(const struct espl_param *table)
{
    size_t count = 0;
    while (table[count].name != NULL) {
        count++;
    }
    return count;
}

const struct espl_param *espl_schema_find(const struct espl_param *table, const char *name)
{
    for (const struct espl_param *param = table; param->name != NULL; param++) {
        if (strcmp(param->name, name) == 0) {
            return param;
        }
    }
    return NULL;
}

static const char *suggest_param(const struct espl_param *table, const char *word)
{
    enum { MAX_NAMES = 64 };
    const char *names[MAX_NAMES];
    size_t count = 0;
    for (const struct espl_param *param = table; param->name != NULL && count < MAX_NAMES;
         param++) {
        names[count++] = param->name;
    }
    return espl_suggest(word, names, count);
}

static void report_unknown(const struct espl_param *table, const struct espl_node *key,
                           const char *what, const char *help_verb, struct espl_diagnostics *diags)
{
    char shown[ESPL_CLIP_TEXT];
    espl_text_clip(key->text, shown);
    struct espl_diagnostic *item = espl_diagnostics_add(
        diags, ESPL_E_JOB, &key->at, "unknown parameter '%s' for %s", shown, what);
    const char *near = suggest_param(table, key->text);
    if (near != NULL && help_verb != NULL) {
        espl_diagnostic_hint(item, "did you mean '%s'?  `%s` lists all parameters", near,
                             help_verb);
    } else if (help_verb != NULL) {
        espl_diagnostic_hint(item, "`%s` lists all parameters", help_verb);
    } else if (near != NULL) {
        espl_diagnostic_hint(item, "did you mean '%s'?", near);
    }
}

/* The default as a node at the stage's name, so that errors about it have a place. */
static const struct espl_node *default_node(const struct espl_param *param,
                                            const struct espl_srcpos *stage_at,
                                            struct espl_arena *arena,
                                            struct espl_diagnostics *diags)
{
    if ((param->flags & ESPL_PARAM_LIST) != 0) {
        return espl_schema_override_node(param, param->default_text, stage_at, arena, diags);
    }
    struct espl_node *node = espl_arena_alloc(arena, sizeof *node);
    if (node != NULL) {
        node->type = ESPL_NODE_SCALAR;
        node->at = *stage_at;
        node->text = param->default_text;
        /* An empty default is an empty text, not an absent value. */
        node->quoted = param->default_text[0] == '\0';
    }
    return node;
}

/* Is there an unknown key that was probably meant to be this parameter? Then "missing" would report
 * one mistake twice. */
static bool is_misspelt(const struct espl_param *table, const struct espl_node *with,
                        const struct espl_param *param)
{
    for (size_t i = 0; with != NULL && i < with->count; i++) {
        const char *key = with->keys[i]->text;
        if (espl_schema_find(table, key) == NULL && suggest_param(table, key) == param->name) {
            return true;
        }
    }
    return false;
}

static void read_row(const struct espl_param *param, const struct espl_node *given,
                     const char *what, bool misspelt, void *field, struct espl_param_value *value,
                     struct espl_arena *arena, struct espl_diagnostics *diags,
                     const struct espl_srcpos *stage_at)
{
    const bool optional = (param->flags & ESPL_PARAM_OPTIONAL) != 0;
    const bool list = (param->flags & ESPL_PARAM_LIST) != 0;
    *value = (struct espl_param_value){.origin = ESPL_ORIGIN_DEFAULT, .at = *stage_at};
    if (given != NULL && !(optional && espl_node_is_null(given))) {
        value->origin = given->at.line == 0 ? ESPL_ORIGIN_OVERRIDE : ESPL_ORIGIN_JOB;
        value->at = given->at;
        value->text = espl_schema_read_value(param, given, field, arena, diags);
    } else if (param->default_text != NULL) {
        const struct espl_node *node = default_node(param, stage_at, arena, diags);
        value->text =
            node != NULL ? espl_schema_read_value(param, node, field, arena, diags) : NULL;
    } else if (optional) {
        value->text = list ? "[]" : "";
    } else if (!misspelt) {
        struct espl_diagnostic *item = espl_diagnostics_add(
            diags, ESPL_E_JOB, stage_at, "missing parameter '%s' for %s", param->name, what);
        espl_diagnostic_hint(item, "add it under 'with:' (%s)", param->help);
    }
}

void espl_schema_read(const struct espl_param *table, const struct espl_node *with,
                      const char *what, const char *help_verb, void *out,
                      struct espl_param_value *values, struct espl_arena *arena,
                      struct espl_diagnostics *diags, const struct espl_srcpos *stage_at)
{
    if (with != NULL && with->type != ESPL_NODE_MAPPING) {
        if (!espl_node_is_null(with)) {
            (void)espl_diagnostics_add(diags, ESPL_E_JOB, &with->at,
                                       "the parameters of %s must be a mapping, got %s", what,
                                       with->type == ESPL_NODE_SEQUENCE ? "a list" : "a text");
        }
        with = NULL;
    }
    for (size_t i = 0; with != NULL && i < with->count; i++) {
        if (espl_schema_find(table, with->keys[i]->text) == NULL) {
            report_unknown(table, with->keys[i], what, help_verb, diags);
        }
    }
    for (size_t i = 0; table[i].name != NULL; i++) {
        unsigned char *field = (unsigned char *)out + table[i].offset;
        const struct espl_node *given = espl_node_get(with, table[i].name, NULL);
        const bool misspelt =
            given == NULL && table[i].default_text == NULL && is_misspelt(table, with, &table[i]);
        read_row(&table[i], given, what, misspelt, field, &values[i], arena, diags, stage_at);
    }
}

/* A node at another place. Places inside an option's text mean nothing to the user: the value and
 * its items all get the option's. */
static const struct espl_node *move_node(const struct espl_node *root, const struct espl_srcpos *at,
                                         struct espl_arena *arena)
{
    struct espl_node *moved = espl_arena_alloc(arena, sizeof *moved);
    const struct espl_node **items =
        espl_arena_array(arena, root->count, sizeof(const struct espl_node *));
    if (moved == NULL || items == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < root->count; i++) {
        struct espl_node *item = espl_arena_alloc(arena, sizeof *item);
        if (item == NULL) {
            return NULL;
        }
        *item = *root->items[i];
        item->at = *at;
        items[i] = item;
    }
    *moved = *root;
    moved->at = *at;
    moved->items = items;
    return moved;
}

static const struct espl_node *parse_flow_value(const char *text, const struct espl_srcpos *at,
                                                struct espl_arena *arena,
                                                struct espl_diagnostics *diags)
{
    struct espl_diagnostics found = {0};
    struct espl_error err = {0};
    const struct espl_node *root = NULL;
    if (espl_diagnostics_init(&found, &err) == ESPL_OK) {
        (void)espl_yaml_parse_value("", text, strlen(text), arena, &found, &root, &err);
    }
    if (root == NULL || found.count > 0) {
        (void)espl_diagnostics_add(diags, ESPL_E_JOB, at, "cannot read the value: %s",
                                   found.count > 0 ? found.items[0].error.message : err.message);
        root = NULL;
    }
    espl_diagnostics_free(&found);
    return root != NULL ? move_node(root, at, arena) : NULL;
}

const struct espl_node *espl_schema_override_node(const struct espl_param *param, const char *text,
                                                  const struct espl_srcpos *at,
                                                  struct espl_arena *arena,
                                                  struct espl_diagnostics *diags)
{
    const bool list = param != NULL && (param->flags & ESPL_PARAM_LIST) != 0;
    if (list || text[0] == '"' || text[0] == '\'') {
        return parse_flow_value(text, at, arena, diags);
    }
    struct espl_node *node = espl_arena_alloc(arena, sizeof *node);
    if (node == NULL || (node->text = espl_arena_strdup(arena, text)) == NULL) {
        (void)espl_diagnostics_add(diags, ESPL_E_NOMEM, at, "out of memory for the value");
        return NULL;
    }
    node->type = ESPL_NODE_SCALAR;
    node->at = *at;
    return node;
}

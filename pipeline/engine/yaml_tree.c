#include "engine/yaml_tree.h"

#include "engine/source_text.h"
#include "engine/yaml_syntax.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A node with what an alias to it costs. */
struct built {
    const struct espl_node *node;
    size_t visited;  /* nodes in it, aliases expanded */
    unsigned height; /* 1 for a scalar */
};

struct anchor {
    struct anchor *next; /* the one defined before */
    const char *name;
    struct built built; /* node NULL while it is being read: an alias then contains itself */
};

struct child {
    struct child *next;
    struct built key; /* mappings only */
    struct built value;
};

struct builder {
    yaml_parser_t parser;
    const char *file;
    const char *text;
    size_t len;
    struct espl_arena *arena;
    struct espl_diagnostics *diags;
    struct anchor *anchors;
    size_t visited;
    bool no_memory;
};

/* Place of an event, underlined to the end of its first line at most. */
static struct espl_srcpos place_of(const struct builder *builder, const yaml_event_t *event)
{
    const yaml_mark_t start = event->start_mark;
    const yaml_mark_t end = event->end_mark;
    struct espl_srcpos at = {.line = (unsigned)start.line + 1,
                             .column = (unsigned)start.column + 1};
    if (end.line == start.line && end.column > start.column) {
        at.length = (unsigned)(end.column - start.column);
    }
    (void)snprintf(at.file, sizeof at.file, "%s", builder->file);
    return at;
}

static void *allocate(struct builder *builder, size_t count, size_t size)
{
    void *memory = espl_arena_array(builder->arena, count, size);
    builder->no_memory = builder->no_memory || memory == NULL;
    return memory;
}

static const char *copy_text(struct builder *builder, const char *text)
{
    const char *copy = espl_arena_strdup(builder->arena, text);
    builder->no_memory = builder->no_memory || copy == NULL;
    return copy;
}

/* Next event; false after a syntax error was reported. */
static bool next_event(struct builder *builder, yaml_event_t *event)
{
    if (yaml_parser_parse(&builder->parser, event)) {
        return true;
    }
    if (builder->parser.error == YAML_MEMORY_ERROR) {
        builder->no_memory = true;
    } else {
        espl_yaml_report_syntax(&builder->parser, builder->file, builder->text, builder->len,
                                builder->diags);
    }
    return false;
}

/* Counts visited nodes; false when the file is too large or too deep at this place. */
static bool within_limits(struct builder *builder, const struct espl_srcpos *at, size_t visited,
                          unsigned depth)
{
    if (depth > ESPL_YAML_MAX_DEPTH) {
        (void)espl_diagnostics_add(builder->diags, ESPL_E_JOB, at, "nested deeper than %d levels",
                                   ESPL_YAML_MAX_DEPTH);
        return false;
    }
    builder->visited += visited;
    if (builder->visited > ESPL_YAML_MAX_NODES) {
        struct espl_diagnostic *item =
            espl_diagnostics_add(builder->diags, ESPL_E_JOB, at, "the file has more than %d values",
                                 ESPL_YAML_MAX_NODES);
        espl_diagnostic_hint(item, "an alias counts as all the values it stands for");
        return false;
    }
    return true;
}

static bool reject_tag(struct builder *builder, const yaml_event_t *event, const yaml_char_t *tag)
{
    if (tag == NULL) {
        return false;
    }
    const struct espl_srcpos at = place_of(builder, event);
    char shown[ESPL_CLIP_TEXT];
    espl_text_clip((const char *)tag, shown);
    struct espl_diagnostic *item = espl_diagnostics_add(builder->diags, ESPL_E_JOB, &at,
                                                        "tags are not used here: '%s'", shown);
    espl_diagnostic_hint(item, "leave it out: the type of a value is known from its key");
    return true;
}

/* Registers an anchor before its node is read. NULL when there is none (or no memory). */
static struct anchor *open_anchor(struct builder *builder, const yaml_char_t *name)
{
    if (name == NULL) {
        return NULL;
    }
    struct anchor *anchor = allocate(builder, 1, sizeof *anchor);
    if (anchor != NULL) {
        anchor->name = copy_text(builder, (const char *)name);
        anchor->next = builder->anchors;
        if (anchor->name != NULL) {
            builder->anchors = anchor;
        }
    }
    return anchor;
}

static bool build_alias(struct builder *builder, const yaml_event_t *event, unsigned depth,
                        struct built *out)
{
    const char *name = (const char *)event->data.alias.anchor;
    const struct espl_srcpos at = place_of(builder, event);
    const struct anchor *anchor = builder->anchors;
    while (anchor != NULL && strcmp(anchor->name, name) != 0) {
        anchor = anchor->next;
    }
    char shown[ESPL_CLIP_TEXT];
    espl_text_clip(name, shown);
    if (anchor == NULL) {
        (void)espl_diagnostics_add(builder->diags, ESPL_E_JOB, &at,
                                   "alias '*%s' has no anchor '&%s' before it", shown, shown);
        return false;
    }
    if (anchor->built.node == NULL) {
        (void)espl_diagnostics_add(builder->diags, ESPL_E_JOB, &at, "alias '*%s' contains itself",
                                   shown);
        return false;
    }
    if (!within_limits(builder, &at, anchor->built.visited, depth + anchor->built.height - 1)) {
        return false;
    }
    *out = anchor->built;
    return true;
}

static bool build_node(struct builder *builder, yaml_event_t *event, unsigned depth,
                       struct built *out);

struct key_order {
    const struct espl_node *key;
    size_t index;
};

static int compare_keys(const void *left, const void *right)
{
    const struct key_order *a = left;
    const struct key_order *b = right;
    const int by_text = strcmp(a->key->text, b->key->text);
    return by_text != 0 ? by_text : (a->index < b->index ? -1 : 1);
}

/* Reports every key that was given before. libyaml accepts them. */
static void report_duplicate_keys(struct builder *builder, const struct espl_node *mapping)
{
    struct key_order *order = allocate(builder, mapping->count, sizeof *order);
    if (order == NULL) {
        return;
    }
    for (size_t i = 0; i < mapping->count; i++) {
        order[i] = (struct key_order){mapping->keys[i], i};
    }
    qsort(order, mapping->count, sizeof *order, compare_keys);
    size_t first = 0;
    for (size_t i = 1; i < mapping->count; i++) {
        if (strcmp(order[first].key->text, order[i].key->text) != 0) {
            first = i;
            continue;
        }
        char shown[ESPL_CLIP_TEXT];
        espl_text_clip(order[i].key->text, shown);
        struct espl_diagnostic *item = espl_diagnostics_add(
            builder->diags, ESPL_E_JOB, &order[i].key->at, "duplicate key '%s'", shown);
        espl_diagnostic_remark(item, "given again here");
        espl_diagnostic_also(item, &order[first].key->at, "first given here");
    }
}

/* Reads keys and values up to the end event of a collection. flow: it has brackets, so that it can
 * be underlined whole when it ends in its first line. */
static bool read_children(struct builder *builder, struct espl_node *node, bool flow,
                          unsigned depth, struct child **first)
{
    const bool mapping = node->type == ESPL_NODE_MAPPING;
    const yaml_event_type_t end = mapping ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
    struct child **tail = first;
    for (;;) {
        yaml_event_t event;
        if (!next_event(builder, &event)) {
            return false;
        }
        const bool ended = event.type == end;
        struct child *child = ended ? NULL : allocate(builder, 1, sizeof *child);
        bool good = ended || child != NULL;
        if (child != NULL && mapping) {
            const struct espl_srcpos at = place_of(builder, &event);
            good = build_node(builder, &event, depth, &child->key);
            if (good && child->key.node->type != ESPL_NODE_SCALAR) {
                (void)espl_diagnostics_add(
                    builder->diags, ESPL_E_JOB, &at, "a key must be a text, got %s",
                    child->key.node->type == ESPL_NODE_MAPPING ? "a mapping" : "a list");
                good = false;
            }
            yaml_event_delete(&event);
            if (!good || !next_event(builder, &event)) {
                return false;
            }
        }
        good = good && (ended || build_node(builder, &event, depth, &child->value));
        const yaml_mark_t mark = event.end_mark;
        if (ended && flow && mark.line + 1 == node->at.line && mark.column >= node->at.column) {
            node->at.length = (unsigned)mark.column + 1 - node->at.column;
        }
        yaml_event_delete(&event);
        if (ended || !good) {
            return good;
        }
        *tail = child;
        tail = &child->next;
        node->count++;
    }
}

/* A sequence or mapping whose start event was read. */
static bool build_collection(struct builder *builder, struct espl_node *node, bool flow,
                             unsigned depth, struct built *out)
{
    const bool mapping = node->type == ESPL_NODE_MAPPING;
    struct child *first = NULL;
    if (!read_children(builder, node, flow, depth + 1, &first)) {
        return false;
    }
    const struct espl_node **items =
        allocate(builder, node->count, sizeof(const struct espl_node *));
    const struct espl_node **keys =
        mapping ? allocate(builder, node->count, sizeof(const struct espl_node *)) : NULL;
    if (items == NULL || (mapping && keys == NULL)) {
        return false;
    }
    size_t index = 0;
    for (const struct child *child = first; child != NULL; child = child->next, index++) {
        items[index] = child->value.node;
        out->visited += child->value.visited + child->key.visited;
        if (child->value.height + 1 > out->height) {
            out->height = child->value.height + 1;
        }
        if (keys != NULL) {
            keys[index] = child->key.node;
        }
    }
    node->items = items;
    node->keys = keys;
    if (mapping) {
        report_duplicate_keys(builder, node);
    }
    return true;
}

/* Builds the node that starts with `event`. */
static bool build_node(struct builder *builder, yaml_event_t *event, unsigned depth,
                       struct built *out)
{
    if (event->type == YAML_ALIAS_EVENT) {
        return build_alias(builder, event, depth, out);
    }
    struct espl_node *node = allocate(builder, 1, sizeof *node);
    if (node == NULL) {
        return false;
    }
    node->at = place_of(builder, event);
    if (!within_limits(builder, &node->at, 1, depth)) {
        return false;
    }
    const yaml_char_t *tag = NULL;
    struct anchor *anchor = NULL;
    bool flow = false;
    if (event->type == YAML_SCALAR_EVENT) {
        node->type = ESPL_NODE_SCALAR;
        node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        node->text = copy_text(builder, (const char *)event->data.scalar.value);
        tag = event->data.scalar.tag;
        anchor = open_anchor(builder, event->data.scalar.anchor);
        if (node->text != NULL && strlen(node->text) != event->data.scalar.length) {
            (void)espl_diagnostics_add(builder->diags, ESPL_E_JOB, &node->at,
                                       "a text must not hold the character U+0000");
            return false;
        }
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        node->type = ESPL_NODE_SEQUENCE;
        flow = event->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE;
        tag = event->data.sequence_start.tag;
        anchor = open_anchor(builder, event->data.sequence_start.anchor);
    } else {
        node->type = ESPL_NODE_MAPPING;
        flow = event->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE;
        tag = event->data.mapping_start.tag;
        anchor = open_anchor(builder, event->data.mapping_start.anchor);
    }
    *out = (struct built){.node = node, .visited = 1, .height = 1};
    if (reject_tag(builder, event, tag) || builder->no_memory ||
        (node->type != ESPL_NODE_SCALAR && !build_collection(builder, node, flow, depth, out))) {
        return false;
    }
    if (anchor != NULL) {
        anchor->built = *out;
    }
    return true;
}

/* Stream start, at most one document, stream end. */
static bool build_document(struct builder *builder, const struct espl_node **root)
{
    struct built built = {0};
    for (;;) {
        yaml_event_t event;
        if (!next_event(builder, &event)) {
            return false;
        }
        bool good = true;
        bool ended = false;
        const struct espl_srcpos at = place_of(builder, &event);
        switch (event.type) {
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_END_EVENT:
            break;
        case YAML_STREAM_END_EVENT:
            ended = true;
            break;
        case YAML_DOCUMENT_START_EVENT:
            if (built.node != NULL) {
                struct espl_diagnostic *item = espl_diagnostics_add(
                    builder->diags, ESPL_E_JOB, &at, "a second document starts here");
                espl_diagnostic_hint(item, "a job file is one document: remove this '---'");
                good = false;
            }
            break;
        default:
            good = build_node(builder, &event, 1, &built);
            break;
        }
        yaml_event_delete(&event);
        if (ended || !good) {
            *root = good ? built.node : NULL;
            return good;
        }
    }
}

enum espl_status espl_yaml_parse_value(const char *file, const char *text, size_t len,
                                       struct espl_arena *arena, struct espl_diagnostics *diags,
                                       const struct espl_node **root, struct espl_error *err)
{
    *root = NULL;
    struct espl_srcpos start = {.line = 1, .column = 1};
    (void)snprintf(start.file, sizeof start.file, "%s", file);
    if (len > ESPL_YAML_MAX_BYTES) {
        (void)espl_diagnostics_add(diags, ESPL_E_JOB, &start, "the file is larger than %d bytes",
                                   ESPL_YAML_MAX_BYTES);
        return ESPL_OK;
    }
    const size_t bom = espl_text_bom(text, len);
    struct builder builder = {
        .file = file, .text = text + bom, .len = len - bom, .arena = arena, .diags = diags};
    if (!espl_yaml_check_text(file, builder.text, builder.len, diags)) {
        return ESPL_OK;
    }
    if (!yaml_parser_initialize(&builder.parser)) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory while reading '%s'", file);
    }
    yaml_parser_set_encoding(&builder.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&builder.parser, (const unsigned char *)builder.text, builder.len);
    const bool good = build_document(&builder, root);
    yaml_parser_delete(&builder.parser);
    if (builder.no_memory) {
        *root = NULL;
        return espl_fail(err, ESPL_E_NOMEM, "out of memory while reading '%s'", file);
    }
    if (good && *root == NULL) {
        (void)espl_diagnostics_add(diags, ESPL_E_JOB, &start, "the file is empty");
    }
    return ESPL_OK;
}

enum espl_status espl_yaml_parse(const char *file, const char *text, size_t len,
                                 struct espl_arena *arena, struct espl_diagnostics *diags,
                                 const struct espl_node **root, struct espl_error *err)
{
    const enum espl_status status = espl_yaml_parse_value(file, text, len, arena, diags, root, err);
    if (status == ESPL_OK && *root != NULL && (*root)->type != ESPL_NODE_MAPPING) {
        struct espl_srcpos at = (*root)->at;
        struct espl_diagnostic *item = espl_diagnostics_add(
            diags, ESPL_E_JOB, &at, "a job file is a mapping of 'key: value' lines, got %s",
            (*root)->type == ESPL_NODE_SEQUENCE ? "a list" : "a single text");
        espl_diagnostic_hint(item, "its keys are version, name, seed, device, limits and stages");
        *root = NULL;
    }
    return status;
}

const struct espl_node *espl_node_get(const struct espl_node *mapping, const char *key,
                                      const struct espl_node **key_node)
{
    if (mapping != NULL && mapping->type == ESPL_NODE_MAPPING) {
        for (size_t i = 0; i < mapping->count; i++) {
            if (strcmp(mapping->keys[i]->text, key) == 0) {
                if (key_node != NULL) {
                    *key_node = mapping->keys[i];
                }
                return mapping->items[i];
            }
        }
    }
    return NULL;
}

bool espl_node_is_null(const struct espl_node *node)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    if (node->type != ESPL_NODE_SCALAR || node->quoted) {
        return false;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(node->text, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

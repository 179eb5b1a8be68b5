#include "datasets/registry/registry_read.h"

#include "core/suggest.h"
#include "core/units.h"
#include "datasets/cache.h"

#include <string.h>

enum { TEXT_LIMIT = 500 };

void *espl_registry_array(struct espl_registry_reader *reader, size_t count, size_t item_size)
{
    void *const memory = espl_arena_array(reader->arena, count, item_size);
    reader->no_memory = reader->no_memory || memory == NULL;
    return memory;
}

static struct espl_diagnostic *fail(struct espl_registry_reader *reader,
                                    const struct espl_node *node, const char *key,
                                    const char *expected)
{
    return espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at, "'%s' must be %s", key,
                                expected);
}

void espl_registry_check_keys(struct espl_registry_reader *reader, const struct espl_node *mapping,
                              const char *const *known, const char *what)
{
    size_t count = 0;
    while (known[count] != NULL) {
        count++;
    }
    for (size_t i = 0; i < mapping->count; i++) {
        const char *const key = mapping->keys[i]->text;
        size_t j = 0;
        while (j < count && strcmp(known[j], key) != 0) {
            j++;
        }
        if (j < count) {
            continue;
        }
        struct espl_diagnostic *const item =
            espl_diagnostics_add(reader->diags, ESPL_E_JOB, &mapping->keys[i]->at,
                                 "unknown field '%.64s' of %s", key, what);
        const char *const near = espl_suggest(key, known, count);
        if (near != NULL) {
            espl_diagnostic_hint(item, "did you mean '%s'?", near);
        }
    }
}

/* The value under key; absent ones are told when required. */
static const struct espl_node *value_of(struct espl_registry_reader *reader,
                                        const struct espl_node *parent, const char *key,
                                        bool required)
{
    const struct espl_node *const node = espl_node_get(parent, key, NULL);
    if (node == NULL || espl_node_is_null(node)) {
        if (required) {
            (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &parent->at, "'%s' is missing",
                                       key);
        }
        return NULL;
    }
    return node;
}

const struct espl_node *espl_registry_mapping(struct espl_registry_reader *reader,
                                              const struct espl_node *parent, const char *key,
                                              bool required)
{
    const struct espl_node *const node = value_of(reader, parent, key, required);
    if (node != NULL && node->type != ESPL_NODE_MAPPING) {
        (void)fail(reader, node, key, "a mapping");
        return NULL;
    }
    return node;
}

const struct espl_node *const *espl_registry_items(struct espl_registry_reader *reader,
                                                   const struct espl_node *parent, const char *key,
                                                   size_t *count)
{
    const struct espl_node *const node = value_of(reader, parent, key, false);
    *count = 0;
    if (node == NULL) {
        return NULL;
    }
    if (node->type == ESPL_NODE_SEQUENCE) {
        *count = node->count;
        return node->items;
    }
    const struct espl_node **const single = espl_registry_array(reader, 1, sizeof *single);
    if (single != NULL) {
        single[0] = node;
        *count = 1;
    }
    return single;
}

/* A scalar's text, or NULL after telling. */
static const char *scalar(struct espl_registry_reader *reader, const struct espl_node *node,
                          const char *key, const char *expected)
{
    if (node->type != ESPL_NODE_SCALAR || node->text[0] == '\0' ||
        strlen(node->text) > TEXT_LIMIT) {
        (void)fail(reader, node, key, expected);
        return NULL;
    }
    return node->text;
}

const char *espl_registry_text(struct espl_registry_reader *reader, const struct espl_node *parent,
                               const char *key, bool required)
{
    const struct espl_node *const node = value_of(reader, parent, key, required);
    return node != NULL ? scalar(reader, node, key, "a text of at most 500 bytes") : NULL;
}

const char *const *espl_registry_texts(struct espl_registry_reader *reader,
                                       const struct espl_node *parent, const char *key,
                                       size_t *count)
{
    const struct espl_node *const *const items = espl_registry_items(reader, parent, key, count);
    const char **const texts = espl_registry_array(reader, *count, sizeof *texts);
    for (size_t i = 0; texts != NULL && items != NULL && i < *count; i++) {
        texts[i] = scalar(reader, items[i], key, "texts of at most 500 bytes");
        texts[i] = texts[i] != NULL ? texts[i] : "";
    }
    *count = texts != NULL ? *count : 0;
    return texts;
}

const char *espl_registry_hash(struct espl_registry_reader *reader, const struct espl_node *parent)
{
    const struct espl_node *const node = value_of(reader, parent, "sha256", false);
    if (node == NULL) {
        return NULL;
    }
    if (node->type != ESPL_NODE_SCALAR || !espl_sha256_is_hex(node->text)) {
        struct espl_diagnostic *const item =
            fail(reader, node, "sha256", "64 lower-case hexadecimal digits");
        espl_diagnostic_hint(item, "leave it out when it is not known: the file is then recorded "
                                   "when it is fetched first");
        return NULL;
    }
    return node->text;
}

const char *espl_registry_path(struct espl_registry_reader *reader, const struct espl_node *parent,
                               const char *key)
{
    const struct espl_node *const node = value_of(reader, parent, key, true);
    if (node == NULL) {
        return NULL;
    }
    if (node->type != ESPL_NODE_SCALAR || !espl_cache_name_is_safe(node->text)) {
        (void)fail(reader, node, key, "a relative path without '..'");
        return NULL;
    }
    return node->text;
}

uint64_t espl_registry_size(struct espl_registry_reader *reader, const struct espl_node *parent,
                            const char *key, uint64_t fallback)
{
    const struct espl_node *const node = value_of(reader, parent, key, false);
    int64_t bytes = 0;
    uint64_t size = 0;
    if (node == NULL) {
        return fallback;
    }
    if (node->type == ESPL_NODE_SCALAR && espl_parse_int(node->text, &bytes) && bytes > 0) {
        return (uint64_t)bytes;
    }
    if (node->type == ESPL_NODE_SCALAR && espl_parse_size(node->text, &size) && size > 0 &&
        size <= INT64_MAX) {
        return size;
    }
    (void)fail(reader, node, key, "a number of bytes, or a size like 4GB");
    return fallback;
}

uint64_t espl_registry_count(struct espl_registry_reader *reader, const struct espl_node *parent,
                             const char *key, uint64_t fallback)
{
    const struct espl_node *const node = value_of(reader, parent, key, false);
    int64_t number = 0;
    if (node == NULL) {
        return fallback;
    }
    if (node->type != ESPL_NODE_SCALAR || !espl_parse_int(node->text, &number) || number < 0 ||
        number > 1 << 30) {
        (void)fail(reader, node, key, "a whole number from 0");
        return fallback;
    }
    return (uint64_t)number;
}

bool espl_registry_flag(struct espl_registry_reader *reader, const struct espl_node *parent,
                        const char *key)
{
    const struct espl_node *const node = value_of(reader, parent, key, false);
    bool flag = false;
    if (node != NULL && (node->type != ESPL_NODE_SCALAR || !espl_parse_bool(node->text, &flag))) {
        (void)fail(reader, node, key, "true or false");
    }
    return flag;
}

size_t espl_registry_choice(struct espl_registry_reader *reader, const struct espl_node *parent,
                            const char *key, const char *const *choices, size_t fallback)
{
    const struct espl_node *const node = value_of(reader, parent, key, false);
    size_t count = 0;
    if (node == NULL) {
        return fallback;
    }
    for (; choices[count] != NULL; count++) {
        if (node->type == ESPL_NODE_SCALAR && strcmp(choices[count], node->text) == 0) {
            return count;
        }
    }
    struct espl_diagnostic *const item = fail(reader, node, key, "one of the known words");
    const char *const near =
        node->type == ESPL_NODE_SCALAR ? espl_suggest(node->text, choices, count) : NULL;
    if (near != NULL) {
        espl_diagnostic_hint(item, "did you mean '%s'?", near);
    } else {
        espl_diagnostic_hint(item, "the first of them is '%s'", choices[0]);
    }
    return fallback;
}

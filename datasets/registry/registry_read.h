/* Readers of single values of the registry; for registry*.c only. Each adds a located error to the
 * diagnostics and goes on, so that all problems of a file are told at once. */
#ifndef ESPL_REGISTRY_REGISTRY_READ_H
#define ESPL_REGISTRY_REGISTRY_READ_H

#include "core/buf.h"
#include "engine/diagnostics.h"
#include "engine/yaml_tree.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct espl_registry_reader {
    struct espl_arena *arena;
    struct espl_diagnostics *diags;
    bool no_memory;
};

/** Are all keys of `mapping` among `known` (ends with NULL)? what: "an entry", for the message. */
void espl_registry_check_keys(struct espl_registry_reader *reader, const struct espl_node *mapping,
                              const char *const *known, const char *what);
/** The mapping under `key`; NULL when absent or (told) of another type. */
const struct espl_node *espl_registry_mapping(struct espl_registry_reader *reader,
                                              const struct espl_node *parent, const char *key,
                                              bool required);
/** Items of a sequence under `key`; NULL and 0 when absent. A single value counts as one item. */
const struct espl_node *const *espl_registry_items(struct espl_registry_reader *reader,
                                                   const struct espl_node *parent, const char *key,
                                                   size_t *count);
/** A text of at most 500 bytes; NULL when absent. */
const char *espl_registry_text(struct espl_registry_reader *reader, const struct espl_node *parent,
                               const char *key, bool required);
/** Texts of a sequence. */
const char *const *espl_registry_texts(struct espl_registry_reader *reader,
                                       const struct espl_node *parent, const char *key,
                                       size_t *count);
const char *espl_registry_hash(struct espl_registry_reader *reader, const struct espl_node *parent);
/** A relative path without '..', required. key: "name" or "member". */
const char *espl_registry_path(struct espl_registry_reader *reader, const struct espl_node *parent,
                               const char *key);
/** A whole number of bytes, or a size with a unit. */
uint64_t espl_registry_size(struct espl_registry_reader *reader, const struct espl_node *parent,
                            const char *key, uint64_t fallback);
/** A whole number from 0 to 2^30; `fallback` when absent. */
uint64_t espl_registry_count(struct espl_registry_reader *reader, const struct espl_node *parent,
                             const char *key, uint64_t fallback);
bool espl_registry_flag(struct espl_registry_reader *reader, const struct espl_node *parent,
                        const char *key);
/** Index of the text under `key` in `choices` (ends with NULL); `fallback` when absent. */
size_t espl_registry_choice(struct espl_registry_reader *reader, const struct espl_node *parent,
                            const char *key, const char *const *choices, size_t fallback);
void *espl_registry_array(struct espl_registry_reader *reader, size_t count, size_t item_size);

#endif

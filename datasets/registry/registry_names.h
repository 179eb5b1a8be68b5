/* The names that files of an entry have in its set; for registry*.c only. */
#ifndef ESPL_REGISTRY_REGISTRY_NAMES_H
#define ESPL_REGISTRY_REGISTRY_NAMES_H

#include "datasets/registry/data_registry.h"
#include "datasets/registry/registry_read.h"

/** Tells of names that are there twice, that are another's folder or the set's own, and of a `use`
 * that is no file. node: the entry; items: its files, as many as entry->file_count. */
void espl_registry_check_names(struct espl_registry_reader *reader, const struct espl_node *node,
                               const struct espl_node *const *items,
                               const struct espl_registry_entry *entry);

#endif

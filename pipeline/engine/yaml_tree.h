/* libyaml -> a tree in which every node knows its place. Rejects duplicate keys, tabs as
 * indentation (with a useful message), more than one document, aliases that contain themselves,
 * tags, and files over the limits below. Scalars stay text: their type is decided by the schema,
 * never guessed. */
#ifndef ESPL_ENGINE_YAML_TREE_H
#define ESPL_ENGINE_YAML_TREE_H

#include "core/buf.h"
#include "engine/diagnostics.h"

enum {
    ESPL_YAML_MAX_BYTES = 1 << 20,
    ESPL_YAML_MAX_DEPTH = 32,
    ESPL_YAML_MAX_NODES = 20000 /* visited, aliases counted each time they are used */
};

enum espl_node_type { ESPL_NODE_SCALAR, ESPL_NODE_SEQUENCE, ESPL_NODE_MAPPING };

struct espl_node {
    enum espl_node_type type;
    struct espl_srcpos at;
    const char *text; /* scalar */
    bool quoted;      /* scalar was quoted or a block scalar: "null" is then a text */
    size_t count;     /* items, or key/value pairs */
    const struct espl_node *const *items; /* sequence: items; mapping: values */
    const struct espl_node *const *keys;  /* mapping: scalar nodes */
};

/** Parses `text`, whose root must be a mapping. file: name for messages. Problems go to diags;
 * *root is NULL when there is no tree. Nodes live in `arena`. Places count characters from the
 * first one after a byte order mark. Fails with NOMEM only. */
enum espl_status espl_yaml_parse(const char *file, const char *text, size_t len,
                                 struct espl_arena *arena, struct espl_diagnostics *diags,
                                 const struct espl_node **root, struct espl_error *err);
/** The same for one value of any type (the right-hand side of --set). */
enum espl_status espl_yaml_parse_value(const char *file, const char *text, size_t len,
                                       struct espl_arena *arena, struct espl_diagnostics *diags,
                                       const struct espl_node **root, struct espl_error *err);
/** Value of a key, or NULL. key_node (may be NULL) gets the key's node. */
const struct espl_node *espl_node_get(const struct espl_node *mapping, const char *key,
                                      const struct espl_node **key_node);
/** An absent value: an empty, `~` or `null` scalar that is not quoted. */
bool espl_node_is_null(const struct espl_node *node);

#endif

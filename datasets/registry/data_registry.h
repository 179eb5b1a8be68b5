/* The registry: which data sets and models `espalier fetch` knows. One YAML file, shipped as
 * datasets/registry.yaml and built into the program; a user may give another one. docs/fetch.md
 * describes the fields. */
#ifndef ESPL_REGISTRY_DATA_REGISTRY_H
#define ESPL_REGISTRY_DATA_REGISTRY_H

#include "core/buf.h"
#include "core/error.h"
#include "engine/diagnostics.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum espl_registry_kind { ESPL_REGISTRY_TEXT, ESPL_REGISTRY_IMAGES, ESPL_REGISTRY_MODEL };

/** A file of an archive that becomes a file of the set. */
struct espl_registry_member {
    const char *member;
    const char *name;
    const char *sha256; /* NULL = not known */
    uint64_t max_bytes;
};

struct espl_registry_file {
    const char *name;
    const char *const *urls; /* none: the hub's repository has it under its name */
    size_t url_count;
    const char *sha256; /* NULL = the hub tells it, or it is recorded when first fetched */
    uint64_t size;      /* 0 = not known */
    uint64_t max_bytes;
    bool optional;
    const struct espl_registry_member *members; /* of an archive */
    size_t member_count;
};

/** A sample of a larger image set, the same on every machine: see datasets/subset.h. */
struct espl_registry_subset {
    uint64_t classes; /* 0 = the entry is no sample */
    uint64_t train_per_class;
    uint64_t val_per_class;
    uint64_t seed;
};

struct espl_registry_entry {
    const char *name;
    enum espl_registry_kind kind;
    const char *title;
    const char *licence;
    const char *homepage;   /* may be NULL, like all texts below */
    const char *split;      /* "test", "train, validation" */
    const char *format;     /* of the files, for people */
    const char *loader;     /* stage that reads it */
    const char *manual;     /* how to get it by hand: nothing can be fetched */
    const char *repository; /* of the hub: "owner/name" */
    const char *revision;   /* commit, branch or tag; a commit pins it */
    bool hub_dataset;       /* a data set of the hub, not a model */
    bool weights;           /* safetensors weights, in one file or by an index */
    uint64_t max_bytes;     /* limit of each weight file */
    const struct espl_registry_file *files;
    size_t file_count;
    const char *const *use; /* names that a stage takes; none = all */
    size_t use_count;
    struct espl_registry_subset subset;
};

struct espl_registry {
    const struct espl_registry_entry *entries; /* sorted by name */
    size_t count;
};

enum { ESPL_REGISTRY_MAX_BYTES = 1 << 20 };

/** Reads a registry. file: its name for messages. Everything in *out lives in `arena`. Problems go
 * to diags, all at once; then the status is JOB. Errors: JOB, NOMEM. */
enum espl_status espl_registry_parse(const char *file, const char *text, size_t len,
                                     struct espl_arena *arena, struct espl_diagnostics *diags,
                                     struct espl_registry *out, struct espl_error *err);
/** The entry of that name; otherwise NOTFOUND with a did-you-mean hint. */
enum espl_status espl_registry_find(const struct espl_registry *registry, const char *name,
                                    const struct espl_registry_entry **out, struct espl_error *err);
/** "text", "images", "model" */
const char *espl_registry_kind_name(enum espl_registry_kind kind);
/** Is it 40 hexadecimal digits: a commit, which cannot change? */
bool espl_registry_is_commit(const char *revision);

/** The registry that is built in: datasets/registry.yaml. */
extern const char espl_registry_builtin[];
extern const size_t espl_registry_builtin_len;

#endif

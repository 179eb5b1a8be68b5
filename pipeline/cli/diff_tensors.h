/* Dataset by dataset: what two artifacts have in common. */
#ifndef ESPL_CLI_DIFF_TENSORS_H
#define ESPL_CLI_DIFF_TENSORS_H

#include "artifact/artifact.h"
#include "cli/command.h"
#include "cli/tensor_values.h"

#include <jansson.h>

enum espl_tensor_relation {
    ESPL_TENSOR_EQUAL,  /* same type, shape and bytes */
    ESPL_TENSOR_DIFFER, /* same logical shape, other values or type */
    ESPL_TENSOR_SHAPE,  /* other shape */
    ESPL_TENSOR_ONLY_A,
    ESPL_TENSOR_ONLY_B
};

struct espl_tensor_pair {
    enum espl_tensor_relation relation;
    const struct espl_tensor_info *a, *b;     /* NULL on the side that has none */
    struct espl_tensor_difference difference; /* DIFFER */
};

struct espl_tensor_pairs {
    struct espl_tensor_pair *items; /* in order of path */
    size_t count;
    size_t equal;
};

/** Datasets with equal recorded hashes are not read. Free in any case. */
enum espl_status espl_tensor_pairs_load(struct espl_artifact *a, struct espl_artifact *b,
                                        struct espl_tensor_pairs *out, struct espl_error *err);
void espl_tensor_pairs_free(struct espl_tensor_pairs *pairs);
enum espl_status espl_tensor_pairs_print(const struct espl_cli *cli,
                                         const struct espl_tensor_pairs *pairs, bool all,
                                         struct espl_error *err);
/** New reference. */
json_t *espl_tensor_pairs_json(const struct espl_tensor_pairs *pairs);

#endif

/* The layer table of inspect: the linears of a model's blocks. */
#ifndef ESPL_CLI_INSPECT_LAYERS_H
#define ESPL_CLI_INSPECT_LAYERS_H

#include "artifact/artifact.h"
#include "artifact/store.h"
#include "cli/command.h"
#include "model/model.h"
#include "model/quantised.h"

#include <jansson.h>

struct espl_inspect_layer {
    const struct espl_tensor_spec *spec; /* of the weight; belongs to the model */
    enum espl_dtype dtype;
    bool masked;
    bool counted;  /* was `kept` counted? */
    uint64_t kept; /* mask bits, or non-zero stored values with --stats */
    const struct espl_quant_width *quantised; /* NULL = float */
    uint64_t nonzero;                         /* codes that are not 0; only of quantised layers */
    uint64_t weights;                         /* rows x columns */
    char nm[32];                              /* "2:8" of a mask, "2:8 V=16" packed; "" = none */
};

struct espl_inspect_layers {
    struct espl_model *model; /* owned */
    struct espl_inspect_layer *items;
    size_t count;
    char pattern[32]; /* "2:4" of the pruning that made the masks; "" = none */
    const struct espl_quant_scheme *scheme; /* of a quantised model, else NULL */
    bool stats;                             /* kept counts stored values that are not zero */
};

/** Opens the model view and counts. stats: read all weights; otherwise only masks are read.
 *  Errors: what espl_model_open() gives, IO, NOMEM. Free in any case. */
enum espl_status espl_inspect_layers_load(struct espl_artifact *artifact,
                                          const struct espl_store *store, bool stats,
                                          struct espl_inspect_layers *out, struct espl_error *err);
void espl_inspect_layers_free(struct espl_inspect_layers *layers);

/** Prints the table; not `all`: the first twelve rows and how many more there are. */
enum espl_status espl_inspect_layers_print(const struct espl_cli *cli,
                                           const struct espl_inspect_layers *layers, bool all,
                                           struct espl_error *err);
/** List of objects for --json. New reference, NULL when out of memory. */
json_t *espl_inspect_layers_json(const struct espl_inspect_layers *layers);

#endif

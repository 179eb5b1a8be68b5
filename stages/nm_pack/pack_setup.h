/* What nm-pack needs to know before it runs: parameters, M, which linears, how they are quantised.
 * Everything follows from the parameters and the model's description, so `plan` and `run` share it.
 */
#ifndef ESPL_STAGES_PACK_SETUP_H
#define ESPL_STAGES_PACK_SETUP_H

#include "model/quantised.h"
#include "stages/prune_common/layer_select.h"

/** YAML words: "auto", then V as it is written; ends with NULL. */
extern const char *const espl_pack_vector_choices[];

struct espl_pack_params {
    int vector; /* index into espl_pack_vector_choices */
    bool verify;
    struct espl_layer_choice layers;
};

struct espl_pack_setup {
    unsigned m;      /* of the model's pattern */
    unsigned most_v; /* most rows that may share a pattern */
    struct espl_prune_selection selection;
    struct espl_quant_scheme scheme; /* INT8, a scale a row; inputs INT8, a scale a token */
};

/** description: of the model. *setup: freed with espl_pack_setup_free(), also after a failure.
 *  Errors: JOB (blamed on the input: no N:M pattern, an M that is not packed; on the parameters:
 *  as espl_layers_select()), UNSUPPORTED for too many different widths. */
enum espl_status espl_pack_setup_make(const struct espl_model_config *config,
                                      const struct espl_pack_params *params,
                                      const json_t *description, struct espl_pack_setup *setup,
                                      struct espl_error *err);
void espl_pack_setup_free(struct espl_pack_setup *setup);
/** The "quantisation" and "encoding" objects of the output. New references, NULL when out of
 *  memory. */
json_t *espl_pack_quantisation(const struct espl_pack_setup *setup);
json_t *espl_pack_encoding(const struct espl_pack_setup *setup);

#endif

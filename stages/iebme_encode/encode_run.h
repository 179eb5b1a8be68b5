/* The run of iebme-encode, block by block: codes and row orders in, encoded matrices and all that
 * is not quantised out. */
#ifndef ESPL_STAGES_ENCODE_RUN_H
#define ESPL_STAGES_ENCODE_RUN_H

#include "engine/stage.h"

/** YAML words; end with NULL. Each is a name of espl_iebme_areas_name(). */
extern const char *const espl_encode_area_choices[];

struct espl_encode_params {
    int areas; /* index into espl_encode_area_choices */
};

/** The "encoding" object of the output; order: description of the row order, NULL without. NULL
 * when out of memory. New reference. */
json_t *espl_encode_describe(const struct espl_encode_params *params, const json_t *order);
/** Makes the output "model" from the inputs "model" and "order". Blocks whose unit exists are not
 *  encoded again. Errors: KIND (an order made for another model), CORRUPT, CANCELLED, NOMEM,
 *  NOSPACE, IO. */
enum espl_status espl_encode_run(struct espl_stage_ctx *ctx,
                                 const struct espl_encode_params *params, struct espl_error *err);

#endif

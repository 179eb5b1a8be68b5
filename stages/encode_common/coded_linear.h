/* What the stages share that work on the integer codes of a quantised model. */
#ifndef ESPL_STAGES_CODED_LINEAR_H
#define ESPL_STAGES_CODED_LINEAR_H

#include "engine/stage.h"
#include "model/quantised.h"

#include <jansson.h>

/** What the header of a quantised model says. */
struct espl_coded_model {
    struct espl_model_config config;
    struct espl_quant_scheme scheme;
    uint64_t linears;  /* that have codes; of all that the scheme fits where it is not said */
    uint64_t in_float; /* that the scheme fits, but that have none: which ones is not known */
    /* Sizes of all linears that the scheme fits; those in float are counted too. */
    uint64_t weights;
    uint64_t stripes;     /* of 16 rows */
    uint64_t tiles;       /* of 16 x 64 codes */
    uint64_t code_bytes;  /* packed codes, scales, outliers and their scales */
    uint64_t float_bytes; /* of those in float, as if each was the largest, in float32 */
    uint64_t other_bytes; /* all other tensors in the model's element type, and float_bytes */
    uint64_t largest;     /* codes of the largest linear */
};

/** Reads it from a description. Errors: KIND, CORRUPT, NOMEM. */
enum espl_status espl_coded_model_read(const json_t *description, struct espl_coded_model *model,
                                       struct espl_error *err);

/** The next quantised weight of block `layer` from *index on, which moves past it; NULL after the
 *  last. */
const struct espl_tensor_spec *espl_coded_next(const struct espl_model *model, uint64_t layer,
                                               size_t *index);
/** *codes (out, normal) <- the packed codes, malloc'ed. Errors: NOMEM. */
enum espl_status espl_coded_unpack(const struct espl_quant_linear *linear, int8_t **codes,
                                   struct espl_error *err);
/** Tiles of 16 x 64 codes of a linear. */
uint64_t espl_coded_tiles(const struct espl_quant_linear *linear);

#endif

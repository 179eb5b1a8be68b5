/* Which kernels a latency table chose for the linears of a packed model, and what it predicts. */
#ifndef ESPL_STAGES_ENCODER_LEVELS_H
#define ESPL_STAGES_ENCODER_LEVELS_H

#include "espalier/nm_pack.h"
#include "model/model.h"
#include "stages/latency_profile/latency_record.h"

struct espl_encoder_levels {
    struct espl_latency_record record; /* fitted */
    const struct espl_model *model;    /* borrowed */
    uint8_t *n;                        /* (layers): what the model keeps, as far as asked */
    size_t asked;                      /* layers of the record that were */
    bool narrow; /* one shares its patterns by fewer rows than the table's kernels need */
};

/** Reads a latency/1 artifact. levels: closed by the caller, also after an error. Errors: CORRUPT,
 *  NOMEM. */
enum espl_status espl_encoder_levels_open(const struct espl_artifact *latency,
                                          const struct espl_model *model,
                                          struct espl_encoder_levels *levels,
                                          struct espl_error *err);
void espl_encoder_levels_close(struct espl_encoder_levels *levels);
/** N at which a linear runs fastest; 0 when the table does not know it. As
 *  espl_device_vision_level_fn; user: the levels. */
unsigned espl_encoder_level(void *user, uint64_t block, enum espl_role role,
                            const struct espl_nm_layout *layout);
/** Predicted seconds of a pass with what was asked; 0 when not all layers were. */
double espl_encoder_predicted(const struct espl_encoder_levels *levels);

#endif

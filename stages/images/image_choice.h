/* Which pictures of a source, in which order. */
#ifndef ESPL_STAGES_IMAGE_CHOICE_H
#define ESPL_STAGES_IMAGE_CHOICE_H

#include "engine/stage.h"
#include "stages/images/image_source.h"

struct espl_image_choice {
    uint64_t *indices; /* into the source */
    uint64_t count;
    uint64_t skipped; /* of the chosen ones, unreadable */
};

/** order, seed, first and count over `available` pictures. JOB when there are not so many. */
enum espl_status espl_image_choice_make(const struct espl_image_params *params, uint64_t available,
                                        struct espl_image_choice *choice, struct espl_error *err);
/** Tries every chosen picture and drops those that cannot be read; the log names them. pixels: room
 * for one picture. CORRUPT when none is left; NOMEM, IO and CANCELLED are passed on. */
enum espl_status espl_image_choice_drop_unreadable(struct espl_stage_ctx *ctx,
                                                   const struct espl_image_source *source,
                                                   const struct espl_picture_fit *fit,
                                                   uint8_t *pixels,
                                                   struct espl_image_choice *choice,
                                                   struct espl_error *err);
/** Safe on a zeroed struct. */
void espl_image_choice_free(struct espl_image_choice *choice);

#endif

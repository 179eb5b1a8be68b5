/* Fetched sets that the job names in the place of paths. */
#ifndef ESPL_STAGES_IMAGE_FIND_H
#define ESPL_STAGES_IMAGE_FIND_H

#include "datasets/source.h"
#include "stages/images/image_setup.h"

/** What stands behind the names; owns the paths that replaced them. */
struct espl_image_found {
    struct espl_source pictures, labels, list;
    bool own_labels; /* the set of the pictures brought the labels */
};

/** Replaces source, labels and list of the parameters by files of fetched sets where they are no
 * paths of anything that is there. A set with two files for use has the pictures first, then the
 * labels. The paths live as long as *found; free it with espl_image_found_free(), also after a
 * failure. Errors, blamed on the parameter: those of espl_source_find(), JOB when a set has other
 * files than these. What is neither a path nor looks like a name is left for the reader to complain
 * about. */
enum espl_status espl_image_find(struct espl_image_params *params, struct espl_image_found *found,
                                 struct espl_error *err);
/** An error about labels that came with the pictures is found at the parameter that the job has. */
void espl_image_found_blame(const struct espl_image_found *found, enum espl_status status,
                            struct espl_error *err);
void espl_image_found_free(struct espl_image_found *found);

#endif

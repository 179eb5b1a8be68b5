/* Which pictures a search sees, and which it never does.
 *
 * All pictures of an artifact are put in one fixed random order (they often come sorted by class).
 * The first `pool` are for the search; what is left is held out. Every epoch draws its own order of
 * the pool, or all epochs use the fixed one; a fidelity takes the first pictures of it, so that the
 * pictures of a lower fidelity are among those of a higher one. */
#ifndef ESPL_STAGES_NM_PICTURES_H
#define ESPL_STAGES_NM_PICTURES_H

#include "eval/vision_images.h"

struct espl_nm_pictures {
    struct espl_artifact *artifact; /* borrowed */
    struct espl_image_set set;
    uint64_t seed;
    uint64_t *order; /* (set.count): fixed random order of all */
    uint64_t pool;   /* pictures of the search */
    uint64_t *drawn; /* (pool): order of the epoch */
    uint64_t epoch;
};

/** pool: 1..count. Checks that the pictures fit the model and have labels. Free with
 *  espl_nm_pictures_free(), also after a failure. Errors: those of espl_image_set_open() and
 *  _check(); KIND for a pool that is larger than the set; NOMEM. */
enum espl_status espl_nm_pictures_open(struct espl_artifact *artifact,
                                       const struct espl_model_config *config, uint64_t pool,
                                       uint64_t seed, struct espl_nm_pictures *pictures,
                                       struct espl_error *err);
void espl_nm_pictures_free(struct espl_nm_pictures *pictures);
/** Reads `count` pictures of the search from position `first` of an epoch's order; epoch 0: the
 *  fixed order. first + count <= pool. */
enum espl_status espl_nm_pictures_read(struct espl_nm_pictures *pictures, uint64_t epoch,
                                       uint64_t first, size_t count, uint8_t *pixels,
                                       int32_t *labels, struct espl_error *err);
/** Pictures that are held out. */
uint64_t espl_nm_pictures_held_out(const struct espl_nm_pictures *pictures);
/** Reads held-out pictures; first + count <= espl_nm_pictures_held_out(). */
enum espl_status espl_nm_pictures_read_held_out(struct espl_nm_pictures *pictures, uint64_t first,
                                                size_t count, uint8_t *pixels, int32_t *labels,
                                                struct espl_error *err);

#endif

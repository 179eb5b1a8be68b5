/* A sample of a large image set that is the same on every machine: some of its classes, some
 * pictures of each. The set is a folder `train/CLASS/PICTURE`, `val/CLASS/PICTURE`; the sample is
 * two lists, train.txt and val.txt, one line "CLASS/PICTURE LABEL" a picture, label = place of the
 * class among the chosen ones, from 0.
 *
 * Recipe: class names and, in each class, file names are sorted bytewise. A partial Fisher-Yates
 * shuffle with the random stream (seed, "subset/classes", 0) chooses the classes, one with the
 * stream (seed, "subset/" + split + "/" + class, 0) the pictures of a class; both are then sorted
 * again. A choice depends on the names alone. */
#ifndef ESPL_DATASETS_SUBSET_H
#define ESPL_DATASETS_SUBSET_H

#include "core/error.h"
#include "datasets/cache.h"

#include <stddef.h>
#include <stdint.h>

struct espl_subset {
    size_t classes;
    size_t train_per_class; /* 0 = no list of that split */
    size_t val_per_class;
    uint64_t seed;
};

/** Draws the sample from `folder` and publishes it as the set `name` with train.txt and val.txt.
 * Errors: NOTFOUND (no such folder), CORRUPT (too few classes or pictures), IO, NOMEM. */
enum espl_status espl_subset_publish(const struct espl_cache *cache, const char *name,
                                     const char *folder, const struct espl_subset *subset,
                                     struct espl_error *err);

#endif

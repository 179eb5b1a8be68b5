/* An encoded model of random weights in any supported shape, in one file that jobs take as
 * {file: path}: kernels, memory and whole passes are measured at sizes whose weights cannot be had.
 * Codes are random, zeros among them; all blocks hold the same ones, since no figure of speed or
 * memory depends on their values. */
#ifndef ESPL_STAGES_RANDOM_MODEL_H
#define ESPL_STAGES_RANDOM_MODEL_H

#include "espalier/iebme.h"
#include "model/synth.h"

struct espl_random_model_options {
    /** Shape, sizes, element type of what is not quantised, seed, progress; the rest does not
     * count.
     */
    struct espl_synth_options checkpoint;
    const char *path; /* of the file; must not exist */
    double sparsity;  /* share of codes that are 0, from 0 to 1 */
    unsigned bits;    /* of a code: 2 or 4 */
    enum espl_iebme_areas areas;
};

/** Atom's sizes: activations and keys of 4 bits, groups of up to 128 columns, up to 128 INT8
 *  outlier channels, columns in random order. The file appears whole or not at all; equal options
 *  give equal bytes. bytes: of its tensors, may be NULL. Errors: USAGE (a shape without a language
 *  model, widths that no group divides, a file that is there), IO, NOSPACE, NOMEM, CANCELLED. */
enum espl_status espl_random_model_write(const struct espl_random_model_options *options,
                                         uint64_t *bytes, struct espl_error *err);

#endif

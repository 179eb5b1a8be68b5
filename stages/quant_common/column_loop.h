/* The loop over columns that GPTQ and SparseGPT share.
 *
 * Columns go from left to right in blocks. A column's entries are replaced (quantised, removed, or
 * left), and the error over U_cc moves the columns to its right: those of the block at once, the
 * others with one matrix product after the block. Rows are independent but for the choice of what
 * an unstructured block removes, so panels of rows run in parallel. */
#ifndef ESPL_STAGES_COLUMN_LOOP_H
#define ESPL_STAGES_COLUMN_LOOP_H

#include "stages/prune_common/group_align.h"
#include "stages/quant_common/gptq.h"

enum espl_column_choice {
    ESPL_COLUMN_GIVEN,        /* mask says what is removed */
    ESPL_COLUMN_UNSTRUCTURED, /* chosen for a whole block from its current weights */
    ESPL_COLUMN_WINDOWS       /* N:M: chosen at the first column of a window */
};

struct espl_column_loop {
    struct espl_matrix_shape shape;
    const struct espl_inverse_factor *factor;
    const struct espl_quantiser *quantiser; /* NULL: kept weights stay as they are */
    struct espl_quantised *quantised;       /* with a quantiser */
    enum espl_column_choice choice;
    enum espl_removed_rule removed;
    double sparsity;         /* UNSTRUCTURED */
    struct espl_align align; /* UNSTRUCTURED: groups inside a block of columns */
    size_t keep, window;     /* WINDOWS; the block size is a multiple of window */
    size_t block;            /* columns */
    /* Columns from here on do not pass errors on: the outliers of GPTQ, rounded at the end. */
    size_t loop_columns;
    unsigned threads;
    double *w;     /* (rows, cols): updated in place, holds the values in the end */
    uint8_t *mask; /* (rows, espl_mask_stride(cols)): read or chosen */
    double loss;   /* out: sum of errors^2 / 2 */
};

/** End of the block of columns that begins at `first`. The outliers begin a block of their own:
 * their scales come from all of them at once, which must be up to date then. */
size_t espl_column_loop_block_end(const struct espl_column_loop *loop, size_t first);

/** Errors: NOMEM. */
enum espl_status espl_column_loop_run(struct espl_column_loop *loop, struct espl_error *err);

/** w (rows, cols) in double, removed weights (mask: NULL allowed) and dead columns set to 0.
 *  Freed by the caller. Errors: NUMERIC (a weight is not finite), KIND (factor of another width),
 *  NOMEM. */
enum espl_status espl_column_loop_weights(const struct espl_matrix_shape *shape, const float *w,
                                          const uint8_t *mask,
                                          const struct espl_inverse_factor *factor, double **out,
                                          struct espl_error *err);

/** Mask of (rows, cols) that keeps everything. Freed by the caller; NULL when out of memory. */
uint8_t *espl_column_loop_full_mask(const struct espl_matrix_shape *shape);

#endif

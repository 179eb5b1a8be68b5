/* Quantising one linear of a block: from its float weights, mask and orders to what is stored. */
#ifndef ESPL_STAGES_ATOM_LINEAR_H
#define ESPL_STAGES_ATOM_LINEAR_H

#include "model/quantised.h"
#include "stages/quant_common/gptq.h"

/** All arrays are in the original order of rows and columns, borrowed. */
struct espl_atom_task {
    size_t rows, cols;
    const float *w;
    const uint8_t *mask;      /* NULL, or kept weights */
    const float *bias;        /* (rows) or NULL */
    const int32_t *order;     /* (cols) original column at each place; NULL = as they are */
    const int32_t *row_order; /* (rows) the same for rows, or NULL */
    bool gathered;            /* the input already stands in `order` */
    const double *hessian;    /* (cols, cols) in `order` */
    const struct espl_inverse_factor *factor; /* of the Hessian; NULL = round to nearest */
    struct espl_quantiser quantiser;
    enum espl_removed_rule removed;
    uint64_t error_work; /* ESPL_ATOM_ERROR_WORK but in tests */
    unsigned threads;
};

struct espl_atom_result {
    struct espl_quant_linear linear; /* owned */
    double error; /* output error relative to the output, by the Hessian; espl_atom_error_rows() */
    float smallest_scale, largest_scale;
};

/** *result: linear freed by the caller with espl_quant_linear_free(). Errors: NUMERIC for a weight
 *  that is not finite, naming its row and column in the model, or a removed weight that did not
 *  stay 0; NOMEM, JOB. */
enum espl_status espl_atom_quantise(const struct espl_atom_task *task,
                                    struct espl_atom_result *result, struct espl_error *err);

/** Multiplications by the Hessian that the output error of a matrix rounded to nearest is worth:
 *  about a second. */
#define ESPL_ATOM_ERROR_WORK ((uint64_t)1 << 34)
/** Rows that it is measured on: all, or as many evenly spread ones as `work` allows, at least 256.
 */
size_t espl_atom_error_rows(size_t rows, size_t cols, uint64_t work);

/** What the stored form of a linear holds. */
struct espl_atom_counts {
    uint64_t weights;
    uint64_t removed;    /* by the mask */
    uint64_t zeros;      /* codes that are 0, removed ones included */
    uint64_t violations; /* removed, yet not 0 */
    uint64_t bytes;      /* of codes, scales, outliers and their scales */
};
/** Adds to *counts. Errors: NOMEM. */
enum espl_status espl_atom_count(const struct espl_quant_linear *linear,
                                 struct espl_atom_counts *counts, struct espl_error *err);

/** Kept-mask of weights that are not 0, for models that come pruned without a mask: NULL in *mask
 *  when fewer than one weight in a hundred is 0. Errors: NOMEM. */
enum espl_status espl_atom_mask_of_zeros(size_t rows, size_t cols, const float *w, uint8_t **mask,
                                         struct espl_error *err);

#endif

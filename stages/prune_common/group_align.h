/* Alignment-aware choice of weights: groups that share one mask bit are judged and removed
 * together, or, the other way round, weights that a shared bit stores anyway are kept. Plain
 * functions on arrays.
 *
 * A grid of R x C gathers R C weights into a group, in one of two ways:
 *   areas: those at the same place of the R x C areas of a 16 x 64 tile, which share a bit of an
 *          IE-BME union mask with these areas (docs/formats/ie-bme.md);
 *   block: R neighbouring rows by C neighbouring columns.
 * The groups of a (rows, cols) matrix form a matrix of (rows / R, cols / C) themselves. */
#ifndef ESPL_STAGES_GROUP_ALIGN_H
#define ESPL_STAGES_GROUP_ALIGN_H

#include "core/units.h"
#include "espalier/kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum espl_align_form { ESPL_ALIGN_AREAS, ESPL_ALIGN_BLOCK };
enum espl_align_fill { ESPL_ALIGN_FILL_NONE, ESPL_ALIGN_FILL_UNION };
/** YAML words; end with NULL. */
extern const char *const espl_align_form_choices[];
extern const char *const espl_align_fill_choices[];

struct espl_align {
    struct espl_grid grid; /* {1, 1} or {0, 0} = every weight by itself */
    int form;              /* enum espl_align_form */
    int fill;              /* enum espl_align_fill */
};

/** Does it change anything? */
bool espl_align_is_on(const struct espl_align *align);
/** NULL when groups of this grid exist and cover a matrix of this shape, else what must hold, in
 *  words: "rows must be a multiple of 16". */
const char *espl_align_fault(const struct espl_align *align, const struct espl_matrix_shape *shape);
/** Rows that must not be torn apart: pieces of a matrix start at multiples of this. */
size_t espl_align_row_span(const struct espl_align *align);
/** Shape of the matrix of groups. The shape must be one that espl_align_fault() accepts, here and
 *  below. */
struct espl_matrix_shape espl_align_groups(const struct espl_align *align,
                                           const struct espl_matrix_shape *shape);
/** sums (groups) <- sum of the scores (rows, cols) of each group: rows first, in double, rounded to
 *  float once. */
void espl_align_sum(const struct espl_align *align, const struct espl_matrix_shape *shape,
                    const float *score, float *sums);
/** score (rows, cols): every weight gets the sum of its group, or its largest. */
void espl_align_pool(const struct espl_align *align, const struct espl_matrix_shape *shape,
                     bool largest, double *score);
/** mask (rows, stride) <- each group's bit of group_mask (its own rows, own stride) for all its
 *  weights. */
void espl_align_spread(const struct espl_align *align, const struct espl_matrix_shape *shape,
                       const uint8_t *group_mask, uint8_t *mask);
/** Keeps all weights of every group of which the mask keeps any. */
void espl_align_fill_union(const struct espl_align *align, const struct espl_matrix_shape *shape,
                           uint8_t *mask);

/** How many of `count` weights (or groups) of a row go: count * sparsity in double, truncated. */
size_t espl_prune_row_count(size_t count, double sparsity);
/** mask (rows, stride) by scores (rows, cols). Every row, or every row of groups, loses its
 *  espl_prune_row_count() smallest; of equal ones the lower column goes first. With fill `union`
 * rows lose weights one by one and then groups are filled, so that less is removed. Errors: NOMEM,
 * and what the backend gives. */
enum espl_status espl_align_row_mask(struct espl_backend *backend, const struct espl_align *align,
                                     const struct espl_matrix_shape *shape, const float *score,
                                     double sparsity, uint8_t *mask, struct espl_error *err);

/** N:M patterns, perhaps shared by rows. */
struct espl_nm_choice {
    struct espl_nm pattern; /* keep n of every m columns */
    bool keep_tail;         /* a short last window stays dense, else there must be none */
    size_t vector;          /* neighbouring rows with one pattern; 0 and 1 = each row has its own */
};

/** mask (rows, stride) by scores (rows, cols): of every aligned window the n weights with the
 *  largest scores stay; of equal ones the lower column goes first. Rows that share a pattern are
 *  judged by the sums of their scores, made like espl_align_sum(); the last group takes what rows
 *  are left. Pieces of a matrix must start at multiples of `vector`. Errors: NOMEM, and what the
 * backend gives. */
enum espl_status espl_align_nm_mask(struct espl_backend *backend,
                                    const struct espl_nm_choice *choice,
                                    const struct espl_matrix_shape *shape, const float *score,
                                    uint8_t *mask, struct espl_error *err);

#endif

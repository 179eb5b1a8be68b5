/* What SparseGPT removes: by w^2 / U_cc^2 of the weights as they are when their turn comes. */
#ifndef ESPL_STAGES_COLUMN_CHOICE_H
#define ESPL_STAGES_COLUMN_CHOICE_H

#include "stages/quant_common/column_loop.h"

/** N:M: clears the mask bits of the window - keep smallest scores of a row's window at `column`;
 *  of equal ones the lower column goes first. A short last window stays whole. */
void espl_choose_window(const struct espl_column_loop *loop, size_t row, size_t column);

/** Unstructured: clears the mask bits of the block at `first`, all rows, whose score is at most the
 *  one at place trunc(count * sparsity) in ascending order. With groups a weight's score is the sum
 *  of its group; with fill `union` a weight stays when any of its group does. Errors: NOMEM. */
enum espl_status espl_choose_block(const struct espl_column_loop *loop, size_t first,
                                   struct espl_error *err);

/** The value at place `rank` of values in ascending order; reorders values. */
double espl_select_rank(double *values, size_t count, size_t rank);

#endif

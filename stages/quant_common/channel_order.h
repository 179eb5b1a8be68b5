/* Channel orders, and the sizes that follow from a layer's width. order[place] = original column.
 */
#ifndef ESPL_STAGES_CHANNEL_ORDER_H
#define ESPL_STAGES_CHANNEL_ORDER_H

#include "core/error.h"
#include "espalier/kernels.h"

/** order (count) <- channels by ascending statistic; equal ones keep their order (lower index
 * first). Errors: NUMERIC (NaN or infinity, naming the channel), NOMEM, UNSUPPORTED (count above
 * int32). */
enum espl_status espl_reorder_ascending(const double *statistic, size_t count, int32_t *order,
                                        struct espl_error *err);
void espl_reorder_identity(size_t count, int32_t *order);
/** inverse[order[i]] = i. */
void espl_reorder_invert(const int32_t *order, size_t count, int32_t *inverse);
/** Is order a permutation of 0..count-1? Errors: CORRUPT (naming the place), NOMEM. */
enum espl_status espl_reorder_check(const int32_t *order, size_t count, struct espl_error *err);

/** to (rows, cols): to[r][c] = from[r][order[c]]; must not overlap. */
void espl_reorder_columns(const struct espl_matrix_shape *shape, const float *from,
                          const int32_t *order, float *to);
/** to[r] = from[order[r]] for whole rows; with cols = 1 for vectors. */
void espl_reorder_rows(const struct espl_matrix_shape *shape, const float *from,
                       const int32_t *order, float *to);
/** Bit masks (rows, espl_mask_stride(cols)) gathered by column and, when not NULL, by row order. */
void espl_reorder_mask(const struct espl_matrix_shape *shape, const uint8_t *from,
                       const int32_t *column_order, const int32_t *row_order, uint8_t *to);

/** Outlier channels of a layer of this width under `auto`: the largest of 128, 64, 32 that is at
 * most an eighth of the columns; 0 below 256 columns. */
size_t espl_outliers_auto(size_t cols);
/** Largest of 128, 64, 32 that divides `normal` (columns without outliers); 0 when none does. */
size_t espl_group_auto(size_t normal);
/** Does a group of this size divide `normal`, and divide 128 or is divided by it? 0 always does. */
bool espl_group_is_legal(size_t normal, size_t group);
/** "128, 64, 32, 16, 8" or "none of 8 or more": the legal groups of at least 8 and at most 1024
 * columns. */
void espl_group_list(size_t normal, char text[128]);

#endif

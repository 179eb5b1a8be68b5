/* Magnitude pruning's numerics on arrays: which |W| is the threshold of a matrix that passes by in
 * pieces, and masks from it. No artifacts, no files.
 *
 * The bits of a float without its sign order like its magnitude, so a histogram over them finds an
 * order statistic exactly: one pass for 16-bit types, two for float32, in 512 KiB whatever the
 * size of the matrix. */
#ifndef ESPL_STAGES_MAGNITUDE_H
#define ESPL_STAGES_MAGNITUDE_H

#include "artifact/artifact.h"
#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct espl_magnitude_select;

/** Finds the value at position `rank` (from 0) of the ascending |W| of a matrix. dtype: f16, bf16
 * or f32. Errors: UNSUPPORTED for other types, NOMEM. */
enum espl_status espl_magnitude_select_create(enum espl_dtype dtype, uint64_t rank,
                                              struct espl_magnitude_select **out,
                                              struct espl_error *err);
void espl_magnitude_select_destroy(struct espl_magnitude_select *select);
/** Passes over the whole matrix that are needed: 1 or 2. */
unsigned espl_magnitude_select_passes(const struct espl_magnitude_select *select);
/** Adds a piece of the matrix to the pass in hand. raw: `count` values in the stored type. Returns
 * the index of the first value that is NaN or infinite, or `count` when there is none. */
size_t espl_magnitude_select_add(struct espl_magnitude_select *select, const void *raw,
                                 size_t count);
/** Ends a pass. rank must be below the number of values added. */
void espl_magnitude_select_end_pass(struct espl_magnitude_select *select);
/** The threshold as sign-free bits of the type, after all passes. */
uint32_t espl_magnitude_select_threshold(const struct espl_magnitude_select *select);

/** Mask (rows, stride) of raw (rows, cols): a weight is kept when its sign-free bits are above
 * `threshold`, so ties with the threshold are removed. Returns the number of kept weights. */
uint64_t espl_magnitude_mask(enum espl_dtype dtype, const void *raw, size_t rows, size_t cols,
                             uint32_t threshold, uint8_t *mask);

#endif

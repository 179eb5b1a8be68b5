/* Named whole numbers that a block's unit file carries as attributes, so that a resumed run adds up
 * what an earlier one counted. */
#ifndef ESPL_STAGES_UNIT_COUNTS_H
#define ESPL_STAGES_UNIT_COUNTS_H

#include "artifact/artifact.h"

/** In place of a count: there is none, because what is counted does not exist for the block. */
#define ESPL_UNIT_COUNT_NONE UINT64_MAX

/** Adds a count to a total; a sum of which one part is missing is missing. */
void espl_unit_count_add(uint64_t *total, uint64_t count);
/** names (count), counts (count). Errors: IO. */
enum espl_status espl_unit_counts_write(struct espl_artifact *unit, const char *const *names,
                                        const uint64_t *counts, size_t count,
                                        struct espl_error *err);
/** totals (count) += what the unit says, as espl_unit_count_add(). Errors: CORRUPT for a count that
 *  the unit does not speak of. */
enum espl_status espl_unit_counts_add(const struct espl_artifact *unit, const char *const *names,
                                      uint64_t *totals, size_t count, struct espl_error *err);

#endif

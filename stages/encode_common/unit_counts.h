/* Named whole numbers that a block's unit file carries as attributes, so that a resumed run adds up
 * what an earlier one counted. */
#ifndef ESPL_STAGES_UNIT_COUNTS_H
#define ESPL_STAGES_UNIT_COUNTS_H

#include "artifact/artifact.h"

/** names (count), counts (count). Errors: IO. */
enum espl_status espl_unit_counts_write(struct espl_artifact *unit, const char *const *names,
                                        const uint64_t *counts, size_t count,
                                        struct espl_error *err);
/** totals (count) += what the unit says. Errors: CORRUPT for one that is missing. */
enum espl_status espl_unit_counts_add(const struct espl_artifact *unit, const char *const *names,
                                      uint64_t *totals, size_t count, struct espl_error *err);

#endif

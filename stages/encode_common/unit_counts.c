#include "stages/encode_common/unit_counts.h"

#include "core/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char none[] = "none";

void espl_unit_count_add(uint64_t *total, uint64_t count)
{
    *total = *total == ESPL_UNIT_COUNT_NONE || count == ESPL_UNIT_COUNT_NONE ? ESPL_UNIT_COUNT_NONE
                                                                             : *total + count;
}

enum espl_status espl_unit_counts_write(struct espl_artifact *unit, const char *const *names,
                                        const uint64_t *counts, size_t count,
                                        struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < count && status == ESPL_OK; i++) {
        char text[24];
        (void)snprintf(text, sizeof text, "%" PRIu64, counts[i]);
        status = espl_artifact_set_attribute(unit, names[i],
                                             counts[i] == ESPL_UNIT_COUNT_NONE ? none : text, err);
    }
    return status;
}

enum espl_status espl_unit_counts_add(const struct espl_artifact *unit, const char *const *names,
                                      uint64_t *totals, size_t count, struct espl_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const char *text = espl_artifact_attribute(unit, names[i]);
        int64_t value = 0;
        if (strcmp(text, none) == 0) {
            espl_unit_count_add(&totals[i], ESPL_UNIT_COUNT_NONE);
            continue;
        }
        if (!espl_parse_int(text, &value) || value < 0) {
            return espl_fail(err, ESPL_E_CORRUPT, "'%s' does not say its '%s'",
                             espl_artifact_path(unit), names[i]);
        }
        espl_unit_count_add(&totals[i], (uint64_t)value);
    }
    return ESPL_OK;
}

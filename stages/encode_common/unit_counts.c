#include "stages/encode_common/unit_counts.h"

#include "core/units.h"

#include <inttypes.h>
#include <stdio.h>

enum espl_status espl_unit_counts_write(struct espl_artifact *unit, const char *const *names,
                                        const uint64_t *counts, size_t count,
                                        struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < count && status == ESPL_OK; i++) {
        char text[24];
        (void)snprintf(text, sizeof text, "%" PRIu64, counts[i]);
        status = espl_artifact_set_attribute(unit, names[i], text, err);
    }
    return status;
}

enum espl_status espl_unit_counts_add(const struct espl_artifact *unit, const char *const *names,
                                      uint64_t *totals, size_t count, struct espl_error *err)
{
    for (size_t i = 0; i < count; i++) {
        int64_t value = 0;
        if (!espl_parse_int(espl_artifact_attribute(unit, names[i]), &value) || value < 0) {
            return espl_fail(err, ESPL_E_CORRUPT, "'%s' does not say its '%s'",
                             espl_artifact_path(unit), names[i]);
        }
        totals[i] += (uint64_t)value;
    }
    return ESPL_OK;
}

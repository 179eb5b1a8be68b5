#include "stages/evaluate/evaluate_metrics.h"

#include <jansson.h>
#include <stdlib.h>

enum { MOST_METRICS = 32, ROUND_TRIP_DIGITS = 17 };

/* NULL when out of memory. */
static char *describe(const struct espl_named_value *values, size_t count)
{
    char *text = NULL;
    json_t *metrics = json_object();
    json_t *description = json_pack("{s:O}", "metrics", metrics);
    bool complete = description != NULL;
    for (size_t i = 0; complete && i < count; i++) {
        complete = json_object_set_new(metrics, values[i].name, json_real(values[i].value)) == 0;
    }
    if (complete) {
        text = json_dumps(description,
                          JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(ROUND_TRIP_DIGITS));
    }
    json_decref(metrics);
    json_decref(description);
    return text;
}

enum espl_status espl_evaluate_write_metrics(struct espl_artifact *output,
                                             const struct espl_named_value *values, size_t count,
                                             struct espl_error *err)
{
    double numbers[MOST_METRICS];
    const uint64_t shape[1] = {count};
    const struct espl_tensor_info info =
        espl_tensor_info_make("/metrics/values", ESPL_DTYPE_F64, 1, shape);
    if (count > MOST_METRICS) {
        return espl_fail(err, ESPL_E_INTERNAL, "%zu metrics, expected at most %d", count,
                         MOST_METRICS);
    }
    for (size_t i = 0; i < count; i++) {
        numbers[i] = values[i].value;
    }
    char *text = describe(values, count);
    if (text == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory while describing metrics");
    }
    enum espl_status status = espl_artifact_set_description(output, text, err);
    if (status == ESPL_OK) {
        status = espl_artifact_write(output, &info, numbers, err);
    }
    free(text);
    return status;
}

/* A latency table that was measured elsewhere. What is accepted must describe itself: to JSON and
 * back without a change; its costs must fall with N, and a predictor that can be fitted must
 * predict no negative cost. */
#include "stages/latency_profile/latency_record.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

static char *text_of(const struct espl_latency_record *record)
{
    json_t *const json = espl_latency_record_to_json(record);
    char *const text = json != NULL ? json_dumps(json, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    json_decref(json);
    require(text != NULL);
    return text;
}

static void check_round_trip(const struct espl_latency_record *record)
{
    struct espl_latency_record again;
    char *const first = text_of(record);
    json_t *const json = json_loads(first, JSON_REJECT_DUPLICATES, NULL);
    require(espl_latency_record_from_json(json, &again, NULL) == ESPL_OK);
    char *const second = text_of(&again);
    require(strcmp(first, second) == 0);
    free(second);
    free(first);
    json_decref(json);
    espl_latency_record_free(&again);
}

static void check_cost(const struct espl_latency_record *record,
                       const struct espl_latency_cost_record *cost)
{
    for (size_t s = 0; cost->present && s < record->shape_count; s++) {
        for (unsigned n = 1; n <= record->m; n++) {
            require(espl_latency_cost(&cost->table, s, n) > 0.0);
            require(n == 1 || espl_latency_cost(&cost->table, s, n) >=
                                  espl_latency_cost(&cost->table, s, n - 1));
        }
    }
    if (cost->predictor.gamma != NULL) {
        for (size_t run = 0; run < record->run_count; run++) {
            require(espl_latency_record_predict(record, cost,
                                                record->run_n + run * record->layer_count) >= 0.0);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct espl_error err = {0};
    struct espl_latency_record record;
    json_t *const json = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    if (json == NULL) {
        return 0;
    }
    if (espl_latency_record_from_json(json, &record, &err) == ESPL_OK) {
        check_round_trip(&record); /* before a fit: its result is for people, and not read */
        (void)espl_latency_record_fit(&record, &err);
        check_cost(&record, &record.latency);
        check_cost(&record, &record.energy);
    } else {
        require(err.message[0] != '\0'); /* refused without a word */
    }
    espl_latency_record_free(&record);
    json_decref(json);
    return 0;
}

#include "stages/deploy_bench/encoder_levels.h"

#include <stdlib.h>
#include <string.h>

enum espl_status espl_encoder_levels_open(const struct espl_artifact *latency,
                                          const struct espl_model *model,
                                          struct espl_encoder_levels *levels,
                                          struct espl_error *err)
{
    const char *text = espl_artifact_description(latency);
    json_t *json = text != NULL ? json_loads(text, 0, NULL) : NULL;
    memset(levels, 0, sizeof *levels);
    levels->model = model;
    enum espl_status status = espl_latency_record_from_json(json, &levels->record, err);
    json_decref(json);
    if (status == ESPL_OK) {
        status = espl_latency_record_fit(&levels->record, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    levels->n = calloc(levels->record.layer_count, 1);
    return levels->n != NULL ? ESPL_OK
                             : espl_fail(err, ESPL_E_NOMEM, "out of memory for the levels");
}

void espl_encoder_levels_close(struct espl_encoder_levels *levels)
{
    espl_latency_record_free(&levels->record);
    free(levels->n);
    memset(levels, 0, sizeof *levels);
}

unsigned espl_encoder_level(void *user, uint64_t block, enum espl_role role,
                            const struct espl_nm_layout *layout)
{
    struct espl_encoder_levels *levels = user;
    const struct espl_latency_record *record = &levels->record;
    const struct espl_latency_table *table = &record->latency.table;
    const struct espl_tensor_spec *spec =
        espl_model_find(levels->model, (int64_t)block, role, false);
    const size_t layer = espl_latency_record_layer(record, spec->module);
    if (layer == record->layer_count || layout->m != record->m) {
        return 0;
    }
    levels->asked += levels->n[layer] == 0;
    levels->n[layer] = (uint8_t)layout->n;
    levels->narrow = levels->narrow || (layout->n < layout->m && layout->v < record->vector);
    return table->chosen_level[record->shape_of[layer] * table->m + layout->n - 1u];
}

double espl_encoder_predicted(const struct espl_encoder_levels *levels)
{
    return levels->asked == levels->record.layer_count
               ? espl_latency_record_predict(&levels->record, &levels->record.latency, levels->n)
               : 0.0;
}

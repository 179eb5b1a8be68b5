#include "stages/deploy_bench/encoder_record.h"

#include "stages/deploy_bench/bench_record.h"

#include <jansson.h>
#include <math.h>

const char *const espl_encoder_runtimes[] = {"packed", "dense-int8", "dense-fp16",
                                             "dense-int8-best", NULL};
const char *const espl_encoder_parts[ESPL_ENCODER_PARTS] = {"products", "attention", "norms",
                                                            "rest"};

enum { MOST = ESPL_ENCODER_MOST_BATCHES * ESPL_ENCODER_RUNTIMES, TIMES = 2 };

const struct espl_encoder_pass *espl_encoder_find(const struct espl_encoder_record *record,
                                                  size_t batch, enum espl_encoder_runtime runtime)
{
    for (size_t i = 0; i < record->count; i++) {
        if (record->passes[i].batch == batch && record->passes[i].runtime == runtime) {
            return &record->passes[i];
        }
    }
    return NULL;
}

static json_t *names_json(const char *const *names, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, json_string(names[i]));
    }
    return list;
}

static json_t *accuracy_json(const struct espl_encoder_accuracy *accuracy)
{
    json_t *json = json_pack("{s:I, s:f, s:f}", "images", (json_int_t)accuracy->images, "agreeing",
                             accuracy->agreeing, "logit_difference", accuracy->difference);
    if (json != NULL && accuracy->labelled) {
        (void)json_object_set_new(json, "top1", json_real(accuracy->top1));
        (void)json_object_set_new(json, "top1_cpu", json_real(accuracy->top1_cpu));
    }
    return json;
}

static enum espl_status write_description(const struct espl_encoder_record *record,
                                          struct espl_artifact *artifact, struct espl_error *err)
{
    json_t *json = json_pack("{s:s, s:s, s:o, s:o}", "schema", "espalier.bench-encoder/1", "device",
                             record->device, "runtimes",
                             names_json(espl_encoder_runtimes, ESPL_ENCODER_RUNTIMES), "parts",
                             names_json(espl_encoder_parts, ESPL_ENCODER_PARTS));
    if (json != NULL && record->accuracy.images > 0) {
        (void)json_object_set_new(json, "accuracy", accuracy_json(&record->accuracy));
    }
    return espl_bench_take_description(artifact, json, err);
}

static enum espl_status write_passes(const struct espl_encoder_record *record,
                                     struct espl_artifact *artifact, struct espl_error *err)
{
    uint64_t which[MOST][2];
    uint64_t bytes[MOST];
    uint64_t by_library[MOST];
    double seconds[MOST][TIMES];
    double parts[MOST][ESPL_ENCODER_PARTS];
    double predicted[MOST];
    for (size_t i = 0; i < record->count; i++) {
        const struct espl_encoder_pass *pass = &record->passes[i];
        which[i][0] = pass->batch;
        which[i][1] = (uint64_t)pass->runtime;
        bytes[i] = pass->weight_bytes;
        by_library[i] = pass->by_library;
        seconds[i][0] = pass->time.median;
        seconds[i][1] = pass->time.p95;
        predicted[i] = pass->predicted > 0.0 ? pass->predicted : (double)NAN;
        for (size_t p = 0; p < ESPL_ENCODER_PARTS; p++) {
            parts[i][p] = pass->parts[p];
        }
    }
    const struct {
        const char *path;
        enum espl_dtype dtype;
        uint64_t width;
        const void *data;
    } columns[] = {
        {"/passes/which", ESPL_DTYPE_U64, 2, which},
        {"/passes/weight_bytes", ESPL_DTYPE_U64, 0, bytes},
        {"/passes/library_linears", ESPL_DTYPE_U64, 0, by_library},
        {"/passes/seconds", ESPL_DTYPE_F64, TIMES, seconds},
        {"/passes/part_seconds", ESPL_DTYPE_F64, ESPL_ENCODER_PARTS, parts},
        {"/passes/predicted_seconds", ESPL_DTYPE_F64, 0, predicted},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < sizeof columns / sizeof columns[0]; i++) {
        status = espl_bench_write_column(artifact, columns[i].path, columns[i].dtype, record->count,
                                         columns[i].width, 0, columns[i].data, err);
    }
    return status;
}

enum espl_status espl_encoder_record_write(const struct espl_encoder_record *record,
                                           struct espl_artifact *artifact, struct espl_error *err)
{
    enum espl_status status = espl_artifact_set_kind(artifact, "bench.encoder/1", err);
    if (status == ESPL_OK) {
        status = write_description(record, artifact, err);
    }
    return status == ESPL_OK ? write_passes(record, artifact, err) : status;
}

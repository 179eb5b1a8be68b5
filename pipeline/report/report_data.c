#include "report/report_data.h"

#include "core/fs.h"
#include "engine/run_record.h"
#include "report/report.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_NAMES = 1024,    /* stages, series, modules or metrics of one list */
    MAX_LAYERS = 1 << 14 /* a layer number past this is damage, not a model */
};

const char *espl_report_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

double espl_report_number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

const json_t *espl_report_stage(const struct espl_report_run *run, const char *stage_id)
{
    return espl_run_stage(run->record, stage_id);
}

const char *espl_report_short_key(struct espl_arena *arena, const char *key)
{
    const char *text = espl_arena_printf(arena, "%.8s", key);
    return text != NULL ? text : "";
}

/* Adds a name to a list without repeats; returns its index, or SIZE_MAX when the list is full. */
static size_t add_name(const char **names, size_t *count, const char *name)
{
    for (size_t i = 0; i < *count; ++i) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    if (*count == MAX_NAMES) {
        return SIZE_MAX;
    }
    names[*count] = name;
    return (*count)++;
}

static enum espl_status load_run(const struct espl_store *store, const char *run_id,
                                 struct espl_report_run *run, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    size_t len = 0;
    enum espl_status status = espl_run_load(store, run_id, &run->record, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_run_path(store, run_id, "job.yaml", path, err);
    if (status == ESPL_OK && espl_fs_exists(path)) {
        status = espl_fs_read_file(path, ESPL_REPORT_MAX_BYTES, &run->job_yaml, &len, err);
    }
    return status;
}

enum espl_status espl_report_data_load(const struct espl_store *store, const char *const *run_ids,
                                       size_t count, struct espl_report_data *out,
                                       struct espl_error *err)
{
    memset(out, 0, sizeof *out);
    if (count == 0 || count > ESPL_REPORT_MAX_RUNS) {
        return espl_fail(err, ESPL_E_USAGE, "a report shows 1 to %d runs, got %zu",
                         ESPL_REPORT_MAX_RUNS, count);
    }
    out->arena = espl_arena_create((size_t)256 << 20);
    if (out->arena == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the report");
    }
    out->runs = espl_arena_array(out->arena, count, sizeof *out->runs);
    out->stage_ids = espl_arena_array(out->arena, MAX_NAMES, sizeof *out->stage_ids);
    if (out->runs == NULL || out->stage_ids == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the report");
    }
    static const char *const letters[ESPL_REPORT_MAX_RUNS] = {"A", "B", "C", "D", "E", "F"};
    for (size_t i = 0; i < count; ++i) {
        struct espl_report_run *run = &out->runs[i];
        out->run_count = i + 1;
        const enum espl_status status = load_run(store, run_ids[i], run, err);
        if (status != ESPL_OK) {
            return espl_context(err, "while reading run '%s'", run_ids[i]);
        }
        run->run_id = espl_report_text(run->record, "run_id");
        run->name = count == 1 ? run->run_id : letters[i];
        size_t index;
        const json_t *stage;
        json_array_foreach(json_object_get(run->record, "stages"), index, stage)
        {
            (void)add_name(out->stage_ids, &out->stage_count, espl_report_text(stage, "id"));
        }
    }
    return ESPL_OK;
}

void espl_report_data_free(struct espl_report_data *data)
{
    for (size_t i = 0; i < data->run_count; ++i) {
        json_decref(data->runs[i].record);
        free(data->runs[i].job_yaml);
    }
    espl_arena_destroy(data->arena);
    memset(data, 0, sizeof *data);
}

/* What follows "layers.3." or "blocks.3." at the front, "" when nothing does, else NULL. */
static const char *after_number(const char *module)
{
    static const char *const lists[] = {"layers.", "blocks."};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; ++i) {
        const size_t len = strlen(lists[i]);
        const size_t digits =
            strncmp(module, lists[i], len) == 0 ? strspn(module + len, "0123456789") : 0;
        const char *after = module + len + digits;
        if (digits > 0 && (*after == '.' || *after == '\0')) {
            return *after == '.' ? after + 1 : after;
        }
    }
    return NULL;
}

/* "layers.3.mlp.up_proj" -> "mlp.up_proj", "blocks.3.attn.qkv" and Swin's
 * "layers.0.blocks.3.attn.qkv"
 * -> "attn.qkv"; a value for the whole block has no module. */
static const char *module_tail(const char *module)
{
    for (const char *after = after_number(module); after != NULL; after = after_number(module)) {
        module = after;
    }
    return module[0] == '\0' ? "block" : module;
}

/* Calls fn for every layer metric of the series in every run. */
static enum espl_status collect_layers(const struct espl_report_data *data,
                                       struct espl_report_layers *layers, bool fill,
                                       struct espl_error *err)
{
    for (size_t run = 0; run < data->run_count; ++run) {
        const json_t *stage = espl_report_stage(&data->runs[run], layers->stage_id);
        size_t index;
        const json_t *item;
        json_array_foreach(json_object_get(stage, "layer_metrics"), index, item)
        {
            if (strcmp(espl_report_text(item, "series"), layers->series) != 0) {
                continue;
            }
            const json_int_t layer = json_integer_value(json_object_get(item, "layer"));
            const size_t module = add_name(layers->modules, &layers->module_count,
                                           module_tail(espl_report_text(item, "module")));
            if (layer < 0 || layer >= MAX_LAYERS || module == SIZE_MAX) {
                return espl_fail(
                    err, ESPL_E_CORRUPT, "run '%s' names layer %lld in series '%s' of stage '%s'",
                    data->runs[run].run_id, (long long)layer, layers->series, layers->stage_id);
            }
            if ((size_t)layer >= layers->layer_count) {
                layers->layer_count = (size_t)layer + 1;
            }
            if (fill) {
                layers->values[(module * data->run_count + run) * layers->layer_count +
                               (size_t)layer] = espl_report_number(item, "value");
            }
        }
    }
    return ESPL_OK;
}

static enum espl_status visit_series(
    const struct espl_report_data *data, struct espl_report_layers *layers,
    enum espl_status (*visit)(void *, const struct espl_report_layers *, struct espl_error *),
    void *user, struct espl_error *err)
{
    layers->modules = espl_arena_array(data->arena, MAX_NAMES, sizeof *layers->modules);
    layers->module_count = 0;
    layers->layer_count = 0;
    if (layers->modules == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the layers of the report");
    }
    enum espl_status status = collect_layers(data, layers, false, err);
    if (status != ESPL_OK) {
        return status;
    }
    const size_t count = layers->module_count * data->run_count * layers->layer_count;
    layers->values = espl_arena_array(data->arena, count, sizeof *layers->values);
    if (layers->values == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the layers of the report");
    }
    for (size_t i = 0; i < count; ++i) {
        layers->values[i] = (double)NAN;
    }
    status = collect_layers(data, layers, true, err);
    return status == ESPL_OK ? visit(user, layers, err) : status;
}

enum espl_status espl_report_each_layers(
    const struct espl_report_data *data,
    enum espl_status (*visit)(void *user, const struct espl_report_layers *layers,
                              struct espl_error *err),
    void *user, struct espl_error *err)
{
    for (size_t i = 0; i < data->stage_count; ++i) {
        const char *series[64];
        size_t series_count = 0;
        for (size_t run = 0; run < data->run_count; ++run) {
            const json_t *stage = espl_report_stage(&data->runs[run], data->stage_ids[i]);
            size_t index;
            const json_t *item;
            json_array_foreach(json_object_get(stage, "layer_metrics"), index, item)
            {
                if (series_count < sizeof series / sizeof series[0]) {
                    (void)add_name(series, &series_count, espl_report_text(item, "series"));
                }
            }
        }
        for (size_t j = 0; j < series_count; ++j) {
            struct espl_report_layers layers = {.stage_id = data->stage_ids[i],
                                                .series = series[j]};
            const enum espl_status status = visit_series(data, &layers, visit, user, err);
            if (status != ESPL_OK) {
                return status;
            }
        }
    }
    return ESPL_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char **espl_report_member_names(const struct espl_report_data *data, const char *stage_id,
                                      const char *member, size_t *count)
{
    *count = 0;
    const char **names = espl_arena_array(data->arena, MAX_NAMES, sizeof *names);
    for (size_t run = 0; names != NULL && run < data->run_count; ++run) {
        const json_t *stage = espl_report_stage(&data->runs[run], stage_id);
        const char *name;
        json_t *value;
        json_object_foreach(json_object_get(stage, member), name, value)
        {
            (void)add_name(names, count, name);
        }
    }
    if (names != NULL) {
        qsort(names, *count, sizeof *names, compare_names);
    }
    return names;
}

bool espl_report_is_good(const json_t *record)
{
    return strcmp(espl_run_status(record), "ok") == 0;
}

static void add_count(struct espl_buf *out, const char *lead, size_t count, const char *what)
{
    if (count > 0) {
        espl_buf_printf(out, "%s%zu %s", lead, count, what);
    }
}

void espl_report_verdict(const json_t *record, struct espl_buf *out)
{
    static const char *const states[] = {"cached", "done", "failed", "skipped", "waiting"};
    size_t counts[sizeof states / sizeof states[0]] = {0};
    size_t index;
    const json_t *item;
    json_array_foreach(json_object_get(record, "stages"), index, item)
    {
        for (size_t i = 0; i < sizeof states / sizeof states[0]; ++i) {
            counts[i] += strcmp(espl_report_text(item, "state"), states[i]) == 0 ? 1 : 0;
        }
    }
    const size_t stages = json_array_size(json_object_get(record, "stages"));
    espl_buf_printf(out, "%zu of %zu stages done", counts[0] + counts[1], stages);
    add_count(out, " (", counts[0], "from the cache)");
    add_count(out, ", ", counts[2], "failed");
    add_count(out, ", ", counts[3], "skipped");
    add_count(out, ", ", counts[4], "not started");
    size_t held = 0;
    const json_t *expectations = json_object_get(record, "expectations");
    json_array_foreach(expectations, index, item)
    {
        held += json_is_true(json_object_get(item, "ok")) ? 1 : 0;
    }
    if (json_array_size(expectations) > 0) {
        espl_buf_printf(out, "; %zu of %zu expectations held", held, json_array_size(expectations));
    }
}

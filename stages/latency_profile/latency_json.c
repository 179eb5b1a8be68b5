/* The JSON form of a latency record. */
#include "stages/latency_profile/latency_record.h"

#include "core/checked.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char schema[] = "espalier.latency/1";

/* ---- reading ---- */

static enum espl_status fail_member(const char *member, const char *expected,
                                    struct espl_error *err)
{
    return espl_fail(err, ESPL_E_CORRUPT, "latency table: member '%s' must be %s", member,
                     expected);
}

/* A whole number in [1, most]. */
static enum espl_status read_count(const json_t *object, const char *name, size_t most, size_t *out,
                                   struct espl_error *err)
{
    const json_t *value = json_object_get(object, name);
    const json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 1 || (uint64_t)number > most) {
        char expected[64];
        (void)snprintf(expected, sizeof expected, "a whole number from 1 to %zu", most);
        return fail_member(name, expected, err);
    }
    *out = (size_t)number;
    return ESPL_OK;
}

static enum espl_status read_kernels(const json_t *json, struct espl_latency_record *record,
                                     struct espl_error *err)
{
    const json_t *kernels = json_object_get(json, "kernels");
    record->kernel_count = json_array_size(kernels);
    if (record->kernel_count < 1 || record->kernel_count > ESPL_LATENCY_MAX_KERNELS) {
        return fail_member("kernels", "a list of 1 to 16 names", err);
    }
    for (size_t k = 0; k < record->kernel_count; k++) {
        const char *name = json_string_value(json_array_get(kernels, k));
        if (name == NULL || name[0] == '\0' || strlen(name) >= ESPL_LATENCY_NAME) {
            return fail_member("kernels", "a list of names", err);
        }
        (void)snprintf(record->kernels[k], ESPL_LATENCY_NAME, "%s", name);
    }
    return ESPL_OK;
}

static enum espl_status read_shapes(const json_t *json, struct espl_latency_record *record,
                                    struct espl_error *err)
{
    const json_t *shapes = json_object_get(json, "shapes");
    enum espl_status status = ESPL_OK;
    record->shape_count = json_array_size(shapes);
    if (record->shape_count < 1 || record->shape_count > ESPL_LATENCY_MAX_LAYERS) {
        return fail_member("shapes", "a list of {\"tokens\", \"in\", \"out\"}", err);
    }
    record->shapes = calloc(record->shape_count, sizeof *record->shapes);
    if (record->shapes == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu shapes", record->shape_count);
    }
    for (size_t i = 0; status == ESPL_OK && i < record->shape_count; i++) {
        const json_t *shape = json_array_get(shapes, i);
        status = read_count(shape, "tokens", (size_t)1 << 30, &record->shapes[i].tokens, err);
        if (status == ESPL_OK) {
            status = read_count(shape, "in", (size_t)1 << 24, &record->shapes[i].in, err);
        }
        if (status == ESPL_OK) {
            status = read_count(shape, "out", (size_t)1 << 24, &record->shapes[i].out, err);
        }
    }
    return status;
}

static enum espl_status read_layers(const json_t *json, struct espl_latency_record *record,
                                    struct espl_error *err)
{
    const json_t *layers = json_object_get(json, "layers");
    record->layer_count = json_array_size(layers);
    if (record->layer_count < 1 || record->layer_count > ESPL_LATENCY_MAX_LAYERS) {
        return fail_member("layers", "a list of {\"module\", \"shape\"}", err);
    }
    record->modules = calloc(record->layer_count, sizeof *record->modules);
    record->shape_of = calloc(record->layer_count, sizeof *record->shape_of);
    if (record->modules == NULL || record->shape_of == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu layers", record->layer_count);
    }
    for (size_t i = 0; i < record->layer_count; i++) {
        const json_t *layer = json_array_get(layers, i);
        const char *module = json_string_value(json_object_get(layer, "module"));
        const json_t *shape = json_object_get(layer, "shape");
        const json_int_t index = json_integer_value(shape);
        if (module == NULL || strlen(module) >= ESPL_LATENCY_NAME || !json_is_integer(shape) ||
            index < 0 || (uint64_t)index >= record->shape_count) {
            return fail_member("layers", "a list of {\"module\", \"shape\": index}", err);
        }
        (void)snprintf(record->modules[i], ESPL_LATENCY_NAME, "%s", module);
        record->shape_of[i] = (size_t)index;
    }
    return ESPL_OK;
}

/* *count lists of N under `name`, one behind the other; *n: malloc'ed. */
static enum espl_status read_runs(const json_t *object, const char *name,
                                  const struct espl_latency_record *record, size_t *count,
                                  uint8_t **n, struct espl_error *err)
{
    const json_t *runs = json_object_get(object, name);
    const size_t layers = record->layer_count;
    size_t bytes = 0;
    *count = json_array_size(runs);
    if (*count > ESPL_LATENCY_MAX_RUNS || !espl_mul_size(*count, layers, &bytes)) {
        return fail_member(name, "a list of at most 4096 configurations", err);
    }
    *n = malloc(bytes > 0 ? bytes : 1);
    if (*n == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu runs", *count);
    }
    for (size_t i = 0; i < bytes; i++) {
        const json_t *run = json_array_get(runs, i / layers);
        const json_int_t level = json_integer_value(json_array_get(run, i % layers));
        if (json_array_size(run) != layers || level < 1 || level > (json_int_t)record->m) {
            return fail_member(name, "lists of N, one for every layer, from 1 to m", err);
        }
        (*n)[i] = (uint8_t)level;
    }
    return ESPL_OK;
}

/* A number that can be a cost (0 as a spread), or null. */
static bool read_real(const json_t *value, bool may_be_zero, double *out)
{
    *out = json_is_number(value) ? json_number_value(value) : (double)NAN;
    return json_is_null(value) ||
           (json_is_number(value) && (*out > 0.0 || (may_be_zero && *out == 0.0)));
}

static enum espl_status read_cells(const json_t *cost, const char *name,
                                   const struct espl_latency_table *table, bool may_be_zero,
                                   double *out, struct espl_error *err)
{
    const json_t *shapes = json_object_get(cost, name);
    bool good = json_array_size(shapes) == table->shape_count;
    for (size_t s = 0; good && s < table->shape_count; s++) {
        const json_t *levels = json_array_get(shapes, s);
        good = json_array_size(levels) == table->m;
        for (unsigned n = 1; good && n <= table->m; n++) {
            const json_t *kernels = json_array_get(levels, n - 1);
            good = json_array_size(kernels) == table->kernel_count;
            for (size_t k = 0; good && k < table->kernel_count; k++) {
                good = read_real(json_array_get(kernels, k), may_be_zero,
                                 &out[espl_latency_index(table, s, n, k)]);
            }
        }
    }
    return good ? ESPL_OK
                : fail_member(name,
                              may_be_zero
                                  ? "numbers from 0 or null in lists [shape][n - 1][kernel]"
                                  : "positive numbers or null in lists [shape][n - 1][kernel]",
                              err);
}

static enum espl_status read_measured(const json_t *object, size_t runs, double *seconds,
                                      struct espl_error *err)
{
    const json_t *measured = json_object_get(object, "measured");
    bool good = json_array_size(measured) == runs;
    for (size_t i = 0; good && i < runs; i++) {
        const json_t *value = json_array_get(measured, i);
        seconds[i] = json_number_value(value);
        good = json_is_number(value) && seconds[i] > 0.0;
    }
    return good ? ESPL_OK : fail_member("measured", "a positive number for every run", err);
}

static enum espl_status read_holdout(const json_t *json, struct espl_latency_record *record,
                                     struct espl_error *err)
{
    const json_t *holdout = json_object_get(json, "holdout");
    if (holdout == NULL) {
        return ESPL_OK;
    }
    const enum espl_status status =
        read_runs(holdout, "runs", record, &record->holdout_count, &record->holdout_n, err);
    if (status != ESPL_OK) {
        return status;
    }
    record->holdout_measured = calloc(record->holdout_count + 1, sizeof(double));
    return record->holdout_measured != NULL
               ? read_measured(holdout, record->holdout_count, record->holdout_measured, err)
               : espl_fail(err, ESPL_E_NOMEM, "no memory for %zu runs", record->holdout_count);
}

static enum espl_status read_cost(const json_t *json, const char *name,
                                  const struct espl_latency_record *record,
                                  struct espl_latency_cost_record *cost, struct espl_error *err)
{
    const json_t *object = json_object_get(json, name);
    if (object == NULL) {
        return ESPL_OK;
    }
    cost->present = true;
    cost->measured = calloc(record->run_count > 0 ? record->run_count : 1, sizeof(double));
    enum espl_status status = espl_latency_table_create(record->shape_count, record->m,
                                                        record->kernel_count, &cost->table, err);
    if (status != ESPL_OK || cost->measured == NULL) {
        return status != ESPL_OK ? status
                                 : espl_fail(err, ESPL_E_NOMEM, "no memory for measured runs");
    }
    memcpy(cost->table.shapes, record->shapes, record->shape_count * sizeof *record->shapes);
    status = read_measured(object, record->run_count, cost->measured, err);
    if (status == ESPL_OK) {
        status = read_cells(object, "raw", &cost->table, false, cost->table.raw, err);
    }
    if (status == ESPL_OK) {
        status = read_cells(object, "spread", &cost->table, true, cost->table.spread, err);
    }
    return status == ESPL_OK ? espl_latency_table_close(&cost->table, err) : status;
}

/* What only artifacts have. */
static enum espl_status read_fit(const json_t *json, struct espl_latency_record *record,
                                 struct espl_error *err)
{
    const json_t *fit = json_object_get(json, "fit");
    const char *mode = json_string_value(json_object_get(fit, "gamma"));
    record->accepted = json_is_true(json_object_get(json, "accepted"));
    record->fit.ridge = json_number_value(json_object_get(fit, "ridge"));
    record->fit.max_error = json_number_value(json_object_get(fit, "max_error"));
    if (fit == NULL) {
        return ESPL_OK;
    }
    for (int i = 0; mode != NULL && espl_gamma_modes[i] != NULL; i++) {
        if (strcmp(mode, espl_gamma_modes[i]) == 0) {
            record->fit.gamma = (enum espl_gamma_mode)i;
            return ESPL_OK;
        }
    }
    return fail_member("fit", "an object with a known 'gamma'", err);
}

enum espl_status espl_latency_record_from_json(const json_t *json,
                                               struct espl_latency_record *record,
                                               struct espl_error *err)
{
    const char *found = json_string_value(json_object_get(json, "schema"));
    const char *device = json_string_value(json_object_get(json, "device"));
    size_t m = 0;
    memset(record, 0, sizeof *record);
    if (found == NULL || strcmp(found, schema) != 0) {
        return fail_member("schema", "\"espalier.latency/1\"", err);
    }
    if (device == NULL || device[0] == '\0' || strlen(device) >= sizeof record->device) {
        return fail_member("device", "a text of less than 2048 bytes", err);
    }
    (void)snprintf(record->device, sizeof record->device, "%s", device);
    enum espl_status status = read_count(json, "batch", (size_t)1 << 20, &record->batch, err);
    if (status == ESPL_OK && json_object_get(json, "threads") != NULL) {
        status = read_count(json, "threads", (size_t)1 << 20, &record->threads, err);
    }
    if (status == ESPL_OK) {
        status = read_count(json, "m", ESPL_LATENCY_MAX_M, &m, err);
        record->m = (unsigned)m;
    }
    if (status == ESPL_OK) {
        status = read_count(json, "vector", (size_t)1 << 24, &record->vector, err);
    }
    if (status == ESPL_OK) {
        status = read_kernels(json, record, err);
    }
    if (status == ESPL_OK) {
        status = read_shapes(json, record, err);
    }
    if (status == ESPL_OK) {
        status = read_layers(json, record, err);
    }
    if (status == ESPL_OK) {
        status = read_runs(json, "runs", record, &record->run_count, &record->run_n, err);
    }
    if (status == ESPL_OK) {
        status = read_cost(json, "latency", record, &record->latency, err);
    }
    if (status == ESPL_OK && !record->latency.present) {
        status = fail_member("latency", "an object", err);
    }
    if (status == ESPL_OK) {
        status = read_cost(json, "energy", record, &record->energy, err);
    }
    if (status == ESPL_OK) {
        status = read_holdout(json, record, err);
    }
    return status == ESPL_OK ? read_fit(json, record, err) : status;
}

/* ---- writing ---- */

static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *cells_json(const struct espl_latency_table *table, const double *cells)
{
    json_t *shapes = json_array();
    for (size_t s = 0; s < table->shape_count; s++) {
        json_t *levels = json_array();
        for (unsigned n = 1; n <= table->m; n++) {
            json_t *kernels = json_array();
            for (size_t k = 0; k < table->kernel_count; k++) {
                (void)json_array_append_new(
                    kernels, real_or_null(cells[espl_latency_index(table, s, n, k)]));
            }
            (void)json_array_append_new(levels, kernels);
        }
        (void)json_array_append_new(shapes, levels);
    }
    return shapes;
}

static json_t *measured_json(const double *seconds, size_t runs)
{
    json_t *measured = json_array();
    for (size_t i = 0; i < runs; i++) {
        (void)json_array_append_new(measured, json_real(seconds[i]));
    }
    return measured;
}

static json_t *cost_json(const struct espl_latency_record *record,
                         const struct espl_latency_cost_record *cost)
{
    return json_pack("{s:o, s:o, s:o}", "raw", cells_json(&cost->table, cost->table.raw), "spread",
                     cells_json(&cost->table, cost->table.spread), "measured",
                     measured_json(cost->measured, record->run_count));
}

/* For people: what `inspect` shows. Infinities have no JSON form and become null. */
static json_t *health_json(const struct espl_latency_record *record,
                           const struct espl_predictor *predictor)
{
    const struct espl_predictor_health *health = &predictor->health;
    json_t *gammas = json_array();
    for (size_t s = 0; s < record->shape_count; s++) {
        double sum = 0.0;
        size_t count = 0;
        for (size_t layer = 0; layer < record->layer_count; layer++) {
            if (record->shape_of[layer] == s) {
                sum += predictor->gamma[layer];
                count++;
            }
        }
        (void)json_array_append_new(gammas,
                                    count > 0 ? json_real(sum / (double)count) : json_null());
    }
    return json_pack(
        "{s:b, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:f, s:o}", "safe", (int)health->safe,
        "reason", health->reason, "runs", (json_int_t)health->runs, "unknowns",
        (json_int_t)health->unknowns, "zero_gammas", (json_int_t)health->zero_gammas, "mean_error",
        real_or_null(health->mean_error), "left_out_mean_error",
        real_or_null(health->left_out_mean_error), "left_out_max_error",
        real_or_null(health->left_out_max_error), "condition", real_or_null(health->condition),
        "intercept", predictor->intercept, "mean_gamma_by_shape", gammas);
}

static json_t *layers_json(const struct espl_latency_record *record)
{
    json_t *layers = json_array();
    for (size_t i = 0; i < record->layer_count; i++) {
        (void)json_array_append_new(layers, json_pack("{s:s, s:I}", "module", record->modules[i],
                                                      "shape", (json_int_t)record->shape_of[i]));
    }
    return layers;
}

static json_t *shapes_json(const struct espl_latency_record *record)
{
    json_t *shapes = json_array();
    for (size_t i = 0; i < record->shape_count; i++) {
        const struct espl_latency_shape *shape = &record->shapes[i];
        (void)json_array_append_new(
            shapes, json_pack("{s:I, s:I, s:I}", "tokens", (json_int_t)shape->tokens, "in",
                              (json_int_t)shape->in, "out", (json_int_t)shape->out));
    }
    return shapes;
}

static json_t *runs_json(const struct espl_latency_record *record, const uint8_t *n, size_t count)
{
    json_t *runs = json_array();
    for (size_t r = 0; r < count; r++) {
        json_t *run = json_array();
        for (size_t layer = 0; layer < record->layer_count; layer++) {
            (void)json_array_append_new(run, json_integer(n[r * record->layer_count + layer]));
        }
        (void)json_array_append_new(runs, run);
    }
    return runs;
}

json_t *espl_latency_record_to_json(const struct espl_latency_record *record)
{
    json_t *kernels = json_array();
    for (size_t k = 0; k < record->kernel_count; k++) {
        (void)json_array_append_new(kernels, json_string(record->kernels[k]));
    }
    json_t *fit = json_pack("{s:s, s:f, s:f}", "gamma", espl_gamma_modes[record->fit.gamma],
                            "ridge", record->fit.ridge, "max_error", record->fit.max_error);
    json_t *json = json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}",
                             "schema", schema, "device", record->device, "accepted",
                             (int)record->accepted, "batch", (json_int_t)record->batch, "m",
                             (json_int_t)record->m, "vector", (json_int_t)record->vector, "kernels",
                             kernels, "shapes", shapes_json(record), "layers", layers_json(record),
                             "runs", runs_json(record, record->run_n, record->run_count), "fit",
                             fit, "latency", cost_json(record, &record->latency));
    if (record->threads > 0) {
        (void)json_object_set_new(json, "threads", json_integer((json_int_t)record->threads));
    }
    if (record->holdout_count > 0) {
        (void)json_object_set_new(
            json, "holdout",
            json_pack("{s:o, s:o}", "runs",
                      runs_json(record, record->holdout_n, record->holdout_count), "measured",
                      measured_json(record->holdout_measured, record->holdout_count)));
    }
    json_t *health = json_object();
    if (record->latency.predictor.gamma != NULL) {
        (void)json_object_set_new(health, "latency",
                                  health_json(record, &record->latency.predictor));
    }
    if (record->energy.present) {
        (void)json_object_set_new(json, "energy", cost_json(record, &record->energy));
    }
    if (record->energy.predictor.gamma != NULL) {
        (void)json_object_set_new(health, "energy", health_json(record, &record->energy.predictor));
    }
    if (json == NULL || json_object_set_new(json, "health", health) != 0) {
        json_decref(json);
        return NULL;
    }
    return json;
}

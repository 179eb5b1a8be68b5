#include "stages/deploy_bench/tuning_file.h"

#include "core/fs.h"
#include "kernels/bench/spmm_bench.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char schema[] = "espalier.spmm-tuning/1";

enum {
    MOST_DEVICE = ESPL_SPMM_DEVICE_TEXT,
    MOST_WARPS = 32,
    MOST_SPLITS = 64,
    MOST_STAGES = 8,
    MOST_PARTS = 65536
};
static const double most_seconds = 3600.0;

/* ---- reading ---- */

static enum espl_status fail_at(size_t device, size_t choice, const char *member,
                                const char *expected, struct espl_error *err)
{
    return espl_fail(err, ESPL_E_CORRUPT, "devices[%zu].choices[%zu]: '%s' must be %s", device,
                     choice, member, expected);
}

struct whole {
    const char *name;
    uint64_t most;
    uint64_t value;
};

/* Whole numbers from 1 to `most` each; NULL, or the name of the first that is not. */
static const char *read_wholes(const json_t *object, struct whole *members, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_object_get(object, members[i].name);
        const json_int_t number = json_integer_value(value);
        if (!json_is_integer(value) || number < 1 || (uint64_t)number > members[i].most) {
            return members[i].name;
        }
        members[i].value = (uint64_t)number;
    }
    return NULL;
}

/* A form, or one with "+atom" behind it. */
static bool known_form(const char *name)
{
    static const char *const forms[] = {"dense", "int3", "int2", "1x1",
                                        "1x2",   "2x1",  "2x2",  "mixed"};
    for (size_t i = 0; name != NULL && i < sizeof forms / sizeof forms[0]; i++) {
        const size_t length = strlen(forms[i]);
        if (strncmp(forms[i], name, length) == 0 &&
            (name[length] == '\0' || strcmp(name + length, ESPL_SPMM_LAYER_SUFFIX) == 0)) {
            return true;
        }
    }
    return false;
}

static enum espl_status read_choice(const json_t *json, size_t device, size_t index,
                                    struct espl_spmm_stored *out, struct espl_error *err)
{
    struct whole members[] = {
        {"rows", INT_MAX, 0},       {"cols", ESPL_CUDA_SPMM_MAX_COLS, 0},
        {"tokens", 64, 0},          {"warps", MOST_WARPS, 0},
        {"splits", MOST_SPLITS, 0}, {"window", MOST_WARPS, 0},
        {"stages", MOST_STAGES, 0}, {"parts", MOST_PARTS, 0},
    };
    const char *form = json_string_value(json_object_get(json, "form"));
    const json_t *sparsity = json_object_get(json, "sparsity");
    const json_t *seconds = json_object_get(json, "seconds");
    if (!known_form(form)) {
        return fail_at(device, index, "form",
                       "dense, int3, int2, 1x1, 1x2, 2x1, 2x2 or mixed, or one with +atom", err);
    }
    const char *bad = read_wholes(json, members, sizeof members / sizeof members[0]);
    if (bad != NULL) {
        return fail_at(device, index, bad, "a whole number in range", err);
    }
    *out =
        (struct espl_spmm_stored){.rows = (size_t)members[0].value,
                                  .cols = (size_t)members[1].value,
                                  .tokens = (size_t)members[2].value,
                                  .sparsity = json_number_value(sparsity),
                                  .choice = {(unsigned)members[3].value, (unsigned)members[4].value,
                                             (unsigned)members[5].value, (unsigned)members[6].value,
                                             (unsigned)members[7].value},
                                  .seconds = json_number_value(seconds)};
    (void)snprintf(out->form, sizeof out->form, "%s", form);
    if (!json_is_number(sparsity) || !(out->sparsity >= 0.0 && out->sparsity <= 1.0)) {
        return fail_at(device, index, "sparsity", "a number from 0 to 1", err);
    }
    if (!json_is_number(seconds) || !(out->seconds > 0.0 && out->seconds <= most_seconds)) {
        return fail_at(device, index, "seconds", "a positive number", err);
    }
    return ESPL_OK;
}

/* tuning: NULL to check alone. */
static enum espl_status read_device(const json_t *json, size_t device, size_t *total,
                                    struct espl_spmm_tuning *tuning, struct espl_error *err)
{
    const json_t *choices = json_object_get(json, "choices");
    enum espl_status status = ESPL_OK;
    *total += json_array_size(choices);
    if (!json_is_array(choices) || *total > ESPL_TUNING_MAX_CHOICES) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "devices[%zu]: 'choices' must be a list, with at most %d in all", device,
                         (int)ESPL_TUNING_MAX_CHOICES);
    }
    for (size_t i = 0; status == ESPL_OK && i < json_array_size(choices); i++) {
        struct espl_spmm_stored stored;
        status = read_choice(json_array_get(choices, i), device, i, &stored, err);
        const size_t before = tuning != NULL ? tuning->count : 0;
        if (status == ESPL_OK && tuning != NULL) {
            status = espl_spmm_tuning_put(tuning, &stored, err);
        }
        if (status == ESPL_OK && tuning != NULL && tuning->count == before) {
            status = espl_fail(err, ESPL_E_CORRUPT,
                               "devices[%zu].choices[%zu]: this product has a choice already",
                               device, i);
        }
    }
    return status;
}

static enum espl_status read_schema(const json_t *json, struct espl_error *err)
{
    const char *found = json_string_value(json_object_get(json, "schema"));
    const size_t name = sizeof schema - 2; /* without its number */
    if (found != NULL && strcmp(found, schema) == 0) {
        return ESPL_OK;
    }
    if (found != NULL && strncmp(found, schema, name) == 0) {
        return espl_fail(err, ESPL_E_VERSION, "the file is of schema '%.64s', expected '%s'", found,
                         schema);
    }
    return espl_fail(err, ESPL_E_CORRUPT, "'schema' must be \"%s\"", schema);
}

static enum espl_status load(const char *text, size_t len, json_t **json, struct espl_error *err)
{
    json_error_t where;
    if (len > ESPL_TUNING_MAX_BYTES) {
        return espl_fail(err, ESPL_E_CORRUPT, "%zu bytes are too many, expected at most %d", len,
                         (int)ESPL_TUNING_MAX_BYTES);
    }
    *json = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
    if (*json == NULL) {
        return espl_fail(err, ESPL_E_CORRUPT, "it is no JSON: line %d: %s", where.line, where.text);
    }
    return read_schema(*json, err);
}

static enum espl_status parse_all(const json_t *json, const char *device,
                                  struct espl_spmm_tuning *tuning, struct espl_error *err)
{
    const json_t *devices = json_object_get(json, "devices");
    size_t total = 0;
    bool found = false;
    enum espl_status status = json_is_array(devices)
                                  ? ESPL_OK
                                  : espl_fail(err, ESPL_E_CORRUPT, "'devices' must be a list");
    for (size_t i = 0; status == ESPL_OK && i < json_array_size(devices); i++) {
        const json_t *entry = json_array_get(devices, i);
        const char *name = json_string_value(json_object_get(entry, "device"));
        if (name == NULL || name[0] == '\0' || strlen(name) >= MOST_DEVICE) {
            return espl_fail(err, ESPL_E_CORRUPT, "devices[%zu]: 'device' must be a text", i);
        }
        const bool wanted = strcmp(name, device) == 0;
        if (wanted && found) {
            return espl_fail(err, ESPL_E_CORRUPT, "devices[%zu]: '%s' was there already", i, name);
        }
        found = found || wanted;
        status = read_device(entry, i, &total, wanted ? tuning : NULL, err);
    }
    return status;
}

enum espl_status espl_tuning_parse(const char *text, size_t len, const char *device,
                                   struct espl_spmm_tuning *tuning, struct espl_error *err)
{
    json_t *json = NULL;
    enum espl_status status = load(text, len, &json, err);
    if (status == ESPL_OK) {
        status = parse_all(json, device, tuning, err);
    }
    json_decref(json);
    return status;
}

enum espl_status espl_tuning_read(const char *path, const char *device,
                                  struct espl_spmm_tuning *tuning, struct espl_error *err)
{
    char *text = NULL;
    size_t len = 0;
    enum espl_status status = espl_fs_read_file(path, ESPL_TUNING_MAX_BYTES, &text, &len, err);
    if (status == ESPL_OK) {
        status = espl_tuning_parse(text, len, device, tuning, err);
        if (status != ESPL_OK) {
            espl_context(err, "reading stored choices '%s'", path);
        }
    }
    free(text);
    return status;
}

/* ---- writing ---- */

static json_t *choices_json(const struct espl_spmm_tuning *tuning)
{
    json_t *choices = json_array();
    for (size_t i = 0; i < tuning->count; i++) {
        const struct espl_spmm_stored *s = &tuning->items[i];
        (void)json_array_append_new(
            choices,
            json_pack("{s:s, s:I, s:I, s:I, s:f, s:i, s:i, s:i, s:i, s:i, s:f}", "form", s->form,
                      "rows", (json_int_t)s->rows, "cols", (json_int_t)s->cols, "tokens",
                      (json_int_t)s->tokens, "sparsity", s->sparsity, "warps", (int)s->choice.warps,
                      "splits", (int)s->choice.splits, "window", (int)s->choice.window, "stages",
                      (int)s->choice.stages, "parts", (int)s->choice.parts, "seconds", s->seconds));
    }
    return choices;
}

/* What the file holds, without `device`; an empty object of the schema when there is no file. */
static enum espl_status load_others(const char *path, const char *device, json_t **json,
                                    struct espl_error *err)
{
    struct espl_spmm_tuning ignored = {.items = NULL};
    char *text = NULL;
    size_t len = 0;
    if (!espl_fs_exists(path)) {
        *json = json_pack("{s:s, s:[]}", "schema", schema, "devices");
        return *json != NULL ? ESPL_OK : espl_fail(err, ESPL_E_NOMEM, "out of memory for choices");
    }
    enum espl_status status = espl_fs_read_file(path, ESPL_TUNING_MAX_BYTES, &text, &len, err);
    if (status == ESPL_OK) {
        status = load(text, len, json, err);
    }
    if (status == ESPL_OK) {
        status = parse_all(*json, device, &ignored, err);
    }
    json_t *devices = json_object_get(*json, "devices");
    for (size_t i = json_array_size(devices); status == ESPL_OK && i-- > 0;) {
        const char *name = json_string_value(json_object_get(json_array_get(devices, i), "device"));
        if (strcmp(name, device) == 0) {
            (void)json_array_remove(devices, i); /* of an index that is there */
        }
    }
    espl_spmm_tuning_free(&ignored);
    free(text);
    return status;
}

enum espl_status espl_tuning_write(const char *path, const char *device,
                                   const struct espl_spmm_tuning *tuning, struct espl_error *err)
{
    json_t *json = NULL;
    char *text = NULL;
    enum espl_status status = load_others(path, device, &json, err);
    if (status == ESPL_OK) {
        (void)json_array_append_new(
            json_object_get(json, "devices"),
            json_pack("{s:s, s:o}", "device", device, "choices", choices_json(tuning)));
        text = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
        status = text != NULL ? espl_fs_write_file(path, text, strlen(text), err)
                              : espl_fail(err, ESPL_E_NOMEM, "out of memory for choices");
    }
    if (status != ESPL_OK) {
        espl_context(err, "writing stored choices '%s'", path);
    }
    free(text);
    json_decref(json);
    return status;
}

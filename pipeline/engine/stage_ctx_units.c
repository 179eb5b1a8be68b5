/* Resume units: one small artifact per finished layer in partial/<key>.units/, published like every
 * other file. A damaged one is dropped and its layer is made again. */
#include "engine/stage_ctx.h"
#include "engine/stage_ctx_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UNIT_LIST_LIMIT = 1 << 20, UNIT_TEXT = 32 };

static void unit_name(uint64_t index, char out[UNIT_TEXT])
{
    (void)snprintf(out, UNIT_TEXT, "unit-%06" PRIu64, index);
}

static enum espl_status unit_path(const struct espl_stage_ctx *ctx, uint64_t index, bool create,
                                  char out[ESPL_PATH_MAX], struct espl_error *err)
{
    char dir[ESPL_PATH_MAX];
    char name[UNIT_TEXT + 4];
    unit_name(index, name);
    memcpy(name + strlen(name), ".h5", 4);
    enum espl_status status =
        espl_store_units_dir(ctx->config.store, ctx->config.key, create, dir, err);
    return status == ESPL_OK ? espl_fs_join(out, dir, name, err) : status;
}

/* Is the open unit what its name says, whole and of this key? */
static enum espl_status check_unit(const struct espl_stage_ctx *ctx, uint64_t index,
                                   struct espl_artifact *unit, struct espl_error *err)
{
    char text[UNIT_TEXT];
    char bad_path[ESPL_TENSOR_PATH];
    bool ok = false;
    (void)snprintf(text, sizeof text, "%" PRIu64, index);
    if (strcmp(espl_artifact_attribute(unit, "key"), ctx->config.key) != 0 ||
        strcmp(espl_artifact_attribute(unit, "unit"), text) != 0) {
        return espl_fail(err, ESPL_E_CORRUPT, "it belongs to another key or layer");
    }
    enum espl_status status = espl_artifact_verify(unit, &ok, bad_path, err);
    if (status == ESPL_OK && !ok) {
        status = espl_fail(err, ESPL_E_CORRUPT, "the hash of '%s' does not match", bad_path);
    }
    return status;
}

/* Brings back the layer metrics that travelled in a unit. */
static enum espl_status replay_layers(const struct espl_stage_ctx *ctx, struct espl_artifact *unit,
                                      struct espl_error *err)
{
    char *text = NULL;
    size_t index = 0;
    json_t *entry = NULL;
    enum espl_status status = espl_artifact_provenance(unit, "layer_metrics", &text, err);
    if (status != ESPL_OK) {
        return status;
    }
    json_t *list = json_loads(text, 0, NULL);
    free(text);
    if (!json_is_array(list)) {
        json_decref(list);
        return espl_fail(err, ESPL_E_CORRUPT, "its layer metrics are no list");
    }
    json_array_foreach(list, index, entry)
    {
        status = espl_ctx_keep_layer(ctx, entry, err);
        if (status != ESPL_OK) {
            break;
        }
    }
    json_decref(list);
    return status;
}

static const struct espl_ctx_unit *find_unit(const struct espl_ctx_state *state, uint64_t index)
{
    for (size_t i = 0; i < state->unit_count; i++) {
        if (state->units[i].index == index) {
            return &state->units[i];
        }
    }
    return NULL;
}

static void remember_unit(struct espl_ctx_state *state, uint64_t index, bool kept)
{
    struct espl_ctx_unit *grown =
        realloc(state->units, (state->unit_count + 1) * sizeof *state->units);
    if (grown != NULL) { /* otherwise it is examined again when asked for again */
        state->units = grown;
        state->units[state->unit_count++] = (struct espl_ctx_unit){.index = index, .kept = kept};
    }
}

bool espl_ctx_unit_done(const struct espl_stage_ctx *ctx, uint64_t index)
{
    char path[ESPL_PATH_MAX];
    struct espl_error problem;
    struct espl_artifact *unit = NULL;
    struct espl_ctx_state *state = ctx->state;
    const struct espl_ctx_unit *known = find_unit(state, index);
    if (known != NULL) {
        return known->kept;
    }
    espl_error_clear(&problem);
    if (unit_path(ctx, index, false, path, NULL) != ESPL_OK || !espl_fs_exists(path)) {
        remember_unit(state, index, false);
        return false;
    }
    enum espl_status status = espl_artifact_open(path, &unit, &problem);
    if (status == ESPL_OK) {
        status = check_unit(ctx, index, unit, &problem);
    }
    if (status == ESPL_OK) {
        status = replay_layers(ctx, unit, &problem);
    }
    espl_artifact_close(unit);
    if (status == ESPL_OK) {
        state->resumed++;
    } else {
        espl_log(&ctx->log, ESPL_LOG_WARN, "dropped the kept result of unit %" PRIu64 ": %s", index,
                 problem.message);
        if (unlink(path) != 0) {
            espl_log(&ctx->log, ESPL_LOG_WARN, "cannot delete '%s'", path);
        }
    }
    remember_unit(state, index, status == ESPL_OK);
    return status == ESPL_OK;
}

enum espl_status espl_ctx_unit_open(struct espl_stage_ctx *ctx, uint64_t index,
                                    struct espl_artifact **out, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    enum espl_status status = unit_path(ctx, index, false, path, err);
    if (status == ESPL_OK) {
        status = espl_artifact_open(path, out, err);
    }
    if (status != ESPL_OK) {
        (void)espl_context(err, "while opening unit %" PRIu64 " of '%s'", index,
                           ctx->config.stage_id);
    }
    return status;
}

enum espl_status espl_ctx_unit_create(struct espl_stage_ctx *ctx, uint64_t index,
                                      struct espl_artifact **out, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char name[UNIT_TEXT];
    struct espl_ctx_state *state = ctx->state;
    if ((ctx->config.stage->flags & ESPL_STAGE_RESUMABLE) == 0) {
        return espl_fail(err, ESPL_E_INTERNAL, "stage '%s' makes units but is not marked resumable",
                         ctx->config.stage->name);
    }
    struct espl_ctx_open_unit *grown =
        realloc(state->open_units, (state->open_count + 1) * sizeof *state->open_units);
    if (grown == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for unit %" PRIu64, index);
    }
    state->open_units = grown;
    struct espl_ctx_open_unit *unit = &state->open_units[state->open_count];
    unit_name(index, name);
    enum espl_status status =
        espl_store_private_path(ctx->config.store, ctx->config.key, name, path, err);
    if (status != ESPL_OK) {
        return status;
    }
    unit->layers = json_array();
    if (unit->layers == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for unit %" PRIu64, index);
    }
    status = espl_artifact_create(path, "unit/1", &unit->artifact, err);
    if (status != ESPL_OK) {
        json_decref(unit->layers);
        return status;
    }
    state->open_count++;
    *out = unit->artifact;
    return ESPL_OK;
}

static enum espl_status finish_unit(struct espl_stage_ctx *ctx, uint64_t index,
                                    struct espl_artifact **unit, const json_t *layers,
                                    struct espl_error *err)
{
    char final_path[ESPL_PATH_MAX];
    char private_path[ESPL_PATH_MAX];
    char number[UNIT_TEXT];
    char *text = json_dumps(layers, JSON_COMPACT);
    if (text == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for layer metrics");
    }
    (void)snprintf(number, sizeof number, "%" PRIu64, index);
    (void)snprintf(private_path, sizeof private_path, "%s", espl_artifact_path(*unit));
    enum espl_status status = unit_path(ctx, index, true, final_path, err);
    if (status == ESPL_OK) {
        status = espl_artifact_set_attribute(*unit, "key", ctx->config.key, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_set_attribute(*unit, "unit", number, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_set_provenance(*unit, "layer_metrics", text, err);
    }
    free(text);
    if (status == ESPL_OK) {
        status = espl_artifact_finish(unit, NULL, err);
    }
    return status == ESPL_OK ? espl_fs_publish(private_path, final_path, err) : status;
}

enum espl_status espl_ctx_unit_publish(struct espl_stage_ctx *ctx, uint64_t index,
                                       struct espl_artifact **unit, struct espl_error *err)
{
    struct espl_ctx_state *state = ctx->state;
    size_t at = 0;
    while (at < state->open_count && state->open_units[at].artifact != *unit) {
        at++;
    }
    if (at == state->open_count) {
        return espl_fail(err, ESPL_E_INTERNAL, "unit %" PRIu64 " was not created by this stage",
                         index);
    }
    json_t *layers = state->open_units[at].layers;
    state->open_units[at] = state->open_units[--state->open_count];
    enum espl_status status = finish_unit(ctx, index, unit, layers, err);
    json_decref(layers);
    if (status != ESPL_OK) {
        espl_artifact_abandon(*unit); /* NULL when finish got it */
        *unit = NULL;
        (void)espl_context(err, "while keeping unit %" PRIu64 " of '%s'", index,
                           ctx->config.stage_id);
    }
    return status;
}

void espl_ctx_units_destroy(struct espl_ctx_state *state)
{
    for (size_t i = 0; i < state->open_count; i++) {
        espl_artifact_abandon(state->open_units[i].artifact);
        json_decref(state->open_units[i].layers);
    }
    free(state->open_units);
    free(state->units);
}

uint64_t espl_stage_count_units(const struct espl_store *store, const char *key)
{
    char dir[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    uint64_t units = 0;
    if (espl_store_units_dir(store, key, false, dir, NULL) != ESPL_OK || !espl_fs_is_dir(dir) ||
        espl_fs_list(dir, UNIT_LIST_LIMIT, &names, &count, NULL) != ESPL_OK) {
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        const size_t len = strlen(names[i]);
        if (strncmp(names[i], "unit-", 5) == 0 && len > 3 &&
            strcmp(names[i] + len - 3, ".h5") == 0) {
            units++;
        }
    }
    espl_fs_free_names(names, count);
    return units;
}

#include "engine/stage_ctx.h"

#include "engine/exec_message.h"
#include "engine/stage_ctx_internal.h"

#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A stage may report progress in its innermost loop; the driver needs a few reports a second. */
static const double progress_interval = 0.05;

enum { LOG_LINE_BYTES = 8192 };

enum espl_status espl_ctx_send_take(const struct espl_stage_ctx *ctx, int type, json_t *body,
                                    struct espl_error *err)
{
    if (ctx->config.message_fd < 0) {
        json_decref(body);
        return ESPL_OK;
    }
    return espl_message_send_take(ctx->config.message_fd, (enum espl_message_type)type, body, err);
}

static void write_log(void *user, enum espl_log_level level, const char *line)
{
    const struct espl_stage_ctx *ctx = user;
    if (ctx->config.message_fd < 0) {
        espl_log(ctx->config.log, level, "%s", line);
        return;
    }
    char text[LOG_LINE_BYTES];
    (void)snprintf(text, sizeof text, "%s", line);
    json_t *body = json_pack("{s:i, s:o}", "level", (int)level, "text", espl_json_text(text));
    /* A log line that cannot be delivered must not fail the stage; the next message will. */
    (void)espl_ctx_send_take(ctx, ESPL_MESSAGE_LOG, body, NULL);
}

enum espl_status espl_stage_ctx_create(const struct espl_ctx_config *config,
                                       struct espl_stage_ctx **out, struct espl_error *err)
{
    struct espl_stage_ctx *ctx = calloc(1, sizeof *ctx);
    struct espl_ctx_state *state = calloc(1, sizeof *state);
    if (ctx == NULL || state == NULL) {
        free(ctx);
        free(state);
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a stage context");
    }
    ctx->config = *config;
    ctx->state = state;
    ctx->log.write = write_log;
    ctx->log.user = ctx;
    ctx->log.lowest = ESPL_LOG_DEBUG;
    state->metrics = json_object();
    state->volatile_metrics = json_object();
    state->layers = json_object();
    if (state->metrics == NULL || state->volatile_metrics == NULL || state->layers == NULL) {
        espl_stage_ctx_destroy(ctx);
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a stage context");
    }
    *out = ctx;
    return ESPL_OK;
}

void espl_stage_ctx_destroy(struct espl_stage_ctx *ctx)
{
    if (ctx == NULL) {
        return;
    }
    espl_ctx_units_destroy(ctx->state);
    json_decref(ctx->state->metrics);
    json_decref(ctx->state->volatile_metrics);
    json_decref(ctx->state->layers);
    free(ctx->state);
    free(ctx);
}

static struct espl_artifact *find_port(const struct espl_ctx_port *ports, size_t count,
                                       const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(ports[i].name, name) == 0) {
            return ports[i].artifact;
        }
    }
    return NULL;
}

struct espl_artifact *espl_ctx_input(struct espl_stage_ctx *ctx, const char *port)
{
    return find_port(ctx->config.inputs, ctx->config.input_count, port);
}

struct espl_artifact *espl_ctx_output(struct espl_stage_ctx *ctx, const char *port)
{
    return find_port(ctx->config.outputs, ctx->config.output_count, port);
}

const struct espl_store *espl_ctx_store(const struct espl_stage_ctx *ctx)
{
    return ctx->config.store;
}

const char *espl_ctx_stage_id(const struct espl_stage_ctx *ctx)
{
    return ctx->config.stage_id;
}

const char *espl_ctx_device(const struct espl_stage_ctx *ctx)
{
    return ctx->config.device;
}

const char *espl_ctx_device_fingerprint(const struct espl_stage_ctx *ctx)
{
    return ctx->config.device_fingerprint != NULL ? ctx->config.device_fingerprint
                                                  : ctx->config.device;
}

struct espl_rng espl_ctx_rng(const struct espl_stage_ctx *ctx, uint64_t index)
{
    return espl_rng_stream(ctx->config.seed, ctx->config.stage_id, index);
}

const struct espl_log *espl_ctx_log(const struct espl_stage_ctx *ctx)
{
    return &ctx->log;
}

static void send_progress(const struct espl_stage_ctx *ctx)
{
    struct espl_ctx_state *state = ctx->state;
    state->progress_held = false;
    state->progress_sent = espl_clock_monotonic();
    json_t *body = json_pack("{s:I, s:I, s:s}", "done", (json_int_t)state->done, "total",
                             (json_int_t)state->total, "what", state->what);
    /* As for log lines: the status at the end fails when the driver cannot be reached. */
    (void)espl_ctx_send_take(ctx, ESPL_MESSAGE_PROGRESS, body, NULL);
}

void espl_ctx_progress(struct espl_stage_ctx *ctx, uint64_t done, uint64_t total, const char *what)
{
    struct espl_ctx_state *state = ctx->state;
    const bool first = strcmp(state->what, what) != 0 || state->total != total;
    state->done = done;
    state->total = total;
    (void)snprintf(state->what, sizeof state->what, "%s", what);
    state->progress_held = true;
    if (first || done >= total ||
        espl_clock_monotonic() - state->progress_sent >= progress_interval) {
        send_progress(ctx);
    }
}

bool espl_ctx_cancelled(const struct espl_stage_ctx *ctx)
{
    /* The driver passes a stop on as SIGTERM, which the stage process keeps blocked: a pending
     * signal is the flag, and no handler and no global variable are needed. */
    sigset_t pending;
    if (ctx->config.stopped != NULL && *ctx->config.stopped != 0) {
        return true;
    }
    return sigpending(&pending) == 0 && sigismember(&pending, SIGTERM) == 1;
}

enum espl_status espl_ctx_stop(const struct espl_stage_ctx *ctx, struct espl_error *err)
{
    if (ctx->state->progress_held) {
        send_progress(ctx);
    }
    return espl_fail(err, ESPL_E_CANCELLED, "'%s' was stopped", ctx->config.stage_id);
}

static bool is_snake_case(const char *name)
{
    if (!islower((unsigned char)name[0])) {
        return false;
    }
    for (const char *at = name; *at != '\0'; at++) {
        if (!islower((unsigned char)*at) && !isdigit((unsigned char)*at) && *at != '_') {
            return false;
        }
    }
    return true;
}

enum espl_status espl_ctx_metric(struct espl_stage_ctx *ctx, const char *name, double value,
                                 bool volatile_value, struct espl_error *err)
{
    json_t *object = volatile_value ? ctx->state->volatile_metrics : ctx->state->metrics;
    if (!is_snake_case(name)) {
        return espl_fail(err, ESPL_E_INTERNAL, "metric name '%s' is not snake_case", name);
    }
    if (!isfinite(value)) {
        return espl_fail(err, ESPL_E_NUMERIC, "metric '%s' is %f", name, value);
    }
    if (json_object_set_new(object, name, json_real(value)) != 0) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for metric '%s'", name);
    }
    json_t *body = json_pack("{s:s, s:f, s:b}", "name", name, "value", value, "volatile",
                             volatile_value ? 1 : 0);
    return espl_ctx_send_take(ctx, ESPL_MESSAGE_METRIC, body, err);
}

enum espl_status espl_ctx_keep_layer(const struct espl_stage_ctx *ctx, json_t *entry,
                                     struct espl_error *err)
{
    const char *series = json_string_value(json_object_get(entry, "series"));
    const char *module = json_string_value(json_object_get(entry, "module"));
    const json_int_t layer = json_integer_value(json_object_get(entry, "layer"));
    char name[512];
    if (series == NULL || module == NULL) {
        return espl_fail(err, ESPL_E_CORRUPT, "a layer metric has no series or module");
    }
    /* Sorting these names as text is sorting by layer, module and series. */
    (void)snprintf(name, sizeof name, "%012lld %s %s", (long long)layer, module, series);
    if (json_object_set(ctx->state->layers, name, entry) != 0) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for layer metrics");
    }
    return espl_ctx_send_take(ctx, ESPL_MESSAGE_LAYER_METRIC, json_incref(entry), err);
}

enum espl_status espl_ctx_layer_metric(struct espl_stage_ctx *ctx, const char *series,
                                       uint64_t layer, const char *module, double value,
                                       struct espl_error *err)
{
    if (!isfinite(value)) {
        return espl_fail(err, ESPL_E_NUMERIC, "%s of layer %llu, '%s', is %f", series,
                         (unsigned long long)layer, module, value);
    }
    json_t *entry = json_pack("{s:s, s:I, s:o, s:f}", "series", series, "layer", (json_int_t)layer,
                              "module", espl_json_text(module), "value", value);
    if (entry == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for layer metrics");
    }
    enum espl_status status = espl_ctx_keep_layer(ctx, entry, err);
    for (size_t i = 0; i < ctx->state->open_count && status == ESPL_OK; i++) {
        if (json_array_append(ctx->state->open_units[i].layers, entry) != 0) {
            status = espl_fail(err, ESPL_E_NOMEM, "no memory for layer metrics");
        }
    }
    json_decref(entry);
    return status;
}

const json_t *espl_stage_ctx_metrics(const struct espl_stage_ctx *ctx, bool volatile_values)
{
    return volatile_values ? ctx->state->volatile_metrics : ctx->state->metrics;
}

static int compare_names(const void *left, const void *right)
{
    const char *const *a = left;
    const char *const *b = right;
    return strcmp(*a, *b);
}

json_t *espl_stage_ctx_layers(const struct espl_stage_ctx *ctx)
{
    json_t *layers = ctx->state->layers;
    const size_t count = json_object_size(layers);
    const char **names = calloc(count > 0 ? count : 1, sizeof *names);
    json_t *list = json_array();
    if (names == NULL || list == NULL) {
        free(names);
        json_decref(list);
        return NULL;
    }
    size_t n = 0;
    for (void *at = json_object_iter(layers); at != NULL; at = json_object_iter_next(layers, at)) {
        names[n++] = json_object_iter_key(at);
    }
    qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 0; i < count; i++) {
        if (json_array_append(list, json_object_get(layers, names[i])) != 0) {
            json_decref(list);
            list = NULL;
            break;
        }
    }
    free(names);
    return list;
}

uint64_t espl_stage_ctx_resumed_units(const struct espl_stage_ctx *ctx)
{
    return ctx->state->resumed;
}

void espl_stage_ctx_last_progress(const struct espl_stage_ctx *ctx, uint64_t *done, uint64_t *total,
                                  const char **what)
{
    *done = ctx->state->done;
    *total = ctx->state->total;
    *what = ctx->state->what;
}

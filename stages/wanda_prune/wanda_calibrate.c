#include "stages/wanda_prune/wanda_calibrate.h"

#include "core/checked.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BATCH_TOKENS = 4096,
    LOGIT_VALUES = 1 << 24 /* logits of one piece of the head: 64 MiB */
};

size_t espl_calibration_batch(uint64_t windows, size_t tokens)
{
    size_t batch = ESPL_WANDA_CHECK_WINDOWS;
    while (batch > 1 && (batch * tokens > BATCH_TOKENS || batch > windows)) {
        batch /= 2;
    }
    return batch;
}

static uint64_t check_windows_of(uint64_t windows)
{
    return windows < ESPL_WANDA_CHECK_WINDOWS ? windows : ESPL_WANDA_CHECK_WINDOWS;
}

bool espl_calibration_values(uint64_t windows, size_t tokens, uint64_t hidden, size_t *values)
{
    size_t window_values = 0, rooms = 0;
    return espl_mul_size(tokens, (size_t)hidden, &window_values) &&
           espl_mul_size((size_t)windows, 2, &rooms) &&
           espl_add_size(rooms, (size_t)check_windows_of(windows), &rooms) &&
           espl_mul_size(rooms, window_values, values);
}

static enum espl_status make_room(struct espl_calibration *calibration, uint64_t hidden,
                                  struct espl_error *err)
{
    size_t values = 0;
    if (!espl_calibration_values(calibration->windows, calibration->tokens, hidden, &values)) {
        return espl_fail(err, ESPL_E_NOMEM,
                         "hidden states of %" PRIu64 " windows do not fit in memory",
                         calibration->windows);
    }
    const enum espl_status status = espl_hidden_states_create(
        espl_ctx_store(calibration->ctx),
        espl_artifact_content_sha256(espl_ctx_input(calibration->ctx, "model")), values,
        ESPL_HIDDEN_IN_MEMORY, &calibration->room, err);
    if (status != ESPL_OK) {
        return status;
    }
    const size_t all = (size_t)calibration->windows * calibration->window_values;
    calibration->inputs = calibration->room.data;
    calibration->outputs = calibration->room.data + all;
    calibration->check = calibration->room.data + 2 * all;
    return ESPL_OK;
}

/* One array of sums a role; roles with a shared input use the first one's. */
static enum espl_status make_sums(struct espl_calibration *calibration, struct espl_error *err)
{
    const struct espl_prune_selection *selection = calibration->selection;
    for (size_t i = 0; i < selection->count && selection->linears[i].spec.layer == 0; i++) {
        const struct espl_tensor_spec *spec = &selection->linears[i].spec;
        const size_t width = (size_t)spec->shape[1];
        calibration->lead[spec->role] = spec->role;
        calibration->widths[spec->role] = width;
        calibration->sums[spec->role] = calloc(width, sizeof(double));
        if (calibration->sums[spec->role] == NULL) {
            return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu sums", width);
        }
    }
    return ESPL_OK;
}

static enum espl_status embed_windows(struct espl_calibration *calibration, struct espl_error *err)
{
    for (uint64_t window = 0; window < calibration->windows; window += calibration->batch) {
        const uint64_t left = calibration->windows - window;
        const size_t count = left < calibration->batch ? (size_t)left : calibration->batch;
        const enum espl_status status = espl_forward_embed(
            calibration->forward, calibration->ids + window * calibration->tokens, count,
            calibration->inputs + window * calibration->window_values, err);
        if (status != ESPL_OK) {
            return espl_context(err, "while embedding calibration windows %" PRIu64 " to %" PRIu64,
                                window, window + count - 1);
        }
    }
    memcpy(calibration->check, calibration->inputs,
           (size_t)calibration->check_windows * calibration->window_values * sizeof(float));
    return ESPL_OK;
}

enum espl_status espl_calibration_open(struct espl_stage_ctx *ctx, struct espl_model *model,
                                       struct espl_backend *backend,
                                       const struct espl_prune_selection *selection,
                                       const int32_t *ids, uint64_t windows, size_t tokens,
                                       struct espl_calibration *calibration, struct espl_error *err)
{
    const uint64_t hidden = espl_model_get_config(model)->hidden;
    memset(calibration, 0, sizeof *calibration);
    calibration->ctx = ctx;
    calibration->selection = selection;
    calibration->backend = backend;
    calibration->ids = ids;
    calibration->windows = windows;
    calibration->tokens = tokens;
    calibration->window_values = tokens * (size_t)hidden;
    calibration->batch = espl_calibration_batch(windows, tokens);
    calibration->check_windows = check_windows_of(windows);
    enum espl_status status = make_room(calibration, hidden, err);
    if (status == ESPL_OK) {
        status = make_sums(calibration, err);
    }
    if (status == ESPL_OK) {
        status = espl_forward_create(model, backend, calibration->batch, tokens,
                                     &calibration->forward, err);
    }
    if (status == ESPL_OK) {
        status = embed_windows(calibration, err);
    }
    return status;
}

void espl_calibration_close(struct espl_calibration *calibration)
{
    for (size_t role = 0; role < ESPL_ROLE_COUNT; role++) {
        free(calibration->sums[role]);
    }
    espl_forward_destroy(calibration->forward);
    espl_hidden_states_destroy(&calibration->room);
    memset(calibration, 0, sizeof *calibration);
}

/* Sums of squares are finite exactly when all summands are: float32 squares cannot overflow a
 * double sum. So x is searched only when a sum went wrong. */
static enum espl_status fail_activation(const struct espl_calibration *calibration,
                                        enum espl_role role, const float *x, size_t tokens_total,
                                        size_t in, struct espl_error *err)
{
    const char *module = espl_role_name(role);
    for (size_t i = 0; i < calibration->selection->count; i++) {
        const struct espl_tensor_spec *spec = &calibration->selection->linears[i].spec;
        if ((uint64_t)spec->layer == calibration->layer && spec->role == role) {
            module = spec->module;
        }
    }
    const size_t count = tokens_total * in;
    size_t bad = count;
    const enum espl_status status = espl_backend_ops(calibration->backend)
                                        ->find_nonfinite(calibration->backend, count, x, &bad, err);
    if (status != ESPL_OK) {
        return status;
    }
    assert(bad < count);
    const size_t token = bad / in;
    espl_fail(err, ESPL_E_NUMERIC,
              "activation at the input of '%s' (layer %" PRIu64 ") is not finite: channel %zu, "
              "calibration window %" PRIu64 ", token %zu",
              module, calibration->layer, bad % in,
              calibration->first_window + token / calibration->tokens, token % calibration->tokens);
    return espl_hint(err, "check the checkpoint: run 'evaluate' on the model before pruning");
}

static enum espl_status observe_input(void *user, const enum espl_role *roles, size_t role_count,
                                      const float *x, size_t tokens_total, size_t in,
                                      struct espl_error *err)
{
    struct espl_calibration *calibration = user;
    const enum espl_role lead = roles[0];
    if (calibration->widths[lead] != in) {
        return espl_fail(err, ESPL_E_INTERNAL, "input of '%s' has %zu channels, expected %zu",
                         espl_role_name(lead), in, calibration->widths[lead]);
    }
    for (size_t i = 0; i < role_count; i++) {
        calibration->lead[roles[i]] = lead;
    }
    double *sums = calibration->sums[lead];
    const enum espl_status status =
        espl_backend_ops(calibration->backend)
            ->column_sumsq(calibration->backend, tokens_total, in, x, sums, err);
    for (size_t channel = 0; channel < in && status == ESPL_OK; channel++) {
        if (!isfinite(sums[channel])) {
            return fail_activation(calibration, lead, x, tokens_total, in, err);
        }
    }
    return status;
}

/* Runs `block` in place on the batches of hidden (windows, tokens, hidden), of which `windows` are
 * wanted. */
static enum espl_status run_batch(struct espl_calibration *calibration, struct espl_block *block,
                                  float *hidden, uint64_t window, uint64_t windows,
                                  espl_linear_input_fn observe, struct espl_error *err)
{
    const uint64_t left = windows - window;
    const size_t count = left < calibration->batch ? (size_t)left : calibration->batch;
    if (espl_ctx_cancelled(calibration->ctx)) {
        return espl_ctx_stop(calibration->ctx, err);
    }
    calibration->first_window = window;
    return espl_forward_block(calibration->forward, block, count,
                              hidden + window * calibration->window_values, observe, calibration,
                              err);
}

static size_t batch_values(const struct espl_calibration *calibration, uint64_t window,
                           uint64_t windows)
{
    const uint64_t left = windows - window;
    return (left < calibration->batch ? (size_t)left : calibration->batch) *
           calibration->window_values;
}

enum espl_status espl_calibration_observe(struct espl_calibration *calibration,
                                          struct espl_block *block, uint64_t layer,
                                          struct espl_error *err)
{
    calibration->layer = layer;
    for (size_t role = 0; role < ESPL_ROLE_COUNT; role++) {
        if (calibration->sums[role] != NULL) {
            memset(calibration->sums[role], 0, calibration->widths[role] * sizeof(double));
        }
    }
    for (uint64_t window = 0; window < calibration->windows; window += calibration->batch) {
        const size_t at = (size_t)window * calibration->window_values;
        memcpy(calibration->outputs + at, calibration->inputs + at,
               batch_values(calibration, window, calibration->windows) * sizeof(float));
        const enum espl_status status = run_batch(calibration, block, calibration->outputs, window,
                                                  calibration->windows, observe_input, err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    return ESPL_OK;
}

enum espl_status espl_calibration_advance(struct espl_calibration *calibration,
                                          struct espl_block *block, uint64_t windows,
                                          struct espl_wanda_distance *distance,
                                          struct espl_error *err)
{
    for (uint64_t window = 0; window < windows; window += calibration->batch) {
        const enum espl_status status =
            run_batch(calibration, block, calibration->inputs, window, windows, NULL, err);
        if (status != ESPL_OK) {
            return status;
        }
        if (distance != NULL) {
            const size_t at = (size_t)window * calibration->window_values;
            espl_wanda_distance_add(distance, calibration->inputs + at, calibration->outputs + at,
                                    batch_values(calibration, window, windows));
        }
    }
    return ESPL_OK;
}

enum espl_status espl_calibration_advance_check(struct espl_calibration *calibration,
                                                struct espl_block *block, struct espl_error *err)
{
    const uint64_t windows = calibration->check_windows;
    for (uint64_t window = 0; window < windows; window += calibration->batch) {
        const enum espl_status status =
            run_batch(calibration, block, calibration->check, window, windows, NULL, err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    return ESPL_OK;
}

void espl_calibration_take_outputs(struct espl_calibration *calibration)
{
    float *swap = calibration->inputs;
    calibration->inputs = calibration->outputs;
    calibration->outputs = swap;
}

const double *espl_calibration_sums(const struct espl_calibration *calibration, enum espl_role role)
{
    return calibration->sums[calibration->lead[role]];
}

/* Sum of the NLL of the targets of one window. */
static enum espl_status window_nll(struct espl_calibration *calibration, const float *hidden,
                                   const int32_t *ids, size_t vocab, size_t rows_per_piece,
                                   float *logits, double *nll, double *sum, struct espl_error *err)
{
    const size_t width = calibration->window_values / calibration->tokens;
    const size_t targets = calibration->tokens - 1;
    *sum = 0.0;
    for (size_t row = 0; row < targets; row += rows_per_piece) {
        const size_t rows = targets - row < rows_per_piece ? targets - row : rows_per_piece;
        enum espl_status status =
            espl_forward_logits(calibration->forward, hidden + row * width, rows, logits, err);
        if (status == ESPL_OK) {
            status = espl_backend_ops(calibration->backend)
                         ->cross_entropy(calibration->backend, rows, vocab, logits, ids + row + 1,
                                         nll, err);
        }
        if (status != ESPL_OK) {
            return status;
        }
        for (size_t i = 0; i < rows; i++) {
            *sum += nll[i];
        }
    }
    return ESPL_OK;
}

enum espl_status espl_calibration_perplexity(struct espl_calibration *calibration,
                                             const float *hidden, uint64_t vocab,
                                             double *perplexity, struct espl_error *err)
{
    const size_t targets = calibration->tokens - 1;
    size_t rows = LOGIT_VALUES / (size_t)vocab;
    rows = rows < 1 ? 1 : rows;
    rows = rows < targets ? rows : targets;
    float *logits = malloc(rows * (size_t)vocab * sizeof *logits);
    double *nll = malloc(rows * sizeof *nll);
    enum espl_status status = ESPL_OK;
    double total = 0.0;
    if (logits == NULL || nll == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for the logits of %zu tokens", rows);
        goto cleanup;
    }
    for (uint64_t window = 0; window < calibration->check_windows; window++) {
        double sum = 0.0;
        status = window_nll(calibration, hidden + window * calibration->window_values,
                            calibration->ids + window * calibration->tokens, (size_t)vocab, rows,
                            logits, nll, &sum, err);
        if (status != ESPL_OK) {
            espl_context(err, "while checking calibration window %" PRIu64, window);
            goto cleanup;
        }
        total += sum / (double)targets;
    }
    *perplexity = exp(total / (double)calibration->check_windows);

cleanup:
    free(logits);
    free(nll);
    return status;
}

#include "stages/calibration/chains.h"

#include "core/checked.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_TOKENS = 4096 };

uint64_t espl_check_windows(uint64_t count)
{
    return count < ESPL_CHECK_WINDOWS ? count : ESPL_CHECK_WINDOWS;
}

size_t espl_chains_batch(uint64_t windows, size_t tokens)
{
    size_t batch = ESPL_CHECK_WINDOWS;
    while (batch > 1 && (batch * tokens > BATCH_TOKENS || batch > windows)) {
        batch /= 2;
    }
    return batch;
}

uint64_t espl_chains_bytes(uint64_t windows, size_t tokens, uint64_t hidden, uint64_t *scratch)
{
    const uint64_t window = tokens * hidden * sizeof(float);
    const uint64_t bytes = window * windows;
    const uint64_t spare = window * espl_chains_batch(windows, tokens);
    *scratch = bytes + spare > ESPL_HIDDEN_IN_MEMORY ? bytes + spare : 0;
    return *scratch > 0 ? 0 : bytes + spare;
}

static size_t batch_at(const struct espl_chains *chains, uint64_t window, uint64_t windows)
{
    const uint64_t left = windows - window;
    return left < chains->batch ? (size_t)left : chains->batch;
}

static enum espl_status make_room(struct espl_chains *chains, struct espl_error *err)
{
    size_t rooms = 0;
    size_t values = 0;
    if (!espl_add_size((size_t)chains->counts[0], (size_t)chains->counts[1], &rooms) ||
        !espl_add_size(rooms, chains->batch, &rooms) ||
        !espl_mul_size(rooms, chains->window_values, &values)) {
        return espl_fail(err, ESPL_E_NOMEM,
                         "hidden states of %" PRIu64 " windows do not fit in memory",
                         chains->windows->count);
    }
    const enum espl_status status = espl_hidden_states_create(
        espl_ctx_store(chains->ctx),
        espl_artifact_content_sha256(espl_ctx_input(chains->ctx, "model")), values,
        ESPL_HIDDEN_IN_MEMORY, &chains->room, err);
    if (status == ESPL_OK) {
        chains->hidden[0] = chains->room.data;
        chains->hidden[1] = chains->hidden[0] + chains->counts[0] * chains->window_values;
        chains->spare = chains->hidden[1] + chains->counts[1] * chains->window_values;
    }
    return status;
}

static enum espl_status embed(struct espl_chains *chains, unsigned chain, struct espl_error *err)
{
    const uint64_t windows = chains->counts[chain];
    for (uint64_t window = 0; window < windows; window += chains->batch) {
        const size_t count = batch_at(chains, window, windows);
        const enum espl_status status = espl_forward_embed(
            chains->forward, chains->windows->ids + window * chains->windows->tokens, count,
            chains->hidden[chain] + window * chains->window_values, err);
        if (status != ESPL_OK) {
            return espl_context(err, "while embedding calibration windows %" PRIu64 " to %" PRIu64,
                                window, window + count - 1);
        }
    }
    return ESPL_OK;
}

enum espl_status espl_chains_open(struct espl_stage_ctx *ctx, struct espl_model *model,
                                  struct espl_backend *backend,
                                  const struct espl_calibration_windows *windows,
                                  const uint64_t counts[ESPL_CHAINS], struct espl_chains *chains,
                                  struct espl_error *err)
{
    memset(chains, 0, sizeof *chains);
    chains->ctx = ctx;
    chains->windows = windows;
    chains->backend = backend;
    chains->batch = espl_chains_batch(windows->count, windows->tokens);
    chains->hidden_width = (size_t)espl_model_get_config(model)->hidden;
    chains->window_values = windows->tokens * chains->hidden_width;
    memcpy(chains->counts, counts, sizeof chains->counts);
    enum espl_status status = make_room(chains, err);
    if (status == ESPL_OK) {
        status = espl_forward_create(model, backend, chains->batch, windows->tokens,
                                     &chains->forward, err);
    }
    for (unsigned chain = 0; status == ESPL_OK && chain < ESPL_CHAINS; chain++) {
        status = embed(chains, chain, err);
    }
    return status;
}

void espl_chains_close(struct espl_chains *chains)
{
    espl_forward_destroy(chains->forward);
    espl_hidden_states_destroy(&chains->room);
    memset(chains, 0, sizeof *chains);
}

static enum espl_status run_batch(struct espl_chains *chains, struct espl_block *block,
                                  uint64_t window, size_t count, float *hidden,
                                  espl_linear_input_fn observe, void *user, struct espl_error *err)
{
    if (espl_ctx_cancelled(chains->ctx)) {
        return espl_ctx_stop(chains->ctx, err);
    }
    chains->first_window = window;
    const enum espl_status status =
        espl_forward_block(chains->forward, block, count, hidden, observe, user, err);
    return status == ESPL_OK ? ESPL_OK
                             : espl_context(err, "in calibration windows %" PRIu64 " to %" PRIu64,
                                            window, window + count - 1);
}

enum espl_status espl_chains_advance(struct espl_chains *chains, unsigned chain,
                                     struct espl_block *block, uint64_t windows,
                                     espl_linear_input_fn observe, void *user,
                                     struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (uint64_t window = 0; window < windows && status == ESPL_OK; window += chains->batch) {
        status =
            run_batch(chains, block, window, batch_at(chains, window, windows),
                      chains->hidden[chain] + window * chains->window_values, observe, user, err);
    }
    return status;
}

enum espl_status espl_chains_peek(struct espl_chains *chains, unsigned chain,
                                  struct espl_block *block, uint64_t windows,
                                  espl_linear_input_fn observe, void *user, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (uint64_t window = 0; window < windows && status == ESPL_OK; window += chains->batch) {
        const size_t count = batch_at(chains, window, windows);
        memcpy(chains->spare, chains->hidden[chain] + window * chains->window_values,
               count * chains->window_values * sizeof *chains->spare);
        status = run_batch(chains, block, window, count, chains->spare, observe, user, err);
    }
    return status;
}

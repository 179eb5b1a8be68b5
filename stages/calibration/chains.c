#include "stages/calibration/chains.h"

#include "core/checked.h"
#include "stages/calibration/distance.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_TOKENS = 4096 };

uint64_t espl_check_windows(uint64_t count)
{
    return count < ESPL_CHECK_WINDOWS ? count : ESPL_CHECK_WINDOWS;
}

/* Windows that go through a block together: a power of two up to 8, so that the check windows are
 * always whole batches, and about 4096 tokens. */
static size_t batch_of(uint64_t windows, size_t tokens)
{
    size_t batch = ESPL_CHECK_WINDOWS;
    while (batch > 1 && (batch * tokens > BATCH_TOKENS || batch > windows)) {
        batch /= 2;
    }
    return batch;
}

static size_t peeked_windows(const struct espl_chain_counts *counts, size_t batch)
{
    return counts->peeked > 0 ? (size_t)counts->peeked : batch;
}

/* Values of all hidden states; false on overflow. */
static bool count_values(const struct espl_chain_counts *counts, size_t batch, size_t window_values,
                         size_t *values)
{
    size_t rooms = 0;
    return espl_add_size((size_t)counts->chain[0], (size_t)counts->chain[1], &rooms) &&
           espl_add_size(rooms, peeked_windows(counts, batch), &rooms) &&
           espl_mul_size(rooms, window_values, values);
}

void espl_chains_estimate(const struct espl_model_config *config,
                          const struct espl_calibration_info *info,
                          const struct espl_chain_counts *counts, struct espl_estimate *est)
{
    const size_t tokens = (size_t)info->tokens;
    const size_t batch = batch_of(info->windows, tokens);
    size_t window_values = 0;
    size_t values = 0;
    est->host_bytes +=
        espl_forward_bytes(config, batch, tokens) + info->windows * info->tokens * sizeof(int32_t);
    if (!espl_mul_size(tokens, (size_t)config->hidden, &window_values) ||
        !count_values(counts, batch, window_values, &values)) {
        return; /* the run says that it cannot be */
    }
    const uint64_t bytes = (uint64_t)values * sizeof(float);
    if (bytes <= ESPL_HIDDEN_IN_MEMORY) {
        est->host_bytes += bytes;
        return;
    }
    const size_t len = strlen(est->note);
    est->scratch_bytes += bytes;
    (void)snprintf(est->note + len, sizeof est->note - len, "; hidden states in a mapped file");
}

static size_t batch_at(const struct espl_chains *chains, uint64_t window, uint64_t windows)
{
    const uint64_t left = windows - window;
    return left < chains->batch ? (size_t)left : chains->batch;
}

static enum espl_status make_room(struct espl_chains *chains, struct espl_error *err)
{
    size_t values = 0;
    if (!count_values(&chains->counts, chains->batch, chains->window_values, &values)) {
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
        chains->hidden[1] = chains->hidden[0] + chains->counts.chain[0] * chains->window_values;
        chains->peeked = chains->hidden[1] + chains->counts.chain[1] * chains->window_values;
    }
    return status;
}

static enum espl_status embed(struct espl_chains *chains, unsigned chain, struct espl_error *err)
{
    const uint64_t windows = chains->counts.chain[chain];
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
                                  const struct espl_chain_counts *counts,
                                  struct espl_chains *chains, struct espl_error *err)
{
    memset(chains, 0, sizeof *chains);
    chains->ctx = ctx;
    chains->model = model;
    chains->windows = windows;
    chains->backend = backend;
    chains->batch = batch_of(windows->count, windows->tokens);
    chains->hidden_width = (size_t)espl_model_get_config(model)->hidden;
    chains->window_values = windows->tokens * chains->hidden_width;
    chains->counts = *counts;
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
                                  struct espl_block *block, espl_linear_input_fn observe,
                                  void *user, struct espl_error *err)
{
    const uint64_t windows = chains->counts.chain[chain];
    enum espl_status status = ESPL_OK;
    for (uint64_t window = 0; window < windows && status == ESPL_OK; window += chains->batch) {
        const size_t count = batch_at(chains, window, windows);
        const size_t at = (size_t)window * chains->window_values;
        float *peeked = chains->peeked + (chains->counts.peeked > 0 ? at : 0);
        memcpy(peeked, chains->hidden[chain] + at, count * chains->window_values * sizeof *peeked);
        status = run_batch(chains, block, window, count, peeked, observe, user, err);
    }
    return status;
}

void espl_chains_take_peeked(struct espl_chains *chains, unsigned chain)
{
    float *swap = chains->hidden[chain];
    chains->hidden[chain] = chains->peeked;
    chains->peeked = swap;
}

double espl_chains_distance_from_peeked(const struct espl_chains *chains, unsigned chain)
{
    struct espl_distance distance = {0.0, 0.0};
    espl_distance_add(&distance, chains->hidden[chain], chains->peeked,
                      (size_t)chains->counts.peeked * chains->window_values);
    return espl_distance_value(&distance);
}

double espl_chains_distance(const struct espl_chains *chains)
{
    struct espl_distance distance = {0.0, 0.0};
    espl_distance_add(&distance, chains->hidden[1], chains->hidden[0],
                      (size_t)espl_check_windows(chains->windows->count) * chains->window_values);
    return espl_distance_value(&distance);
}

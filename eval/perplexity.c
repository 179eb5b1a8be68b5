/* Perplexity and KL divergence of a model over windows of tokens.
 *
 * Order of work: a chunk of windows goes through the model block by block, so that each block's
 * weights are read once per chunk; the chunk is as large as a fixed budget for hidden states
 * allows. Then the logits are formed tile by tile and turned into losses at once. */
#include "eval/perplexity.h"

#include "core/checked.h"
#include "core/log.h"
#include "eval/forward_internal.h"

#include <math.h>
#include <stdlib.h>

/* Hidden states of all models of a chunk. */
static const uint64_t chunk_budget_bytes = UINT64_C(512) << 20;
/* Activations of the windows that pass through a block together: about what last-level caches hold.
 */
static const uint64_t batch_budget_bytes = UINT64_C(16) << 20;
/* Logits of one model that exist at a time, but at least so many rows. */
static const uint64_t logits_budget_bytes = UINT64_C(8) << 20;
enum { SMALLEST_TILE = 64 };

/* How the work is cut; depends on shapes alone. */
struct cutting {
    size_t chunk_windows;
    size_t batch_windows;
    size_t tile_rows;
};

/* Bytes that a block touches for one position. */
static uint64_t activation_bytes(const struct espl_model_config *config)
{
    struct espl_forward_widths widths;
    espl_forward_get_widths(config, &widths);
    return (2 * (uint64_t)widths.hidden + widths.work) * sizeof(float);
}

static struct cutting cut_work(const struct espl_model_config *config,
                               const struct espl_model_config *base, uint64_t windows,
                               size_t tokens)
{
    struct cutting cutting;
    const uint64_t hidden = config->hidden + (base != NULL ? base->hidden : 0);
    uint64_t chunk = chunk_budget_bytes / (hidden * tokens * sizeof(float));
    chunk = chunk < 1 ? 1 : chunk;
    cutting.chunk_windows = (size_t)(chunk < windows ? chunk : windows);
    uint64_t batch = batch_budget_bytes / (tokens * activation_bytes(config));
    if (base != NULL && activation_bytes(base) > activation_bytes(config)) {
        batch = batch_budget_bytes / (tokens * activation_bytes(base));
    }
    batch = batch < 1 ? 1 : batch;
    cutting.batch_windows = batch < cutting.chunk_windows ? (size_t)batch : cutting.chunk_windows;
    const uint64_t rows = logits_budget_bytes / (config->vocab * sizeof(float));
    cutting.tile_rows = rows < SMALLEST_TILE ? SMALLEST_TILE : (size_t)rows;
    return cutting;
}

/* Reports progress in windows while the work goes block by block. */
struct progress {
    espl_window_progress_fn report;
    void *user;
    uint64_t windows;
    uint64_t steps_done;
    uint64_t steps; /* window-layers of all models; scoring counts as one more layer */
};

static enum espl_status advance(struct progress *progress, uint64_t steps, struct espl_error *err)
{
    progress->steps_done += steps;
    if (progress->report == NULL) {
        return ESPL_OK;
    }
    const double share = (double)progress->steps_done / (double)progress->steps;
    const uint64_t done = progress->steps_done == progress->steps
                              ? progress->windows
                              : (uint64_t)(share * (double)progress->windows);
    if (!progress->report(progress->user, done, progress->windows)) {
        return espl_fail(err, ESPL_E_CANCELLED, "evaluation stopped after %llu of %llu windows",
                         (unsigned long long)done, (unsigned long long)progress->windows);
    }
    return ESPL_OK;
}

/* One model of the comparison. */
struct side {
    const char *name; /* for messages: "model" or "base model" */
    struct espl_model *model;
    struct espl_forward *forward;
    struct espl_block *block;
    float *hidden;  /* (chunk_windows * tokens, hidden) */
    float *logits;  /* (tile_rows, vocab) */
    double *nll;    /* (tile_rows) */
    double nll_sum; /* over windows, of the mean NLL of a window */
};

/* The whole measurement. */
struct measurement {
    struct espl_backend *backend;
    const struct espl_ops *ops;
    const int32_t *ids;
    size_t tokens;
    uint64_t windows;
    struct cutting cutting;
    struct progress progress;
    struct side sides[2]; /* the model, the base */
    size_t side_count;
    int32_t *targets; /* (tile_rows) */
    double *kl;       /* (tile_rows); NULL without a base */
    double kl_sum;
    double loss_seconds;
};

static enum espl_status open_side(struct measurement *run, struct side *side,
                                  struct espl_error *err)
{
    const struct espl_model_config *config = espl_model_get_config(side->model);
    const struct cutting *cutting = &run->cutting;
    struct espl_forward *forward = NULL;
    const enum espl_status status = espl_forward_create(
        side->model, run->backend, cutting->batch_windows, run->tokens, &forward, err);
    side->forward = forward;
    if (status != ESPL_OK) {
        return status;
    }
    side->hidden = espl_eval_allocate(cutting->chunk_windows * run->tokens, (size_t)config->hidden,
                                      sizeof *side->hidden);
    side->logits =
        espl_eval_allocate(cutting->tile_rows, (size_t)config->vocab, sizeof *side->logits);
    side->nll = espl_eval_allocate(cutting->tile_rows, 1, sizeof *side->nll);
    if (side->hidden == NULL || side->logits == NULL || side->nll == NULL) {
        return espl_fail(err, ESPL_E_NOMEM,
                         "out of memory for the hidden states of %zu windows of %zu tokens",
                         cutting->chunk_windows, run->tokens);
    }
    return ESPL_OK;
}

static void close_measurement(struct measurement *run)
{
    for (size_t s = 0; s < run->side_count; s++) {
        espl_block_destroy(run->sides[s].block);
        espl_forward_destroy(run->sides[s].forward);
        free(run->sides[s].hidden);
        free(run->sides[s].logits);
        free(run->sides[s].nll);
    }
    free(run->targets);
    free(run->kl);
}

/* Stops at the first hidden state that is not finite, naming the place. */
static enum espl_status check_hidden(const struct measurement *run, const struct side *side,
                                     uint64_t layer, uint64_t first_window, size_t windows,
                                     const float *hidden, struct espl_error *err)
{
    const size_t window_values = run->tokens * (size_t)espl_model_get_config(side->model)->hidden;
    size_t index = 0;
    const enum espl_status status =
        run->ops->find_nonfinite(run->backend, windows * window_values, hidden, &index, err);
    if (status != ESPL_OK || index == windows * window_values) {
        return status;
    }
    const uint64_t window = first_window + index / window_values;
    espl_fail(err, ESPL_E_NUMERIC,
              "hidden states of the %s are not finite after layer %llu, first in window %llu",
              side->name, (unsigned long long)layer, (unsigned long long)window);
    return espl_hint(err, "the weights of this layer are damaged or overflow float32; check them "
                          "with `espalier inspect --stats`");
}

/* Takes windows [first, first + count) through all blocks of one model. */
static enum espl_status run_blocks(struct measurement *run, struct side *side, uint64_t first,
                                   size_t count, struct espl_error *err)
{
    const struct espl_model_config *config = espl_model_get_config(side->model);
    const size_t window_values = run->tokens * (size_t)config->hidden;
    const size_t batch = run->cutting.batch_windows;
    enum espl_status status = ESPL_OK;
    for (size_t w = 0; status == ESPL_OK && w < count; w += batch) {
        const size_t windows = count - w < batch ? count - w : batch;
        status = espl_forward_embed(side->forward, run->ids + (first + w) * run->tokens, windows,
                                    side->hidden + w * window_values, err);
        if (status != ESPL_OK) {
            espl_context(err, "embedding %zu windows from window %llu on", windows,
                         (unsigned long long)first + w);
        }
    }
    for (uint64_t layer = 0; status == ESPL_OK && layer < config->layers; layer++) {
        struct espl_block *block = side->block;
        status = espl_block_load(side->forward, layer, &block, err);
        side->block = block;
        for (size_t w = 0; status == ESPL_OK && w < count; w += batch) {
            const size_t windows = count - w < batch ? count - w : batch;
            float *hidden = side->hidden + w * window_values;
            status =
                espl_forward_block(side->forward, side->block, windows, hidden, NULL, NULL, err);
            if (status == ESPL_OK) {
                status = check_hidden(run, side, layer, first + w, windows, hidden, err);
            }
            if (status == ESPL_OK) {
                status = advance(&run->progress, windows, err);
            }
        }
    }
    return status;
}

/* Adds the losses of rows [row, row + rows) of the chunk. */
static enum espl_status score_tile(struct measurement *run, uint64_t first_window, size_t row,
                                   size_t rows, struct espl_error *err)
{
    const size_t tokens = run->tokens;
    const size_t vocab = (size_t)espl_model_get_config(run->sides[0].model)->vocab;
    const int32_t *ids = run->ids + first_window * tokens + row;
    enum espl_status status = ESPL_OK;
    for (size_t r = 0; r < rows; r++) {
        run->targets[r] = (row + r) % tokens + 1 < tokens ? ids[r + 1] : -1;
    }
    for (size_t s = 0; status == ESPL_OK && s < run->side_count; s++) {
        struct side *side = &run->sides[s];
        const size_t width = (size_t)espl_model_get_config(side->model)->hidden;
        status =
            espl_forward_logits(side->forward, side->hidden + row * width, rows, side->logits, err);
        const double start = espl_clock_monotonic();
        if (status == ESPL_OK) {
            status = run->ops->cross_entropy(run->backend, rows, vocab, side->logits, run->targets,
                                             side->nll, err);
        }
        for (size_t r = 0; status == ESPL_OK && r < rows; r++) {
            if (!isfinite(side->nll[r])) {
                return espl_fail(err, ESPL_E_NUMERIC,
                                 "logits of the %s are not finite in window %llu, position %zu",
                                 side->name, (unsigned long long)first_window + (row + r) / tokens,
                                 (row + r) % tokens);
            }
            side->nll_sum += side->nll[r] / (double)(tokens - 1);
        }
        run->loss_seconds += espl_clock_monotonic() - start;
    }
    if (status == ESPL_OK && run->kl != NULL) {
        const double start = espl_clock_monotonic();
        status = run->ops->kl_divergence(run->backend, rows, vocab, run->sides[1].logits,
                                         run->sides[0].logits, run->kl, err);
        for (size_t r = 0; status == ESPL_OK && r < rows; r++) {
            run->kl_sum += run->targets[r] < 0 ? 0.0 : run->kl[r] / (double)(tokens - 1);
        }
        run->loss_seconds += espl_clock_monotonic() - start;
    }
    return status;
}

static enum espl_status run_chunk(struct measurement *run, uint64_t first, size_t windows,
                                  struct espl_error *err)
{
    const size_t rows = windows * run->tokens;
    enum espl_status status = ESPL_OK;
    for (size_t s = 0; status == ESPL_OK && s < run->side_count; s++) {
        status = run_blocks(run, &run->sides[s], first, windows, err);
    }
    size_t scored = 0; /* windows reported */
    for (size_t row = 0; status == ESPL_OK && row < rows; row += run->cutting.tile_rows) {
        const size_t left = rows - row;
        const size_t count = left < run->cutting.tile_rows ? left : run->cutting.tile_rows;
        status = score_tile(run, first, row, count, err);
        if (status == ESPL_OK) {
            const size_t whole = (row + count) / run->tokens;
            status = advance(&run->progress, (whole - scored) * run->side_count, err);
            scored = whole;
        }
    }
    return status;
}

static enum espl_status check_request(const struct espl_model_config *config,
                                      const struct espl_model_config *base, uint64_t windows,
                                      size_t tokens, struct espl_error *err)
{
    size_t count = 0;
    if (windows == 0 || windows > SIZE_MAX || !espl_mul_size((size_t)windows, tokens, &count)) {
        espl_fail(err, ESPL_E_KIND, "cannot evaluate %llu windows of %zu tokens",
                  (unsigned long long)windows, tokens);
        return ESPL_E_KIND;
    }
    if (tokens < 2) {
        espl_fail(err, ESPL_E_KIND,
                  "a window of %zu tokens has no token to predict: at least 2 are needed", tokens);
        return ESPL_E_KIND;
    }
    if (base != NULL && base->vocab != config->vocab) {
        return espl_fail(err, ESPL_E_KIND,
                         "the base model has a vocabulary of %llu, the model one of %llu",
                         (unsigned long long)base->vocab, (unsigned long long)config->vocab);
    }
    return ESPL_OK;
}

static void add_times(struct espl_forward_times *sum, const struct espl_forward_times *times)
{
    sum->load += times->load;
    sum->embed += times->embed;
    sum->gemm += times->gemm;
    sum->attention += times->attention;
    sum->norm += times->norm;
    sum->elementwise += times->elementwise;
    sum->head += times->head;
}

static void fill_result(const struct measurement *run, double seconds, struct espl_perplexity *out)
{
    const double windows = (double)run->windows;
    *out = (struct espl_perplexity){0};
    out->mean_nll = run->sides[0].nll_sum / windows;
    out->perplexity = exp(out->mean_nll);
    if (run->side_count == 2) {
        out->kl = run->kl_sum / windows;
        out->perplexity_base = exp(run->sides[1].nll_sum / windows);
    }
    out->windows = run->windows;
    out->tokens = run->windows * run->tokens;
    out->seconds = seconds;
    for (size_t s = 0; s < run->side_count; s++) {
        const struct side *side = &run->sides[s];
        out->flop += windows * espl_forward_flop(espl_model_get_config(side->model), run->tokens);
        add_times(&out->times, espl_forward_get_times(side->forward));
    }
    out->loss_seconds = run->loss_seconds;
}

enum espl_status espl_perplexity_measure(struct espl_model *model, struct espl_model *base,
                                         struct espl_backend *backend, const int32_t *ids,
                                         uint64_t windows, size_t tokens,
                                         espl_window_progress_fn progress, void *user,
                                         struct espl_perplexity *out, struct espl_error *err)
{
    const double start = espl_clock_monotonic();
    const struct espl_model_config *config = espl_model_get_config(model);
    const struct espl_model_config *base_config = base != NULL ? espl_model_get_config(base) : NULL;
    enum espl_status status = check_request(config, base_config, windows, tokens, err);
    if (status != ESPL_OK) {
        return status;
    }
    struct measurement run = {
        .backend = backend,
        .ops = espl_backend_ops(backend),
        .ids = ids,
        .tokens = tokens,
        .windows = windows,
        .cutting = cut_work(config, base_config, windows, tokens),
        .progress = {.report = progress, .user = user, .windows = windows},
        .sides = {{.name = "model", .model = model}, {.name = "base model", .model = base}},
        .side_count = base != NULL ? 2 : 1,
    };
    run.progress.steps = windows * (config->layers + 1);
    run.progress.steps += base_config != NULL ? windows * (base_config->layers + 1) : 0;
    run.targets = espl_eval_allocate(run.cutting.tile_rows, 1, sizeof *run.targets);
    run.kl = base != NULL ? espl_eval_allocate(run.cutting.tile_rows, 1, sizeof *run.kl) : NULL;
    if (run.targets == NULL || (base != NULL && run.kl == NULL)) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for the targets of a tile of logits");
    }
    for (size_t s = 0; status == ESPL_OK && s < run.side_count; s++) {
        status = open_side(&run, &run.sides[s], err);
    }
    for (uint64_t w = 0; status == ESPL_OK && w < windows; w += run.cutting.chunk_windows) {
        const uint64_t left = windows - w;
        status = run_chunk(
            &run, w, left < run.cutting.chunk_windows ? (size_t)left : run.cutting.chunk_windows,
            err);
    }
    if (status == ESPL_OK) {
        fill_result(&run, espl_clock_monotonic() - start, out);
    }
    close_measurement(&run);
    return status;
}

uint64_t espl_perplexity_bytes(const struct espl_model_config *config,
                               const struct espl_model_config *base, uint64_t windows,
                               size_t tokens)
{
    const struct cutting cutting = cut_work(config, base, windows, tokens);
    const struct espl_model_config *const sides[] = {config, base};
    uint64_t bytes = 0;
    for (size_t s = 0; s < 2; s++) {
        if (sides[s] == NULL) {
            continue;
        }
        bytes += espl_forward_bytes(sides[s], cutting.batch_windows, tokens);
        bytes += (uint64_t)cutting.chunk_windows * tokens * sides[s]->hidden * sizeof(float);
        bytes += (uint64_t)cutting.tile_rows * sides[s]->vocab * sizeof(float);
    }
    return bytes;
}

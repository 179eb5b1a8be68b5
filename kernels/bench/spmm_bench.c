/* The SpMM bench: times every form and baseline of a matrix. */
#include "kernels/bench/spmm_bench.h"

#include "espalier/cuda_memory.h"
#include "kernels/bench/spmm_baseline.h"
#include "kernels/bench/spmm_time.h"
#include "kernels/bench/spmm_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 5, SLOW_LAUNCHES = 3, SLOW_REPEATS = 3, COPY_BYTES_LOG2 = 31 };

void espl_spmm_device_text(const struct espl_cuda_info *info, char text[ESPL_SPMM_DEVICE_TEXT])
{
    const struct espl_cuda_device *device = &info->devices[0];
    (void)snprintf(text, ESPL_SPMM_DEVICE_TEXT, "%s, cc %u.%u, %u multiprocessors, driver %u.%u",
                   device->name, device->compute_major, device->compute_minor,
                   device->multiprocessors, info->driver_major, info->driver_minor);
}

enum espl_status espl_spmm_measure_ceiling(struct espl_spmm_ceiling *ceiling,
                                           struct espl_error *err)
{
    enum espl_status status =
        espl_cuda_copy_bandwidth((size_t)1 << COPY_BYTES_LOG2, &ceiling->copy_bytes_a_second, err);
    if (status == ESPL_OK) {
        status = espl_cuda_cache_bytes(&ceiling->cache_bytes, err);
    }
    return status;
}

/* ---- timing one subject ---- */

struct way {
    enum espl_spmm_mode mode;
    bool graph, warm, overlap;
};

static const struct way ways[] = {
    {ESPL_SPMM_GRAPH, true, false, false},  {ESPL_SPMM_EAGER, false, false, false},
    {ESPL_SPMM_WARM, true, true, false},    {ESPL_SPMM_EAGER_WARM, false, true, false},
    {ESPL_SPMM_OVERLAP, true, false, true},
};

static enum espl_status time_all(const struct espl_spmm_bench_options *options,
                                 const struct espl_cuda_subject *subject, size_t copies,
                                 bool can_overlap, bool slow, struct espl_spmm_result *result,
                                 struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    const size_t least = slow ? SLOW_LAUNCHES : options->launches;
    for (size_t i = 0; status == ESPL_OK && i < sizeof ways / sizeof ways[0]; i++) {
        const struct way *way = &ways[i];
        struct espl_cuda_timing_options timing = {.graph = way->graph,
                                                  .overlap = way->overlap,
                                                  .warm = way->warm,
                                                  .launches = copies > least ? copies : least,
                                                  .repeats = options->repeats};
        if (slow && timing.repeats > SLOW_REPEATS) {
            timing.repeats = SLOW_REPEATS;
        }
        if ((way->overlap && !can_overlap) || (!options->all_modes && i > 0)) {
            continue;
        }
        status = espl_cuda_time_launches(subject, &timing, &result->times[way->mode], err);
    }
    return status;
}

static void keep_reason(char why[ESPL_SPMM_PEER_TEXT], struct espl_error *err)
{
    (void)snprintf(why, ESPL_SPMM_PEER_TEXT, "%.*s", ESPL_SPMM_PEER_TEXT - 1, err->message);
    espl_error_clear(err);
}

/* ---- our forms ---- */

enum espl_status espl_spmm_launch(void *self, size_t copy, bool overlap, void *stream,
                                  struct espl_error *err)
{
    const struct espl_spmm_product *product = self;
    const struct espl_spmm_operands *operands = product->operands;
    const struct espl_cuda_matrix *weights = product->form->copies[copy % product->form->count];
    if (product->form->layer) {
        const struct espl_cuda_atom_operands layer = {operands->layer.codes, operands->y,
                                                      product->rows, product->tokens, NULL};
        return espl_cuda_atom_run(product->spmm, weights, &layer, overlap, stream, err);
    }
    const struct espl_cuda_spmm_operands codes = {operands->x, operands->y, product->rows,
                                                  product->tokens};
    return espl_cuda_spmm_run(product->spmm, weights, &codes, overlap, stream, err);
}

void espl_spmm_operands_free(struct espl_spmm_operands *operands)
{
    espl_cuda_free(operands->codes);
    espl_cuda_free(operands->x);
    espl_cuda_free(operands->y);
    espl_spmm_activations_free(&operands->layer);
}

enum espl_status espl_spmm_operands_make(struct espl_spmm_operands *operands, size_t rows,
                                         size_t cols, const struct espl_spmm_layer *layer,
                                         struct espl_error *err)
{
    const size_t tokens = ESPL_SPMM_MAX_TOKENS;
    int8_t *host = espl_baseline_activations(tokens * cols);
    enum espl_status status =
        host != NULL ? ESPL_OK : espl_fail(err, ESPL_E_NOMEM, "out of memory for activations");
    if (status == ESPL_OK) {
        status = espl_cuda_alloc(tokens * cols, &operands->codes, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_alloc(espl_cuda_activation_bytes(tokens, cols), &operands->x, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_alloc(tokens * rows * sizeof(int32_t), &operands->y, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_upload(operands->codes, host, tokens * cols, err);
    }
    if (status == ESPL_OK && layer != NULL) {
        status = espl_spmm_activations_make(layer, tokens, &operands->layer, err);
    }
    free(host);
    return status;
}

/* Stored measurements come before the rule. */
static enum espl_status create_product(const struct espl_spmm_bench_options *options,
                                       const struct espl_spmm_case *item,
                                       struct espl_spmm_product *product,
                                       struct espl_spmm_result *result, struct espl_error *err)
{
    const struct espl_spmm_stored *stored = espl_spmm_tuning_find(
        options->tuning, result->name, item->rows, item->cols, item->tokens, item->sparsity);
    struct espl_cuda_spmm_choice wanted = {.warps = 0};
    if (stored != NULL) {
        wanted = stored->choice;
    }
    wanted.instruction = options->instruction;
    wanted.pipeline = options->pipeline;
    const enum espl_status status =
        espl_cuda_spmm_create(product->form->copies[0], item->tokens, &wanted, &product->spmm, err);
    result->stored = stored != NULL;
    if (status != ESPL_OK) {
        if (stored != NULL) {
            espl_context(err, "using the stored choice for %s %zu x %zu, %zu tokens", result->name,
                         item->rows, item->cols, item->tokens);
        }
        return status;
    }
    result->choice = espl_cuda_spmm_chosen(product->spmm);
    result->expected =
        stored != NULL ? stored->seconds : espl_cuda_spmm_expected_seconds(product->spmm);
    return ESPL_OK;
}

/* x of a case, as the form reads it. */
static enum espl_status prepare_x(struct espl_spmm_operands *operands, bool layer,
                                  const struct espl_spmm_case *item, struct espl_error *err)
{
    return layer ? espl_spmm_activations_quantise(&operands->layer, item->tokens, err)
                 : espl_cuda_pack_activations(operands->codes, item->tokens, item->cols,
                                              operands->x, NULL, err);
}

static void start_result(const struct espl_spmm_form *form, struct espl_spmm_result *result)
{
    (void)snprintf(result->name, sizeof result->name, "%s%s", form->name,
                   form->layer ? ESPL_SPMM_LAYER_SUFFIX : "");
    result->kind = form->layer ? ESPL_SPMM_LAYER : ESPL_SPMM_CODES;
    result->ours = true;
    result->lossless = form->lossless;
    result->cold = form->cold;
    memcpy(result->why, form->why, sizeof result->why);
}

static enum espl_status time_form(const struct espl_spmm_bench_options *options,
                                  const struct espl_spmm_form *form,
                                  struct espl_spmm_operands *operands,
                                  const struct espl_spmm_case *item,
                                  struct espl_spmm_result *result, struct espl_error *err)
{
    struct espl_spmm_product product = {
        .form = form, .operands = operands, .rows = item->rows, .tokens = item->tokens};
    const struct espl_cuda_subject subject = {&product, espl_spmm_launch};
    start_result(form, result);
    if (form->count == 0) {
        return ESPL_OK; /* a layer that the kernels do not take */
    }
    result->bytes = espl_cuda_matrix_bytes(form->copies[0]);
    enum espl_status status = prepare_x(operands, form->layer, item, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = create_product(options, item, &product, result, err);
    if (status == ESPL_E_UNSUPPORTED && !result->stored) {
        keep_reason(result->why, err);
        return ESPL_OK;
    }
    if (status == ESPL_OK) {
        status = time_all(options, &subject, form->count, true, false, result, err);
        result->measured = status == ESPL_OK;
    }
    if (status == ESPL_OK && options->sweep) {
        status = espl_spmm_sweep(options, &product, item, result, err);
    }
    espl_cuda_spmm_destroy(product.spmm);
    return status;
}

static enum espl_status time_quantiser(const struct espl_spmm_bench_options *options,
                                       struct espl_spmm_operands *operands, size_t tokens,
                                       struct espl_spmm_result *result, struct espl_error *err)
{
    const struct espl_cuda_subject subject = {&operands->layer, espl_spmm_activations_launch};
    (void)snprintf(result->name, sizeof result->name, "%s", ESPL_SPMM_QUANTISER_NAME);
    result->kind = ESPL_SPMM_QUANTISER;
    result->ours = true;
    enum espl_status status = espl_spmm_activations_quantise(&operands->layer, tokens, err);
    if (status == ESPL_OK) {
        status = time_all(options, &subject, 1, false, false, result, err);
    }
    result->measured = status == ESPL_OK;
    if (status == ESPL_E_UNSUPPORTED) {
        keep_reason(result->why, err);
        return ESPL_OK;
    }
    return status;
}

/* ---- baselines ---- */

static void time_peer(const struct espl_spmm_bench_options *options,
                      const struct espl_spmm_peer *peer, const int8_t *codes, size_t cold_bytes,
                      const struct espl_spmm_case *item, struct espl_spmm_result *result)
{
    struct espl_error err;
    struct espl_baseline_subject self = {.peer = peer};
    const struct espl_cuda_subject subject = {&self, espl_baseline_launch};
    const struct espl_spmm_peer_problem problem = {item->rows, item->cols, item->tokens, codes,
                                                   cold_bytes};
    (void)snprintf(result->name, sizeof result->name, "%s", peer->name);
    if (peer->create(&problem, &self.self, result->why) != 0) {
        return;
    }
    result->bytes = peer->weight_bytes(self.self);
    const size_t copies = (size_t)(cold_bytes / (result->bytes > 0 ? result->bytes : 1)) + 1;
    result->cold = copies <= ESPL_BASELINE_MAX_COPIES;
    if (time_all(options, &subject, copies, false, peer->sparse != 0, result, &err) == ESPL_OK) {
        result->measured = true;
    } else {
        keep_reason(result->why, &err);
    }
    peer->destroy(self.self);
}

/* ---- one matrix ---- */

/* What stays while the sparsities of a shape change. */
struct shape_state {
    struct espl_spmm_form forms[ESPL_SPMM_MAX_FORMS];
    struct espl_spmm_form layers[ESPL_SPMM_MAX_FORMS]; /* the same ones with scales and outliers */
    struct espl_spmm_operands operands;
    /* Of the sparsity before, for subjects that do not depend on it. */
    struct espl_spmm_result known[ESPL_SPMM_MAX_TOKENS][ESPL_SPMM_MAX_RESULTS];
    bool is_known;
};

/* Adds what is known of the next result of a case, unless the codes change it. */
static bool take_known(const struct espl_spmm_result *known, bool changes,
                       struct espl_spmm_case *item)
{
    if (known == NULL || changes) {
        return false;
    }
    item->results[item->count] = known[item->count];
    item->count++;
    return true;
}

static enum espl_status bench_forms(const struct espl_spmm_bench_options *options,
                                    const struct espl_spmm_form *forms,
                                    struct espl_spmm_operands *operands,
                                    const struct espl_spmm_result *known,
                                    struct espl_spmm_case *item, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < options->form_count; i++) {
        if (!take_known(known, forms[i].sparse, item)) {
            status =
                time_form(options, &forms[i], operands, item, &item->results[item->count++], err);
        }
    }
    return status;
}

static enum espl_status bench_case(const struct espl_spmm_bench_options *options,
                                   const struct espl_spmm_weights *weights,
                                   struct shape_state *state, const struct espl_spmm_result *known,
                                   size_t cold_bytes, struct espl_spmm_case *item,
                                   struct espl_error *err)
{
    enum espl_status status =
        bench_forms(options, state->forms, &state->operands, known, item, err);
    if (status == ESPL_OK && weights->layer != NULL) {
        status = bench_forms(options, state->layers, &state->operands, known, item, err);
        if (status == ESPL_OK && !take_known(known, false, item)) {
            status = time_quantiser(options, &state->operands, item->tokens,
                                    &item->results[item->count++], err);
        }
    }
    for (size_t i = 0; status == ESPL_OK && i < options->peer_count; i++) {
        const struct espl_spmm_peer *peer = options->peers[i];
        if (!take_known(known, peer->sparse != 0, item)) {
            time_peer(options, peer, weights->codes, cold_bytes, item,
                      &item->results[item->count++]);
        }
    }
    espl_spmm_choose(item);
    return status;
}

/* A form that is not there yet. Layers that the kernels do not take stay empty and say why. */
static enum espl_status make_form(struct espl_spmm_form *form, const char *name, bool layer,
                                  const struct espl_spmm_weights *weights, size_t cold_bytes,
                                  struct espl_error *err)
{
    if (form->count > 0) {
        return ESPL_OK;
    }
    const enum espl_status status =
        espl_spmm_form_make(form, name, layer, weights, cold_bytes, err);
    if (layer && status == ESPL_E_UNSUPPORTED) {
        keep_reason(form->why, err);
        return ESPL_OK;
    }
    return status;
}

static enum espl_status make_forms(const struct espl_spmm_bench_options *options,
                                   const struct espl_spmm_weights *weights,
                                   struct shape_state *state, size_t cold_bytes,
                                   struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < options->form_count; i++) {
        status = make_form(&state->forms[i], options->forms[i], false, weights, cold_bytes, err);
        if (status == ESPL_OK && weights->layer != NULL) {
            status =
                make_form(&state->layers[i], options->forms[i], true, weights, cold_bytes, err);
        }
    }
    return status;
}

static enum espl_status bench_weights(const struct espl_spmm_bench_options *options,
                                      const struct espl_spmm_weights *weights,
                                      struct shape_state *state, size_t cold_bytes,
                                      const size_t *tokens, size_t token_count,
                                      espl_spmm_case_fn *done, void *self, struct espl_error *err)
{
    enum espl_status status = make_forms(options, weights, state, cold_bytes, err);
    for (size_t t = 0; status == ESPL_OK && t < token_count; t++) {
        struct espl_spmm_case item = {.rows = weights->rows,
                                      .cols = weights->cols,
                                      .tokens = tokens[t],
                                      .bits = weights->bits,
                                      .sparsity = weights->sparsity,
                                      .usual = ESPL_SPMM_GRAPH};
        status = bench_case(options, weights, state, state->is_known ? state->known[t] : NULL,
                            cold_bytes, &item, err);
        if (status == ESPL_OK) {
            memcpy(state->known[t], item.results, sizeof item.results);
            status = done(&item, self, err);
        }
    }
    for (size_t i = 0; i < options->form_count; i++) {
        if (state->forms[i].sparse) {
            espl_spmm_form_free(&state->forms[i]);
            espl_spmm_form_free(&state->layers[i]);
        }
    }
    state->is_known = true;
    return status;
}

static enum espl_status open_state(const struct espl_spmm_bench_options *options, size_t rows,
                                   size_t cols, const struct espl_spmm_layer *layer,
                                   size_t token_count, struct shape_state **out,
                                   struct espl_error *err)
{
    const size_t ours = layer != NULL ? 2 * options->form_count + 1 : options->form_count;
    if (token_count > ESPL_SPMM_MAX_TOKENS || ours + options->peer_count > ESPL_SPMM_MAX_RESULTS) {
        return espl_fail(err, ESPL_E_USAGE, "too many numbers of tokens, forms or baselines");
    }
    *out = calloc(1, sizeof **out);
    if (*out == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a bench");
    }
    return espl_spmm_operands_make(&(*out)->operands, rows, cols, layer, err);
}

static void close_state(struct shape_state *state)
{
    if (state == NULL) {
        return;
    }
    for (size_t i = 0; i < ESPL_SPMM_MAX_FORMS; i++) {
        espl_spmm_form_free(&state->forms[i]);
        espl_spmm_form_free(&state->layers[i]);
    }
    espl_spmm_operands_free(&state->operands);
    free(state);
}

enum espl_status espl_spmm_bench_matrix(const struct espl_spmm_bench_options *options,
                                        const struct espl_spmm_ceiling *ceiling,
                                        const struct espl_spmm_weights *weights,
                                        const size_t *tokens, size_t token_count,
                                        espl_spmm_case_fn *done, void *self, struct espl_error *err)
{
    struct shape_state *state = NULL;
    enum espl_status status =
        open_state(options, weights->rows, weights->cols, weights->layer, token_count, &state, err);
    if (status == ESPL_OK) {
        status =
            bench_weights(options, weights, state, ESPL_SPMM_COLD_FACTOR * ceiling->cache_bytes,
                          tokens, token_count, done, self, err);
    }
    close_state(state);
    return status;
}

enum espl_status espl_spmm_bench_shape(const struct espl_spmm_bench_options *options,
                                       const struct espl_spmm_ceiling *ceiling, size_t rows,
                                       size_t cols, const double *sparsities, size_t sparsity_count,
                                       const size_t *tokens, size_t token_count,
                                       espl_spmm_case_fn *done, void *self, struct espl_error *err)
{
    struct shape_state *state = NULL;
    struct espl_spmm_layer own = {.memory = NULL};
    const struct espl_spmm_layer *layer = options->atom ? &own : NULL;
    enum espl_status status = options->atom ? espl_spmm_layer_make(rows, cols, options->group,
                                                                   options->outliers, &own, err)
                                            : ESPL_OK;
    if (status == ESPL_OK) {
        status = open_state(options, rows, cols, layer, token_count, &state, err);
    }
    for (size_t s = 0; status == ESPL_OK && s < sparsity_count; s++) {
        int8_t *codes = NULL;
        status =
            espl_spmm_weights_codes(rows, cols, options->bits, sparsities[s], SEED, &codes, err);
        const struct espl_spmm_weights weights = {rows,          cols,  options->bits,
                                                  sparsities[s], codes, layer};
        if (status == ESPL_OK) {
            status = bench_weights(options, &weights, state,
                                   ESPL_SPMM_COLD_FACTOR * ceiling->cache_bytes, tokens,
                                   token_count, done, self, err);
        }
        free(codes);
    }
    close_state(state);
    espl_spmm_layer_free(&own);
    return status;
}

#include "stages/budget_search/budget_run.h"

#include "core/checked.h"
#include "stages/prune_common/prune_store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char state_path[] = "/state";

/* ---- opening ---- */

static enum espl_status open_record(struct espl_budget_run *run, struct espl_error *err)
{
    const char *text = espl_artifact_description(espl_ctx_input(run->ctx, "latency"));
    json_t *json = json_loads(text, 0, NULL);
    enum espl_status status = espl_latency_record_from_json(json, &run->record, err);
    json_decref(json);
    if (status == ESPL_OK) {
        status = espl_latency_record_fit(&run->record, err);
    }
    if (status != ESPL_OK) {
        espl_context(err, "reading input 'latency'");
    }
    return status;
}

static enum espl_status check_device(const struct espl_budget_run *run, struct espl_error *err)
{
    const char *here = espl_ctx_device_fingerprint(run->ctx);
    if (run->record.accepted || run->params->allow_foreign ||
        espl_latency_same_device(run->record.device, here)) {
        return ESPL_OK;
    }
    espl_fail(err, ESPL_E_MACHINE, "the latencies were measured on '%.100s', this is '%.100s'",
              run->record.device, here);
    espl_hint(err, "set 'allow_foreign: true' to search for that device");
    return espl_blame(err, "input:latency");
}

static enum espl_status check_vector(const struct espl_budget_run *run, struct espl_error *err)
{
    const size_t needed = run->record.vector;
    const size_t shared = run->supernet.facts.vector;
    if (shared % needed == 0) {
        return ESPL_OK;
    }
    if (run->params->allow_vector_mismatch) {
        espl_log(
            espl_ctx_log(run->ctx), ESPL_LOG_WARN,
            "the measured kernels need patterns shared by %zu channels, the supernet's are "
            "shared by %zu: the predicted speed-up is that of a kernel as fast without sharing",
            needed, shared);
        return ESPL_OK;
    }
    espl_fail(err, ESPL_E_KIND,
              "the measured kernels need patterns shared by %zu output channels, the supernet's "
              "are shared by %zu",
              needed, shared);
    espl_hint(err, "set 'vector: %zu' in nm-supernet, or 'allow_vector_mismatch: true'", needed);
    return espl_blame(err, "input:quality");
}

static enum espl_status check_inputs(const struct espl_budget_run *run, struct espl_error *err)
{
    enum espl_status status = check_device(run, err);
    if (status == ESPL_OK) {
        status = check_vector(run, err);
    }
    if (status == ESPL_OK) {
        status = espl_search_check_predictors(&run->record, run->params->constraint, err);
    }
    if (status == ESPL_E_NUMERIC && run->params->allow_unsafe_predictor) {
        espl_log(espl_ctx_log(run->ctx), ESPL_LOG_WARN, "searching all the same: %s", err->message);
        espl_error_clear(err);
        status = ESPL_OK;
    }
    if (status == ESPL_OK && !run->supernet.facts.trained) {
        espl_log(espl_ctx_log(run->ctx), ESPL_LOG_WARN,
                 "the supernet was not trained: accuracy is inherited from plain weights");
    }
    return status;
}

/* Are there as many pictures as were asked for, and do the held-out ones count as such? */
static enum espl_status check_pictures(const struct espl_budget_run *run, uint64_t count,
                                       uint64_t held_out, struct espl_error *err)
{
    const uint64_t pool = espl_budget_pool(run->params, count, run->own_holdout);
    if (pool > count) {
        espl_fail(err, ESPL_E_KIND, "%" PRIu64 " pictures are asked for, there are %" PRIu64, pool,
                  count);
        return espl_blame(err, "param:search_pictures");
    }
    if ((uint64_t)run->params->holdout_pictures > held_out) {
        espl_fail(err, ESPL_E_KIND,
                  "%" PRIu64 " held-out pictures are asked for, there are %" PRIu64,
                  (uint64_t)run->params->holdout_pictures, held_out);
        return espl_blame(err, "param:holdout_pictures");
    }
    if (run->own_holdout &&
        strcmp(espl_artifact_content_sha256(espl_ctx_input(run->ctx, "images")),
               espl_artifact_content_sha256(espl_ctx_input(run->ctx, "holdout"))) == 0) {
        espl_fail(err, ESPL_E_KIND,
                  "'holdout' is the same pictures as 'images': nothing is held out");
        espl_hint(err, "leave 'holdout' out, then half of 'images' is held out, or connect others");
        return espl_blame(err, "input:holdout");
    }
    return ESPL_OK;
}

static enum espl_status open_pictures(struct espl_budget_run *run, uint64_t seed,
                                      struct espl_error *err)
{
    const struct espl_model_config *config = espl_model_get_config(run->model);
    struct espl_artifact *images = espl_ctx_input(run->ctx, "images");
    struct espl_artifact *holdout = espl_ctx_input(run->ctx, "holdout");
    struct espl_image_set set;
    struct espl_image_set held;
    enum espl_status status = espl_image_set_open(images, &set, err);
    run->own_holdout = holdout != NULL;
    if (status == ESPL_OK && run->own_holdout) {
        status = espl_image_set_open(holdout, &held, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    const uint64_t pool = espl_budget_pool(run->params, set.count, run->own_holdout);
    const uint64_t rest = pool < set.count ? set.count - pool : 0;
    status = check_pictures(run, set.count, run->own_holdout ? held.count : rest, err);
    if (status == ESPL_OK) {
        status = espl_nm_pictures_open(images, config, pool, seed, &run->pictures, err);
    }
    if (status == ESPL_OK && run->own_holdout) {
        status = espl_nm_pictures_open(holdout, config, held.count, seed, &run->holdout, err);
    }
    return status;
}

/* An espl_search_score_fn. */
static enum espl_status score(void *user, uint64_t epoch, unsigned fidelity, size_t count,
                              const uint8_t *levels, double *scores, struct espl_error *err)
{
    struct espl_budget_run *run = user;
    const size_t layers = run->problem.space.layers;
    for (size_t i = 0; i < count; i++) {
        espl_search_problem_levels(&run->problem, levels + i * layers, run->n + i * layers);
    }
    return espl_nm_oracle_score(run->oracle, epoch, fidelity, count, run->n, scores, err);
}

static bool asked_to_stop(void *user)
{
    return espl_ctx_cancelled(user);
}

static enum espl_status make_search(struct espl_budget_run *run, uint64_t seed,
                                    struct espl_error *err)
{
    const size_t layers = run->supernet.layers.count;
    const size_t most = layers > ESPL_SEARCH_MAX_OFFSPRING ? layers : ESPL_SEARCH_MAX_OFFSPRING;
    const struct espl_budget budget = espl_budget_of(run->params);
    struct espl_search_options options;
    struct espl_nm_oracle_options oracle;
    size_t bytes = 0;
    enum espl_status status =
        espl_budget_options(run->params, seed, layers, &options, &oracle, err);
    if (status == ESPL_OK) {
        status = espl_search_problem_make(&run->record, &run->supernet.facts, &run->supernet.layers,
                                          &budget, &run->problem, err);
    }
    if (status == ESPL_OK) {
        status = espl_prune_open_backend(run->ctx, &run->backend, err);
    }
    if (status == ESPL_OK) {
        status = espl_nm_oracle_create(run->model, run->backend, &run->supernet, &run->pictures,
                                       &oracle, &run->oracle, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    espl_nm_oracle_set_stop(run->oracle, asked_to_stop, run->ctx);
    run->n = espl_mul_size(most + 1, layers, &bytes) ? malloc(bytes) : NULL;
    if (run->n == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for configurations of %zu layers", layers);
    }
    return espl_search_create(&run->problem.space, &options,
                              espl_search_strategies[run->params->strategy], score, run,
                              &run->search, err);
}

enum espl_status espl_budget_run_open(struct espl_stage_ctx *ctx,
                                      const struct espl_budget_params *params,
                                      struct espl_budget_run *run, struct espl_error *err)
{
    struct espl_artifact *model = espl_ctx_input(ctx, "model");
    struct espl_rng seeds = espl_ctx_rng(ctx, 0);
    const uint64_t seed = espl_rng_u64(&seeds);
    memset(run, 0, sizeof *run);
    run->ctx = ctx;
    run->params = params;
    enum espl_status status = espl_model_open(model, espl_ctx_store(ctx), &run->model, err);
    if (status == ESPL_OK) {
        status = espl_supernet_open(espl_ctx_input(ctx, "quality"),
                                    espl_artifact_content_sha256(model), &run->supernet, err);
    }
    if (status == ESPL_OK) {
        status = open_record(run, err);
    }
    if (status == ESPL_OK) {
        status = check_inputs(run, err);
    }
    if (status == ESPL_OK) {
        status = open_pictures(run, seed, err);
    }
    return status == ESPL_OK ? make_search(run, seed, err) : status;
}

void espl_budget_run_close(struct espl_budget_run *run)
{
    espl_search_destroy(run->search);
    espl_nm_oracle_destroy(run->oracle);
    espl_backend_close(run->backend);
    espl_search_problem_free(&run->problem);
    espl_nm_pictures_free(&run->pictures);
    espl_nm_pictures_free(&run->holdout);
    espl_latency_record_free(&run->record);
    espl_supernet_free(&run->supernet);
    espl_model_close(run->model);
    free(run->n);
}

/* ---- generations ---- */

static uint64_t most_generations(const struct espl_budget_run *run)
{
    struct espl_search_options options;
    struct espl_nm_oracle_options oracle;
    return espl_budget_options(run->params, 0, run->supernet.layers.count, &options, &oracle,
                               NULL) == ESPL_OK
               ? options.generations
               : 0;
}

/* Restores the last published generation, if there is one. */
static enum espl_status resume(struct espl_budget_run *run, struct espl_error *err)
{
    struct espl_artifact *unit = NULL;
    void *state = NULL;
    size_t len = 0;
    uint64_t last = most_generations(run) + 1; /* units are generations, 0 the first parent */
    while (last > 0 && !espl_ctx_unit_done(run->ctx, last - 1)) {
        last--;
    }
    run->resumed = last;
    if (last == 0) {
        return ESPL_OK;
    }
    enum espl_status status = espl_ctx_unit_open(run->ctx, last - 1, &unit, err);
    if (status == ESPL_OK) {
        status = espl_artifact_read(unit, state_path, (size_t)1 << 30, &state, &len, err);
    }
    if (status == ESPL_OK) {
        status = espl_search_restore(run->search, state, len, err);
    }
    free(state);
    espl_artifact_close(unit);
    if (status != ESPL_OK) {
        espl_context(err, "resuming after generation %" PRIu64, last - 1);
    }
    return status;
}

static enum espl_status publish(struct espl_budget_run *run, uint64_t generation,
                                struct espl_error *err)
{
    struct espl_artifact *unit = NULL;
    struct espl_buf state;
    espl_buf_init(&state, (size_t)1 << 30);
    enum espl_status status = espl_search_save(run->search, &state, err);
    if (status == ESPL_OK) {
        status = espl_ctx_unit_create(run->ctx, generation, &unit, err);
    }
    if (status == ESPL_OK) {
        const uint64_t shape[1] = {state.len};
        const struct espl_tensor_info info =
            espl_tensor_info_make(state_path, ESPL_DTYPE_U8, 1, shape);
        status = espl_artifact_write(unit, &info, state.data, err);
    }
    if (status == ESPL_OK) {
        status = espl_ctx_unit_publish(run->ctx, generation, &unit, err);
    }
    espl_artifact_abandon(unit);
    espl_buf_free(&state);
    return status;
}

enum espl_status espl_budget_run_search(struct espl_budget_run *run, struct espl_error *err)
{
    const uint64_t generations = most_generations(run);
    enum espl_status status = resume(run, err);
    for (uint64_t generation = run->resumed;
         status == ESPL_OK && !espl_search_finished(run->search); generation++) {
        espl_ctx_progress(run->ctx, generation, generations + 1, "generation");
        status = espl_search_step(run->search, err);
        if (status == ESPL_OK) {
            status = publish(run, generation, err);
        }
    }
    return status == ESPL_E_CANCELLED ? espl_ctx_stop(run->ctx, err) : status;
}

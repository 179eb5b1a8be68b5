/* Times of one decoder at the places of the grid, whichever device it runs on. */
#include "core/log.h"
#include "core/order.h"
#include "stages/deploy_bench/decode_run.h"

#include <stdlib.h>

enum { PROMPT_REPEATS = 3, OUTPUT_REPEATS = 3 };

enum espl_status espl_decode_measure_grid(struct espl_decode_bench *bench,
                                          enum espl_device_form runtime,
                                          espl_decode_cell_fn measure, void *self,
                                          struct espl_error *err)
{
    const struct espl_deploy_params *params = bench->params;
    const int64_t *sequences = params->sequences.items;
    const int64_t *prompts = params->prompt_tokens.items;
    const int64_t *outputs = params->output_tokens.items;
    const size_t prompt_count = params->prompt_tokens.count;
    const size_t output_count = params->output_tokens.count;
    const size_t places = params->sequences.count * prompt_count * output_count;
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < places; i++) {
        struct espl_decode_cell *cell = &bench->record.cells[bench->record.count];
        if (espl_ctx_cancelled(bench->ctx)) {
            return espl_ctx_stop(bench->ctx, err);
        }
        espl_ctx_progress(bench->ctx, bench->record.count++, bench->cells, "run");
        /* It may hold a place of a runtime that was left out. */
        *cell = (struct espl_decode_cell){
            .runtime = runtime,
            .sequences = (size_t)sequences[i / (prompt_count * output_count)],
            .prompt = (size_t)prompts[i / output_count % prompt_count],
            .output = (size_t)outputs[i % output_count]};
        status = measure(bench, self, cell, err);
        if (status == ESPL_OK) {
            espl_decode_cell_say(cell, bench->ctx);
        }
    }
    return status;
}

/* Prompts are random ids: what they say does not change what they cost. */
static int32_t *random_prompts(const struct espl_decode_bench *bench,
                               const struct espl_decode_cell *cell, struct espl_error *err)
{
    struct espl_rng rng = espl_rng_stream(0, "decode-prompts", 0);
    const uint64_t vocabulary = espl_model_get_config(bench->model)->vocab;
    const size_t count = cell->sequences * cell->prompt;
    int32_t *ids = malloc(count * sizeof *ids);
    if (ids == NULL) {
        espl_fail(err, ESPL_E_NOMEM, "out of memory for prompts");
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        ids[i] = (int32_t)espl_rng_below(&rng, vocabulary);
    }
    return ids;
}

static enum espl_status time_prompts(const struct espl_decode_runner *runner, const int32_t *ids,
                                     double *median, struct espl_error *err)
{
    double seconds[PROMPT_REPEATS];
    enum espl_status status = runner->read_prompt(runner->self, ids, err); /* warm-up */
    for (size_t i = 0; status == ESPL_OK && i < PROMPT_REPEATS; i++) {
        const double start = espl_clock_monotonic();
        status = runner->read_prompt(runner->self, ids, err);
        seconds[i] = espl_clock_monotonic() - start;
    }
    if (status == ESPL_OK) {
        qsort(seconds, PROMPT_REPEATS, sizeof *seconds, espl_compare_doubles);
        *median = seconds[PROMPT_REPEATS / 2];
    }
    return status;
}

/* Several outputs after the same prompt; every step counts. */
static enum espl_status time_outputs(const struct espl_decode_runner *runner, const int32_t *ids,
                                     struct espl_decode_cell *cell, struct espl_error *err)
{
    const size_t steps = cell->output - 1;
    const size_t count = OUTPUT_REPEATS * steps;
    double sum = 0.0;
    double *seconds = malloc(count * sizeof *seconds);
    enum espl_status status =
        seconds != NULL ? ESPL_OK : espl_fail(err, ESPL_E_NOMEM, "out of memory for times");
    for (size_t i = 0; status == ESPL_OK && i < OUTPUT_REPEATS; i++) {
        status = runner->read_prompt(runner->self, ids, err);
        if (status == ESPL_OK) {
            status = runner->decode(runner->self, steps, seconds + i * steps, err);
        }
    }
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        sum += seconds[i];
    }
    if (status == ESPL_OK) {
        qsort(seconds, count, sizeof *seconds, espl_compare_doubles);
        cell->step_median = seconds[count / 2];
        cell->step_p95 = seconds[count * 95 / 100];
        cell->tokens_per_second = (double)(cell->sequences * count) / sum;
    }
    free(seconds);
    return status;
}

enum espl_status espl_decode_measure_runner(struct espl_decode_bench *bench,
                                            const struct espl_decode_runner *runner,
                                            struct espl_decode_cell *cell, struct espl_error *err)
{
    int32_t *ids = random_prompts(bench, cell, err);
    enum espl_status status = ids != NULL ? ESPL_OK : ESPL_E_NOMEM;
    if (status == ESPL_OK) {
        status = time_prompts(runner, ids, &cell->first_token_seconds, err);
    }
    if (status == ESPL_OK) {
        status = time_outputs(runner, ids, cell, err);
    }
    if (status == ESPL_OK) {
        status = runner->time_step(runner->self, (size_t)bench->params->repeats, &cell->times, err);
    }
    if (status == ESPL_OK && bench->meter != NULL) {
        status = espl_decode_measure_energy(bench, runner, ids, cell, err);
    }
    cell->measured = status == ESPL_OK;
    free(ids);
    return status;
}

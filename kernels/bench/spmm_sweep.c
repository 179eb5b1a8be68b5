/* The exhaustive sweep: what the rule is measured against. */
#include "kernels/bench/spmm_choices.h"
#include "kernels/bench/spmm_time.h"

#include <stdlib.h>
#include <string.h>

enum { FINALISTS = 4, SHORT_REPEATS = 3 };

/* Choices by time of the first round, the fastest first. */
struct finalists {
    struct espl_cuda_spmm_choice choices[FINALISTS];
    double seconds[FINALISTS];
    size_t count;
};

static void enter(struct finalists *finalists, const struct espl_cuda_spmm_choice *choice,
                  double seconds)
{
    size_t at = finalists->count;
    while (at > 0 && finalists->seconds[at - 1] > seconds) {
        at--;
    }
    if (at == FINALISTS) {
        return;
    }
    finalists->count += finalists->count < FINALISTS ? 1 : 0;
    for (size_t i = finalists->count - 1; i > at; i--) {
        finalists->choices[i] = finalists->choices[i - 1];
        finalists->seconds[i] = finalists->seconds[i - 1];
    }
    finalists->choices[at] = *choice;
    finalists->seconds[at] = seconds;
}

/* *seconds <- the median, or 0 when the kernels refuse the choice. */
static enum espl_status time_choice(const struct espl_spmm_bench_options *options, size_t repeats,
                                    const struct espl_spmm_product *product, size_t tokens,
                                    const struct espl_cuda_spmm_choice *choice, double *seconds,
                                    struct espl_error *err)
{
    struct espl_spmm_product own = *product;
    struct espl_cuda_spmm_choice wanted = *choice;
    struct espl_cuda_time time = {0.0, 0.0};
    const size_t copies = product->form->count;
    const struct espl_cuda_timing_options timing = {
        .graph = true,
        .launches = copies > options->launches ? copies : options->launches,
        .repeats = repeats};
    const struct espl_cuda_subject subject = {&own, espl_spmm_launch};
    *seconds = 0.0;
    own.spmm = NULL;
    wanted.instruction = options->instruction;
    wanted.pipeline = options->pipeline;
    enum espl_status status =
        espl_cuda_spmm_create(product->form->copies[0], tokens, &wanted, &own.spmm, err);
    if (status == ESPL_E_UNSUPPORTED) {
        espl_error_clear(err);
        return ESPL_OK;
    }
    if (status == ESPL_OK) {
        status = espl_cuda_time_launches(&subject, &timing, &time, err);
    }
    espl_cuda_spmm_destroy(own.spmm);
    *seconds = time.median;
    return status;
}

static enum espl_status first_round(const struct espl_spmm_bench_options *options,
                                    const struct espl_spmm_product *product, size_t tokens,
                                    const struct espl_cuda_spmm_choice *choices, size_t count,
                                    struct finalists *finalists, size_t *tried,
                                    struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        double seconds = 0.0;
        status = time_choice(options, SHORT_REPEATS, product, tokens, &choices[i], &seconds, err);
        if (status == ESPL_OK && seconds > 0.0) {
            (*tried)++;
            enter(finalists, &choices[i], seconds);
        }
    }
    return status;
}

enum espl_status espl_spmm_sweep(const struct espl_spmm_bench_options *options,
                                 const struct espl_spmm_product *product,
                                 const struct espl_spmm_case *item, struct espl_spmm_result *result,
                                 struct espl_error *err)
{
    const struct espl_spmm_cut cut = {item->rows, item->cols, !product->form->sparse,
                                      options->multiprocessors};
    struct espl_spmm_sweep *sweep = &result->sweep;
    struct finalists finalists = {.count = 0};
    struct espl_cuda_spmm_choice *choices = calloc(ESPL_SPMM_MAX_CHOICES, sizeof *choices);
    if (choices == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a sweep");
    }
    const size_t count = espl_spmm_choices(&cut, choices, ESPL_SPMM_MAX_CHOICES);
    enum espl_status status =
        count > ESPL_SPMM_MAX_CHOICES
            ? espl_fail(err, ESPL_E_UNSUPPORTED, "a sweep of %zu choices is too long", count)
            : first_round(options, product, item->tokens, choices, count, &finalists, &sweep->tried,
                          err);
    free(choices);
    if (status == ESPL_OK) {
        status = time_choice(options, options->repeats, product, item->tokens, &result->choice,
                             &sweep->chosen_seconds, err);
    }
    sweep->choice = result->choice;
    sweep->seconds = sweep->chosen_seconds;
    for (size_t i = 0; status == ESPL_OK && i < finalists.count; i++) {
        double seconds = 0.0;
        status = time_choice(options, options->repeats, product, item->tokens,
                             &finalists.choices[i], &seconds, err);
        if (status == ESPL_OK && seconds < sweep->seconds) {
            sweep->seconds = seconds;
            sweep->choice = finalists.choices[i];
        }
    }
    return status;
}

#include "kernels/bench/spmm_cpu.h"

#include "core/order.h"
#include "kernels/bench/cases.h"
#include "kernels/bench/spmm_cpu_forms.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CACHE_UNKNOWN = 32 << 20, READ_FACTOR = 2, READ_MOST = 256 << 20, READ_REPEATS = 5 };

enum espl_status espl_spmm_cpu_ceiling(struct espl_backend *backend,
                                       struct espl_spmm_ceiling *ceiling, struct espl_error *err)
{
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    ceiling->cache_bytes = cache > 0 ? (size_t)cache : CACHE_UNKNOWN;
    const size_t wanted = READ_FACTOR * ceiling->cache_bytes;
    return espl_memory_read_rate(espl_backend_threads(backend),
                                 wanted < READ_MOST ? wanted : READ_MOST, READ_REPEATS,
                                 &ceiling->copy_bytes_a_second, err);
}

/* One product in one mode. */
struct subject {
    const struct espl_spmm_cpu_options *options;
    const struct espl_spmm_cpu_form *form;
    const struct espl_spmm_weights *weights;
    const struct espl_spmm_cpu_operands *operands;
    size_t tokens;
    bool warm;
};

/* Repeats after one that does not count, each of `launches` products. Cold ones go on through the
 * copies where the repeat before stopped. */
static enum espl_status time_mode(const struct subject *subject, struct espl_cuda_time *time,
                                  struct espl_error *err)
{
    double seconds[ESPL_CUDA_MAX_REPEATS];
    const struct espl_spmm_cpu_options *options = subject->options;
    const size_t repeats =
        options->repeats < ESPL_CUDA_MAX_REPEATS ? options->repeats : ESPL_CUDA_MAX_REPEATS;
    enum espl_status status = ESPL_OK;
    size_t copy = 0;
    for (size_t r = 0; status == ESPL_OK && r <= repeats; r++) {
        const double start = espl_backend_seconds(options->backend);
        for (size_t i = 0; status == ESPL_OK && i < options->launches; i++) {
            status = espl_spmm_cpu_product(options->backend, subject->form, subject->weights,
                                           subject->tokens, subject->operands, copy, err);
            copy += subject->warm ? 0 : 1;
        }
        if (r > 0) {
            seconds[r - 1] =
                (espl_backend_seconds(options->backend) - start) / (double)options->launches;
        }
    }
    if (status == ESPL_OK) {
        qsort(seconds, repeats, sizeof seconds[0], espl_compare_doubles);
        time->median = seconds[repeats / 2];
        time->p95 = seconds[repeats * 95 / 100];
    }
    return status;
}

static enum espl_status time_form(const struct espl_spmm_cpu_options *options,
                                  const struct espl_spmm_ceiling *ceiling,
                                  const struct espl_spmm_cpu_form *form,
                                  const struct espl_spmm_weights *weights,
                                  const struct espl_spmm_cpu_operands *operands, size_t tokens,
                                  struct espl_spmm_result *result, struct espl_error *err)
{
    struct subject subject = {options, form, weights, operands, tokens, false};
    (void)snprintf(result->name, sizeof result->name, "%s", form->name);
    result->ours = !form->sgemm;
    result->lossless = result->ours;
    result->cold = form->cold;
    result->bytes = form->bytes;
    result->expected = (double)form->bytes / ceiling->copy_bytes_a_second;
    enum espl_status status = time_mode(&subject, &result->times[ESPL_SPMM_EAGER], err);
    if (status == ESPL_OK) {
        subject.warm = true;
        status = time_mode(&subject, &result->times[ESPL_SPMM_EAGER_WARM], err);
    }
    result->measured = status == ESPL_OK;
    return status;
}

static enum espl_status time_cases(const struct espl_spmm_cpu_options *options,
                                   const struct espl_spmm_cpu_form *forms, size_t form_count,
                                   const struct espl_spmm_ceiling *ceiling,
                                   const struct espl_spmm_weights *weights,
                                   const struct espl_spmm_cpu_operands *operands,
                                   const size_t *tokens, size_t token_count,
                                   espl_spmm_case_fn *done, void *self, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t t = 0; status == ESPL_OK && t < token_count; t++) {
        struct espl_spmm_case item = {.rows = weights->rows,
                                      .cols = weights->cols,
                                      .tokens = tokens[t],
                                      .bits = weights->bits,
                                      .sparsity = weights->sparsity,
                                      .usual = ESPL_SPMM_EAGER};
        for (size_t i = 0; status == ESPL_OK && i < form_count; i++) {
            status = time_form(options, ceiling, &forms[i], weights, operands, tokens[t],
                               &item.results[item.count++], err);
        }
        if (status == ESPL_OK) {
            espl_spmm_choose(&item);
            status = done(&item, self, err);
        }
    }
    return status;
}

enum espl_status espl_spmm_cpu_matrix(const struct espl_spmm_cpu_options *options,
                                      const struct espl_spmm_ceiling *ceiling,
                                      const struct espl_spmm_weights *weights, const size_t *tokens,
                                      size_t token_count, espl_spmm_case_fn *done, void *self,
                                      struct espl_error *err)
{
    struct espl_spmm_cpu_form forms[ESPL_SPMM_MAX_FORMS + 1];
    struct espl_spmm_cpu_operands operands;
    const size_t cold_bytes = ESPL_SPMM_COLD_FACTOR * ceiling->cache_bytes;
    size_t count = 0;
    enum espl_status status =
        espl_spmm_cpu_operands_make(&operands, weights->rows, weights->cols, weights->bits, err);
    for (size_t i = 0; status == ESPL_OK && i < options->form_count + (options->sgemm ? 1 : 0);
         i++) {
        const char *name = i < options->form_count ? options->forms[i] : ESPL_SPMM_SGEMM;
        status =
            espl_spmm_cpu_form_make(&forms[i], name, weights, cold_bytes, options->most_bytes, err);
        count += status == ESPL_OK ? 1 : 0;
    }
    if (status == ESPL_OK) {
        status = time_cases(options, forms, count, ceiling, weights, &operands, tokens, token_count,
                            done, self, err);
    }
    for (size_t i = 0; i < count; i++) {
        espl_spmm_cpu_form_free(&forms[i]);
    }
    espl_spmm_cpu_operands_free(&operands);
    return status;
}

/* What a changed model costs in perplexity, on the first calibration windows. */
#include "stages/calibration/chains.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { LOGIT_VALUES = 1 << 24 /* logits of one piece of the head: 64 MiB */ };

/* Sum of the NLL of the targets of one window. */
static enum espl_status window_nll(struct espl_chains *chains, const float *hidden,
                                   const int32_t *ids, size_t vocab, size_t rows_per_piece,
                                   float *logits, double *nll, double *sum, struct espl_error *err)
{
    const size_t targets = chains->windows->tokens - 1;
    *sum = 0.0;
    for (size_t row = 0; row < targets; row += rows_per_piece) {
        const size_t rows = targets - row < rows_per_piece ? targets - row : rows_per_piece;
        enum espl_status status = espl_forward_logits(
            chains->forward, hidden + row * chains->hidden_width, rows, logits, err);
        if (status == ESPL_OK) {
            status =
                espl_backend_ops(chains->backend)
                    ->cross_entropy(chains->backend, rows, vocab, logits, ids + row + 1, nll, err);
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

enum espl_status espl_chains_perplexity(struct espl_chains *chains, unsigned chain,
                                        double *perplexity, struct espl_error *err)
{
    const size_t vocab = espl_forward_vocabulary(chains->forward);
    const size_t targets = chains->windows->tokens - 1;
    const uint64_t windows = espl_check_windows(chains->windows->count);
    size_t rows = LOGIT_VALUES / vocab;
    rows = rows < 1 ? 1 : rows;
    rows = rows < targets ? rows : targets;
    float *logits = malloc(rows * vocab * sizeof *logits);
    double *nll = malloc(rows * sizeof *nll);
    enum espl_status status = ESPL_OK;
    double total = 0.0;
    if (logits == NULL || nll == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for the logits of %zu tokens", rows);
        goto cleanup;
    }
    for (uint64_t window = 0; window < windows; window++) {
        double sum = 0.0;
        status = window_nll(chains, chains->hidden[chain] + window * chains->window_values,
                            chains->windows->ids + window * chains->windows->tokens, vocab, rows,
                            logits, nll, &sum, err);
        if (status != ESPL_OK) {
            espl_context(err, "while checking calibration window %" PRIu64, window);
            goto cleanup;
        }
        total += sum / (double)targets;
    }
    *perplexity = exp(total / (double)windows);

cleanup:
    free(logits);
    free(nll);
    return status;
}

enum espl_status espl_chains_check(struct espl_chains *chains, double most, const char *what,
                                   const char *where, struct espl_error *err)
{
    double base = 0.0;
    double changed = 0.0;
    enum espl_status status = espl_chains_perplexity(chains, 0, &base, err);
    if (status == ESPL_OK) {
        status = espl_chains_perplexity(chains, 1, &changed, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    const double ratio = changed / base;
    if (!isfinite(base) || !isfinite(changed)) {
        espl_fail(err, ESPL_E_NUMERIC,
                  "perplexity on the calibration windows is not finite: %g before, %g after %s",
                  base, changed, what);
        return espl_hint(err, "check the model: run 'evaluate' on the input of this stage");
    }
    if (most > 0.0 && ratio > most) {
        espl_fail(err, ESPL_E_NUMERIC,
                  "perplexity on %" PRIu64 " calibration windows rose from %.4g to %.4g by %s: "
                  "%.3g times, above max_perplexity_ratio %g",
                  espl_check_windows(chains->windows->count), base, changed, what, ratio, most);
        espl_hint(err, "%s; leave these blocks out with 'ignore', 'first_layer' or 'last_layer'",
                  where);
        return espl_blame(err, "param:max_perplexity_ratio");
    }
    status = espl_ctx_metric(chains->ctx, "check_perplexity_base", base, false, err);
    if (status == ESPL_OK) {
        status = espl_ctx_metric(chains->ctx, "check_perplexity", changed, false, err);
    }
    if (status == ESPL_OK) {
        status = espl_ctx_metric(chains->ctx, "check_perplexity_ratio", ratio, false, err);
    }
    return status;
}

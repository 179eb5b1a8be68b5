#include "stages/deploy_bench/bench_record.h"

#include "core/checked.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum espl_status espl_bench_record_add(struct espl_bench_record *record,
                                       const struct espl_spmm_case *item,
                                       const struct espl_bench_matrix *matrix,
                                       struct espl_error *err)
{
    enum { FIRST_ROOM = 64 };
    if (record->count == record->room) {
        size_t bytes = 0;
        const size_t room = record->room > 0 ? 2 * record->room : FIRST_ROOM;
        struct espl_bench_entry *entries =
            espl_mul_size(room, sizeof *entries, &bytes) ? realloc(record->entries, bytes) : NULL;
        if (entries == NULL) {
            return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu measured products", room);
        }
        record->entries = entries;
        record->room = room;
    }
    struct espl_bench_entry *entry = &record->entries[record->count++];
    entry->item = *item;
    entry->matrix = matrix != NULL ? *matrix : (struct espl_bench_matrix){.modules = 1};
    espl_spmm_summaries_add(&record->summaries, item, record->over_sparsities);
    return ESPL_OK;
}

void espl_bench_record_free(struct espl_bench_record *record)
{
    free(record->entries);
    record->entries = NULL;
    record->count = 0;
    record->room = 0;
}

size_t espl_bench_record_subjects(const struct espl_bench_record *record,
                                  const char *names[ESPL_SPMM_MAX_RESULTS])
{
    size_t count = 0;
    for (size_t e = 0; e < record->count; e++) {
        const struct espl_spmm_case *item = &record->entries[e].item;
        for (size_t i = 0; i < item->count; i++) {
            size_t at = 0;
            while (at < count && strcmp(names[at], item->results[i].name) != 0) {
                at++;
            }
            if (at == count && count < ESPL_SPMM_MAX_RESULTS) {
                names[count++] = item->results[i].name;
            }
        }
    }
    return count;
}

struct espl_bench_totals espl_bench_record_totals(const struct espl_bench_record *record,
                                                  size_t tokens)
{
    struct espl_bench_totals totals = {0.0, 0.0, 0.0, 0.0};
    for (size_t e = 0; e < record->count; e++) {
        const struct espl_spmm_case *item = &record->entries[e].item;
        const double modules = (double)record->entries[e].matrix.modules;
        if (item->tokens == tokens) {
            totals.seconds += modules * espl_spmm_seconds(item, item->chosen);
            totals.layer_seconds += modules * (item->chosen_layer < item->count
                                                   ? espl_spmm_seconds(item, item->chosen_layer)
                                                   : (double)NAN);
            totals.floor_seconds +=
                modules * espl_spmm_floor_seconds(item, record->ceiling.copy_bytes_a_second);
            totals.bytes += modules * (double)item->results[item->chosen].bytes;
        }
    }
    return totals;
}

bool espl_bench_record_of_model(const struct espl_bench_record *record)
{
    return record->count > 0 && record->entries[0].matrix.module[0] != '\0';
}

enum espl_spmm_kind espl_bench_record_kind(const struct espl_bench_record *record, const char *name)
{
    for (size_t e = 0; e < record->count; e++) {
        const struct espl_spmm_case *item = &record->entries[e].item;
        const size_t at = espl_spmm_find(item, name);
        if (at < item->count) {
            return item->results[at].kind;
        }
    }
    return ESPL_SPMM_CODES;
}

size_t espl_bench_record_missing(const struct espl_bench_record *record, const char *name,
                                 const char **why)
{
    size_t missing = 0;
    for (size_t e = 0; e < record->count; e++) {
        const struct espl_spmm_case *item = &record->entries[e].item;
        const size_t at = espl_spmm_find(item, name);
        if (at < item->count && !item->results[at].measured) {
            missing++;
            *why = item->results[at].why;
        }
    }
    return missing;
}

/* ---- figures ---- */

/* "512x3584 50 %", and where it stands in a model. */
static void describe(const struct espl_bench_entry *entry, const char *subject, char *text,
                     size_t size)
{
    const struct espl_spmm_case *item = &entry->item;
    (void)snprintf(text, size, "%s%s%zux%zu %.0f %%%s%s", subject, subject[0] != '\0' ? " " : "",
                   item->rows, item->cols, 100.0 * item->sparsity,
                   entry->matrix.module[0] != '\0' ? " " : "", entry->matrix.module);
}

/* What the paper compares with, and what bits alone are worth: other libraries, dense, 1x1. */
static bool is_baseline(const struct espl_spmm_result *result)
{
    return !result->ours || strcmp(result->name, "dense") == 0 || strcmp(result->name, "1x1") == 0;
}

static enum espl_status speedups(const struct espl_bench_entry *entry, espl_bench_figure_fn *take,
                                 void *user, struct espl_error *err)
{
    const struct espl_spmm_case *item = &entry->item;
    const double chosen = espl_spmm_seconds(item, item->chosen);
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < item->count; i++) {
        const struct espl_spmm_result *result = &item->results[i];
        const double speedup = espl_spmm_seconds(item, i) / chosen;
        char series[ESPL_SPMM_NAME + 16];
        char subject[ESPL_BENCH_MODULE + 64];
        if (!isfinite(speedup) || result->kind != ESPL_SPMM_CODES || !is_baseline(result)) {
            continue;
        }
        (void)snprintf(series, sizeof series, "speedup_over_%s", result->name);
        describe(entry, "", subject, sizeof subject);
        status = take(user, series, item->tokens, subject, speedup, err);
    }
    return status;
}

static enum espl_status roofline(const struct espl_bench_entry *entry, espl_bench_figure_fn *take,
                                 void *user, struct espl_error *err)
{
    const struct espl_spmm_case *item = &entry->item;
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < item->count; i++) {
        char subject[ESPL_BENCH_MODULE + 96];
        const double rate = espl_spmm_rate(item, i);
        if (!isfinite(rate) || item->results[i].kind == ESPL_SPMM_QUANTISER) {
            continue;
        }
        describe(entry, item->results[i].name, subject, sizeof subject);
        status = take(user, "roofline_intensity", item->tokens, subject,
                      espl_spmm_intensity(item, i), err);
        if (status == ESPL_OK) {
            status = take(user, "roofline_rate", item->tokens, subject, rate, err);
        }
    }
    return status;
}

enum espl_status espl_bench_record_figures(const struct espl_bench_record *record,
                                           espl_bench_figure_fn *take, void *user,
                                           struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t e = 0; status == ESPL_OK && e < record->count; e++) {
        status = speedups(&record->entries[e], take, user, err);
        if (status == ESPL_OK) {
            status = roofline(&record->entries[e], take, user, err);
        }
    }
    return status;
}

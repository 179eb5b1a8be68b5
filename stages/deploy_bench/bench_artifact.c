/* The datasets of a bench.spmm/1 artifact: columns over cases and over results. */
#include "stages/deploy_bench/bench_record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHOICE_MEMBERS = 5, TIMES = 2 };

/* Rows of results: all of case 0, then of case 1, ... */
static size_t result_count(const struct espl_bench_record *record)
{
    size_t count = 0;
    for (size_t e = 0; e < record->count; e++) {
        count += record->entries[e].item.count;
    }
    return count;
}

enum espl_status espl_bench_write_column(struct espl_artifact *artifact, const char *path,
                                         enum espl_dtype dtype, uint64_t rows, uint64_t width,
                                         uint64_t depth, const void *data, struct espl_error *err)
{
    const uint64_t shape[ESPL_MAX_RANK] = {rows, width, depth};
    const unsigned rank = depth > 0 ? 3 : width > 0 ? 2 : 1;
    const struct espl_tensor_info info = espl_tensor_info_make(path, dtype, rank, shape);
    return espl_artifact_write(artifact, &info, data, err);
}

/* ---- cases ---- */

enum case_column { ROWS, COLS, TOKENS, MODULES, CHOSEN, BEST, CASE_COLUMNS };
static const char *const case_paths[CASE_COLUMNS] = {"/cases/rows",   "/cases/cols",
                                                     "/cases/tokens", "/cases/modules",
                                                     "/cases/chosen", "/cases/best"};

static uint64_t case_value(const struct espl_bench_entry *entry, enum case_column column)
{
    const struct espl_spmm_case *item = &entry->item;
    const uint64_t values[CASE_COLUMNS] = {
        item->rows, item->cols, item->tokens, entry->matrix.modules, item->chosen, item->best};
    return values[column];
}

static enum espl_status write_cases(const struct espl_bench_record *record,
                                    struct espl_artifact *artifact, uint64_t *numbers,
                                    double *reals, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (int column = 0; status == ESPL_OK && column < CASE_COLUMNS; column++) {
        for (size_t e = 0; e < record->count; e++) {
            numbers[e] = case_value(&record->entries[e], (enum case_column)column);
        }
        status = espl_bench_write_column(artifact, case_paths[column], ESPL_DTYPE_U64,
                                         record->count, 0, 0, numbers, err);
    }
    for (size_t e = 0; e < record->count; e++) {
        reals[e] = record->entries[e].item.sparsity;
    }
    return status == ESPL_OK ? espl_bench_write_column(artifact, "/cases/sparsity", ESPL_DTYPE_F64,
                                                       record->count, 0, 0, reals, err)
                             : status;
}

/* ---- results ---- */

static uint64_t subject_index(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    return count; /* more subjects than a case may have: not one of the names */
}

/* Columns of one result, all kinds of numbers. */
struct columns {
    uint64_t *which;  /* case, subject */
    uint64_t *bytes;  /* of the weights */
    uint64_t *choice; /* CHOICE_MEMBERS */
    double *seconds;  /* modes x (median, p95) */
    double *expected;
};

static void fill_result(const struct espl_spmm_result *r, size_t row, struct columns *out)
{
    const struct espl_cuda_spmm_choice *c = &r->choice;
    const uint64_t choice[CHOICE_MEMBERS] = {c->warps, c->splits, c->window, c->stages, c->parts};
    memcpy(out->choice + row * CHOICE_MEMBERS, choice, sizeof choice);
    out->bytes[row] = r->bytes;
    out->expected[row] =
        r->measured && r->ours && r->kind != ESPL_SPMM_QUANTISER ? r->expected : (double)NAN;
    for (size_t mode = 0; mode < ESPL_SPMM_MODES; mode++) {
        const struct espl_cuda_time *time = &r->times[mode];
        double *to = out->seconds + (row * ESPL_SPMM_MODES + mode) * TIMES;
        to[0] = time->median > 0.0 ? time->median : (double)NAN;
        to[1] = time->median > 0.0 ? time->p95 : (double)NAN;
    }
}

static void fill_results(const struct espl_bench_record *record, struct columns *out)
{
    const char *names[ESPL_SPMM_MAX_RESULTS];
    const size_t count = espl_bench_record_subjects(record, names);
    size_t row = 0;
    for (size_t e = 0; e < record->count; e++) {
        const struct espl_spmm_case *item = &record->entries[e].item;
        for (size_t i = 0; i < item->count; i++, row++) {
            out->which[2 * row] = e;
            out->which[2 * row + 1] = subject_index(names, count, item->results[i].name);
            fill_result(&item->results[i], row, out);
        }
    }
}

static enum espl_status write_results(const struct espl_bench_record *record,
                                      struct espl_artifact *artifact, uint64_t *numbers,
                                      double *reals, struct espl_error *err)
{
    const size_t rows = result_count(record);
    struct columns columns = {.which = numbers,
                              .bytes = numbers + 2 * rows,
                              .choice = numbers + 3 * rows,
                              .seconds = reals,
                              .expected = reals + ESPL_SPMM_MODES * TIMES * rows};
    fill_results(record, &columns);
    enum espl_status status = espl_bench_write_column(artifact, "/results/subject", ESPL_DTYPE_U64,
                                                      rows, 2, 0, columns.which, err);
    if (status == ESPL_OK) {
        status = espl_bench_write_column(artifact, "/results/weight_bytes", ESPL_DTYPE_U64, rows, 0,
                                         0, columns.bytes, err);
    }
    if (status == ESPL_OK) {
        status = espl_bench_write_column(artifact, "/results/choice", ESPL_DTYPE_U64, rows,
                                         CHOICE_MEMBERS, 0, columns.choice, err);
    }
    if (status == ESPL_OK) {
        status = espl_bench_write_column(artifact, "/results/seconds", ESPL_DTYPE_F64, rows,
                                         ESPL_SPMM_MODES, TIMES, columns.seconds, err);
    }
    return status == ESPL_OK
               ? espl_bench_write_column(artifact, "/results/expected_seconds", ESPL_DTYPE_F64,
                                         rows, 0, 0, columns.expected, err)
               : status;
}

enum espl_status espl_bench_take_description(struct espl_artifact *artifact, json_t *description,
                                             struct espl_error *err)
{
    char *text = description != NULL ? json_dumps(description, JSON_COMPACT) : NULL;
    const enum espl_status status =
        text != NULL ? espl_artifact_set_description(artifact, text, err)
                     : espl_fail(err, ESPL_E_NOMEM, "out of memory for a description");
    free(text);
    json_decref(description);
    return status;
}

enum espl_status espl_bench_record_write(const struct espl_bench_record *record,
                                         struct espl_artifact *artifact, struct espl_error *err)
{
    const size_t rows = result_count(record) + record->count + 1;
    uint64_t *numbers = calloc(rows, (3 + CHOICE_MEMBERS) * sizeof *numbers);
    double *reals = calloc(rows, (ESPL_SPMM_MODES * TIMES + 1) * sizeof *reals);
    enum espl_status status =
        numbers != NULL && reals != NULL
            ? espl_bench_take_description(artifact, espl_bench_record_description(record), err)
            : espl_fail(err, ESPL_E_NOMEM, "out of memory for an artifact");
    if (status == ESPL_OK) {
        status = write_cases(record, artifact, numbers, reals, err);
    }
    if (status == ESPL_OK) {
        status = write_results(record, artifact, numbers, reals, err);
    }
    free(numbers);
    free(reals);
    return status;
}

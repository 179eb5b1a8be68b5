/* The JSON of a bench: schema espalier.bench-spmm/1. */
#include "stages/deploy_bench/bench_record.h"

#include <math.h>
#include <string.h>

/* NaN and infinities have no JSON form. */
static json_t *real_json(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *time_json(const struct espl_cuda_time *time)
{
    return time->median > 0.0
               ? json_pack("{s:f, s:f}", "median_seconds", time->median, "p95_seconds", time->p95)
               : json_null();
}

static json_t *choice_json(const struct espl_cuda_spmm_choice *choice)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i}", "warps", (int)choice->warps, "splits",
                     (int)choice->splits, "window", (int)choice->window, "stages",
                     (int)choice->stages, "parts", (int)choice->parts);
}

static void add_ours(json_t *row, const struct espl_spmm_result *r)
{
    (void)json_object_set_new(row, "expected_seconds", real_json(r->expected));
    if (r->choice.parts > 0) {
        (void)json_object_set_new(row, "choice", choice_json(&r->choice));
        (void)json_object_set_new(row, "choice_from", json_string(r->stored ? "stored" : "rule"));
    }
    if (r->sweep.tried > 0) {
        (void)json_object_set_new(
            row, "sweep",
            json_pack("{s:I, s:o, s:f, s:f, s:f}", "tried", (json_int_t)r->sweep.tried, "choice",
                      choice_json(&r->sweep.choice), "seconds", r->sweep.seconds, "chosen_seconds",
                      r->sweep.chosen_seconds, "regret",
                      r->sweep.chosen_seconds / r->sweep.seconds - 1.0));
    }
}

static json_t *result_json(const struct espl_bench_record *record,
                           const struct espl_spmm_case *item, size_t index)
{
    const struct espl_spmm_result *r = &item->results[index];
    if (!r->measured) {
        return json_pack("{s:s, s:s, s:b, s:s}", "name", r->name, "kind",
                         espl_spmm_kind_names[r->kind], "measured", 0, "why", r->why);
    }
    const double seconds = espl_spmm_seconds(item, index);
    const double rate = (double)r->bytes / seconds;
    const double copy = record->ceiling.copy_bytes_a_second;
    json_t *row = json_pack("{s:s, s:s, s:b, s:b}", "name", r->name, "kind",
                            espl_spmm_kind_names[r->kind], "measured", 1, "cold", (int)r->cold);
    if (row != NULL && r->kind != ESPL_SPMM_QUANTISER) {
        const double bits = 8.0 * (double)r->bytes / ((double)item->rows * (double)item->cols);
        (void)json_object_set_new(row, "weight_bytes", json_integer((json_int_t)r->bytes));
        (void)json_object_set_new(row, "bits_per_weight", real_json(bits));
        (void)json_object_set_new(row, "bytes_per_second", real_json(rate));
        (void)json_object_set_new(row, "share_of_copy", real_json(rate / copy));
        (void)json_object_set_new(row, "share_of_floor",
                                  real_json(espl_spmm_floor_seconds(item, copy) / seconds));
    }
    if (row != NULL && r->kind == ESPL_SPMM_LAYER) {
        const size_t plain = espl_spmm_plain_of(item, index);
        (void)json_object_set_new(row, "over_codes",
                                  plain < item->count
                                      ? real_json(seconds / espl_spmm_seconds(item, plain))
                                      : json_null());
    }
    for (int mode = 0; row != NULL && mode < ESPL_SPMM_MODES; mode++) {
        (void)json_object_set_new(row, espl_spmm_mode_names[mode], time_json(&r->times[mode]));
    }
    if (row != NULL && r->ours && r->kind != ESPL_SPMM_QUANTISER) {
        add_ours(row, r);
    }
    return row;
}

static json_t *case_json(const struct espl_bench_record *record,
                         const struct espl_bench_entry *entry)
{
    const struct espl_spmm_case *item = &entry->item;
    json_t *results = json_array();
    for (size_t i = 0; i < item->count; i++) {
        (void)json_array_append_new(results, result_json(record, item, i));
    }
    json_t *row = json_pack(
        "{s:I, s:I, s:I, s:i, s:f, s:s, s:s, s:o, s:o}", "rows", (json_int_t)item->rows, "cols",
        (json_int_t)item->cols, "tokens", (json_int_t)item->tokens, "code_bits", (int)item->bits,
        "sparsity", item->sparsity, "chosen", item->results[item->chosen].name, "best",
        item->results[item->best].name, "floor_seconds",
        real_json(espl_spmm_floor_seconds(item, record->ceiling.copy_bytes_a_second)), "results",
        results);
    if (row != NULL && entry->matrix.module[0] != '\0') {
        (void)json_object_set_new(row, "module", json_string(entry->matrix.module));
        (void)json_object_set_new(row, "stored_as", json_string(entry->matrix.stored_as));
        (void)json_object_set_new(row, "modules", json_integer((json_int_t)entry->matrix.modules));
    }
    return row;
}

/* {subject: mean} of the subjects that have one. */
static json_t *means_json(const struct espl_spmm_summary *s, const struct espl_spmm_mean *means)
{
    json_t *object = json_object();
    for (size_t k = 0; k < s->subjects; k++) {
        if (means[k].cases > 0) {
            (void)json_object_set_new(object, s->names[k], real_json(espl_spmm_mean_of(&means[k])));
        }
    }
    return object;
}

static json_t *cuts_json(const struct espl_spmm_summary *s)
{
    json_t *object = json_object();
    for (size_t k = 0; k < s->subjects; k++) {
        if (s->cut[k].cases > 0) {
            (void)json_object_set_new(object, s->names[k],
                                      json_pack("{s:f, s:f}", "regret",
                                                espl_spmm_mean_regret(&s->cut[k]), "worst_regret",
                                                espl_spmm_worst_regret(&s->cut[k])));
        }
    }
    return object;
}

static json_t *summary_json(const struct espl_spmm_summary *s)
{
    return json_pack("{s:I, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:f, s:o, s:o}", "tokens",
                     (json_int_t)s->tokens, "sparsity", real_json(s->sparsity), "cases",
                     (json_int_t)s->cases, "speedup_over", means_json(s, s->over),
                     "layer_over_codes", means_json(s, s->layer), "cuts", cuts_json(s), "regret",
                     real_json(espl_spmm_mean_regret(&s->regret)), "worst_regret",
                     real_json(espl_spmm_worst_regret(&s->regret)), "worst_over_dense",
                     s->worst_dense, "swept_regret", real_json(espl_spmm_mean_regret(&s->swept)),
                     "worst_swept_regret", real_json(espl_spmm_worst_regret(&s->swept)));
}

static json_t *head_json(const struct espl_bench_record *record)
{
    json_t *summary = json_array();
    for (size_t i = 0; i < record->summaries.count; i++) {
        (void)json_array_append_new(summary, summary_json(&record->summaries.items[i]));
    }
    return json_pack("{s:s, s:s, s:f, s:I, s:i, s:i, s:o}", "schema", "espalier.bench-spmm/1",
                     "device", record->device, "copy_bytes_per_second",
                     record->ceiling.copy_bytes_a_second, "cache_bytes",
                     (json_int_t)record->ceiling.cache_bytes, "repeats", (int)record->repeats,
                     "launches", (int)record->launches, "summary", summary);
}

json_t *espl_bench_record_json(const struct espl_bench_record *record)
{
    json_t *head = head_json(record);
    json_t *cases = json_array();
    for (size_t i = 0; i < record->count; i++) {
        (void)json_array_append_new(cases, case_json(record, &record->entries[i]));
    }
    if (head == NULL || json_object_set_new(head, "cases", cases) != 0) {
        json_decref(head);
        return NULL;
    }
    return head;
}

json_t *espl_bench_record_description(const struct espl_bench_record *record)
{
    const char *names[ESPL_SPMM_MAX_RESULTS];
    const size_t count = espl_bench_record_subjects(record, names);
    json_t *head = head_json(record);
    json_t *subjects = json_array();
    json_t *modes = json_array();
    json_t *matrices = json_array();
    for (size_t i = 0; i < count; i++) {
        (void)json_array_append_new(subjects, json_string(names[i]));
    }
    for (int i = 0; i < ESPL_SPMM_MODES; i++) {
        (void)json_array_append_new(modes, json_string(espl_spmm_mode_names[i]));
    }
    for (size_t i = 0; i < record->count; i++) {
        const struct espl_bench_matrix *matrix = &record->entries[i].matrix;
        (void)json_array_append_new(matrices, json_pack("{s:s, s:s}", "module", matrix->module,
                                                        "stored_as", matrix->stored_as));
    }
    if (head == NULL || json_object_set_new(head, "subjects", subjects) != 0 ||
        json_object_set_new(head, "modes", modes) != 0 ||
        json_object_set_new(head, "cases", matrices) != 0) {
        json_decref(head);
        return NULL;
    }
    return head;
}

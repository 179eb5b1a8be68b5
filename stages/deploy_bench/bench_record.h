/* Everything that an SpMM bench measured, and its forms for programs: JSON, an artifact, figures.
 * Shared by the stage and `espalier bench spmm`. docs/formats/bench.md describes both. */
#ifndef ESPL_STAGES_BENCH_RECORD_H
#define ESPL_STAGES_BENCH_RECORD_H

#include "artifact/artifact.h"
#include "kernels/bench/spmm_bench.h"
#include "kernels/bench/spmm_summary.h"

#include <jansson.h>

enum { ESPL_BENCH_DEVICE = 1024, ESPL_BENCH_MODULE = 128 };

/** What a model says of the matrix of a case; empty for random weights. */
struct espl_bench_matrix {
    char module[ESPL_BENCH_MODULE]; /* "layers.0.self_attn.q_proj": the one that was measured */
    char stored_as[ESPL_SPMM_NAME]; /* areas of the encoded matrix, or "dense" */
    size_t modules;                 /* linears that it stands for; 1 for random weights */
};

struct espl_bench_entry {
    struct espl_spmm_case item;
    struct espl_bench_matrix matrix;
};

struct espl_bench_record {
    char device[ESPL_BENCH_DEVICE];
    struct espl_spmm_ceiling ceiling;
    size_t repeats;
    size_t launches;
    bool swept;
    bool over_sparsities; /* summaries are of a number of tokens alone */
    struct espl_bench_entry *entries;
    size_t count;
    size_t room;
    struct espl_spmm_summaries summaries;
};

/** Copies a case and adds it to the summaries. matrix: NULL for random weights. Errors: NOMEM. */
enum espl_status espl_bench_record_add(struct espl_bench_record *record,
                                       const struct espl_spmm_case *item,
                                       const struct espl_bench_matrix *matrix,
                                       struct espl_error *err);
void espl_bench_record_free(struct espl_bench_record *record);

/** The object of schema espalier.bench-spmm/1. New reference; NULL when out of memory. */
json_t *espl_bench_record_json(const struct espl_bench_record *record);
/** The same without the cases, with the names of all subjects: the artifact's description. */
json_t *espl_bench_record_description(const struct espl_bench_record *record);
/** Writes description and datasets of a bench.spmm/1 artifact. Errors: NOMEM, IO. */
enum espl_status espl_bench_record_write(const struct espl_bench_record *record,
                                         struct espl_artifact *artifact, struct espl_error *err);

/** Writes a dataset (rows), (rows, width) or (rows, width, depth); width or depth 0 = not there. */
enum espl_status espl_bench_write_column(struct espl_artifact *artifact, const char *path,
                                         enum espl_dtype dtype, uint64_t rows, uint64_t width,
                                         uint64_t depth, const void *data, struct espl_error *err);

/** Takes over a description and writes it as the artifact's; NULL: it could not be made. Errors:
 *  NOMEM, IO. */
enum espl_status espl_bench_take_description(struct espl_artifact *artifact, json_t *description,
                                             struct espl_error *err);

/** Names of all subjects, in the order in which cases bring them; returns how many, at most
 *  ESPL_SPMM_MAX_RESULTS. names: borrowed from the record. */
size_t espl_bench_record_subjects(const struct espl_bench_record *record,
                                  const char *names[ESPL_SPMM_MAX_RESULTS]);

/** Of one pass through all linears of a model, each with the automatic choice. */
struct espl_bench_totals {
    double seconds;
    double layer_seconds; /* with scales and outliers; NaN when one was not measured */
    double floor_seconds;
    double bytes; /* of the weights */
};
struct espl_bench_totals espl_bench_record_totals(const struct espl_bench_record *record,
                                                  size_t tokens);
/** Are the cases linears of a model? */
bool espl_bench_record_of_model(const struct espl_bench_record *record);
/** What a subject computes. */
enum espl_spmm_kind espl_bench_record_kind(const struct espl_bench_record *record,
                                           const char *name);
/** In how many cases a subject has no measurement; *why <- the reason of the last of them. */
size_t espl_bench_record_missing(const struct espl_bench_record *record, const char *name,
                                 const char **why);

/** One point of a drawing: series as in a report's layer metrics. Errors end the walk. */
typedef enum espl_status espl_bench_figure_fn(void *user, const char *series, size_t tokens,
                                              const char *subject, double value,
                                              struct espl_error *err);
/** Calls `take` for the points of the report's drawings: "speedup_over_<baseline>" (of the
 * automatic choice, for other libraries, dense and 1x1), "roofline_intensity" and "roofline_rate"
 * (operations a byte and a second of all products). Errors: those of take. */
enum espl_status espl_bench_record_figures(const struct espl_bench_record *record,
                                           espl_bench_figure_fn *take, void *user,
                                           struct espl_error *err);

#endif

/* Sections of the HTML page. Private to pipeline/report; each appends to `out`. */
#ifndef ESPL_REPORT_REPORT_PAGE_H
#define ESPL_REPORT_REPORT_PAGE_H

#include "report/report_data.h"

/** The whole page. */
enum espl_status espl_report_page(struct espl_report_data *data, struct espl_buf *out,
                                  struct espl_error *err);

/** Expectations: nothing when no run has any. */
void espl_report_expectations(const struct espl_report_data *data, struct espl_buf *out);
/** Dense beside compressed, for stages that measured both: nothing when there is none. */
void espl_report_quality(const struct espl_report_data *data, struct espl_buf *out);
/** Quality against size: perplexity over bits a weight of the models that were evaluated, as a plot
 *  and a table; nothing for fewer than three of them. Errors: NOMEM. */
enum espl_status espl_report_tradeoff(const struct espl_report_data *data, struct espl_buf *out,
                                      struct espl_error *err);
/** Bytes of quantised and encoded models, layer by layer too, and what they mean for time; nothing
 *  when no stage reported any. */
void espl_report_bytes(const struct espl_report_data *data, struct espl_buf *out);
/** Is this layer series shown in that section and needs no drawing of its own? */
bool espl_report_is_bytes_series(const char *series);
/** Trajectory and Pareto front of searches; nothing when no stage reported any. Errors: NOMEM. */
enum espl_status espl_report_search(const struct espl_report_data *data, struct espl_buf *out,
                                    struct espl_error *err);
/** Is this layer series shown there? */
bool espl_report_is_search_series(const char *series);
/** Products measured by deploy-bench: speed-ups by number of tokens and the roofline, each followed
 * by its figures; nothing when no stage reported any. Errors: NOMEM. */
enum espl_status espl_report_bench(const struct espl_report_data *data, struct espl_buf *out,
                                   struct espl_error *err);
/** Whole passes measured by deploy-bench: throughput, energy, where the time goes, each followed by
 *  its figures; nothing when no stage reported any. Errors: NOMEM. */
enum espl_status espl_report_deploy(const struct espl_report_data *data, struct espl_buf *out,
                                    struct espl_error *err);
/** Is this layer series shown there? */
bool espl_report_is_deploy_series(const char *series);
/** Predicted against measured times of configurations; nothing when no stage reported any. Errors:
 *  NOMEM. */
enum espl_status espl_report_predicted(const struct espl_report_data *data, struct espl_buf *out,
                                       struct espl_error *err);
/** Is this layer series shown there? */
bool espl_report_is_predicted_series(const char *series);
/** Every metric of every stage. */
void espl_report_metrics(const struct espl_report_data *data, struct espl_buf *out);
/** Stage times and peak memory: bars and table. */
enum espl_status espl_report_times(const struct espl_report_data *data, struct espl_buf *out,
                                   struct espl_error *err);
/** Per-layer panels, one figure a stage and series. */
enum espl_status espl_report_layer_figures(const struct espl_report_data *data,
                                           struct espl_buf *out, struct espl_error *err);
/** Dependency drawing and recipe table of one run. */
enum espl_status espl_report_provenance(const struct espl_report_data *data, size_t run,
                                        struct espl_buf *out, struct espl_error *err);
/** Parameters and environment facts in which the runs differ. */
void espl_report_differences(const struct espl_report_data *data, struct espl_buf *out);
/** Table of facts about the machine and the libraries, a column a run. */
void espl_report_environment(const struct espl_report_data *data, struct espl_buf *out);

/** "WHAT, stage ID" and, with several runs, ", run NAME"; of the report's arena. NULL: NOMEM. */
const char *espl_report_title(const struct espl_report_data *data, size_t run, const char *stage_id,
                              const char *what);
/** Calls draw for every stage of every run, until an error. *open: false for the first, for a
 *  section that begins with the first drawing. Errors: those of draw. */
enum espl_status espl_report_each_stage(
    const struct espl_report_data *data,
    enum espl_status (*draw)(const struct espl_report_data *data, size_t run, const char *stage_id,
                             bool *open, struct espl_buf *out, struct espl_error *err),
    struct espl_buf *out, struct espl_error *err);

/** One <th> a run when there are several. */
void espl_report_run_heads(const struct espl_report_data *data, struct espl_buf *out);

#endif

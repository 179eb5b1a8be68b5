/* What a report shows, collected from run records: the runs, the union of their stages, per-layer
 * series. Private to pipeline/report. */
#ifndef ESPL_REPORT_REPORT_DATA_H
#define ESPL_REPORT_REPORT_DATA_H

#include "artifact/store.h"
#include "core/buf.h"
#include "core/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct espl_report_device; /* report.h */

struct espl_report_run {
    const char *run_id;
    const char *name; /* what the page calls it: "A", "B", ... or the run id when it is alone */
    json_t *record;   /* run.json, owned */
    char *job_yaml;   /* resolved job, owned; NULL when the run has none */
};

struct espl_report_data {
    struct espl_arena *arena;
    struct espl_report_run *runs;
    size_t run_count;
    const char **stage_ids; /* of all runs: those of the first in its order, then new ones */
    size_t stage_count;
    const struct espl_report_device *device; /* borrowed; NULL = no predicted times */
};

/** values: [module][run][layer], NaN where a run has none. */
struct espl_report_layers {
    const char *stage_id;
    const char *series;
    const char **modules; /* without the "layers.N." before them */
    size_t module_count;
    size_t layer_count;
    double *values;
};

/** Errors as espl_report_render_runs(). *out: free with espl_report_data_free(), valid (empty) also
 *  after a failure. */
enum espl_status espl_report_data_load(const struct espl_store *store, const char *const *run_ids,
                                       size_t count, struct espl_report_data *out,
                                       struct espl_error *err);
void espl_report_data_free(struct espl_report_data *data);

/** Text or number of a member; "" and NaN when it is absent or of another type. */
const char *espl_report_text(const json_t *object, const char *name);
double espl_report_number(const json_t *object, const char *name);
/** Stage entry of a run, NULL when it has none. */
const json_t *espl_report_stage(const struct espl_report_run *run, const char *stage_id);
/** First eight digits of a key. */
const char *espl_report_short_key(struct espl_arena *arena, const char *key);

/** Calls `visit` for every (stage, series) with layer metrics, in stage order and then in the order
 *  in which series first appear. Errors: CORRUPT for a layer number past all reason, NOMEM, what
 *  visit returns. */
enum espl_status espl_report_each_layers(
    const struct espl_report_data *data,
    enum espl_status (*visit)(void *user, const struct espl_report_layers *layers,
                              struct espl_error *err),
    void *user, struct espl_error *err);

/** Distinct names of the members of objects stages[stage_id].<member> over all runs, sorted; in the
 *  arena. NULL with *count 0 when there are none or memory ran out. */
const char **espl_report_member_names(const struct espl_report_data *data, const char *stage_id,
                                      const char *member, size_t *count);

/** One line on the outcome of a run: "ok: 5 stages, 2 from the cache; 1 of 1 expectations held". */
void espl_report_verdict(const json_t *record, struct espl_buf *out);
/** Did the run end well? */
bool espl_report_is_good(const json_t *record);

#endif

/* Shared by the plan files: the state of one planning. */
#ifndef ESPL_ENGINE_PLAN_INTERNAL_H
#define ESPL_ENGINE_PLAN_INTERNAL_H

#include "engine/explain.h"
#include "engine/plan.h"

enum { ESPL_PLAN_ROLE_TEXT = 48 };

/** An external file that enters a key. */
struct espl_plan_file {
    struct espl_plan_file *next;
    char role[ESPL_PLAN_ROLE_TEXT];
    size_t number; /* among the files of the same role */
    char sha256[ESPL_SHA256_HEX];
};

/** What is known of a stage only while planning; same order as plan->stages. */
struct espl_plan_work {
    bool selected; /* by --from and --until */
    bool unneeded; /* --until leaves it out: no selected stage needs it */
    bool forced;
    struct espl_plan_file *files; /* in order of the calls */
    struct espl_plan_file **files_end;
};

struct espl_planner {
    const struct espl_job *job;
    const struct espl_store *store;
    const struct espl_plan_options *options;
    struct espl_diagnostics *diags;
    struct espl_plan *plan;
    struct espl_plan_work *work;
    bool no_memory;
};

struct espl_plan_ctx {
    struct espl_planner *planner;
    size_t index; /* of the stage in plan order */
};

/** Arena memory of the plan; sets no_memory on failure. */
void *espl_planner_alloc(struct espl_planner *planner, size_t count, size_t size);
/** Index of a port in a table that ends with NULL, SIZE_MAX when there is none. */
size_t espl_plan_find_port(const struct espl_port *ports, const char *name);
/** Port argument for the store: NULL for the only output of a stage. */
const char *espl_plan_store_port(const struct espl_stage *stage, size_t output);

/** plan_graph.c: orders the stages, connects them, checks kinds and cycles. */
void espl_plan_connect(struct espl_planner *planner);
/** "needs kind a/1 or b/1, but ..." with the stages that make one; for plan_graph.c and file
 * inputs. found: "'dense' makes model.dense/1". */
void espl_plan_report_kind(struct espl_planner *planner, const struct espl_job_stage *stage,
                           const struct espl_job_input *input, const char *found);
/** plan_select.c: marks what --from, --until and --force name. */
void espl_plan_select(struct espl_planner *planner);
/** plan_key.c: fields and key of a stage whose inputs are known. */
void espl_plan_make_key(struct espl_planner *planner, size_t index);
/** plan_state.c: state and reason of a stage whose key is known; replaces predicted descriptions by
 * those of stored results. */
void espl_plan_find_state(struct espl_planner *planner, size_t index);
/** plan_state.c: SKIPPED, with the option that leaves the stage out. */
void espl_plan_leave_out(const struct espl_planner *planner, struct espl_plan_stage *stage);
/** plan_resources.c: memory, disk, device. */
enum espl_status espl_plan_check_resources(struct espl_planner *planner, struct espl_error *err);

/** A stage's last result in this job, by the link by-name/<job>/<stage id>.h5. */
struct espl_previous {
    bool known;  /* there is a link */
    bool stored; /* and the artifact it names is there */
    char key[ESPL_SHA256_HEX];
    json_t *fields; /* list of [label, value]; NULL unless stored */
};
/** explain.c: which stage of this job gave input `port` to a stage in its last run? "" when that is
 * not known. job: its name; id: of the stage. */
void espl_explain_last_source(const struct espl_store *store, const char *job, const char *id,
                              const char *port, char out[ESPL_JOB_NAME_MAX + 1]);
/** explain.c: reads it; free with json_decref(previous->fields). */
enum espl_status espl_explain_previous(const struct espl_plan *plan,
                                       const struct espl_plan_stage *stage,
                                       const struct espl_store *store,
                                       struct espl_previous *previous, struct espl_error *err);

#endif

#include "engine/plan.h"

#include "artifact/kinds.h"
#include "engine/plan_internal.h"

#include <stdio.h>
#include <string.h>

enum { PLAN_ARENA_LIMIT = 1 << 28 };

const char *espl_plan_state_name(enum espl_plan_state state)
{
    static const char *const names[] = {
        [ESPL_PLAN_CACHED] = "cached",   [ESPL_PLAN_RESUME] = "resume",   [ESPL_PLAN_RUN] = "run",
        [ESPL_PLAN_BLOCKED] = "blocked", [ESPL_PLAN_SKIPPED] = "skipped",
    };
    return names[state];
}

void espl_plan_place_error(const struct espl_job_stage *stage, struct espl_error *err)
{
    if (err->at.line != 0 || err->at.file[0] != '\0') {
        return;
    }
    err->at = stage->use_at;
    if (strncmp(err->blame, "param:", 6) == 0) {
        const struct espl_param *table = stage->stage->params;
        const struct espl_param *row = espl_schema_find(table, err->blame + 6);
        if (row != NULL) {
            err->at = stage->values[row - table].at;
        }
    } else if (strncmp(err->blame, "input:", 6) == 0) {
        for (size_t i = 0; i < stage->input_count; i++) {
            if (strcmp(stage->inputs[i].port, err->blame + 6) == 0) {
                err->at = stage->inputs[i].at;
            }
        }
    }
}

/* What an error that blocks a stage is about, by the parameter or input that it blames. */
static void name_blame(struct espl_plan_stage *stage, const char *blame)
{
    const char *colon = strchr(blame, ':');
    if (colon == NULL) {
        (void)snprintf(stage->blocked_by, sizeof stage->blocked_by, "its checks");
    } else if (strncmp(blame, "input:", 6) == 0) {
        (void)snprintf(stage->blocked_by, sizeof stage->blocked_by, "input '%.48s'", colon + 1);
    } else {
        (void)snprintf(stage->blocked_by, sizeof stage->blocked_by, "%.60s", colon + 1);
    }
}

static void block(struct espl_plan_stage *stage, const char *fmt, ...) ESPL_PRINTF(2, 3);

static void block(struct espl_plan_stage *stage, const char *fmt, ...)
{
    va_list args;
    stage->state = ESPL_PLAN_BLOCKED;
    va_start(args, fmt);
    (void)vsnprintf(stage->why, sizeof stage->why, fmt, args);
    va_end(args);
}

/* An artifact made elsewhere: kind, content and description from its header. */
static bool read_file_input(struct espl_planner *planner, struct espl_plan_stage *stage,
                            size_t index)
{
    const struct espl_job_input *input = &stage->job_stage->inputs[index];
    struct espl_plan_input *known = &stage->inputs[index];
    struct espl_artifact *artifact = NULL;
    struct espl_error problem = {0};
    if (!espl_fs_exists(input->file)) {
        (void)espl_fail(&problem, ESPL_E_NOTFOUND, "cannot find artifact '%s'", input->file);
        (void)espl_hint(&problem, "the path is relative to the current folder");
    } else {
        (void)espl_artifact_open(input->file, &artifact, &problem);
    }
    if (artifact == NULL) {
        (void)espl_diagnostics_add_error(planner->diags, &input->at, &problem);
        (void)snprintf(stage->blocked_by, sizeof stage->blocked_by, "input '%.48s'", input->port);
        block(stage, "input '%s': %s", input->port, problem.message);
        return false;
    }
    (void)snprintf(known->kind, sizeof known->kind, "%s", espl_artifact_kind(artifact));
    (void)snprintf(known->content_sha256, sizeof known->content_sha256, "%s",
                   espl_artifact_content_sha256(artifact));
    known->description = json_loads(espl_artifact_description(artifact), 0, NULL);
    espl_artifact_close(artifact);
    const struct espl_port *ports = stage->job_stage->stage->inputs;
    const struct espl_port *port = &ports[espl_plan_find_port(ports, input->port)];
    if (!espl_kind_accepts(port->kind, known->kind)) {
        char found[ESPL_KIND_TEXT + 200];
        (void)snprintf(found, sizeof found, "'%.160s' holds %s", input->file, known->kind);
        espl_plan_report_kind(planner, stage->job_stage, input, found);
        (void)snprintf(stage->blocked_by, sizeof stage->blocked_by, "input '%.48s'", input->port);
        block(stage, "input '%s' is of kind %s", input->port, known->kind);
        return false;
    }
    return true;
}

/* Keys and files of the inputs. False when one is broken: the stage is then BLOCKED. */
static bool take_inputs(struct espl_planner *planner, struct espl_plan_stage *stage)
{
    bool good = true;
    for (size_t i = 0; i < stage->job_stage->input_count; i++) {
        if (stage->input_stage[i] == SIZE_MAX) {
            good = read_file_input(planner, stage, i) && good;
            continue;
        }
        const struct espl_plan_stage *producer = &planner->plan->stages[stage->input_stage[i]];
        if (producer->state == ESPL_PLAN_BLOCKED || !producer->key_known) {
            block(stage, "input '%s' is blocked", producer->job_stage->id);
            good = false;
        }
        (void)snprintf(stage->inputs[i].key, sizeof stage->inputs[i].key, "%s", producer->key);
    }
    return good;
}

static void plan_stage(struct espl_planner *planner, size_t index)
{
    struct espl_plan_stage *stage = &planner->plan->stages[index];
    const struct espl_job_stage *job_stage = stage->job_stage;
    struct espl_plan_ctx ctx = {.planner = planner, .index = index};
    struct espl_error problem = {0};
    if (!take_inputs(planner, stage)) {
        return;
    }
    if (job_stage->stage->plan != NULL &&
        job_stage->stage->plan(&ctx, job_stage->params, &stage->estimate, &problem) != ESPL_OK) {
        espl_plan_place_error(job_stage, &problem);
        (void)espl_diagnostics_add_error(planner->diags, &job_stage->use_at, &problem);
        name_blame(stage, problem.blame);
        block(stage, "%s", problem.message);
        return;
    }
    espl_plan_make_key(planner, index);
    if (planner->no_memory) {
        return;
    }
    espl_plan_find_state(planner, index);
    const bool will_run = stage->state == ESPL_PLAN_RUN || stage->state == ESPL_PLAN_RESUME;
    if (will_run && planner->options->history != NULL) {
        stage->seconds = planner->options->history(planner->options->history_user,
                                                   job_stage->stage->name, &stage->estimate);
    }
}

/* A stage that no selected one needs: its key is wanted for its figures, but what is wrong with it
 * is nobody's error. */
static void plan_unneeded(struct espl_planner *planner, size_t index)
{
    struct espl_plan_stage *stage = &planner->plan->stages[index];
    struct espl_diagnostics *reported = planner->diags;
    struct espl_diagnostics ignored;
    if (espl_diagnostics_init(&ignored, NULL) != ESPL_OK) {
        planner->no_memory = true;
        return;
    }
    planner->diags = &ignored;
    plan_stage(planner, index);
    planner->diags = reported;
    espl_diagnostics_free(&ignored);
    if (stage->state == ESPL_PLAN_BLOCKED) {
        stage->blocked_by[0] = '\0';
        espl_plan_leave_out(planner, stage);
    }
}

static enum espl_status create_plan(const struct espl_job *job, struct espl_plan **out,
                                    struct espl_error *err)
{
    struct espl_arena *arena = espl_arena_create(PLAN_ARENA_LIMIT);
    struct espl_plan *plan = arena != NULL ? espl_arena_alloc(arena, sizeof *plan) : NULL;
    if (plan == NULL) {
        espl_arena_destroy(arena);
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the plan");
    }
    plan->job = job;
    plan->arena = arena;
    *out = plan;
    return ESPL_OK;
}

enum espl_status espl_plan_build(const struct espl_job *job, const struct espl_store *store,
                                 const struct espl_plan_options *options,
                                 struct espl_diagnostics *diags, struct espl_plan **out,
                                 struct espl_error *err)
{
    static const struct espl_plan_options no_options = {0};
    struct espl_planner planner = {.job = job,
                                   .store = store,
                                   .options = options != NULL ? options : &no_options,
                                   .diags = diags};
    *out = NULL;
    enum espl_status status = create_plan(job, &planner.plan, err);
    if (planner.plan == NULL) {
        return status;
    }
    if (planner.options->device_fingerprint != NULL) {
        planner.plan->device_fingerprint =
            espl_arena_strdup(planner.plan->arena, planner.options->device_fingerprint);
        planner.no_memory = planner.plan->device_fingerprint == NULL;
    }
    espl_plan_connect(&planner);
    if (diags->count == 0 && !planner.no_memory) {
        espl_plan_select(&planner);
    }
    const bool graph_is_good = diags->count == 0;
    for (size_t i = 0; i < planner.plan->stage_count && graph_is_good && !planner.no_memory; i++) {
        if (planner.work[i].unneeded) {
            plan_unneeded(&planner, i);
        } else {
            plan_stage(&planner, i);
        }
    }
    if (graph_is_good && !planner.no_memory) {
        status = espl_plan_check_resources(&planner, err);
    }
    if (planner.no_memory) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for the plan");
    }
    const bool complete = graph_is_good && status == ESPL_OK;
    if (status == ESPL_OK) {
        espl_diagnostics_sort(diags);
        status = espl_diagnostics_fail(diags, job->file, err);
    }
    if (complete) {
        *out = planner.plan;
    } else {
        espl_plan_free(planner.plan);
    }
    return status;
}

void espl_plan_free(struct espl_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    for (size_t i = 0; i < plan->stage_count; i++) {
        const struct espl_plan_stage *stage = &plan->stages[i];
        const struct espl_port *outputs = stage->job_stage->stage->outputs;
        for (size_t j = 0; stage->descriptions != NULL && outputs[j].name != NULL; j++) {
            json_decref(stage->descriptions[j]);
        }
        for (size_t j = 0; stage->inputs != NULL && j < stage->job_stage->input_count; j++) {
            json_decref(stage->inputs[j].description);
        }
    }
    espl_arena_destroy(plan->arena);
}

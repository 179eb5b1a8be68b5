/* Walks the plan: one stage after the other, then the verdict. */
#include "engine/exec.h"

#include "engine/exec_internal.h"

#include "core/units.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum espl_status create_stages(struct espl_exec *exec, struct espl_error *err)
{
    const size_t count = exec->plan->stage_count;
    exec->stages = calloc(count > 0 ? count : 1, sizeof *exec->stages);
    exec->expectations = json_array();
    bool ok = exec->stages != NULL && exec->expectations != NULL;
    for (size_t i = 0; i < count && ok; i++) {
        struct espl_exec_stage *stage = &exec->stages[i];
        stage->metrics = json_object();
        stage->volatile_metrics = json_object();
        stage->layers = json_array();
        stage->warnings = json_array();
        ok = stage->metrics != NULL && stage->volatile_metrics != NULL && stage->layers != NULL &&
             stage->warnings != NULL;
    }
    return ok ? ESPL_OK : espl_fail(err, ESPL_E_NOMEM, "no memory for %zu stages", count);
}

static void destroy_stages(struct espl_exec *exec)
{
    for (size_t i = 0; exec->stages != NULL && i < exec->plan->stage_count; i++) {
        json_decref(exec->stages[i].metrics);
        json_decref(exec->stages[i].volatile_metrics);
        json_decref(exec->stages[i].layers);
        json_decref(exec->stages[i].warnings);
    }
    free(exec->stages);
    json_decref(exec->expectations);
}

/* The job's name becomes a folder. */
static enum espl_status check_name(const char *name, struct espl_error *err)
{
    for (const char *at = name; *at != '\0'; at++) {
        if (!isalnum((unsigned char)*at) && strchr("._-", *at) == NULL) {
            return espl_fail(err, ESPL_E_JOB, "job name '%s' cannot be the name of a folder", name);
        }
    }
    return name[0] != '\0' && name[0] != '.'
               ? ESPL_OK
               : espl_fail(err, ESPL_E_JOB, "job name '%s' cannot be the name of a folder", name);
}

static void set_why(struct espl_exec_stage *stage, const char *fmt, ...) ESPL_PRINTF(2, 3);

static void set_why(struct espl_exec_stage *stage, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(stage->why, sizeof stage->why, fmt, args);
    va_end(args);
}

/* Id of an input stage that has no result and will get none in this run; NULL when all is there. */
static const char *missing_input(const struct espl_exec *exec, size_t index)
{
    const struct espl_plan_stage *stage = &exec->plan->stages[index];
    for (size_t i = 0; i < stage->job_stage->input_count; i++) {
        const size_t source = stage->input_stage[i];
        if (source == SIZE_MAX || exec->plan->stages[source].state == ESPL_PLAN_SKIPPED) {
            continue; /* a file, or a stage left out on request: opening it will tell */
        }
        const enum espl_exec_state state = exec->stages[source].state;
        if (state != ESPL_EXEC_CACHED && state != ESPL_EXEC_DONE) {
            return exec->plan->stages[source].job_stage->id;
        }
    }
    return NULL;
}

/* A stage left out by --from or --until: its figures belong into metrics.json when they are known.
 */
static void leave_out(struct espl_exec *exec, size_t index)
{
    const struct espl_plan_stage *stage = &exec->plan->stages[index];
    struct espl_error problem;
    char stale[ESPL_EXEC_STALE];
    bool ready = false;
    exec->stages[index].state = ESPL_EXEC_SKIPPED;
    exec->result->skipped++;
    if (espl_exec_is_ready(exec->store, stage, &ready, stale, &problem) != ESPL_OK || !ready) {
        return;
    }
    if (espl_exec_load_result(exec->store, stage, &exec->stages[index], &problem) == ESPL_OK) {
        espl_exec_record_publish(exec, index);
    } else {
        struct espl_event event = {
            .type = ESPL_EVENT_LOG, .level = ESPL_LOG_WARN, .text = problem.message};
        espl_exec_emit(exec, index, &event);
    }
}

static enum espl_status fail_blocked(struct espl_exec *exec, size_t index)
{
    struct espl_exec_stage *stage = &exec->stages[index];
    stage->state = ESPL_EXEC_FAILED;
    exec->result->failed++;
    const enum espl_status status =
        espl_fail(&stage->error, ESPL_E_MACHINE, "stage '%s' cannot run: %s",
                  exec->plan->stages[index].job_stage->id, exec->plan->stages[index].why);
    struct espl_event event = {.type = ESPL_EVENT_STAGE_FAILED, .error = &stage->error};
    espl_exec_emit(exec, index, &event);
    return status;
}

/* After a stop or a failure nothing starts any more, but what is in the store already is still
 * recorded: it costs nothing and keeps metrics.json whole. */
static bool may_start(const struct espl_exec *exec, size_t index)
{
    const struct espl_plan_stage *stage = &exec->plan->stages[index];
    struct espl_error problem;
    char stale[ESPL_EXEC_STALE];
    bool ready = false;
    if (!exec->halted && espl_exec_stop_signal(exec) == 0) {
        return true;
    }
    return stage->state == ESPL_PLAN_CACHED &&
           espl_exec_is_ready(exec->store, stage, &ready, stale, &problem) == ESPL_OK && ready;
}

static void visit(struct espl_exec *exec, size_t index)
{
    const struct espl_plan_stage *stage = &exec->plan->stages[index];
    if (stage->state == ESPL_PLAN_SKIPPED) {
        leave_out(exec, index);
        return;
    }
    if (!may_start(exec, index)) {
        set_why(&exec->stages[index], "not started");
        return;
    }
    const char *missing = missing_input(exec, index);
    if (missing != NULL) {
        struct espl_exec_stage *skipped = &exec->stages[index];
        skipped->state = ESPL_EXEC_SKIPPED;
        set_why(skipped, "input '%s' has no result", missing);
        exec->result->skipped++;
        struct espl_event event = {.type = ESPL_EVENT_STAGE_SKIPPED, .text = skipped->why};
        espl_exec_emit(exec, index, &event);
        return;
    }
    const enum espl_status status = stage->state == ESPL_PLAN_BLOCKED
                                        ? fail_blocked(exec, index)
                                        : espl_exec_stage_run(exec, index);
    if (status == ESPL_OK) {
        espl_exec_record_publish(exec, index);
        espl_exec_check_expectations(exec, index);
    } else {
        exec->halted = exec->halted || !exec->options->keep_going;
        if (exec->failure.code == ESPL_OK) {
            exec->failure = exec->stages[index].error;
        }
    }
    espl_exec_record_save(exec, "running", 0);
    exec->halted = exec->halted || exec->record_error.code != ESPL_OK;
}

static bool is_stop(enum espl_status code)
{
    return code == ESPL_E_CANCELLED || code == ESPL_E_TERMINATED;
}

static const char *first_waiting(const struct espl_exec *exec)
{
    for (size_t i = 0; i < exec->plan->stage_count; i++) {
        if (exec->stages[i].state == ESPL_EXEC_WAITING) {
            return exec->plan->stages[i].job_stage->id;
        }
    }
    return NULL;
}

/* The error that decides how the run ended, and the word for it in the record. */
static const char *verdict(const struct espl_exec *exec, struct espl_error *err)
{
    const char *waiting = first_waiting(exec);
    const int signal_number = espl_exec_stop_signal(exec);
    const char *file = exec->plan->job->file;
    const char *status = "failed";
    if (exec->record_error.code != ESPL_OK) {
        *err = exec->record_error;
        (void)espl_hint(err, "finished results are kept; %srun the same command again",
                        err->code == ESPL_E_NOSPACE ? "free some space and " : "");
        return status;
    }
    if (exec->failure.code != ESPL_OK) {
        *err = exec->failure;
        status = is_stop(err->code) ? "interrupted" : "failed";
    } else if (signal_number != 0 && waiting != NULL) {
        (void)espl_fail(err, signal_number == SIGTERM ? ESPL_E_TERMINATED : ESPL_E_CANCELLED,
                        "stopped before '%s'; finished stages are kept", waiting);
        status = "interrupted";
    } else if (exec->expectation.code != ESPL_OK) {
        *err = exec->expectation;
        status = "expectation";
    } else {
        status = "ok";
    }
    if (is_stop(err->code) && strcmp(file, "-") == 0) {
        (void)espl_hint(err, "run the same command again to continue");
    } else if (is_stop(err->code)) {
        /* The whole command: without its --store or --set it would be another run. */
        const char *command = exec->options->command_line;
        (void)espl_hint(err, "continue with: %s%s", command != NULL ? command : "espalier run ",
                        command != NULL ? "" : file);
    }
    return status;
}

static void emit_run_start(struct espl_exec *exec)
{
    struct espl_event event = {
        .type = ESPL_EVENT_RUN_START,
        .text = exec->result->run_id,
        .total = exec->plan->stage_count,
    };
    for (size_t i = 0; i < exec->plan->stage_count; i++) {
        event.done += exec->plan->stages[i].state == ESPL_PLAN_CACHED ? 1 : 0;
    }
    espl_exec_emit(exec, SIZE_MAX, &event);
}

static enum espl_status finish_run(struct espl_exec *exec, struct espl_error *err)
{
    espl_error_clear(err);
    const char *status = verdict(exec, err);
    struct espl_event event = {
        .type = ESPL_EVENT_RUN_END,
        .text = status,
        .value = espl_clock_monotonic() - exec->started,
    };
    espl_exec_emit(exec, SIZE_MAX, &event);
    espl_exec_record_save(exec, status, espl_status_exit_code(err->code));
    if (exec->record_error.code != ESPL_OK && err->code == ESPL_OK) {
        (void)verdict(exec, err);
    }
    exec->result->first_error = *err;
    return err->code;
}

enum espl_status espl_exec_run(const struct espl_plan *plan, const struct espl_store *store,
                               const struct espl_exec_options *options,
                               struct espl_exec_result *result, struct espl_error *err)
{
    struct espl_error local;
    struct espl_exec exec = {
        .plan = plan,
        .store = store,
        .options = options,
        .result = result,
        .started = espl_clock_monotonic(),
    };
    err = err != NULL ? err : &local;
    memset(result, 0, sizeof *result);
    espl_print_utc(espl_clock_utc(), exec.started_utc);
    enum espl_status status = check_name(plan->job->name, err);
    if (status == ESPL_OK) {
        status = create_stages(&exec, err);
    }
    if (status == ESPL_OK) {
        status = espl_exec_record_open(&exec, err);
    }
    if (status == ESPL_OK) {
        emit_run_start(&exec);
        for (size_t i = 0; i < plan->stage_count; i++) {
            visit(&exec, i);
        }
        status = finish_run(&exec, err);
    } else {
        result->first_error = *err;
    }
    espl_exec_record_close(&exec);
    destroy_stages(&exec);
    return status;
}

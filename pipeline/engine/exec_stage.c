/* One stage from the driver's side: wait for the lock, look again, run, clean up. The driver holds
 * the lock; the stage process dies with the driver, so a dead owner means that nobody works on the
 * key any more. */
#include "engine/exec_internal.h"
#include "engine/stage_ctx.h"

#include "core/lock.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { WAIT_FIRST_MS = 50, WAIT_MOST_MS = 200 };

int espl_exec_stop_signal(const struct espl_exec *exec)
{
    return exec->options->stop_signal != NULL ? *exec->options->stop_signal : 0;
}

/* Is the result to be made again although it is in the store? */
static bool is_forced(const struct espl_exec *exec, const struct espl_plan_stage *stage)
{
    const struct espl_exec_options *options = exec->options;
    for (size_t i = 0; i < options->force_count; i++) {
        if (strcmp(options->force[i], stage->job_stage->id) == 0) {
            return true;
        }
    }
    return options->remeasure && (stage->job_stage->stage->flags & ESPL_STAGE_MEASURES) != 0;
}

/* Removes the kept units of a key. They only cost room when that fails. */
static void remove_units(struct espl_exec *exec, size_t index)
{
    char dir[ESPL_PATH_MAX];
    struct espl_error problem;
    espl_error_clear(&problem);
    if (espl_store_units_dir(exec->store, exec->plan->stages[index].key, false, dir, &problem) !=
            ESPL_OK ||
        !espl_fs_exists(dir)) {
        return;
    }
    if (espl_fs_remove_tree(dir, &problem) != ESPL_OK) {
        struct espl_event event = {
            .type = ESPL_EVENT_LOG, .level = ESPL_LOG_WARN, .text = problem.message};
        espl_exec_emit(exec, index, &event);
    }
}

/* Units and a lock that outlived their stage: its driver died between publishing and cleaning up.
 */
static void remove_leftovers(struct espl_exec *exec, size_t index)
{
    char path[ESPL_PATH_MAX];
    struct espl_lock lock = {.held = false};
    bool taken = false;
    const char *key = exec->plan->stages[index].key;
    if (espl_store_lock_path(exec->store, key, path, NULL) != ESPL_OK ||
        (!espl_fs_exists(path) && espl_stage_count_units(exec->store, key) == 0) ||
        espl_lock_try(&lock, path, &taken, NULL, NULL) != ESPL_OK || !taken) {
        return;
    }
    remove_units(exec, index);
    espl_lock_release(&lock);
}

static enum espl_status become_cached(struct espl_exec *exec, size_t index, const char *text,
                                      struct espl_error *err)
{
    struct espl_exec_stage *stage = &exec->stages[index];
    const enum espl_status status =
        espl_exec_load_result(exec->store, &exec->plan->stages[index], stage, err);
    if (status != ESPL_OK) {
        return status;
    }
    stage->state = ESPL_EXEC_CACHED;
    exec->result->cached++;
    struct espl_event event = {
        .type = ESPL_EVENT_STAGE_CACHED, .key = exec->plan->stages[index].key, .text = text};
    espl_exec_emit(exec, index, &event);
    return ESPL_OK;
}

static void emit_wait(struct espl_exec *exec, size_t index, const struct espl_lock_owner *owner)
{
    char text[320];
    (void)snprintf(text, sizeof text,
                   "waiting for another run that makes the same result (pid %" PRId64 " on %s)",
                   owner->pid, owner->host);
    struct espl_event event = {.type = ESPL_EVENT_STAGE_WAIT, .text = text};
    espl_exec_emit(exec, index, &event);
}

/* Waits until the lock of the key is ours. *waited: somebody else had it. */
static enum espl_status take_lock(struct espl_exec *exec, size_t index, struct espl_lock *lock,
                                  bool *waited, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    struct espl_lock_owner owner;
    int64_t told_pid = 0;
    unsigned pause_ms = WAIT_FIRST_MS;
    *waited = false;
    enum espl_status status =
        espl_store_lock_path(exec->store, exec->plan->stages[index].key, path, err);
    while (status == ESPL_OK) {
        bool taken = false;
        memset(&owner, 0, sizeof owner);
        status = espl_lock_try(lock, path, &taken, &owner, err);
        if (status != ESPL_OK || taken) {
            break;
        }
        *waited = true;
        if (owner.pid != told_pid) {
            told_pid = owner.pid;
            emit_wait(exec, index, &owner);
        }
        const int signal_number = espl_exec_stop_signal(exec);
        if (signal_number != 0) {
            return espl_fail(err, signal_number == SIGTERM ? ESPL_E_TERMINATED : ESPL_E_CANCELLED,
                             "stopped while '%s' waited for another run (pid %" PRId64 " on %s)",
                             exec->plan->stages[index].job_stage->id, owner.pid, owner.host);
        }
        const struct timespec pause = {0, (long)pause_ms * 1000000};
        (void)nanosleep(&pause, NULL); /* a signal ends it early, which is welcome */
        pause_ms = pause_ms * 2 < WAIT_MOST_MS ? pause_ms * 2 : WAIT_MOST_MS;
    }
    return status;
}

static void emit_start(struct espl_exec *exec, size_t index)
{
    struct espl_exec_stage *stage = &exec->stages[index];
    struct espl_event event = {
        .type = ESPL_EVENT_STAGE_START,
        .key = exec->plan->stages[index].key,
        .resumed_units = stage->resumed_units,
        .total = exec->plan->stages[index].estimate.units,
    };
    stage->state = ESPL_EXEC_RUNNING;
    espl_exec_record_save(exec, "running", 0);
    espl_exec_emit(exec, index, &event);
}

/* Runs the stage process; the lock is ours. */
static enum espl_status run_locked(struct espl_exec *exec, size_t index, bool forced,
                                   struct espl_error *err)
{
    struct espl_exec_stage *stage = &exec->stages[index];
    const char *key = exec->plan->stages[index].key;
    if (forced) {
        remove_units(exec, index);
    }
    stage->resumed_units = espl_stage_count_units(exec->store, key);
    emit_start(exec, index);
    if (exec->record_error.code != ESPL_OK) {
        return espl_fail(err, ESPL_E_CANCELLED, "the run record cannot be written");
    }
    const enum espl_status status = espl_exec_process_run(exec, index, err);
    if (status != ESPL_OK) {
        return status;
    }
    remove_units(exec, index);
    stage->state = ESPL_EXEC_DONE;
    exec->result->ran++;
    struct espl_event event = {
        .type = ESPL_EVENT_STAGE_END,
        .key = key,
        .value = stage->seconds,
        .peak_rss_bytes = stage->peak_rss_bytes,
    };
    espl_exec_emit(exec, index, &event);
    return ESPL_OK;
}

/* The stored result exists but does not count: say so before it is made again. */
static void tell_stale(struct espl_exec *exec, size_t index, const char *stale)
{
    char text[ESPL_EXEC_STALE + 64];
    if (stale[0] != '\0') {
        (void)snprintf(text, sizeof text, "the stored result is made again: %s", stale);
        struct espl_event event = {.type = ESPL_EVENT_LOG, .level = ESPL_LOG_WARN, .text = text};
        espl_exec_emit(exec, index, &event);
    }
}

static enum espl_status bring_to_end(struct espl_exec *exec, size_t index, struct espl_error *err)
{
    const struct espl_plan_stage *stage = &exec->plan->stages[index];
    struct espl_lock lock = {.held = false};
    char stale[ESPL_EXEC_STALE] = "";
    bool ready = false;
    bool waited = false;
    const bool forced = is_forced(exec, stage);
    enum espl_status status = ESPL_OK;
    if (!forced) {
        status = espl_exec_is_ready(exec->store, stage, &ready, stale, err);
        if (status == ESPL_OK && ready) {
            remove_leftovers(exec, index);
            return become_cached(exec, index, "", err);
        }
    }
    if (status == ESPL_OK) {
        status = take_lock(exec, index, &lock, &waited, err);
    }
    if (status == ESPL_OK && !forced) { /* somebody may have made it while we waited */
        status = espl_exec_is_ready(exec->store, stage, &ready, stale, err);
    }
    if (status == ESPL_OK && ready) {
        status = become_cached(exec, index, waited ? "made by another run" : "", err);
    } else if (status == ESPL_OK) {
        tell_stale(exec, index, stale);
        status = run_locked(exec, index, forced, err);
    }
    espl_lock_release(&lock);
    return status;
}

enum espl_status espl_exec_stage_run(struct espl_exec *exec, size_t index)
{
    const struct espl_plan_stage *stage = &exec->plan->stages[index];
    struct espl_exec_stage *out = &exec->stages[index];
    struct espl_error problem;
    espl_error_clear(&problem);
    const enum espl_status status = bring_to_end(exec, index, &problem);
    if (status == ESPL_OK) {
        return ESPL_OK;
    }
    if (problem.code != ESPL_E_CANCELLED && problem.code != ESPL_E_TERMINATED) {
        if (problem.blame[0] != '\0') {
            espl_plan_place_error(stage->job_stage, &problem);
        }
        (void)espl_context(&problem, "while running stage '%s' (%s)", stage->job_stage->id,
                           stage->job_stage->stage->name);
    }
    if (problem.code == ESPL_E_NOSPACE) {
        (void)espl_hint(&problem,
                        "the unfinished result was removed, %" PRIu64 " finished layers are kept; "
                        "free some space and run the same command again",
                        espl_stage_count_units(exec->store, stage->key));
    }
    out->state = ESPL_EXEC_FAILED;
    out->error = problem;
    exec->result->failed++;
    struct espl_event event = {.type = ESPL_EVENT_STAGE_FAILED, .error = &out->error};
    espl_exec_emit(exec, index, &event);
    return status;
}

/* What a run leaves for people and programs: run.json, plan.json, job.yaml, the event files, and
 * by-name/<job>/. Results are in the store before any of these says so. */
#include "engine/exec_internal.h"
#include "engine/exec_message.h"

#include "core/units.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RESOLVED_JOB_LIMIT = 4 << 20, METRICS_LIMIT = 64 << 20 };

static const char *const state_names[] = {
    [ESPL_EXEC_WAITING] = "waiting", [ESPL_EXEC_RUNNING] = "running",
    [ESPL_EXEC_CACHED] = "cached",   [ESPL_EXEC_DONE] = "done",
    [ESPL_EXEC_FAILED] = "failed",   [ESPL_EXEC_SKIPPED] = "skipped",
};

static void keep_record_error(struct espl_exec *exec, const struct espl_error *problem)
{
    if (exec->record_error.code == ESPL_OK) {
        exec->record_error = *problem;
    }
}

void espl_exec_emit(struct espl_exec *exec, size_t index, struct espl_event *event)
{
    struct timespec now = {0, 0};
    (void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
    event->time = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    if (index != SIZE_MAX) {
        event->stage_index = index;
        event->stage_id = exec->plan->stages[index].job_stage->id;
    }
    if (exec->files.events != NULL) {
        espl_event_files_write(&exec->files, event);
        if (exec->files.sys_errno != 0 && exec->record_error.code == ESPL_OK) {
            (void)espl_fail_errno(&exec->record_error, exec->files.sys_errno,
                                  "cannot write the log of the run in '%s'", exec->result->run_dir);
        }
    }
    if (exec->options->on_event != NULL) {
        exec->options->on_event(exec->options->on_event_user, event);
    }
}

/* ---- run.json ---- */

static json_t *warnings_json(const struct espl_exec *exec, size_t index)
{
    json_t *list = json_array();
    const char *line = exec->plan->stages[index].warnings;
    while (*line != '\0') {
        const size_t len = strcspn(line, "\n");
        char text[sizeof exec->plan->stages[index].warnings];
        (void)snprintf(text, sizeof text, "%.*s", (int)len, line);
        (void)json_array_append_new(list, espl_json_text(text));
        line += len + (line[len] == '\n' ? 1 : 0);
    }
    (void)json_array_extend(list, exec->stages[index].warnings);
    return list;
}

static json_t *inputs_json(const struct espl_exec *exec, const struct espl_plan_stage *stage)
{
    json_t *list = json_array();
    for (size_t i = 0; i < stage->job_stage->input_count; i++) {
        const struct espl_job_input *input = &stage->job_stage->inputs[i];
        const bool from_file = input->file != NULL;
        const char *key = from_file ? "" : exec->plan->stages[stage->input_stage[i]].key;
        json_t *entry =
            json_pack("{s:s, s:o, s:s}", "port", input->port, from_file ? "file" : "stage",
                      espl_json_text(from_file ? input->file : input->stage_id), "key", key);
        (void)json_array_append_new(list, entry);
    }
    return list;
}

static json_t *error_json(const struct espl_error *error)
{
    if (error->code == ESPL_OK) {
        return json_null();
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "code", espl_status_name(error->code), "message",
                     espl_json_text(error->message), "hint", espl_json_text(error->hint), "context",
                     espl_json_text(error->context));
}

/* Path of the first output relative to the results folder; "" when it is not there. */
static void artifact_text(const struct espl_exec *exec, size_t index, char out[ESPL_PATH_MAX])
{
    const struct espl_plan_stage *stage = &exec->plan->stages[index];
    const enum espl_exec_state state = exec->stages[index].state;
    char path[ESPL_PATH_MAX];
    const size_t root_len = strlen(exec->store->root);
    out[0] = '\0';
    if ((state == ESPL_EXEC_CACHED || state == ESPL_EXEC_DONE) &&
        espl_exec_port_count(stage->job_stage->stage->outputs) > 0 &&
        espl_store_artifact_path(exec->store, stage->key,
                                 espl_exec_output_port(stage->job_stage->stage, 0), path,
                                 NULL) == ESPL_OK &&
        strncmp(path, exec->store->root, root_len) == 0 && path[root_len] == '/') {
        (void)snprintf(out, ESPL_PATH_MAX, "%s", path + root_len + 1);
    }
}

static json_t *stage_json(const struct espl_exec *exec, size_t index)
{
    const struct espl_plan_stage *stage = &exec->plan->stages[index];
    const struct espl_exec_stage *known = &exec->stages[index];
    char artifact[ESPL_PATH_MAX];
    artifact_text(exec, index, artifact);
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:f, s:I, s:I, s:I, s:o, s:o, s:o, s:O, s:O, s:O, s:o, s:o}",
        "id", stage->job_stage->id, "use", stage->job_stage->stage->name, "key", stage->key,
        "state", state_names[known->state], "why",
        espl_json_text(known->why[0] != '\0' ? known->why : stage->why), "seconds", known->seconds,
        "peak_rss_bytes", (json_int_t)known->peak_rss_bytes, "output_bytes",
        (json_int_t)known->output_bytes, "resumed_units", (json_int_t)known->resumed_units,
        "inputs", inputs_json(exec, stage), "params",
        espl_schema_json(stage->job_stage->stage->params, stage->job_stage->values), "error",
        error_json(&known->error), "metrics", known->metrics, "volatile_metrics",
        known->volatile_metrics, "layer_metrics", known->layers, "warnings",
        warnings_json(exec, index), "artifact", espl_json_text(artifact));
    /* Past times are scaled by these to guess the next. */
    json_t *estimate = json_pack("{s:f, s:I}", "flop", stage->estimate.flop, "units",
                                 (json_int_t)stage->estimate.units);
    if (object == NULL || json_object_set_new(object, "estimate", estimate) != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

void espl_exec_record_save(struct espl_exec *exec, const char *status, int exit_code)
{
    struct espl_error problem;
    espl_error_clear(&problem);
    json_t *stages = json_array();
    json_t *record = json_copy(exec->record);
    bool ok = stages != NULL && record != NULL;
    for (size_t i = 0; i < exec->plan->stage_count && ok; i++) {
        ok = json_array_append_new(stages, stage_json(exec, i)) == 0;
    }
    json_t *ended = json_null();
    if (strcmp(status, "running") != 0) {
        char now[ESPL_UNIT_TEXT];
        espl_print_utc(espl_clock_utc(), now);
        ended = json_string(now);
    }
    ok = ok && json_object_set_new(record, "status", json_string(status)) == 0 &&
         json_object_set_new(record, "exit_code", json_integer(exit_code)) == 0 &&
         json_object_set_new(record, "seconds",
                             json_real(espl_clock_monotonic() - exec->started)) == 0 &&
         json_object_set(record, "ended_utc", ended) == 0 &&
         json_object_set(record, "stages", stages) == 0 &&
         json_object_set(record, "expectations", exec->expectations) == 0;
    if (!ok) {
        (void)espl_fail(&problem, ESPL_E_NOMEM, "no memory for the run record");
    } else {
        (void)espl_run_save(exec->store, exec->result->run_id, record, &problem);
    }
    json_decref(ended);
    json_decref(stages);
    json_decref(record);
    if (problem.code != ESPL_OK) {
        keep_record_error(exec, &problem);
    }
}

static json_t *record_head(struct espl_exec *exec)
{
    const struct espl_job *job = exec->plan->job;
    const struct espl_exec_options *options = exec->options;
    char host[256] = "";
    (void)gethostname(host, sizeof host - 1); /* then it stays empty */
    json_t *environment =
        options->environment != NULL ? json_deep_copy(options->environment) : json_object();
    return json_pack("{s:s, s:s, s:s, s:o, s:s, s:I, s:s, s:s, s:s, s:I, s:I, s:o, s:o}", "schema",
                     "espalier.run/1", "run_id", exec->result->run_id, "job", job->name, "job_file",
                     espl_json_text(job->file), "job_sha256", job->sha256, "seed",
                     (json_int_t)job->seed, "device", job->device, "started_utc", exec->started_utc,
                     "host", host, "pid", (json_int_t)getpid(), "start_ticks",
                     (json_int_t)espl_process_start_ticks(getpid()), "command_line",
                     espl_json_text(options->command_line != NULL ? options->command_line : ""),
                     "environment", environment);
}

/* ---- the run folder ---- */

static enum espl_status write_text(const struct espl_exec *exec, const char *name, const char *text,
                                   struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    enum espl_status status = espl_run_path(exec->store, exec->result->run_id, name, path, err);
    return status == ESPL_OK ? espl_fs_write_file(path, text, strlen(text), err) : status;
}

static enum espl_status write_inputs(const struct espl_exec *exec, struct espl_error *err)
{
    struct espl_buf yaml;
    json_t *plan = espl_plan_json(exec->plan);
    char *text = plan != NULL ? json_dumps(plan, JSON_INDENT(1)) : NULL;
    json_decref(plan);
    if (text == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the plan as JSON");
    }
    enum espl_status status = write_text(exec, "plan.json", text, err);
    free(text);
    if (status != ESPL_OK) {
        return status;
    }
    espl_buf_init(&yaml, RESOLVED_JOB_LIMIT);
    espl_job_resolved_yaml(exec->plan->job, &yaml);
    status = espl_buf_check(&yaml, "the resolved job", err);
    if (status == ESPL_OK) {
        status = write_text(exec, "job.yaml", espl_buf_text(&yaml), err);
    }
    espl_buf_free(&yaml);
    return status;
}

enum espl_status espl_exec_record_open(struct espl_exec *exec, struct espl_error *err)
{
    struct espl_exec_result *result = exec->result;
    enum espl_status status =
        espl_run_create(exec->store, exec->plan->job->name, result->run_id, err);
    if (status == ESPL_OK) {
        status = espl_run_path(exec->store, result->run_id, NULL, result->run_dir, err);
    }
    if (status == ESPL_OK) {
        status = espl_event_files_open(&exec->files, result->run_dir, exec->plan->stage_count, err);
    }
    if (status == ESPL_OK) {
        exec->record = record_head(exec);
        status = exec->record != NULL ? write_inputs(exec, err)
                                      : espl_fail(err, ESPL_E_NOMEM, "no memory for a run record");
    }
    if (status == ESPL_OK) {
        espl_exec_record_save(exec, "running", 0);
        if (exec->record_error.code != ESPL_OK) {
            *err = exec->record_error;
            status = err->code;
        }
    }
    if (status != ESPL_OK) {
        (void)espl_context(err, "while starting a run of job '%s'", exec->plan->job->name);
    }
    return status;
}

void espl_exec_record_close(struct espl_exec *exec)
{
    espl_event_files_close(&exec->files);
    json_decref(exec->record);
    exec->record = NULL;
}

/* ---- by-name/<job>/ ---- */

static enum espl_status refresh_links(const struct espl_exec *exec, size_t index, const char *dir,
                                      struct espl_error *err)
{
    const struct espl_plan_stage *stage = &exec->plan->stages[index];
    const struct espl_stage *kind = stage->job_stage->stage;
    const size_t outputs = espl_exec_port_count(kind->outputs);
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < outputs && status == ESPL_OK; i++) {
        const char *port = espl_exec_output_port(kind, i);
        const char *dot = port[0] != '\0' ? "." : "";
        char name[256];
        char target[512];
        char link_path[ESPL_PATH_MAX];
        (void)snprintf(name, sizeof name, "%s%s%s.h5", stage->job_stage->id, dot, port);
        (void)snprintf(target, sizeof target, "../../store/%.2s/%s%s%s.h5", stage->key, stage->key,
                       dot, port);
        status = espl_fs_join(link_path, dir, name, err);
        if (status == ESPL_OK) {
            status = espl_fs_refresh_link(target, link_path, err);
        }
    }
    return status;
}

static void add_flat(json_t *flat, const char *id, json_t *metrics)
{
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(metrics, name, value)
    {
        char full[256];
        (void)snprintf(full, sizeof full, "%s.%s", id, name);
        (void)json_object_set(flat, full, value);
    }
}

static enum espl_status write_metrics(const struct espl_exec *exec, const char *dir,
                                      struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    json_t *flat = json_object();
    for (size_t i = 0; i < exec->plan->stage_count; i++) {
        const struct espl_exec_stage *stage = &exec->stages[i];
        if (stage->state == ESPL_EXEC_FAILED || stage->state == ESPL_EXEC_RUNNING) {
            continue; /* figures of a stage that did not come to its end */
        }
        add_flat(flat, exec->plan->stages[i].job_stage->id, stage->metrics);
        add_flat(flat, exec->plan->stages[i].job_stage->id, stage->volatile_metrics);
    }
    char *text = json_dumps(flat, JSON_INDENT(1) | JSON_SORT_KEYS);
    struct espl_buf file;
    json_decref(flat);
    if (text == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for metrics.json");
    }
    espl_buf_init(&file, METRICS_LIMIT);
    espl_buf_printf(&file, "%s\n", text); /* scripts read whole lines */
    free(text);
    enum espl_status status = espl_buf_check(&file, "metrics.json", err);
    if (status == ESPL_OK) {
        status = espl_fs_join(path, dir, "metrics.json", err);
    }
    if (status == ESPL_OK) {
        status = espl_fs_write_file(path, espl_buf_text(&file), file.len, err);
    }
    espl_buf_free(&file);
    return status;
}

void espl_exec_record_publish(struct espl_exec *exec, size_t index)
{
    char by_name[ESPL_PATH_MAX];
    char dir[ESPL_PATH_MAX];
    struct espl_error problem;
    espl_error_clear(&problem);
    enum espl_status status = espl_fs_join(by_name, exec->store->root, "by-name", &problem);
    if (status == ESPL_OK) {
        status = espl_fs_join(dir, by_name, exec->plan->job->name, &problem);
    }
    if (status == ESPL_OK) {
        status = espl_fs_make_dirs(dir, &problem);
    }
    if (status == ESPL_OK) {
        status = refresh_links(exec, index, dir, &problem);
    }
    if (status == ESPL_OK) {
        status = write_metrics(exec, dir, &problem);
    }
    if (status != ESPL_OK) {
        (void)espl_context(&problem, "while refreshing '%s'", dir);
        keep_record_error(exec, &problem);
    }
}

/* ---- expectations ---- */

/* "perplexity 12.4 > 12": the first limit that does not hold; "" when all do. */
static void compare(const struct espl_job_expect *expect, const json_t *value, char out[160])
{
    char limit[ESPL_UNIT_TEXT];
    char found[ESPL_UNIT_TEXT];
    const double number = json_number_value(value);
    out[0] = '\0';
    if (value == NULL) {
        (void)snprintf(out, 160, "the stage reports no metric '%s'", expect->metric);
        return;
    }
    const bool low = expect->has_min && !(number >= expect->min);
    const bool high = expect->has_max && !(number <= expect->max);
    if (!low && !high) {
        return;
    }
    espl_print_real(low ? expect->min : expect->max, limit);
    (void)snprintf(found, sizeof found, "%.6g", number);
    if (strtod(found, NULL) == (low ? expect->min : expect->max)) {
        espl_print_real(number, found); /* so near that rounding would hide the difference */
    }
    (void)snprintf(out, 160, "%s %s %s %s", expect->metric, found, low ? "<" : ">", limit);
}

static void record_expectation(struct espl_exec *exec, const char *stage_id,
                               const struct espl_job_expect *expect, json_t *value, bool ok)
{
    json_t *object =
        json_pack("{s:s, s:s, s:o, s:o, s:O, s:b, s:i, s:i}", "stage", stage_id, "metric",
                  expect->metric, "min", expect->has_min ? json_real(expect->min) : json_null(),
                  "max", expect->has_max ? json_real(expect->max) : json_null(), "value",
                  value != NULL ? value : json_null(), "ok", ok ? 1 : 0, "line",
                  (int)expect->at.line, "column", (int)expect->at.column);
    (void)json_array_append_new(exec->expectations, object);
}

void espl_exec_check_expectations(struct espl_exec *exec, size_t index)
{
    const struct espl_job_stage *job_stage = exec->plan->stages[index].job_stage;
    const struct espl_exec_stage *stage = &exec->stages[index];
    for (size_t i = 0; i < job_stage->expect_count; i++) {
        const struct espl_job_expect *expect = &job_stage->expects[i];
        char text[160];
        json_t *value = json_object_get(stage->metrics, expect->metric);
        if (value == NULL) {
            value = json_object_get(stage->volatile_metrics, expect->metric);
        }
        compare(expect, value, text);
        record_expectation(exec, job_stage->id, expect, value, text[0] == '\0');
        if (text[0] == '\0') {
            continue;
        }
        struct espl_error problem;
        espl_error_clear(&problem);
        (void)espl_fail(&problem, ESPL_E_EXPECT, "expectation of stage '%s' failed: %s",
                        job_stage->id, text);
        problem.at = expect->at;
        if (exec->expectation.code == ESPL_OK) {
            exec->expectation = problem;
        }
        exec->result->expect_failed++;
        struct espl_event event = {
            .type = ESPL_EVENT_EXPECT_FAILED, .text = text, .error = &problem};
        espl_exec_emit(exec, index, &event);
    }
}

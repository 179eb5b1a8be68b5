/* espalier run: plan, check, execute; then the database and the report. */
#include "cli/environment.h"
#include "cli/job_setup.h"
#include "cli/plan_table.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/roofline_device.h"
#include "engine/database.h"
#include "engine/events.h"
#include "engine/exec.h"
#include "report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct espl_option options[] = {
    ESPL_PLAN_OPTIONS,
    {.name = "keep-going", .letter = 'k', .help = "after a failure run what does not depend on it"},
    {.name = "dry-run", .letter = 'n', .help = "show the plan and stop, as `espalier plan`"},
    {0},
};

/* With --json every event is a line on stdout. */
struct listener {
    const struct espl_cli *cli;
    struct espl_progress progress;
    struct espl_error *failures; /* of stages, in order */
    size_t failure_count;
};

/* Without memory for it a failure is told by its line alone. */
static void keep_failure(struct listener *listener, const struct espl_error *failure)
{
    struct espl_error *grown =
        realloc(listener->failures, (listener->failure_count + 1) * sizeof *grown);
    if (grown != NULL) {
        listener->failures = grown;
        grown[listener->failure_count++] = *failure;
    }
}

static void on_event(void *user, const struct espl_event *event)
{
    struct listener *listener = user;
    if (listener->cli->json) {
        json_t *object = espl_event_json(event);
        if (object != NULL) {
            (void)json_object_set_new(object, "schema", json_string("espalier.event/1"));
        }
        /* A reader that went away must not stop the run. */
        (void)espl_print_json_line_take(listener->cli, object, NULL);
    }
    if (event->type == ESPL_EVENT_STAGE_FAILED && event->error != NULL &&
        event->error->code != ESPL_E_CANCELLED && event->error->code != ESPL_E_TERMINATED) {
        keep_failure(listener, event->error);
    }
    espl_progress_event(&listener->progress, event);
}

/* ---- after the run ---- */

static void ingest(const struct espl_cli *cli, const struct espl_store *store, const char *run_id)
{
    struct espl_database *db = NULL;
    struct espl_error problem;
    espl_error_clear(&problem);
    enum espl_status status = espl_database_open(store, &db, &problem);
    if (status == ESPL_OK) {
        if (cli->verbose && espl_database_remark(db)[0] != '\0') {
            espl_print_talk(cli, "%s", espl_database_remark(db));
        }
        status = espl_database_ingest(db, store, run_id, &problem);
    }
    espl_database_close(db);
    if (status != ESPL_OK) {
        espl_print_warning(
            cli, "the run is not in the database: %s; `espalier database rebuild` adds it",
            problem.message);
    }
}

static enum espl_status write_report(const struct espl_store *store, const char *job,
                                     const char *run_id, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char rest[512];
    struct espl_buf html;
    struct espl_roofline_device roofline;
    espl_roofline_device_usual(&roofline);
    const struct espl_report_device device = {roofline.name, roofline.source, roofline.bandwidth};
    espl_buf_init(&html, ESPL_REPORT_MAX_BYTES);
    enum espl_status status = espl_report_render(store, run_id, &device, &html, err);
    if (status == ESPL_OK) {
        status = espl_run_path(store, run_id, "report.html", path, err);
    }
    if (status == ESPL_OK) {
        status = espl_fs_write_file(path, espl_buf_text(&html), html.len, err);
    }
    /* A run that was stopped before its first result has no folder there yet. */
    (void)snprintf(rest, sizeof rest, "by-name/%s", job);
    if (status == ESPL_OK) {
        status = espl_fs_join(path, store->root, rest, err);
    }
    if (status == ESPL_OK) {
        status = espl_fs_make_dirs(path, err);
    }
    (void)snprintf(rest, sizeof rest, "by-name/%s/report.html", job);
    if (status == ESPL_OK) {
        status = espl_fs_join(path, store->root, rest, err);
    }
    if (status == ESPL_OK) {
        status = espl_fs_write_file(path, espl_buf_text(&html), html.len, err);
    }
    espl_buf_free(&html);
    return status;
}

/* Every failed stage, and the error that decided the end when it is another one. Before the folder,
 * which is the last line. */
static void print_failures(const struct espl_cli *cli, const struct espl_job *job,
                           const struct listener *listener, const struct espl_error *err)
{
    bool told = false;
    for (size_t i = 0; i < listener->failure_count; i++) {
        espl_print_job_error(cli, job, &listener->failures[i]);
        told = told || strcmp(listener->failures[i].message, err->message) == 0;
    }
    if (!told) {
        espl_print_job_error(cli, job, err);
    }
}

/* The folder as the user named the store, so that it can be pasted. */
static void run_folder(const struct espl_cli *cli, const struct espl_exec_result *result,
                       char out[ESPL_PATH_MAX])
{
    (void)snprintf(out, ESPL_PATH_MAX, "%s/runs/%s", cli->store_dir, result->run_id);
}

static enum espl_status print_result(const struct espl_cli *cli,
                                     const struct espl_exec_result *result, enum espl_status status,
                                     struct espl_error *err)
{
    char folder[ESPL_PATH_MAX];
    run_folder(cli, result, folder);
    if (!cli->json) {
        (void)fprintf(cli->out, "%s\n", folder);
        return ESPL_OK;
    }
    return espl_print_json_line_take(
        cli,
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I}", "schema",
                  "espalier.run-result/1", "run_id", result->run_id, "run_dir", folder, "status",
                  espl_status_name(status), "exit_code", espl_status_exit_code(status), "cached",
                  (json_int_t)result->cached, "ran", (json_int_t)result->ran, "failed",
                  (json_int_t)result->failed, "skipped", (json_int_t)result->skipped,
                  "expect_failed", (json_int_t)result->expect_failed),
        err);
}

static enum espl_status execute(struct espl_cli *cli, const struct espl_job_setup *setup,
                                struct espl_error *err)
{
    struct espl_error problem;
    struct espl_exec_result result;
    struct listener listener = {.cli = cli};
    json_t *environment = espl_cli_environment();
    const struct espl_exec_options exec_options = {
        .keep_going = espl_args_has(cli->args, "keep-going"),
        .on_event = on_event,
        .on_event_user = &listener,
        .stop_signal = cli->stop_signal,
        .stop_count = cli->stop_count,
        .command_line = cli->command_line,
        .environment = environment,
        .force = setup->force,
        .force_count = setup->force_count,
        .remeasure = setup->remeasure,
    };
    if (environment == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the facts of this machine");
    }
    espl_progress_init(&listener.progress, cli, setup->plan);
    enum espl_status status =
        espl_exec_run(setup->plan, &setup->store, &exec_options, &result, err);
    espl_progress_clear(&listener.progress);
    json_decref(environment);
    if (result.run_id[0] == '\0' || !espl_fs_is_dir(result.run_dir)) {
        free(listener.failures);
        return status; /* it did not begin */
    }
    ingest(cli, &setup->store, result.run_id);
    espl_error_clear(&problem);
    if (write_report(&setup->store, setup->job->name, result.run_id, &problem) != ESPL_OK) {
        espl_print_warning(cli, "there is no report: %s", problem.message);
    } else if (status == ESPL_OK) {
        espl_print_talk(cli, "report.html and metrics.json: %s/by-name/%s/", cli->store_dir,
                        setup->job->name);
    }
    if (status == ESPL_E_EXPECT) {
        err->message[0] = '\0'; /* each failed expectation was told when it was found */
    } else if (status != ESPL_OK) {
        print_failures(cli, setup->job, &listener, err);
        err->message[0] = '\0';
    }
    free(listener.failures);
    const enum espl_status printed = print_result(cli, &result, status, &problem);
    if (status == ESPL_OK && printed != ESPL_OK) {
        *err = problem;
        status = printed;
    }
    return status;
}

static enum espl_status run(struct espl_cli *cli, struct espl_error *err)
{
    struct espl_job_setup setup;
    const bool dry_run = espl_args_has(cli->args, "dry-run");
    enum espl_status status = espl_job_setup_load(cli, !dry_run, &setup, err);
    if (status == ESPL_OK && dry_run) {
        status = cli->json ? espl_print_json_take(cli, espl_plan_json(setup.plan), err)
                           : espl_plan_print(cli, setup.plan, err);
    }
    if (status == ESPL_OK) {
        status = espl_plan_print_resource_errors(cli, &setup.store, setup.plan, err);
    }
    if (status == ESPL_OK && !dry_run) {
        espl_plan_print_run_warnings(cli, setup.plan);
        status = execute(cli, &setup, err);
    }
    espl_job_setup_free(&setup);
    return status;
}

const struct espl_command espl_command_run = {
    .name = "run",
    .summary = "run a job; finished stages and layers are kept and not done again",
    .positional = "JOB",
    .complete = ESPL_COMPLETE_JOB,
    .min_positional = 1,
    .max_positional = 1,
    .options = options,
    .description =
        "JOB is a YAML file, or - for standard input. Prints the folder of the run on stdout.\n"
        "Ctrl-C lets the current layer finish (a second one stops at once); the same command\n"
        "continues.",
    .run = run,
};

/* espalier status: how the last, a named or a running run stands. Reads only. */
#include "cli/job_setup.h"
#include "cli/print.h"
#include "cli/run_progress.h"
#include "core/units.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const struct espl_option options[] = {
    {.name = "exit-code", .help = "exit with 6 unless the run came to a good end"},
    {0},
};

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

/* Seconds since a time like "2026-05-12T10:04:11Z"; < 0 when it is not one. */
static double seconds_since(const char *utc)
{
    struct tm tm;
    memset(&tm, 0, sizeof tm);
    const char *end = strptime(utc, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return end != NULL && *end == '\0' ? (double)(espl_clock_utc() - (int64_t)timegm(&tm)) : -1.0;
}

static enum espl_style style_of(const char *state)
{
    static const struct {
        const char *state;
        enum espl_style style;
    } rows[] = {
        {"cached", ESPL_STYLE_DIM},   {"done", ESPL_STYLE_GOOD},
        {"ok", ESPL_STYLE_GOOD},      {"failed", ESPL_STYLE_BAD},
        {"died", ESPL_STYLE_BAD},     {"running", ESPL_STYLE_NOTE},
        {"skipped", ESPL_STYLE_WARN}, {"interrupted", ESPL_STYLE_WARN},
        {"stopped", ESPL_STYLE_WARN}, {"expectation", ESPL_STYLE_BAD},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].state, state) == 0) {
            return rows[i].style;
        }
    }
    return ESPL_STYLE_PLAIN;
}

/* A stage's state as people should see it: a stage that runs in a run that died does not. */
static const char *shown_state(const json_t *stage, const char *run_status)
{
    const char *state = text_of(stage, "state");
    const char *code = text_of(json_object_get(stage, "error"), "code");
    if (strcmp(state, "running") == 0 && strcmp(run_status, "running") != 0) {
        return "stopped";
    }
    if (strcmp(code, "interrupted") == 0 || strcmp(code, "terminated") == 0) {
        return "stopped";
    }
    return state;
}

static void print_head(const struct espl_cli *cli, const json_t *record, const char *status)
{
    char ago[ESPL_UNIT_TEXT];
    const enum espl_style style = style_of(status);
    const long long pid = (long long)json_integer_value(json_object_get(record, "pid"));
    (void)fprintf(cli->out, "run %s   %s%s%s", text_of(record, "run_id"),
                  espl_style_on(cli->colour_out, style), status,
                  espl_style_off(cli->colour_out, style));
    if (strcmp(status, "running") == 0) {
        (void)fprintf(cli->out, " on %s (pid %lld)", text_of(record, "host"), pid);
    } else if (strcmp(status, "died") == 0) {
        (void)fprintf(cli->out, " on %s (pid %lld is gone)", text_of(record, "host"), pid);
    }
    const double seconds = seconds_since(text_of(record, "started_utc"));
    espl_print_duration(seconds, ago);
    if (seconds < 1.0) { /* or a clock that was put back */
        (void)fprintf(cli->out, "   started just now\n");
    } else if (seconds < 60.0) {
        (void)fprintf(cli->out, "   started %.0f s ago\n", seconds);
    } else {
        (void)fprintf(cli->out, "   started %s ago\n", ago);
    }
}

static void print_counts(const struct espl_cli *cli, const json_t *record, const char *status)
{
    static const char *const words[] = {"done",   "cached",  "running", "waiting",
                                        "failed", "stopped", "skipped"};
    size_t counts[sizeof words / sizeof words[0]] = {0};
    size_t index = 0;
    json_t *stage = NULL;
    json_array_foreach(json_object_get(record, "stages"), index, stage)
    {
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
            counts[i] += strcmp(words[i], shown_state(stage, status)) == 0 ? 1 : 0;
        }
    }
    const char *gap = "  ";
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (counts[i] > 0 || strcmp(words[i], "failed") == 0) {
            (void)fprintf(cli->out, "%s%zu %s", gap, counts[i], words[i]);
            gap = "   ";
        }
    }
    (void)fputc('\n', cli->out);
}

/* The first input whose stage has not come to its end; NULL when there is none. */
static const char *waits_for(const json_t *record, const json_t *stage)
{
    size_t index = 0;
    json_t *input = NULL;
    json_array_foreach(json_object_get(stage, "inputs"), index, input)
    {
        const char *id = json_string_value(json_object_get(input, "stage"));
        const json_t *source = id != NULL ? espl_run_stage(record, id) : NULL;
        const char *state = text_of(source, "state");
        if (strcmp(state, "running") == 0 || strcmp(state, "waiting") == 0) {
            return id;
        }
    }
    return NULL;
}

static void detail_text(const struct espl_store *store, const json_t *record, const json_t *stage,
                        const char *state, char out[512])
{
    struct espl_run_progress progress;
    char eta[ESPL_UNIT_TEXT];
    out[0] = '\0';
    if (strcmp(state, "done") == 0 || strcmp(state, "cached") == 0) {
        (void)snprintf(out, 512, "key %.8s", text_of(stage, "key"));
    } else if (strcmp(state, "running") == 0) {
        espl_run_progress_read(store, text_of(record, "run_id"), text_of(stage, "id"), &progress);
        if (progress.known && progress.total > 0) {
            espl_print_duration(progress.eta, eta);
            (void)snprintf(out, 512, "%s %llu/%llu, %.0f%%%s%s", progress.what,
                           (unsigned long long)progress.done, (unsigned long long)progress.total,
                           100.0 * (double)progress.done / (double)progress.total,
                           progress.eta >= 0.0 ? "   eta " : "", progress.eta >= 0.0 ? eta : "");
        }
    } else if (strcmp(state, "waiting") == 0) {
        const char *source = waits_for(record, stage);
        (void)snprintf(out, 512, "%s%s", source != NULL ? "for " : "",
                       source != NULL ? source : "");
    } else if (strcmp(state, "failed") == 0 || strcmp(state, "stopped") == 0) {
        (void)snprintf(out, 512, "%s", text_of(json_object_get(stage, "error"), "message"));
    } else {
        (void)snprintf(out, 512, "%s", text_of(stage, "why"));
    }
}

static enum espl_status print_stages(const struct espl_cli *cli, const struct espl_store *store,
                                     const json_t *record, const char *status,
                                     struct espl_error *err)
{
    static const struct espl_column columns[] = {{.title = ""},
                                                 {.title = ""},
                                                 {.title = "", .right = true},
                                                 {.title = "", .gives_way = true}};
    size_t index = 0;
    json_t *stage = NULL;
    struct espl_table *table = NULL;
    enum espl_status result = espl_table_create(columns, 4, &table, err);
    if (result != ESPL_OK) {
        return result;
    }
    json_array_foreach(json_object_get(record, "stages"), index, stage)
    {
        char detail[512];
        char duration[ESPL_UNIT_TEXT] = "";
        const char *state = shown_state(stage, status);
        const double seconds = json_number_value(json_object_get(stage, "seconds"));
        if (seconds > 0.0) {
            espl_print_duration(seconds, duration);
        }
        detail_text(store, record, stage, state, detail);
        espl_table_cell(table, ESPL_STYLE_BOLD, "%s", text_of(stage, "id"));
        espl_table_cell(table, style_of(state), "%s", state);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", duration);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", detail);
    }
    result = espl_table_print(table, cli->out, 2, cli->colour_out, err);
    espl_table_destroy(table);
    return result;
}

static void print_expectations(const struct espl_cli *cli, const json_t *record)
{
    size_t index = 0;
    json_t *entry = NULL;
    json_array_foreach(json_object_get(record, "expectations"), index, entry)
    {
        if (!json_is_true(json_object_get(entry, "ok"))) {
            (void)fprintf(cli->out, "  expectation failed: %s.%s (%s:%lld:%lld)\n",
                          text_of(entry, "stage"), text_of(entry, "metric"),
                          text_of(record, "job_file"),
                          (long long)json_integer_value(json_object_get(entry, "line")),
                          (long long)json_integer_value(json_object_get(entry, "column")));
        }
    }
}

/* The command that continues a run that was stopped, or that made this one: --set and other options
 * say what is not in the job file. */
static void print_command(const struct espl_cli *cli, const json_t *record, const char *status)
{
    const char *command = text_of(record, "command_line");
    const bool stopped = strcmp(status, "died") == 0 || strcmp(status, "interrupted") == 0;
    if (stopped && strcmp(text_of(record, "job_file"), "-") != 0) {
        (void)fprintf(cli->out, "continue with: %s\n", command);
    } else if (command[0] != '\0') {
        (void)fprintf(cli->out, "command: %s\n", command);
    }
}

/* The record with the status as it really is, and the progress of the running stage. */
static enum espl_status print_json(const struct espl_cli *cli, const struct espl_store *store,
                                   const json_t *record, const char *status, struct espl_error *err)
{
    size_t index = 0;
    json_t *stage = NULL;
    json_t *copy = json_deep_copy(record);
    json_array_foreach(json_object_get(copy, "stages"), index, stage)
    {
        struct espl_run_progress progress;
        if (strcmp(shown_state(stage, status), "running") != 0) {
            continue;
        }
        espl_run_progress_read(store, text_of(record, "run_id"), text_of(stage, "id"), &progress);
        if (progress.known) {
            (void)json_object_set_new(stage, "progress",
                                      json_pack("{s:I, s:I, s:s, s:f}", "done",
                                                (json_int_t)progress.done, "total",
                                                (json_int_t)progress.total, "what", progress.what,
                                                "eta_seconds", progress.eta));
        }
    }
    return espl_print_json_take(
        cli,
        json_pack("{s:s, s:s, s:o}", "schema", "espalier.status/1", "status", status, "run", copy),
        err);
}

static enum espl_status run(struct espl_cli *cli, struct espl_error *err)
{
    struct espl_store store;
    char run_id[ESPL_RUN_ID_MAX];
    json_t *record = NULL;
    const char *name = cli->args->positional_count > 0 ? cli->args->positional[0] : NULL;
    enum espl_status status = espl_store_open_readonly(cli->store_dir, &store, err);
    if (status == ESPL_OK) {
        status = espl_cli_find_run(cli, &store, name, run_id, err);
    }
    if (status == ESPL_OK) {
        status = espl_run_load(&store, run_id, &record, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    const char *run_status = espl_run_status(record);
    if (cli->json) {
        status = print_json(cli, &store, record, run_status, err);
    } else {
        print_head(cli, record, run_status);
        print_counts(cli, record, run_status);
        status = print_stages(cli, &store, record, run_status, err);
        print_expectations(cli, record);
        print_command(cli, record, run_status);
    }
    if (status == ESPL_OK && espl_args_has(cli->args, "exit-code") &&
        strcmp(run_status, "ok") != 0) {
        status = espl_fail(err, ESPL_E_PENDING, "%s", ""); /* only the exit code */
    }
    json_decref(record);
    return status;
}

const struct espl_command espl_command_status = {
    .name = "status",
    .summary = "show how the last run, or a running one, stands",
    .positional = "[JOB|RUN]",
    .complete = ESPL_COMPLETE_RUN,
    .min_positional = 0,
    .max_positional = 1,
    .options = options,
    .description = "JOB is a job file or name (its newest run is shown), RUN a run id, a part of "
                   "one or a run\n"
                   "folder. Without an argument: the newest run of all.",
    .run = run,
};

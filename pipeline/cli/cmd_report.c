/* espalier report: one HTML page, or Markdown, JSON, CSV, of one run or of several side by side. */
#include "cli/command.h"
#include "cli/job_setup.h"
#include "cli/print.h"
#include "cli/roofline_device.h"
#include "core/fs.h"
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

static const struct espl_option report_options[] = {
    {.name = "format",
     .letter = 'f',
     .argument = "html|md|json|csv",
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "html (default) goes to a file, the others to standard output"},
    {.name = "output",
     .letter = 'o',
     .argument = "FILE",
     .complete = ESPL_COMPLETE_FILE,
     .help = "write here; - = standard output"},
    {.name = "device",
     .argument = ESPL_ROOFLINE_DEVICES,
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "html: whose bandwidth predicts times from bytes (default orin-agx)"},
    {.name = "bandwidth", .argument = "GB/S", .help = "html: this bandwidth instead"},
    {.name = "threads", .argument = "N", .help = "html: threads that measure --device=cpu"},
    {0},
};

/* Where a page goes that has no --output: beside its run record, under a name that says what is in
 * it, so that comparisons do not overwrite the run's own report. */
static enum espl_status default_path(const struct espl_cli *cli, const char *const *run_ids,
                                     size_t count, char out[ESPL_PATH_MAX], struct espl_error *err)
{
    int n = snprintf(out, ESPL_PATH_MAX, "%s/runs/%s/%s", cli->store_dir, run_ids[0],
                     count == 1 ? "report" : "report-with");
    for (size_t i = 1; i < count && n > 0 && n < ESPL_PATH_MAX; ++i) {
        const char *tail = strrchr(run_ids[i], '-');
        n += snprintf(out + n, ESPL_PATH_MAX - (size_t)n, "-%s",
                      tail != NULL ? tail + 1 : run_ids[i]);
    }
    if (n > 0 && n < ESPL_PATH_MAX) {
        n += snprintf(out + n, ESPL_PATH_MAX - (size_t)n, ".html");
    }
    return n > 0 && n < ESPL_PATH_MAX ? ESPL_OK
                                      : espl_fail(err, ESPL_E_IO, "path of the report is too long");
}

static enum espl_status deliver(const struct espl_cli *cli, const struct espl_buf *text,
                                const char *path, struct espl_error *err)
{
    if (strcmp(path, "-") == 0) {
        return fwrite(espl_buf_text(text), 1, text->len, cli->out) == text->len
                   ? ESPL_OK
                   : espl_fail(err, ESPL_E_IO, "cannot write the report to standard output");
    }
    const enum espl_status status = espl_fs_write_file(path, espl_buf_text(text), text->len, err);
    if (status == ESPL_OK) {
        fprintf(cli->out, "%s\n", path);
    }
    return status;
}

static enum espl_status find_runs(struct espl_cli *cli, const struct espl_store *store,
                                  char (**ids)[ESPL_RUN_ID_MAX], size_t *count,
                                  struct espl_error *err)
{
    const struct espl_args *args = cli->args;
    *count = args->positional_count == 0 ? 1 : args->positional_count;
    *ids = calloc(*count, sizeof **ids);
    if (*ids == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu run names", *count);
    }
    for (size_t i = 0; i < *count; ++i) {
        const char *text = args->positional_count == 0 ? NULL : args->positional[i];
        const enum espl_status status = espl_cli_find_run(cli, store, text, (*ids)[i], err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    return ESPL_OK;
}

static enum espl_status run_report(struct espl_cli *cli, struct espl_error *err)
{
    struct espl_store store;
    struct espl_buf text;
    char(*ids)[ESPL_RUN_ID_MAX] = NULL;
    const char *names[ESPL_REPORT_MAX_RUNS] = {NULL};
    size_t count = 0;
    char path[ESPL_PATH_MAX];
    enum espl_report_format format = ESPL_REPORT_HTML;
    /* The option parser has checked the choice. */
    (void)espl_report_format_parse(
        espl_args_value(cli->args, "format", cli->json ? "json" : "html"), &format);
    espl_buf_init(&text, ESPL_REPORT_MAX_BYTES);
    enum espl_status status = espl_store_open_readonly(cli->store_dir, &store, err);
    if (status == ESPL_OK) {
        status = find_runs(cli, &store, &ids, &count, err);
    }
    if (status != ESPL_OK) {
        goto cleanup;
    }
    for (size_t i = 0; i < count && i < ESPL_REPORT_MAX_RUNS; ++i) {
        names[i] = ids[i];
    }
    struct espl_roofline_device roofline;
    status = espl_roofline_device_choose(cli, &roofline, err);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    const struct espl_report_device device = {roofline.name, roofline.source, roofline.bandwidth};
    status = espl_report_render_runs(&store, names, count, format, &device, &text, err);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    const char *output = espl_args_value(cli->args, "output", NULL);
    if (output == NULL && format == ESPL_REPORT_HTML) {
        status = default_path(cli, names, count, path, err);
        output = path;
    }
    if (status == ESPL_OK) {
        status = deliver(cli, &text, output != NULL ? output : "-", err);
    }
cleanup:
    espl_buf_free(&text);
    free(ids);
    return status;
}

const struct espl_command espl_command_report = {
    .name = "report",
    .summary = "write a report of a run, or of several side by side",
    .positional = "[RUN...]",
    .complete = ESPL_COMPLETE_RUN,
    .min_positional = 0,
    .max_positional = ESPL_REPORT_MAX_RUNS,
    .options = report_options,
    .description =
        "RUN is a run id or a part of one, a run folder, or a job name (its newest run); without "
        "RUN\nthe newest run of all. Up to six runs stand side by side. The HTML page needs no "
        "network and no\nscript; it goes beside the run record and its path is printed.",
    .run = run_report,
};

#include "cli/plan_table.h"

#include "cli/gc_scan.h"
#include "cli/print.h"
#include "core/units.h"

#include <stdio.h>
#include <string.h>

enum { TIME_TEXT = 32 };

static const enum espl_style state_styles[] = {
    [ESPL_PLAN_CACHED] = ESPL_STYLE_DIM,  [ESPL_PLAN_RESUME] = ESPL_STYLE_NOTE,
    [ESPL_PLAN_RUN] = ESPL_STYLE_WARN,    [ESPL_PLAN_BLOCKED] = ESPL_STYLE_BAD,
    [ESPL_PLAN_SKIPPED] = ESPL_STYLE_DIM,
};

static bool is_pending(const struct espl_plan_stage *stage)
{
    return stage->state == ESPL_PLAN_RUN || stage->state == ESPL_PLAN_RESUME ||
           stage->state == ESPL_PLAN_BLOCKED;
}

size_t espl_plan_pending(const struct espl_plan *plan)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->stage_count; i++) {
        count += is_pending(&plan->stages[i]) ? 1 : 0;
    }
    return count;
}

/* Estimates are rough: "6 min", "40 s", "2.5 h". */
static void print_about(double seconds, char out[TIME_TEXT])
{
    if (seconds < 90.0) {
        (void)snprintf(out, TIME_TEXT, "%.0f s", seconds < 1.0 ? 1.0 : seconds);
    } else if (seconds < 5400.0) {
        (void)snprintf(out, TIME_TEXT, "%.0f min", seconds / 60.0);
    } else {
        (void)snprintf(out, TIME_TEXT, "%.1f h", seconds / 3600.0);
    }
}

static void time_cell(struct espl_table *table, const struct espl_plan_stage *stage)
{
    char about[TIME_TEXT];
    if (!is_pending(stage)) {
        espl_table_cell(table, ESPL_STYLE_DIM, "-");
    } else if (stage->seconds < 0.0) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "unknown");
    } else {
        print_about(stage->seconds, about);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "~%s", about);
    }
}

static void size_cell(struct espl_table *table, const struct espl_plan_stage *stage)
{
    char size[ESPL_UNIT_TEXT];
    if (!is_pending(stage)) {
        espl_table_cell(table, ESPL_STYLE_DIM, "-");
    } else if (stage->estimate.output_bytes == 0) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "unknown");
    } else {
        espl_print_size(stage->estimate.output_bytes, size);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", size);
    }
}

/* A blocked stage's error was printed in full above. */
static void why_cell(struct espl_table *table, const struct espl_plan_stage *stage)
{
    const char *note = stage->estimate.note;
    if (stage->state == ESPL_PLAN_BLOCKED && stage->blocked_by[0] != '\0') {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s: see the error", stage->blocked_by);
    } else {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s%s%s", stage->why, note[0] != '\0' ? "   " : "",
                        note);
    }
}

static enum espl_status print_stages(const struct espl_cli *cli, const struct espl_plan *plan,
                                     struct espl_error *err)
{
    static const struct espl_column columns[] = {
        {.title = "stage"},
        {.title = "use"},
        {.title = "state"},
        {.title = "why", .gives_way = true},
        {.title = "est. time", .right = true},
        {.title = "writes", .right = true},
    };
    struct espl_table *table = NULL;
    enum espl_status status =
        espl_table_create(columns, sizeof columns / sizeof columns[0], &table, err);
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t i = 0; i < plan->stage_count; i++) {
        const struct espl_plan_stage *stage = &plan->stages[i];
        espl_table_cell(table, ESPL_STYLE_BOLD, "%s", stage->job_stage->id);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", stage->job_stage->stage->name);
        espl_table_cell(table, state_styles[stage->state], "%s",
                        espl_plan_state_name(stage->state));
        why_cell(table, stage);
        time_cell(table, stage);
        size_cell(table, stage);
    }
    status = espl_table_print(table, cli->out, 2, cli->colour_out, err);
    espl_table_destroy(table);
    return status;
}

static void print_needs(const struct espl_cli *cli, const struct espl_plan *plan)
{
    char needed[ESPL_UNIT_TEXT];
    char available[ESPL_UNIT_TEXT];
    espl_print_size(plan->host_bytes_needed, needed);
    espl_print_size(plan->host_bytes_free, available);
    (void)fprintf(cli->out, "\nneeds   host %s of %s free", needed, available);
    if (plan->device_bytes_needed > 0) {
        espl_print_size(plan->device_bytes_needed, needed);
        (void)fprintf(cli->out, "   device %s", needed);
    }
    espl_print_size(plan->disk_bytes_needed, needed);
    espl_print_size(plan->disk_bytes_free, available);
    const enum espl_style style = plan->resources_ok ? ESPL_STYLE_GOOD : ESPL_STYLE_BAD;
    (void)fprintf(cli->out, "   disk %s of %s free   %s%s%s\n", needed, available,
                  espl_style_on(cli->colour_out, style),
                  plan->resources_ok ? "ok" : "see the error",
                  espl_style_off(cli->colour_out, style));
}

static void print_to_run(const struct espl_cli *cli, const struct espl_plan *plan)
{
    double seconds = 0.0;
    size_t unknown = 0;
    char about[TIME_TEXT];
    size_t blocked = 0;
    for (size_t i = 0; i < plan->stage_count; i++) {
        blocked += plan->stages[i].state == ESPL_PLAN_BLOCKED ? 1 : 0;
    }
    const size_t pending = espl_plan_pending(plan);
    if (blocked > 0) {
        (void)fprintf(cli->out, "to run  %zu stage%s blocked, so the job cannot run\n", blocked,
                      blocked == 1 ? " is" : "s are");
        return;
    }
    if (pending == 0) {
        (void)fprintf(cli->out, "to run  nothing: every result is in the store\n");
        return;
    }
    for (size_t i = 0; i < plan->stage_count; i++) {
        const struct espl_plan_stage *stage = &plan->stages[i];
        unknown += is_pending(stage) && stage->seconds < 0.0 ? 1 : 0;
        seconds += is_pending(stage) && stage->seconds > 0.0 ? stage->seconds : 0.0;
    }
    print_about(seconds, about);
    (void)fprintf(cli->out, "to run  %zu stage%s, ", pending, pending == 1 ? "" : "s");
    if (unknown == pending) {
        (void)fprintf(cli->out, "time unknown");
    } else if (unknown > 0) {
        (void)fprintf(cli->out, "about %s and %zu of unknown time", about, unknown);
    } else {
        (void)fprintf(cli->out, "about %s", about);
    }
    (void)fprintf(cli->out, "        nothing was written\n");
}

static void print_warnings(const struct espl_cli *cli, const struct espl_plan_stage *stage)
{
    for (const char *line = stage->warnings; *line != '\0';) {
        const size_t len = strcspn(line, "\n");
        espl_print_warning(cli, "stage '%s': %.*s", stage->job_stage->id, (int)len, line);
        line += len + (line[len] == '\n' ? 1 : 0);
    }
}

void espl_plan_print_run_warnings(const struct espl_cli *cli, const struct espl_plan *plan)
{
    for (size_t i = 0; i < plan->stage_count; i++) {
        if (is_pending(&plan->stages[i])) {
            print_warnings(cli, &plan->stages[i]);
        }
    }
}

enum espl_status espl_plan_print(const struct espl_cli *cli, const struct espl_plan *plan,
                                 struct espl_error *err)
{
    (void)fprintf(cli->out, "job %s   seed %llu   device %s   %zu stage%s\n\n", plan->job->name,
                  (unsigned long long)plan->job->seed, plan->job->device, plan->stage_count,
                  plan->stage_count == 1 ? "" : "s");
    const enum espl_status status = print_stages(cli, plan, err);
    if (status == ESPL_OK) {
        print_needs(cli, plan);
        print_to_run(cli, plan);
        (void)fflush(cli->out); /* before the warnings; checked at the end */
        for (size_t i = 0; i < plan->stage_count; i++) {
            print_warnings(cli, &plan->stages[i]);
        }
    }
    return status;
}

/* What `espalier gc` would delete here decides the advice: the engine cannot know. Without an
 * answer (a damaged file) the advice stays as it is. */
static void advise_on_space(const struct espl_cli *cli, const struct espl_store *store,
                            struct espl_error *error)
{
    struct espl_gc_list list;
    char size[ESPL_UNIT_TEXT];
    uint64_t bytes = 0;
    size_t artifacts = 0;
    if (espl_gc_scan(store, ESPL_GC_KEEP_RUNS, NULL, &list, NULL) != ESPL_OK) {
        return;
    }
    for (size_t i = 0; i < list.count; i++) {
        bytes += list.items[i].bytes;
        artifacts += list.items[i].type == ESPL_GC_ARTIFACT ? 1 : 0;
    }
    espl_gc_list_free(&list);
    const bool elsewhere = strcmp(cli->store_dir, "results") != 0;
    espl_print_size(bytes, size);
    if (bytes == 0) {
        (void)espl_hint(error, "`espalier gc` has nothing to delete here: free space on this disk, "
                               "or use --store on another one");
    } else {
        (void)espl_hint(error,
                        "`espalier gc%s%.100s` can free %s (%zu artifact%s no job refers to); or "
                        "use --store on another disk",
                        elsewhere ? " --store " : "", elsewhere ? cli->store_dir : "", size,
                        artifacts, artifacts == 1 ? "" : "s");
    }
}

enum espl_status espl_plan_print_resource_errors(const struct espl_cli *cli,
                                                 const struct espl_store *store,
                                                 const struct espl_plan *plan,
                                                 struct espl_error *err)
{
    size_t kept = 0;
    if (plan->resources_ok) {
        return ESPL_OK;
    }
    for (size_t i = 0; i < plan->resource_error_count; i++) {
        struct espl_error error = plan->resource_errors[i];
        if (error.code == ESPL_E_NOSPACE && error.at.file[0] == '\0') {
            advise_on_space(cli, store, &error);
        }
        espl_print_job_error(cli, plan->job, &error);
    }
    for (size_t i = 0; i < plan->stage_count; i++) {
        kept += plan->stages[i].state == ESPL_PLAN_CACHED ? 1 : 0;
    }
    if (kept == 0) {
        (void)fputs("note: nothing was started\n", cli->err_stream);
    } else {
        (void)fprintf(cli->err_stream, "note: nothing was started; %zu finished stage%s kept\n",
                      kept, kept == 1 ? " is" : "s are");
    }
    return espl_fail(
        err, plan->resource_error_count > 0 ? plan->resource_errors[0].code : ESPL_E_MACHINE, "%s",
        "");
}

/* ---- graphs ---- */

static const char *source_of(const struct espl_job_input *input)
{
    return input->stage_id != NULL ? input->stage_id : input->file;
}

static void print_ascii(const struct espl_cli *cli, const struct espl_plan *plan)
{
    size_t width = 0;
    for (size_t i = 0; i < plan->stage_count; i++) {
        const size_t len = strlen(plan->stages[i].job_stage->id);
        width = len > width ? len : width;
    }
    for (size_t i = 0; i < plan->stage_count; i++) {
        const struct espl_job_stage *stage = plan->stages[i].job_stage;
        (void)fprintf(cli->out, "%-*s  %-*s", (int)width, stage->id, stage->input_count > 0 ? 7 : 0,
                      espl_plan_state_name(plan->stages[i].state));
        for (size_t k = 0; k < stage->input_count; k++) {
            (void)fprintf(cli->out, "%s%s (%s)", k == 0 ? "  <- " : ", ",
                          source_of(&stage->inputs[k]), stage->inputs[k].port);
        }
        (void)fputc('\n', cli->out);
    }
}

/* Text inside double quotes. */
static void print_quoted(FILE *stream, const char *text)
{
    (void)fputc('"', stream);
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') {
            (void)fputc('\\', stream);
        }
        (void)fputc(*at, stream);
    }
    (void)fputc('"', stream);
}

static void print_dot(const struct espl_cli *cli, const struct espl_plan *plan)
{
    (void)fprintf(cli->out, "digraph ");
    print_quoted(cli->out, plan->job->name);
    (void)fprintf(cli->out, " {\n  rankdir=LR;\n  node [shape=box];\n");
    for (size_t i = 0; i < plan->stage_count; i++) {
        const struct espl_job_stage *stage = plan->stages[i].job_stage;
        (void)fprintf(cli->out, "  \"%s\" [label=\"%s\\n%s\\n%s\"];\n", stage->id, stage->id,
                      stage->stage->name, espl_plan_state_name(plan->stages[i].state));
        for (size_t k = 0; k < stage->input_count; k++) {
            (void)fprintf(cli->out, "  ");
            print_quoted(cli->out, source_of(&stage->inputs[k]));
            (void)fprintf(cli->out, " -> \"%s\" [label=\"%s\"];\n", stage->id,
                          stage->inputs[k].port);
        }
    }
    (void)fprintf(cli->out, "}\n");
}

/* Text inside double quotes of mermaid, which has no backslashes. */
static void print_escaped(FILE *stream, const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '"') {
            (void)fputs("#quot;", stream);
        } else {
            (void)fputc(*at, stream);
        }
    }
}

/* Nodes are numbered: ids of stages could be words of the language ("end"). */
static void print_mermaid(const struct espl_cli *cli, const struct espl_plan *plan)
{
    (void)fprintf(cli->out, "flowchart LR\n");
    for (size_t i = 0; i < plan->stage_count; i++) {
        const struct espl_plan_stage *planned = &plan->stages[i];
        const struct espl_job_stage *stage = planned->job_stage;
        (void)fprintf(cli->out, "  s%zu[\"%s<br/>%s<br/>%s\"]\n", i, stage->id, stage->stage->name,
                      espl_plan_state_name(planned->state));
        for (size_t k = 0; k < stage->input_count; k++) {
            if (planned->input_stage[k] == SIZE_MAX) {
                (void)fprintf(cli->out, "  s%zu_%zu[/\"", i, k);
                print_escaped(cli->out, stage->inputs[k].file);
                (void)fprintf(cli->out, "\"/] -->|%s| s%zu\n", stage->inputs[k].port, i);
            } else {
                (void)fprintf(cli->out, "  s%zu -->|%s| s%zu\n", planned->input_stage[k],
                              stage->inputs[k].port, i);
            }
        }
    }
}

void espl_plan_print_graph(const struct espl_cli *cli, const struct espl_plan *plan,
                           const char *form)
{
    if (strcmp(form, "dot") == 0) {
        print_dot(cli, plan);
    } else if (strcmp(form, "mermaid") == 0) {
        print_mermaid(cli, plan);
    } else {
        print_ascii(cli, plan);
    }
}

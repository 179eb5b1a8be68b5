/* espalier plan: what would run and why. Writes nothing. */
#include "cli/job_setup.h"
#include "cli/plan_table.h"
#include "cli/print.h"

#include <stdio.h>

static const struct espl_option options[] = {
    ESPL_PLAN_OPTIONS,
    {.name = "graph",
     .argument = "ascii|dot|mermaid",
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "print the graph of the stages instead of the table"},
    {.name = "check", .help = "exit with 6 when a stage would run"},
    {0},
};

static enum espl_status run(struct espl_cli *cli, struct espl_error *err)
{
    struct espl_job_setup setup;
    const char *graph = espl_args_value(cli->args, "graph", NULL);
    struct espl_error print_error;
    enum espl_status status = espl_job_setup_load(cli, false, &setup, err);
    if (setup.plan != NULL) { /* also when stages are blocked: the table shows which */
        enum espl_status printed = ESPL_OK;
        espl_error_clear(&print_error);
        if (cli->json) {
            printed = espl_print_json_take(cli, espl_plan_json(setup.plan), &print_error);
        } else if (graph != NULL) {
            espl_plan_print_graph(cli, setup.plan, graph);
        } else {
            printed = espl_plan_print(cli, setup.plan, &print_error);
        }
        if (status == ESPL_OK && printed != ESPL_OK) {
            *err = print_error;
            status = printed;
        }
        if (status == ESPL_OK) {
            status = espl_plan_print_resource_errors(cli, &setup.store, setup.plan, err);
        }
        if (status == ESPL_OK && espl_args_has(cli->args, "check") &&
            espl_plan_pending(setup.plan) > 0) {
            status = espl_fail(err, ESPL_E_PENDING, "%s", ""); /* only the exit code */
        }
    }
    espl_job_setup_free(&setup);
    return status;
}

const struct espl_command espl_command_plan = {
    .name = "plan",
    .summary = "show what a job would do and why, without doing it",
    .positional = "JOB",
    .complete = ESPL_COMPLETE_JOB,
    .min_positional = 1,
    .max_positional = 1,
    .options = options,
    .description =
        "JOB is a YAML file, or - for standard input. The plan is exact: results are named by\n"
        "what they are made from. Times come from earlier runs on this machine.",
    .run = run,
};

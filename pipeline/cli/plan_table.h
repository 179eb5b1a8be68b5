/* A plan as people read it. */
#ifndef ESPL_CLI_PLAN_TABLE_H
#define ESPL_CLI_PLAN_TABLE_H

#include "cli/command.h"
#include "engine/plan.h"

/** Head line, one row a stage, what the job needs and what is to be done, on cli->out. */
enum espl_status espl_plan_print(const struct espl_cli *cli, const struct espl_plan *plan,
                                 struct espl_error *err);
/** Warnings of the stages that would run, on cli->err_stream. espl_plan_print() has them of all. */
void espl_plan_print_run_warnings(const struct espl_cli *cli, const struct espl_plan *plan);
/** The graph as "ascii", "dot" or "mermaid" text on cli->out. */
void espl_plan_print_graph(const struct espl_cli *cli, const struct espl_plan *plan,
                           const char *form);
/** Missing memory, disk or device on cli->err_stream; for missing disk space with what gc could
 * delete in the store. Returns the status of the first, with an empty message in err; ESPL_OK when
 * nothing is missing. */
enum espl_status espl_plan_print_resource_errors(const struct espl_cli *cli,
                                                 const struct espl_store *store,
                                                 const struct espl_plan *plan,
                                                 struct espl_error *err);
/** Stages that would run (or are blocked). */
size_t espl_plan_pending(const struct espl_plan *plan);

#endif

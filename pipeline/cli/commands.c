/* All verbs of the command line: to add one, write cli/cmd_<name>.c and add two lines here. */
#include "cli/command.h"

#include <stddef.h>

extern const struct espl_command espl_command_run;
extern const struct espl_command espl_command_plan;
extern const struct espl_command espl_command_status;
extern const struct espl_command espl_command_why;
extern const struct espl_command espl_command_inspect;
extern const struct espl_command espl_command_diff;
extern const struct espl_command espl_command_report;
extern const struct espl_command espl_command_stages;
extern const struct espl_command espl_command_schema;
extern const struct espl_command espl_command_doctor;
extern const struct espl_command espl_command_gc;
extern const struct espl_command espl_command_database;
extern const struct espl_command espl_command_fetch;
extern const struct espl_command espl_command_synth;
extern const struct espl_command espl_command_bench;
extern const struct espl_command espl_command_completion;

const struct espl_command *const espl_commands[] = {
    &espl_command_run,
    &espl_command_plan,
    &espl_command_status,
    &espl_command_why,
    &espl_command_inspect,
    &espl_command_diff,
    &espl_command_report,
    &espl_command_stages,
    &espl_command_schema,
    &espl_command_doctor,
    &espl_command_gc,
    &espl_command_database,
    &espl_command_fetch,
    &espl_command_synth,
    &espl_command_bench,
    &espl_command_completion,
    NULL,
};

/* espalier schema: JSON Schema of job files, for editors. */
#include "cli/command.h"
#include "cli/print.h"
#include "engine/schema.h"
#include "stages/registry.h"

static const struct espl_option schema_options[] = {{0}};

static enum espl_status run_schema(struct espl_cli *cli, struct espl_error *err)
{
    return espl_print_json_take(cli, espl_schema_job_schema(espl_stages), err);
}

const struct espl_command espl_command_schema = {
    .name = "schema",
    .summary = "print the JSON Schema of job files",
    .positional = "",
    .complete = ESPL_COMPLETE_NONE,
    .min_positional = 0,
    .max_positional = 0,
    .options = schema_options,
    .description = "Editors with a YAML language server check and complete job files with it:\n"
                   "  espalier schema > espalier.schema.json\n"
                   "and as first line of a job file\n"
                   "  # yaml-language-server: $schema=espalier.schema.json",
    .run = run_schema,
};

/* A verb of the command line is one `const struct espl_command` in cli/cmd_<name>.c, listed in
 * commands.c. Its option table is the single source for parsing, --help and completion. */
#ifndef ESPL_CLI_COMMAND_H
#define ESPL_CLI_COMMAND_H

#include "artifact/store.h"
#include "core/error.h"
#include "core/log.h"

#include <stdbool.h>
#include <stdio.h>

/** Version of the program; the build's project version. */
#define ESPL_TOOL_VERSION "0.1.0"

/** What completion offers for an argument. */
enum espl_complete {
    ESPL_COMPLETE_NONE,
    ESPL_COMPLETE_FILE,
    ESPL_COMPLETE_JOB,   /* *.yaml */
    ESPL_COMPLETE_STAGE, /* stage ids of the job on the line */
    ESPL_COMPLETE_STAGE_NAME,
    ESPL_COMPLETE_ARTIFACT,
    ESPL_COMPLETE_RUN,
    ESPL_COMPLETE_PARAM, /* stage.param= of the job on the line */
    ESPL_COMPLETE_CHOICE /* words of `argument`, separated by '|' */
};

struct espl_option {
    const char *name;     /* long name without dashes */
    const char *argument; /* NULL = a switch; "DIR", "auto|always|never", ... for --help */
    const char *help;     /* one line, lower case, no full stop */
    enum espl_complete complete;
    char letter; /* short name, 0 = none */
    bool repeatable;
};

/** Parsed command line of a verb. */
struct espl_args {
    const struct espl_option *const
        *tables; /* the verb's table and the common one; ends with NULL */
    struct espl_arg {
        const struct espl_option *option;
        const char *value; /* NULL for switches */
    } * items;
    size_t count;
    const char *const *positional;
    size_t positional_count;
};

bool espl_args_has(const struct espl_args *args, const char *name);
/** Last value given, or `fallback`. */
const char *espl_args_value(const struct espl_args *args, const char *name, const char *fallback);

enum espl_colour { ESPL_COLOUR_AUTO, ESPL_COLOUR_ALWAYS, ESPL_COLOUR_NEVER };
enum espl_progress_style {
    ESPL_PROGRESS_AUTO,
    ESPL_PROGRESS_BAR,
    ESPL_PROGRESS_LINES,
    ESPL_PROGRESS_NONE
};

/** What every verb gets. stdout is data, stderr is talk. */
struct espl_cli {
    const struct espl_args *args;
    FILE *out;
    FILE *err_stream;
    bool json;       /* --json */
    bool quiet;      /* --quiet */
    bool verbose;    /* --verbose */
    bool colour_out; /* resolved for stdout and stderr */
    bool colour_err;
    enum espl_progress_style progress; /* resolved: never AUTO */
    const char *store_dir;             /* --store, default "results" */
    const volatile int *stop_signal; /* set by main.c's handlers: 0 or the first signal's number */
    const volatile int *stop_count;  /* how many such signals came; two = stop at once */
    const char *program;             /* argv[0] */
    const char *command_line;        /* whole, quoted, for run records */
};

struct espl_command {
    const char *name;
    const char *summary;         /* one line */
    const char *positional;      /* "JOB", "JOB STAGE", "[RUN...]" */
    enum espl_complete complete; /* of the first positional */
    size_t min_positional, max_positional;
    const struct espl_option *options; /* ends with .name == NULL */
    const char *description;           /* more lines for --help; NULL allowed */
    enum espl_status (*run)(struct espl_cli *cli, struct espl_error *err);
};

/** All verbs, ends with NULL; defined in cli/commands.c. */
extern const struct espl_command *const espl_commands[];
/** Options that every verb takes (--store, --root, --json, --color, --progress, --quiet, --verbose,
 *  --help). Ends with .name == NULL. */
extern const struct espl_option espl_common_options[];

#endif

/* espalier completion: the script for a shell, and the lists that the script asks for. */
#include "cli/command.h"
#include "cli/completion_script.h"
#include "cli/print.h"
#include "core/fs.h"
#include "engine/job.h"
#include "engine/run_record.h"
#include "stages/registry.h"

#include <string.h>

static const struct espl_option completion_options[] = {
    {.name = "stages",
     .argument = "JOB",
     .complete = ESPL_COMPLETE_JOB,
     .help = "for the scripts: list the stage ids of a job"},
    {.name = "params",
     .argument = "JOB",
     .complete = ESPL_COMPLETE_JOB,
     .help = "for the scripts: list what --set may set in a job"},
    {.name = "runs", .help = "for the scripts: list run ids, newest first"},
    {.name = "artifacts", .help = "for the scripts: list JOB:STAGE of all results"},
    {0},
};

enum { MAX_NAMES = 10000 };

static void print_stages(const struct espl_cli *cli, const struct espl_job *job)
{
    for (size_t i = 0; i < job->stage_count; ++i) {
        fprintf(cli->out, "%s\n", job->stages[i].id);
    }
}

static void print_params(const struct espl_cli *cli, const struct espl_job *job)
{
    for (size_t i = 0; i < job->stage_count; ++i) {
        const struct espl_param *param = job->stages[i].stage->params;
        for (; param->name != NULL; ++param) {
            fprintf(cli->out, "%s.%s=\n", job->stages[i].id, param->name);
        }
    }
    fputs("seed=\ndevice=\nname=\nlimits.host_memory=\nlimits.scratch=\n", cli->out);
}

/* A job with errors has nothing to offer; its errors are for `plan` and `run` to tell. */
static enum espl_status with_job(const struct espl_cli *cli, const char *file,
                                 void (*print)(const struct espl_cli *, const struct espl_job *),
                                 struct espl_error *err)
{
    struct espl_diagnostics diags;
    struct espl_job *job = NULL;
    enum espl_status status = espl_diagnostics_init(&diags, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_job_load(file, espl_stages, NULL, 0, &diags, &job, err);
    if (job != NULL) {
        print(cli, job);
    } else if (diags.count > 0) {
        *err = diags.items[0].error;
        status = err->code;
    }
    espl_job_free(job);
    espl_diagnostics_free(&diags);
    return status;
}

static enum espl_status print_runs(const struct espl_cli *cli, const struct espl_store *store,
                                   struct espl_error *err)
{
    struct espl_run_list runs = {0};
    const enum espl_status status = espl_run_list_read(store, NULL, 0, &runs, err);
    for (size_t i = 0; status == ESPL_OK && i < runs.count; ++i) {
        fprintf(cli->out, "%s\n", runs.ids[i]);
    }
    espl_run_list_free(&runs);
    return status;
}

static enum espl_status print_job_artifacts(const struct espl_cli *cli, const char *folder,
                                            const char *job, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char **files = NULL;
    size_t count = 0;
    enum espl_status status = espl_fs_join(path, folder, job, err);
    if (status == ESPL_OK && espl_fs_is_dir(path)) {
        status = espl_fs_list(path, MAX_NAMES, &files, &count, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < count; ++i) {
        const size_t len = strlen(files[i]);
        if (len > 3 && strcmp(files[i] + len - 3, ".h5") == 0) {
            fprintf(cli->out, "%s:%.*s\n", job, (int)(len - 3), files[i]);
        }
    }
    espl_fs_free_names(files, count);
    return status;
}

static enum espl_status print_artifacts(const struct espl_cli *cli, const struct espl_store *store,
                                        struct espl_error *err)
{
    char folder[ESPL_PATH_MAX];
    char **jobs = NULL;
    size_t count = 0;
    enum espl_status status = espl_fs_join(folder, store->root, "by-name", err);
    if (status != ESPL_OK || !espl_fs_is_dir(folder)) {
        return status;
    }
    status = espl_fs_list(folder, MAX_NAMES, &jobs, &count, err);
    for (size_t i = 0; status == ESPL_OK && i < count; ++i) {
        status = print_job_artifacts(cli, folder, jobs[i], err);
    }
    espl_fs_free_names(jobs, count);
    return status;
}

static enum espl_status print_script(const struct espl_cli *cli, struct espl_error *err)
{
    const char *shell = cli->args->positional_count > 0 ? cli->args->positional[0] : "";
    struct espl_buf text;
    enum espl_status status = ESPL_OK;
    espl_buf_init(&text, (size_t)1 << 20);
    if (strcmp(shell, "bash") == 0) {
        espl_completion_bash(espl_commands, espl_common_options, espl_stages, &text);
    } else if (strcmp(shell, "zsh") == 0) {
        espl_completion_zsh(espl_commands, espl_common_options, espl_stages, &text);
    } else if (shell[0] == '\0') {
        status = espl_fail(err, ESPL_E_USAGE, "completion needs the name of a shell");
    } else {
        status = espl_fail(err, ESPL_E_USAGE, "there is no completion for '%s'", shell);
    }
    if (status != ESPL_OK) {
        espl_buf_free(&text);
        return espl_hint(err, "shells: bash, zsh");
    }
    status = espl_buf_check(&text, "the completion script", err);
    if (status == ESPL_OK) {
        fputs(espl_buf_text(&text), cli->out);
    }
    espl_buf_free(&text);
    return status;
}

static enum espl_status run_completion(struct espl_cli *cli, struct espl_error *err)
{
    struct espl_store store;
    const char *stages_of = espl_args_value(cli->args, "stages", NULL);
    const char *params_of = espl_args_value(cli->args, "params", NULL);
    if (stages_of != NULL) {
        return with_job(cli, stages_of, print_stages, err);
    }
    if (params_of != NULL) {
        return with_job(cli, params_of, print_params, err);
    }
    if (!espl_args_has(cli->args, "runs") && !espl_args_has(cli->args, "artifacts")) {
        return print_script(cli, err);
    }
    enum espl_status status = espl_store_open_readonly(cli->store_dir, &store, err);
    if (status == ESPL_OK && espl_args_has(cli->args, "runs")) {
        status = print_runs(cli, &store, err);
    }
    if (status == ESPL_OK && espl_args_has(cli->args, "artifacts")) {
        status = print_artifacts(cli, &store, err);
    }
    return status;
}

const struct espl_command espl_command_completion = {
    .name = "completion",
    .summary = "print a completion script for a shell",
    .positional = "bash|zsh",
    .complete = ESPL_COMPLETE_CHOICE,
    .min_positional = 0,
    .max_positional = 1,
    .options = completion_options,
    .description = "bash: source <(espalier completion bash)\n"
                   "zsh:  source <(espalier completion zsh)   (after compinit)",
    .run = run_completion,
};

#include "cli/job_setup.h"

#include "cli/device_probe.h"
#include "cli/environment.h"
#include "cli/options.h"
#include "cli/print.h"
#include "engine/database.h"
#include "engine/yaml_tree.h"
#include "stages/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_ARENA_BYTES = 16 << 20 };

static bool has_gpu_driver(void)
{
    return espl_fs_exists("/proc/driver/nvidia/version") || espl_fs_exists("/dev/nvhost-gpu");
}

/* Can this machine give the job's device? A stage that runs on it takes `auto` for the first one.
 */
static enum espl_status check_device(void *user, const char *device, const char *stage,
                                     bool device_only, struct espl_error *err)
{
    struct espl_cuda_info info;
    struct espl_error problem = {0};
    int64_t index = 0;
    (void)user; /* this check needs no state */
    if (stage != NULL && strcmp(device, "auto") == 0) {
        device = "cuda:0";
    }
    if (strncmp(device, "cuda:", 5) != 0) {
        return ESPL_OK;
    }
    const enum espl_status status = espl_cli_probe_cuda(&info, &problem);
    if (status == ESPL_E_UNSUPPORTED && !has_gpu_driver()) { /* the nearer cause */
        (void)espl_fail(err, ESPL_E_MACHINE,
                        "device '%s' is not available: no CUDA driver found on this machine",
                        device);
    } else if (status != ESPL_OK) {
        (void)espl_fail(err, problem.code, "device '%s' is not available: %s", device,
                        problem.message);
    } else if (!espl_parse_int(device + 5, &index) || index >= (int64_t)info.device_count) {
        (void)espl_fail(err, ESPL_E_MACHINE, "device '%s' is not available: this machine has %u",
                        device, info.device_count);
    } else {
        return ESPL_OK;
    }
    if (device_only) {
        return espl_hint(err,
                         "'%s' measures that device alone: run the job on a machine that has one, "
                         "leave the stage out, or see `espalier doctor`",
                         stage);
    }
    return stage == NULL
               ? espl_hint(err, "use `--device cpu` (all stages work), or see `espalier doctor`")
               : espl_hint(err,
                           "use `--device cpu` (all stages work; '%s' would then measure the CPU), "
                           "or see `espalier doctor`",
                           stage);
}

/* Splits "stage.param=value" at its first '='. */
static enum espl_status split_override(const char *text, char **copy, struct espl_override *out,
                                       struct espl_error *err)
{
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text) {
        (void)espl_fail(err, ESPL_E_USAGE, "'--set %s' is not of the form path=value", text);
        return espl_hint(err, "for example: --set prune.sparsity=0.6");
    }
    *copy = strndup(text, (size_t)(equals - text));
    if (*copy == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for --set");
    }
    out->path = *copy;
    out->value = equals + 1;
    return ESPL_OK;
}

static enum espl_status load_job(const struct espl_cli *cli, struct espl_diagnostics *diags,
                                 struct espl_job **job, struct espl_error *err)
{
    const char **sets = NULL;
    size_t set_count = 0;
    const char *device = espl_args_value(cli->args, "device", NULL);
    enum espl_status status = espl_args_collect(cli->args, "set", &sets, &set_count, err);
    if (status != ESPL_OK) {
        return status;
    }
    struct espl_override *overrides = calloc(set_count + 1, sizeof *overrides);
    char **paths = calloc(set_count + 1, sizeof *paths);
    size_t count = 0;
    if (overrides == NULL || paths == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for --set");
        goto cleanup;
    }
    for (; count < set_count && status == ESPL_OK; count++) {
        status = split_override(sets[count], &paths[count], &overrides[count], err);
    }
    if (status == ESPL_OK && device != NULL) {
        overrides[count++] =
            (struct espl_override){.path = "device", .value = device, .option = "--device"};
    }
    if (status == ESPL_OK) {
        status =
            espl_job_load(cli->args->positional[0], espl_stages, overrides, count, diags, job, err);
    }

cleanup:
    for (size_t i = 0; paths != NULL && i < set_count; i++) {
        free(paths[i]);
    }
    free(paths);
    free(overrides);
    free(sets);
    return status;
}

/* Opens the history of past runs for estimates; without it the plan says "unknown". */
static struct espl_database *open_history(const struct espl_cli *cli,
                                          const struct espl_store *store)
{
    struct espl_database *db = NULL;
    struct espl_error problem;
    if (access(store->root, W_OK) != 0) { /* SQLite needs its lock files, also to read */
        return NULL;
    }
    const enum espl_status status = espl_database_open_existing(store, &db, &problem);
    if (status != ESPL_OK && status != ESPL_E_NOTFOUND) {
        espl_print_warning(cli, "no estimates from earlier runs: %s; %s", problem.message,
                           problem.hint);
    } else if (status == ESPL_OK && cli->verbose && espl_database_remark(db)[0] != '\0') {
        espl_print_talk(cli, "%s", espl_database_remark(db));
    }
    return db;
}

static enum espl_status build_plan(const struct espl_cli *cli, struct espl_job_setup *setup,
                                   struct espl_diagnostics *diags, struct espl_error *err)
{
    enum espl_status status =
        espl_args_collect(cli->args, "force", &setup->force, &setup->force_count, err);
    if (status != ESPL_OK) {
        return status;
    }
    setup->remeasure = espl_args_has(cli->args, "remeasure");
    /* Closed again before any stage process is forked: a connection must not be used in two. */
    struct espl_database *history = open_history(cli, &setup->store);
    char fingerprint[2048] = "";
    espl_cli_device_fingerprint(setup->job->device, fingerprint, sizeof fingerprint);
    const struct espl_plan_options options = {
        .from = espl_args_value(cli->args, "from", NULL),
        .until = espl_args_value(cli->args, "until", NULL),
        .force = setup->force,
        .force_count = setup->force_count,
        .remeasure = setup->remeasure,
        .rehash = espl_args_has(cli->args, "rehash"),
        .device_fingerprint = fingerprint[0] != '\0' ? fingerprint : NULL,
        .check_device = check_device,
        .history = espl_database_history,
        .history_user = history,
    };
    status = espl_plan_build(setup->job, &setup->store, &options, diags, &setup->plan, err);
    espl_database_close(history);
    return status;
}

enum espl_status espl_job_setup_load(const struct espl_cli *cli, bool writes,
                                     struct espl_job_setup *setup, struct espl_error *err)
{
    struct espl_diagnostics diags;
    memset(setup, 0, sizeof *setup);
    enum espl_status status = espl_diagnostics_init(&diags, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = load_job(cli, &diags, &setup->job, err);
    if (status == ESPL_OK) {
        status = writes ? espl_store_open(cli->store_dir, &setup->store, err)
                        : espl_store_open_readonly(cli->store_dir, &setup->store, err);
    }
    if (status == ESPL_OK) {
        status = build_plan(cli, setup, &diags, err);
    }
    if (diags.count > 0) {
        espl_print_diagnostics(cli, &diags);
        (void)espl_fail(err, status, "%s", ""); /* all was said */
        setup->reported = true;
    }
    espl_diagnostics_free(&diags);
    return status;
}

void espl_job_setup_free(struct espl_job_setup *setup)
{
    espl_plan_free(setup->plan);
    espl_job_free(setup->job);
    free(setup->force);
    memset(setup, 0, sizeof *setup);
}

/* ---- runs ---- */

static bool is_job_file(const char *text)
{
    const size_t len = strlen(text);
    return (len > 5 && strcmp(text + len - 5, ".yaml") == 0) ||
           (len > 4 && strcmp(text + len - 4, ".yml") == 0);
}

/* The name in a job file, read without checking the rest: a job under repair still has runs. */
static enum espl_status read_job_name(const char *file, char *name, size_t size,
                                      struct espl_error *err)
{
    struct espl_diagnostics diags;
    struct espl_arena *arena = NULL;
    const struct espl_node *root = NULL;
    char *text = NULL;
    size_t len = 0;
    enum espl_status status = espl_diagnostics_init(&diags, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_fs_read_file(file, ESPL_YAML_MAX_BYTES, &text, &len, err);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    arena = espl_arena_create(NAME_ARENA_BYTES);
    if (arena == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for '%s'", file);
        goto cleanup;
    }
    status = espl_yaml_parse(file, text, len, arena, &diags, &root, err);
    if (status == ESPL_OK && root == NULL && diags.count > 0) {
        *err = diags.items[0].error;
        status = err->code;
    }
    if (status != ESPL_OK) {
        goto cleanup;
    }
    const struct espl_node *node = espl_node_get(root, "name", NULL);
    if (node == NULL || node->type != ESPL_NODE_SCALAR) {
        status = espl_fail(err, ESPL_E_JOB, "'%s' has no name", file);
    } else {
        (void)snprintf(name, size, "%s", node->text);
    }

cleanup:
    espl_arena_destroy(arena);
    free(text);
    espl_diagnostics_free(&diags);
    return status;
}

enum espl_status espl_cli_find_run(struct espl_cli *cli, const struct espl_store *store,
                                   const char *text, char run_id[ESPL_RUN_ID_MAX],
                                   struct espl_error *err)
{
    const struct espl_log log = espl_print_log(cli);
    char name[256];
    if (text == NULL) {
        return espl_run_latest(store, NULL, &log, run_id, err);
    }
    if (!is_job_file(text)) {
        return espl_run_resolve(store, text, &log, run_id, err);
    }
    const enum espl_status status = read_job_name(text, name, sizeof name, err);
    return status == ESPL_OK ? espl_run_latest(store, name, &log, run_id, err) : status;
}

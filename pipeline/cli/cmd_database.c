/* espalier database rebuild: the index of runs anew from the run records. */
#include "cli/print.h"
#include "engine/database.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const struct espl_option options[] = {{0}};

static enum espl_status open_for_rebuild(struct espl_cli *cli, const struct espl_store *store,
                                         struct espl_database **db, struct espl_error *err)
{
    enum espl_status status = espl_database_open(store, db, err);
    if (status != ESPL_E_CORRUPT) {
        return status;
    }
    espl_print_warning(cli, "%s; the file is replaced", err->message);
    espl_error_clear(err);
    status = espl_database_delete(store, err);
    return status == ESPL_OK ? espl_database_open(store, db, err) : status;
}

static enum espl_status run(struct espl_cli *cli, struct espl_error *err)
{
    struct espl_store store;
    struct espl_database *db = NULL;
    size_t runs = 0;
    size_t damaged = 0;
    const struct espl_log log = espl_print_log(cli);
    if (strcmp(cli->args->positional[0], "rebuild") != 0) {
        (void)espl_fail(err, ESPL_E_USAGE, "unknown action '%s'", cli->args->positional[0]);
        return espl_hint(err, "the form is: espalier database rebuild");
    }
    enum espl_status status = espl_store_open(cli->store_dir, &store, err);
    if (status == ESPL_OK) {
        status = open_for_rebuild(cli, &store, &db, err);
    }
    if (status == ESPL_OK && espl_database_remark(db)[0] != '\0') {
        espl_print_talk(cli, "%s", espl_database_remark(db));
    }
    if (status == ESPL_OK) {
        status = espl_database_rebuild(db, &store, &log, &runs, &damaged, err);
    }
    espl_database_close(db);
    if (status == ESPL_OK && cli->json) {
        status = espl_print_json_take(cli,
                                      json_pack("{s:s, s:I, s:I}", "schema", "espalier.database/1",
                                                "runs", (json_int_t)runs, "left_out",
                                                (json_int_t)damaged),
                                      err);
    } else if (status == ESPL_OK) {
        (void)fprintf(cli->out, "%zu run%s in %s/espalier.db", runs, runs == 1 ? "" : "s",
                      cli->store_dir);
        (void)fprintf(cli->out, damaged > 0 ? ", %zu left out\n" : "\n", damaged);
    }
    return status;
}

const struct espl_command espl_command_database = {
    .name = "database",
    .summary = "rebuild the index of runs from the run records",
    .positional = "rebuild",
    .complete = ESPL_COMPLETE_CHOICE,
    .min_positional = 1,
    .max_positional = 1,
    .options = options,
    .description =
        "results/espalier.db (SQLite) holds runs, stages and metrics for queries. The truth is in\n"
        "results/runs/, so the file can be made anew at any time.",
    .run = run,
};

/* espalier gc: what in the results folder can go; deletes only with --delete. */
#include "cli/gc_cache.h"
#include "cli/gc_scan.h"
#include "cli/print.h"
#include "core/units.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const struct espl_option options[] = {
    {.name = "delete", .help = "delete what is listed"},
    {.name = "cache",
     .help = "also what no set names in the folder of fetched files, and broken-off downloads"},
    {.name = "keep-runs", .argument = "N", .help = "results of the newest N runs stay, default 10"},
    {0},
};

static enum espl_status read_keep_runs(const struct espl_cli *cli, size_t *out,
                                       struct espl_error *err)
{
    int64_t value = 0;
    const char *text = espl_args_value(cli->args, "keep-runs", NULL);
    if (text == NULL) {
        *out = ESPL_GC_KEEP_RUNS;
        return ESPL_OK;
    }
    if (!espl_parse_int(text, &value) || value < 0) {
        return espl_fail(err, ESPL_E_USAGE, "'--keep-runs' must be a number from 0, got '%s'",
                         text);
    }
    *out = (size_t)value;
    return ESPL_OK;
}

static const char *shown_path(const struct espl_store *store, const char *path)
{
    const size_t len = strlen(store->root);
    return strncmp(path, store->root, len) == 0 && path[len] == '/' ? path + len + 1 : path;
}

static enum espl_status print_list(const struct espl_cli *cli, const struct espl_store *store,
                                   const struct espl_gc_list *list, struct espl_error *err)
{
    static const struct espl_column columns[] = {
        {.title = "what"}, {.title = "size", .right = true},
        {.title = "kind"}, {.title = "stage"},
        {.title = "made"}, {.title = "path", .gives_way = true},
    };
    struct espl_table *table = NULL;
    enum espl_status status =
        espl_table_create(columns, sizeof columns / sizeof columns[0], &table, err);
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t i = 0; i < list->count; i++) {
        const struct espl_gc_item *item = &list->items[i];
        char size[ESPL_UNIT_TEXT];
        espl_print_size(item->bytes, size);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", espl_gc_type_name(item->type));
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", size);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", item->kind);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", item->stage);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", item->created_utc);
        espl_table_cell(table, ESPL_STYLE_DIM, "%s", shown_path(store, item->path));
    }
    status = espl_table_print(table, cli->out, 2, cli->colour_out, err);
    espl_table_destroy(table);
    return status;
}

/* Deletes all; an item that cannot be deleted does not keep the others. */
static enum espl_status delete_all(const struct espl_cli *cli, const struct espl_store *store,
                                   const struct espl_gc_list *list, size_t *deleted,
                                   uint64_t *bytes, struct espl_error *err)
{
    enum espl_status first = ESPL_OK;
    for (size_t i = 0; i < list->count; i++) {
        struct espl_error problem;
        bool gone = false;
        const enum espl_status status = espl_gc_delete(store, &list->items[i], &gone, &problem);
        if (status != ESPL_OK && first == ESPL_OK) {
            first = status;
            *err = problem;
        } else if (status == ESPL_OK && !gone) {
            espl_print_talk(cli, "kept %s: a run uses it now",
                            shown_path(store, list->items[i].path));
        }
        *deleted += gone ? 1 : 0;
        *bytes += gone ? list->items[i].bytes : 0;
    }
    return first;
}

static json_t *items_json(const struct espl_store *store, const struct espl_gc_list *list)
{
    json_t *items = json_array();
    for (size_t i = 0; i < list->count; i++) {
        const struct espl_gc_item *item = &list->items[i];
        (void)json_array_append_new(
            items, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I}", "what",
                             espl_gc_type_name(item->type), "path", shown_path(store, item->path),
                             "key", item->key, "kind", item->kind, "stage", item->stage,
                             "created_utc", item->created_utc, "bytes", (json_int_t)item->bytes));
    }
    return items;
}

static uint64_t total_bytes(const struct espl_gc_list *list)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < list->count; i++) {
        bytes += list->items[i].bytes;
    }
    return bytes;
}

static void print_totals(const struct espl_cli *cli, const struct espl_gc_list *list, bool deleting,
                         size_t deleted, uint64_t freed)
{
    char size[ESPL_UNIT_TEXT];
    char kept[ESPL_UNIT_TEXT];
    espl_print_size(list->kept_bytes, kept);
    if (list->count == 0) {
        (void)fprintf(cli->out, "nothing to delete");
    } else if (deleting) {
        espl_print_size(freed, size);
        (void)fprintf(cli->out, "deleted %zu of %zu, %s freed", deleted, list->count, size);
    } else {
        espl_print_size(total_bytes(list), size);
        (void)fprintf(cli->out, "%zu can go, %s; `espalier gc --delete` deletes them", list->count,
                      size);
    }
    (void)fprintf(cli->out, "; %zu artifact%s in use, %s\n", list->kept_artifacts,
                  list->kept_artifacts == 1 ? "" : "s", kept);
}

static enum espl_status run(struct espl_cli *cli, struct espl_error *err)
{
    struct espl_store store;
    struct espl_gc_list list = {0};
    size_t keep_runs = 0;
    size_t deleted = 0;
    uint64_t freed = 0;
    const bool deleting = espl_args_has(cli->args, "delete");
    const struct espl_log log = espl_print_log(cli);
    enum espl_status status = read_keep_runs(cli, &keep_runs, err);
    if (status == ESPL_OK) {
        status = espl_store_open_readonly(cli->store_dir, &store, err);
    }
    if (status == ESPL_OK) {
        status = espl_gc_scan(&store, keep_runs, &log, &list, err);
    }
    if (status == ESPL_OK && espl_args_has(cli->args, "cache")) {
        status = espl_gc_cache_scan(&list, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    if (!cli->json && list.count > 0) {
        status = print_list(cli, &store, &list, err);
    }
    if (status == ESPL_OK && deleting) {
        status = delete_all(cli, &store, &list, &deleted, &freed, err);
    }
    if (cli->json) {
        const enum espl_status printed = espl_print_json_take(
            cli,
            json_pack("{s:s, s:o, s:I, s:b, s:I, s:I}", "schema", "espalier.gc/1", "items",
                      items_json(&store, &list), "bytes", (json_int_t)total_bytes(&list), "deleted",
                      deleting ? 1 : 0, "deleted_count", (json_int_t)deleted, "freed_bytes",
                      (json_int_t)freed),
            status == ESPL_OK ? err : NULL);
        status = status == ESPL_OK ? printed : status;
    } else {
        print_totals(cli, &list, deleting, deleted, freed);
    }
    espl_gc_list_free(&list);
    return status;
}

const struct espl_command espl_command_gc = {
    .name = "gc",
    .summary = "list what no job and no recent run refers to; --delete deletes it",
    .min_positional = 0,
    .max_positional = 0,
    .options = options,
    .description =
        "In use is what the links in results/by-name/ and the newest runs name, and everything\n"
        "that was made from it. Nothing that a run works on now is touched.",
    .run = run,
};

/* espalier fetch: data sets and models of the registry into the cache that all jobs share. */
#include "cli/command.h"
#include "cli/fetch_entry.h"
#include "cli/print.h"
#include "core/units.h"
#include "datasets/subset.h"

#include <stdlib.h>
#include <string.h>

static const struct espl_option options[] = {
    {.name = "list", .help = "list what can be fetched, and what is there already"},
    {.name = "offline", .help = "never open a connection; fail when something is missing"},
    {.name = "update", .help = "look again at branches and unpinned addresses"},
    {.name = "remove", .help = "forget the named sets; `espalier gc` then frees their space"},
    {.name = "cache",
     .argument = "DIR",
     .complete = ESPL_COMPLETE_FILE,
     .help = "folder of fetched files, default ~/.cache/espalier"},
    {.name = "registry",
     .argument = "FILE",
     .complete = ESPL_COMPLETE_FILE,
     .help = "another registry than the one that is built in"},
    {.name = "revision", .argument = "REV", .help = "commit, branch or tag of the repository"},
    {.name = "from",
     .argument = "DIR",
     .complete = ESPL_COMPLETE_FILE,
     .help = "folder of the whole image set that a sample is drawn from"},
    {.name = "hub", .argument = "URL", .help = "address of the hub or of a mirror of it"},
    {.name = "mirror", .argument = "URL", .help = "try URL/NAME/FILE before other addresses"},
    {.name = "parallel", .argument = "N", .help = "files at a time, default 4"},
    {.name = "retries", .argument = "N", .help = "attempts after a passing failure, default 5"},
    {.name = "retry-delay",
     .argument = "TIME",
     .help = "first pause between attempts, default 1s; it doubles"},
    {.name = "stall-timeout",
     .argument = "TIME",
     .help = "give up a connection without a byte for so long, default 60s"},
    {.name = "token-file",
     .argument = "FILE",
     .complete = ESPL_COMPLETE_FILE,
     .help = "token of the hub, for repositories with a licence to accept"},
    {.name = "ca-file",
     .argument = "FILE",
     .complete = ESPL_COMPLETE_FILE,
     .help = "certificates to trust instead of the system's"},
    {.name = "proxy", .argument = "URL", .help = "proxy instead of the one of the environment"},
    {0},
};

static const char *from_environment(const char *name, const char *fallback)
{
    const char *const value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : fallback;
}

/* ---- settings ---- */

static enum espl_status put_count(const struct espl_cli *cli, const char *option, json_t *request,
                                  struct espl_error *err)
{
    const char *const text = espl_args_value(cli->args, option, NULL);
    int64_t number = 0;
    if (text == NULL) {
        return ESPL_OK;
    }
    const int64_t least = strcmp(option, "parallel") == 0 ? 1 : 0;
    if (!espl_parse_int(text, &number) || number < least || number > 64) {
        return espl_fail(err, ESPL_E_USAGE, "--%s must be a number from %d to 64, got '%s'", option,
                         (int)least, text);
    }
    return json_object_set_new(request, option, json_integer(number)) == 0
               ? ESPL_OK
               : espl_fail(err, ESPL_E_NOMEM, "no memory for the request");
}

static enum espl_status put_seconds(const struct espl_cli *cli, const char *option,
                                    const char *field, json_t *request, struct espl_error *err)
{
    const char *const text = espl_args_value(cli->args, option, NULL);
    double seconds = 0;
    if (text == NULL) {
        return ESPL_OK;
    }
    if (!espl_parse_duration(text, &seconds) || seconds < 0 || seconds > 86400) {
        (void)espl_fail(err, ESPL_E_USAGE, "--%s must be a time of at most a day, got '%s'", option,
                        text);
        return espl_hint(err, "for example --%s=5s", option);
    }
    return json_object_set_new(request, field, json_real(seconds)) == 0
               ? ESPL_OK
               : espl_fail(err, ESPL_E_NOMEM, "no memory for the request");
}

/* Addresses of mirrors come with or without a slash at their end. */
static const char *trimmed(char *url)
{
    size_t len = strlen(url);
    while (len > 0 && url[len - 1] == '/') {
        url[--len] = '\0';
    }
    return url;
}

struct addresses {
    char hub[1024];
    char mirror[1024];
};

static enum espl_status read_settings(const struct espl_cli *cli, struct addresses *addresses,
                                      struct espl_fetch_settings *out, struct espl_error *err)
{
    const struct espl_args *const args = cli->args;
    const char *const hub =
        from_environment("ESPALIER_HUB", from_environment("HF_ENDPOINT", "https://huggingface.co"));
    (void)snprintf(addresses->hub, sizeof addresses->hub, "%s", espl_args_value(args, "hub", hub));
    (void)snprintf(addresses->mirror, sizeof addresses->mirror, "%s",
                   espl_args_value(args, "mirror", from_environment("ESPALIER_MIRROR", "")));
    out->hub = trimmed(addresses->hub);
    out->mirror = addresses->mirror[0] != '\0' ? trimmed(addresses->mirror) : NULL;
    out->revision = espl_args_value(args, "revision", NULL);
    enum espl_status status =
        espl_cache_locate(espl_args_value(args, "cache", NULL), &out->cache, err);
    if (status != ESPL_OK) {
        return status;
    }
    out->request =
        json_pack("{s:s, s:s, s:b, s:b, s:s*, s:s*, s:s*}", "cache", out->cache.root, "hub",
                  out->hub, "offline", espl_args_has(args, "offline") ? 1 : 0, "update",
                  espl_args_has(args, "update") ? 1 : 0, "token_file",
                  espl_args_value(args, "token-file", NULL), "ca_file",
                  espl_args_value(args, "ca-file", from_environment("SSL_CERT_FILE", NULL)),
                  "proxy", espl_args_value(args, "proxy", NULL));
    if (out->request == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the request");
    }
    status = put_count(cli, "parallel", out->request, err);
    if (status == ESPL_OK) {
        status = put_count(cli, "retries", out->request, err);
    }
    if (status == ESPL_OK) {
        status = put_seconds(cli, "retry-delay", "retry_seconds", out->request, err);
    }
    return status == ESPL_OK ? put_seconds(cli, "stall-timeout", "stall_seconds", out->request, err)
                             : status;
}

/* ---- the registry ---- */

static enum espl_status read_registry(const struct espl_cli *cli, struct espl_arena *arena,
                                      struct espl_registry *out, struct espl_error *err)
{
    const char *const file =
        espl_args_value(cli->args, "registry", from_environment("ESPALIER_REGISTRY", NULL));
    struct espl_diagnostics diags;
    char *text = NULL;
    size_t len = 0;
    enum espl_status status = espl_diagnostics_init(&diags, err);
    if (status == ESPL_OK && file != NULL) {
        status = espl_fs_read_file(file, ESPL_REGISTRY_MAX_BYTES, &text, &len, err);
    }
    if (status == ESPL_OK) {
        status = file != NULL
                     ? espl_registry_parse(file, text, len, arena, &diags, out, err)
                     : espl_registry_parse("datasets/registry.yaml", espl_registry_builtin,
                                           espl_registry_builtin_len, arena, &diags, out, err);
    }
    if (diags.count > 0) {
        espl_print_diagnostics(cli, &diags);
        err->message[0] = '\0'; /* all is said */
    }
    espl_diagnostics_free(&diags);
    free(text);
    return status;
}

/* ---- --list ---- */

/* Bytes of a set, 0 when it is not there whole. */
static uint64_t fetched_bytes(const struct espl_cache *cache, const char *name)
{
    char folder[ESPL_PATH_MAX];
    json_t *description = NULL;
    uint64_t bytes = 0;
    size_t index = 0;
    const json_t *file = NULL;
    if (espl_cache_find_set(cache, name, folder, &description, NULL) != ESPL_OK) {
        return 0;
    }
    json_array_foreach(json_object_get(description, "files"), index, file)
    {
        bytes += (uint64_t)json_integer_value(json_object_get(file, "size"));
    }
    json_decref(description);
    return bytes;
}

static enum espl_status list_json(const struct espl_cli *cli, const struct espl_registry *registry,
                                  const struct espl_cache *cache, struct espl_error *err)
{
    json_t *const entries = json_array();
    for (size_t i = 0; i < registry->count; i++) {
        const struct espl_registry_entry *const entry = &registry->entries[i];
        (void)json_array_append_new(
            entries, json_pack("{s:s, s:s, s:s, s:s, s:s*, s:s*, s:s*, s:s*, s:s*, s:I}", "name",
                               entry->name, "kind", espl_registry_kind_name(entry->kind), "title",
                               entry->title, "licence", entry->licence, "split", entry->split,
                               "format", entry->format, "loader", entry->loader, "repository",
                               entry->repository, "revision", entry->revision, "fetched_bytes",
                               (json_int_t)fetched_bytes(cache, entry->name)));
    }
    return espl_print_json_take(
        cli, json_pack("{s:s, s:o}", "schema", "espalier.registry/1", "entries", entries), err);
}

static enum espl_status list_table(const struct espl_cli *cli, const struct espl_registry *registry,
                                   const struct espl_cache *cache, struct espl_error *err)
{
    static const struct espl_column columns[] = {{.title = "name"},
                                                 {.title = "kind"},
                                                 {.title = "fetched", .right = true},
                                                 {.title = "what it is", .gives_way = true}};
    struct espl_table *table = NULL;
    enum espl_status status =
        espl_table_create(columns, sizeof columns / sizeof columns[0], &table, err);
    for (size_t i = 0; status == ESPL_OK && i < registry->count; i++) {
        const struct espl_registry_entry *const entry = &registry->entries[i];
        const uint64_t bytes = fetched_bytes(cache, entry->name);
        char size[ESPL_UNIT_TEXT] = "-";
        if (bytes > 0) {
            espl_print_size(bytes, size);
        }
        espl_table_cell(table, ESPL_STYLE_BOLD, "%s", entry->name);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", espl_registry_kind_name(entry->kind));
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s",
                        bytes == 0 && entry->manual != NULL ? "by hand" : size);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", entry->title);
    }
    if (status == ESPL_OK) {
        status = espl_table_print(table, cli->out, 0, cli->colour_out, err);
    }
    espl_table_destroy(table);
    return status;
}

/* ---- the verb ---- */

static enum espl_status print_fetched(const struct espl_cli *cli, const char *folder,
                                      const json_t *description, struct espl_error *err)
{
    if (cli->json) {
        json_t *const object = json_copy((json_t *)(uintptr_t)description);
        (void)json_object_set_new(object, "folder", json_string(folder));
        return espl_print_json_line_take(cli, object, err);
    }
    (void)fprintf(cli->out, "%s\n", folder);
    return ESPL_OK;
}

static enum espl_status fetch_one(const struct espl_cli *cli, const struct espl_registry *registry,
                                  const struct espl_fetch_settings *settings, const char *name,
                                  struct espl_error *err)
{
    const struct espl_registry_entry *entry = NULL;
    char folder[ESPL_PATH_MAX];
    json_t *description = NULL;
    const char *const from = espl_args_value(cli->args, "from", NULL);
    enum espl_status status = espl_registry_find(registry, name, &entry, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (from != NULL && entry->subset.classes == 0) {
        return espl_fail(err, ESPL_E_USAGE, "--from is for samples of image sets, and '%s' is none",
                         name);
    }
    if (from != NULL) {
        const struct espl_subset subset = {.classes = (size_t)entry->subset.classes,
                                           .train_per_class = (size_t)entry->subset.train_per_class,
                                           .val_per_class = (size_t)entry->subset.val_per_class,
                                           .seed = entry->subset.seed};
        status = espl_subset_publish(&settings->cache, entry->name, from, &subset, err);
        if (status == ESPL_OK) {
            status = espl_cache_find_set(&settings->cache, name, folder, &description, err);
        }
    } else {
        status = espl_fetch_entry(cli, entry, settings, folder, &description, err);
    }
    if (status == ESPL_OK) {
        status = print_fetched(cli, folder, description, err);
    }
    json_decref(description);
    return status;
}

static enum espl_status fetch_all(const struct espl_cli *cli, const struct espl_registry *registry,
                                  const struct espl_fetch_settings *settings,
                                  struct espl_error *err)
{
    const struct espl_args *const args = cli->args;
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < args->positional_count && status == ESPL_OK; i++) {
        status = espl_args_has(args, "remove")
                     ? espl_cache_remove_set(&settings->cache, args->positional[i], err)
                     : fetch_one(cli, registry, settings, args->positional[i], err);
    }
    return status;
}

static enum espl_status run_fetch(struct espl_cli *cli, struct espl_error *err)
{
    enum { ARENA_LIMIT = 64 << 20 };
    struct espl_fetch_settings settings = {.request = NULL};
    struct addresses addresses;
    struct espl_registry registry = {.count = 0};
    if (cli->args->positional_count == 0 && !espl_args_has(cli->args, "list")) {
        (void)espl_fail(err, ESPL_E_USAGE, "fetch needs the name of a data set or model");
        return espl_hint(err, "`espalier fetch --list` lists all");
    }
    struct espl_arena *const arena = espl_arena_create(ARENA_LIMIT);
    enum espl_status status = arena != NULL
                                  ? read_registry(cli, arena, &registry, err)
                                  : espl_fail(err, ESPL_E_NOMEM, "no memory for the registry");
    if (status == ESPL_OK) {
        status = read_settings(cli, &addresses, &settings, err);
    }
    if (status == ESPL_OK && espl_args_has(cli->args, "list")) {
        status = cli->json ? list_json(cli, &registry, &settings.cache, err)
                           : list_table(cli, &registry, &settings.cache, err);
    } else if (status == ESPL_OK) {
        status = fetch_all(cli, &registry, &settings, err);
    }
    json_decref(settings.request);
    espl_arena_destroy(arena);
    return status;
}

const struct espl_command espl_command_fetch = {
    .name = "fetch",
    .summary = "bring data sets and models of the registry into the cache",
    .positional = "[NAME...]",
    .min_positional = 0,
    .max_positional = 64,
    .options = options,
    .description =
        "Prints the folder of each. Jobs name it as `source: NAME`. What is there already is not\n"
        "fetched again, an interrupted fetch continues, and two at once share the work.\n"
        "Environment: ESPALIER_CACHE, ESPALIER_REGISTRY, ESPALIER_MIRROR, ESPALIER_HUB (or\n"
        "HF_ENDPOINT), ESPALIER_HUB_TOKEN (or HF_TOKEN), ESPALIER_HUB_TOKEN_FILE, SSL_CERT_FILE,\n"
        "https_proxy, no_proxy.",
    .run = run_fetch,
};

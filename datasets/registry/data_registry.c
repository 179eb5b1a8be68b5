#include "datasets/registry/data_registry.h"

#include "core/suggest.h"
#include "datasets/cache.h"
#include "datasets/fetch_url.h"
#include "datasets/registry/registry_names.h"
#include "datasets/registry/registry_read.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ENTRIES = 1000, MAX_FILES = 1000 };
static const uint64_t default_max_bytes = UINT64_C(1) << 30;
static const uint64_t default_max_weights = UINT64_C(1) << 36;

static const char *const kind_names[] = {"text", "images", "model", NULL};

const char *espl_registry_kind_name(enum espl_registry_kind kind)
{
    return kind_names[kind];
}

bool espl_registry_is_commit(const char *revision)
{
    return strlen(revision) == 40 && strspn(revision, "0123456789abcdef") == 40;
}

static struct espl_registry_member read_member(struct espl_registry_reader *reader,
                                               const struct espl_node *node)
{
    static const char *const keys[] = {"member", "name", "sha256", "max_bytes", NULL};
    struct espl_registry_member member = {.max_bytes = default_max_bytes};
    if (node->type != ESPL_NODE_MAPPING) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                                   "'unpack' must be a list of {member: .., name: ..}");
        return member;
    }
    espl_registry_check_keys(reader, node, keys, "a member of an archive");
    member.member = espl_registry_path(reader, node, "member");
    member.name = espl_registry_path(reader, node, "name");
    member.sha256 = espl_registry_hash(reader, node);
    member.max_bytes = espl_registry_size(reader, node, "max_bytes", default_max_bytes);
    return member;
}

static void check_urls(struct espl_registry_reader *reader, const struct espl_node *node,
                       const struct espl_registry_file *file)
{
    for (size_t i = 0; i < file->url_count; i++) {
        struct espl_error why;
        if (file->urls[i][0] != '\0' && espl_fetch_check_url(file->urls[i], &why) != ESPL_OK) {
            struct espl_diagnostic *const item = espl_diagnostics_add(
                reader->diags, ESPL_E_JOB, &node->at, "'url': %s", why.message);
            espl_diagnostic_hint(item, "http is for a server on this machine: http://127.0.0.1");
        }
    }
}

static struct espl_registry_file read_file(struct espl_registry_reader *reader,
                                           const struct espl_node *node, bool hub)
{
    static const char *const keys[] = {"name",      "url",      "sha256", "size",
                                       "max_bytes", "optional", "unpack", NULL};
    struct espl_registry_file file = {.max_bytes = default_max_bytes};
    size_t count = 0;
    if (node->type == ESPL_NODE_SCALAR && hub && espl_cache_name_is_safe(node->text)) {
        file.name = node->text; /* short form for files of the hub */
        return file;
    }
    if (node->type != ESPL_NODE_MAPPING) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                                   "a file must be a mapping with a 'name'");
        return file;
    }
    espl_registry_check_keys(reader, node, keys, "a file");
    file.name = espl_registry_path(reader, node, "name");
    file.urls = espl_registry_texts(reader, node, "url", &file.url_count);
    file.sha256 = espl_registry_hash(reader, node);
    file.size = espl_registry_size(reader, node, "size", 0);
    file.max_bytes = espl_registry_size(reader, node, "max_bytes",
                                        file.size > 0 ? file.size : default_max_bytes);
    file.optional = espl_registry_flag(reader, node, "optional");
    if (file.url_count == 0 && !hub) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                                   "a file needs a 'url', or its entry a 'hub'");
    }
    if (file.url_count > 16) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                                   "a file may have 16 addresses, this one has %zu",
                                   file.url_count);
    }
    check_urls(reader, node, &file);
    const struct espl_node *const *const items =
        espl_registry_items(reader, node, "unpack", &count);
    struct espl_registry_member *const members =
        espl_registry_array(reader, count, sizeof *members);
    for (size_t i = 0; members != NULL && i < count; i++) {
        members[i] = read_member(reader, items[i]);
    }
    file.members = members;
    file.member_count = members != NULL ? count : 0;
    return file;
}

static void read_files(struct espl_registry_reader *reader, const struct espl_node *node,
                       struct espl_registry_entry *entry)
{
    size_t count = 0;
    const struct espl_node *const *const items = espl_registry_items(reader, node, "files", &count);
    if (count > MAX_FILES) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                                   "an entry may have %d files, this one has %zu", (int)MAX_FILES,
                                   count);
        return;
    }
    struct espl_registry_file *const files = espl_registry_array(reader, count, sizeof *files);
    for (size_t i = 0; files != NULL && i < count; i++) {
        files[i] = read_file(reader, items[i], entry->repository != NULL);
    }
    entry->files = files;
    entry->file_count = files != NULL ? count : 0;
    espl_registry_check_names(reader, node, items, entry);
}

/* "owner/name" of characters that need no escape in an address. */
static bool is_repository(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-_.";
    const size_t owner = strspn(text, allowed);
    return owner > 0 && text[owner] == '/' && text[owner + 1] != '\0' &&
           text[owner + 1 + strspn(text + owner + 1, allowed)] == '\0' &&
           espl_cache_name_is_safe(text);
}

static void read_hub(struct espl_registry_reader *reader, const struct espl_node *node,
                     struct espl_registry_entry *entry)
{
    static const char *const keys[] = {"repository", "revision", "type", NULL};
    static const char *const types[] = {"model", "dataset", NULL};
    const struct espl_node *const hub = espl_registry_mapping(reader, node, "hub", false);
    if (hub == NULL) {
        return;
    }
    espl_registry_check_keys(reader, hub, keys, "'hub'");
    entry->repository = espl_registry_text(reader, hub, "repository", true);
    entry->revision = espl_registry_text(reader, hub, "revision", true);
    entry->hub_dataset = espl_registry_choice(reader, hub, "type", types, 0) == 1;
    if (entry->repository != NULL && !is_repository(entry->repository)) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &hub->at,
                                   "'repository' must be owner/name, got '%.80s'",
                                   entry->repository);
    }
    if (entry->revision != NULL && !espl_cache_name_is_safe(entry->revision)) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &hub->at,
                                   "'revision' must be a commit, branch or tag, got '%.80s'",
                                   entry->revision);
    }
}

static void read_subset(struct espl_registry_reader *reader, const struct espl_node *node,
                        struct espl_registry_entry *entry)
{
    static const char *const keys[] = {"classes", "train_per_class", "val_per_class", "seed", NULL};
    const struct espl_node *const subset = espl_registry_mapping(reader, node, "subset", false);
    if (subset == NULL) {
        return;
    }
    espl_registry_check_keys(reader, subset, keys, "'subset'");
    entry->subset.classes = espl_registry_count(reader, subset, "classes", 0);
    entry->subset.train_per_class = espl_registry_count(reader, subset, "train_per_class", 0);
    entry->subset.val_per_class = espl_registry_count(reader, subset, "val_per_class", 0);
    entry->subset.seed = espl_registry_count(reader, subset, "seed", 0);
    if (entry->subset.classes == 0) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &subset->at,
                                   "'classes' of a subset must be at least 1");
    }
}

/* A name is part of paths and of the command line. */
static void check_name(struct espl_registry_reader *reader, const struct espl_node *key)
{
    const size_t len = strlen(key->text);
    if (len == 0 || len > 64 || key->text[0] == '-' || key->text[0] == '.' ||
        strspn(key->text, "abcdefghijklmnopqrstuvwxyz0123456789-._") != len) {
        struct espl_diagnostic *const item = espl_diagnostics_add(
            reader->diags, ESPL_E_JOB, &key->at, "'%.64s' is no name of an entry", key->text);
        espl_diagnostic_hint(item, "lower-case letters, digits, '-', '.' and '_', at most 64");
    }
}

static struct espl_registry_entry read_entry(struct espl_registry_reader *reader,
                                             const struct espl_node *key,
                                             const struct espl_node *node)
{
    static const char *const keys[] = {"kind",   "title",  "licence", "homepage",  "split",
                                       "format", "loader", "manual",  "hub",       "weights",
                                       "files",  "use",    "subset",  "max_bytes", NULL};
    static const char *const weights[] = {"safetensors", NULL};
    struct espl_registry_entry entry = {.name = key->text};
    check_name(reader, key);
    if (node->type != ESPL_NODE_MAPPING) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                                   "an entry must be a mapping");
        return entry;
    }
    espl_registry_check_keys(reader, node, keys, "an entry");
    entry.kind = (enum espl_registry_kind)espl_registry_choice(reader, node, "kind", kind_names, 0);
    entry.title = espl_registry_text(reader, node, "title", true);
    entry.licence = espl_registry_text(reader, node, "licence", true);
    entry.homepage = espl_registry_text(reader, node, "homepage", false);
    entry.split = espl_registry_text(reader, node, "split", false);
    entry.format = espl_registry_text(reader, node, "format", false);
    entry.loader = espl_registry_text(reader, node, "loader", false);
    entry.manual = espl_registry_text(reader, node, "manual", false);
    entry.weights = espl_registry_choice(reader, node, "weights", weights, 1) == 0;
    entry.max_bytes = espl_registry_size(reader, node, "max_bytes", default_max_weights);
    entry.use = espl_registry_texts(reader, node, "use", &entry.use_count);
    read_hub(reader, node, &entry);
    read_files(reader, node, &entry);
    read_subset(reader, node, &entry);
    if (entry.weights && entry.repository == NULL) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                                   "'weights' needs a 'hub' that holds them");
    }
    if ((entry.file_count > 0 || entry.weights) == (entry.manual != NULL)) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                                   "an entry needs either 'files' or 'manual'");
    }
    return entry;
}

static int compare_entries(const void *a, const void *b)
{
    const struct espl_registry_entry *const left = a;
    const struct espl_registry_entry *const right = b;
    return strcmp(left->name, right->name);
}

static void read_entries(struct espl_registry_reader *reader, const struct espl_node *root,
                         struct espl_registry *out)
{
    static const char *const keys[] = {"version", "entries", NULL};
    const char *const version = espl_registry_text(reader, root, "version", true);
    const struct espl_node *const entries = espl_registry_mapping(reader, root, "entries", true);
    espl_registry_check_keys(reader, root, keys, "a registry");
    if (version != NULL && strcmp(version, "1") != 0) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_VERSION, &root->at,
                                   "'version' must be 1, got '%.40s'", version);
    }
    if (entries == NULL) {
        return;
    }
    if (entries->count > MAX_ENTRIES) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &entries->at,
                                   "a registry may have %d entries, this one has %zu",
                                   (int)MAX_ENTRIES, entries->count);
        return;
    }
    struct espl_registry_entry *const list =
        espl_registry_array(reader, entries->count, sizeof *list);
    for (size_t i = 0; list != NULL && i < entries->count; i++) {
        list[i] = read_entry(reader, entries->keys[i], entries->items[i]);
    }
    if (list != NULL) {
        qsort(list, entries->count, sizeof *list, compare_entries);
        out->entries = list;
        out->count = entries->count;
    }
}

enum espl_status espl_registry_parse(const char *file, const char *text, size_t len,
                                     struct espl_arena *arena, struct espl_diagnostics *diags,
                                     struct espl_registry *out, struct espl_error *err)
{
    struct espl_registry_reader reader = {.arena = arena, .diags = diags};
    const struct espl_node *root = NULL;
    *out = (struct espl_registry){.count = 0};
    enum espl_status status = espl_diagnostics_set_source(diags, file, text, len, err);
    if (status == ESPL_OK) {
        status = espl_yaml_parse(file, text, len, arena, diags, &root, err);
    }
    if (status == ESPL_OK && root != NULL) {
        read_entries(&reader, root, out);
    }
    if (status == ESPL_OK && reader.no_memory) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for the registry '%s'", file);
    }
    if (status != ESPL_OK) {
        return status;
    }
    espl_diagnostics_sort(diags);
    return espl_diagnostics_fail(diags, file, err);
}

enum espl_status espl_registry_find(const struct espl_registry *registry, const char *name,
                                    const struct espl_registry_entry **out, struct espl_error *err)
{
    const char *near = NULL;
    for (size_t i = 0; i < registry->count; i++) {
        if (strcmp(registry->entries[i].name, name) == 0) {
            *out = &registry->entries[i];
            return ESPL_OK;
        }
    }
    const char **const names = malloc((registry->count + 1) * sizeof *names);
    for (size_t i = 0; names != NULL && i < registry->count; i++) {
        names[i] = registry->entries[i].name;
    }
    near = names != NULL ? espl_suggest(name, names, registry->count) : NULL;
    (void)espl_fail(err, ESPL_E_NOTFOUND, "'%s' is not in the registry", name);
    (void)(near != NULL
               ? espl_hint(err, "did you mean '%s'?  `espalier fetch --list` lists all", near)
               : espl_hint(err, "`espalier fetch --list` lists all"));
    free(names);
    return ESPL_E_NOTFOUND;
}

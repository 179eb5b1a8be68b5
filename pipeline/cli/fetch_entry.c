#include "cli/fetch_entry.h"

#include "cli/fetch_client.h"
#include "cli/fetch_progress.h"
#include "cli/gc_cache.h"
#include "model/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INDEX_LIMIT = 64 << 20, URL_TEXT = 2048 };

static const char index_name[] = "model.safetensors.index.json";
static const char single_name[] = "model.safetensors";

/* One entry on its way. */
struct work {
    const struct espl_cli *cli;
    const struct espl_registry_entry *entry;
    const struct espl_fetch_settings *settings;
    struct espl_fetch_progress progress;
    char revision[256]; /* a commit as soon as it is known */
    json_t *results;    /* name -> event of a file that is there */
};

/* Percent-encodes what may not stand in a path; '/' stays. */
static void encode_path(const char *path, char out[URL_TEXT])
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                "0123456789-_.~/";
    size_t len = 0;
    for (const char *c = path; *c != '\0' && len + 4 < URL_TEXT; c++) {
        if (strchr(plain, *c) != NULL) {
            out[len++] = *c;
        } else {
            len += (size_t)snprintf(out + len, URL_TEXT - len, "%%%02X", (unsigned char)*c);
        }
    }
    out[len] = '\0';
}

static json_t *hub_url(const struct work *work, const char *name)
{
    char path[URL_TEXT];
    char revision[URL_TEXT];
    encode_path(name, path);
    encode_path(work->revision, revision);
    return json_sprintf("%s/%s%s/resolve/%s/%s", work->settings->hub,
                        work->entry->hub_dataset ? "datasets/" : "", work->entry->repository,
                        revision, path);
}

/* Addresses in the order in which they are tried. */
static json_t *urls_of(const struct work *work, const struct espl_registry_file *file)
{
    json_t *const urls = json_array();
    char path[URL_TEXT];
    if (file->url_count == 0) {
        (void)json_array_append_new(urls, hub_url(work, file->name));
        return urls;
    }
    if (work->settings->mirror != NULL) {
        encode_path(file->name, path);
        (void)json_array_append_new(
            urls, json_sprintf("%s/%s/%s", work->settings->mirror, work->entry->name, path));
    }
    for (size_t i = 0; i < file->url_count; i++) {
        (void)json_array_append_new(urls, json_string(file->urls[i]));
    }
    return urls;
}

/* The name of a file's record: the same whichever mirror delivers. */
static json_t *key_of(const struct work *work, const struct espl_registry_file *file)
{
    return file->url_count > 0
               ? json_string(file->urls[0])
               : json_sprintf("hub:%s%s@%s/%s", work->entry->hub_dataset ? "datasets/" : "",
                              work->entry->repository, work->revision, file->name);
}

static json_t *members_of(const struct espl_registry_file *file)
{
    json_t *const list = json_array();
    for (size_t i = 0; i < file->member_count; i++) {
        const struct espl_registry_member *const member = &file->members[i];
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s, s:s*, s:I}", "member", member->member, "name", member->name,
                            "sha256", member->sha256, "max_bytes", (json_int_t)member->max_bytes));
    }
    return list;
}

/* A hub file at a commit and a file with a hash cannot change. */
static json_t *file_request(const struct work *work, const struct espl_registry_file *file)
{
    const bool hub = file->url_count == 0;
    const bool fixed = file->sha256 != NULL || (hub && espl_registry_is_commit(work->revision));
    return json_pack("{s:s, s:o, s:o, s:s*, s:I, s:I, s:b, s:b, s:b, s:o}", "name", file->name,
                     "key", key_of(work, file), "urls", urls_of(work, file), "sha256", file->sha256,
                     "size", (json_int_t)file->size, "max_bytes", (json_int_t)file->max_bytes,
                     "optional", file->optional ? 1 : 0, "hub", hub ? 1 : 0, "mutable",
                     fixed ? 0 : 1, "members", members_of(file));
}

/* Runs one request for files[0 .. count). */
static enum espl_status fetch_files(struct work *work, const struct espl_registry_file *files,
                                    size_t count, struct espl_error *err)
{
    json_t *const request = json_copy(work->settings->request);
    json_t *const list = json_array();
    bool ok = request != NULL && list != NULL;
    for (size_t i = 0; i < count && ok; i++) {
        ok = json_array_append_new(list, file_request(work, &files[i])) == 0;
    }
    ok = json_object_set_new(request, "files", list) == 0 && ok;
    const enum espl_status status =
        ok ? espl_fetch_client_run(work->cli, request, work->results, &work->progress, err)
           : espl_fail(err, ESPL_E_NOMEM, "no memory for the request");
    json_decref(request);
    return status;
}

/* A branch is looked up once, with the first file; the others come from that commit, so that no
 * file of a newer state gets in between. */
static enum espl_status pin_revision(struct work *work, struct espl_error *err)
{
    const struct espl_registry_entry *const entry = work->entry;
    const char *const asked =
        work->settings->revision != NULL ? work->settings->revision : entry->revision;
    (void)snprintf(work->revision, sizeof work->revision, "%s", asked != NULL ? asked : "");
    if (entry->repository == NULL || entry->file_count == 0 ||
        espl_registry_is_commit(work->revision)) {
        return ESPL_OK;
    }
    const enum espl_status status = fetch_files(work, &entry->files[0], 1, err);
    const json_t *const first = json_object_get(work->results, entry->files[0].name);
    const char *const commit = json_string_value(json_object_get(first, "commit"));
    if (status == ESPL_OK && commit != NULL && espl_registry_is_commit(commit)) {
        (void)snprintf(work->revision, sizeof work->revision, "%s", commit);
    }
    return status;
}

/* Reads the index that was just fetched. *files: owned by the caller. */
static enum espl_status read_index(struct work *work, char ***files, size_t *count,
                                   struct espl_error *err)
{
    const json_t *const event = json_object_get(work->results, index_name);
    const char *const sha256 = json_string_value(json_object_get(event, "sha256"));
    char path[ESPL_PATH_MAX];
    char *text = NULL;
    size_t len = 0;
    json_t *map = NULL;
    enum espl_status status =
        espl_cache_blob_path(&work->settings->cache, sha256 != NULL ? sha256 : "", path, err);
    if (status == ESPL_OK) {
        status = espl_fs_read_file(path, INDEX_LIMIT, &text, &len, err);
    }
    if (status == ESPL_OK) {
        status = espl_safetensors_parse_index(text, len, &map, files, count, err);
    }
    json_decref(map);
    free(text);
    return status == ESPL_OK ? status : espl_context(err, "while reading '%s'", index_name);
}

/* Sharded: what the index names. Otherwise one file of the usual name. */
static enum espl_status fetch_weights(struct work *work, struct espl_error *err)
{
    const uint64_t max_bytes = work->entry->max_bytes;
    const struct espl_registry_file index = {
        .name = index_name, .max_bytes = INDEX_LIMIT, .optional = true};
    const struct espl_registry_file single = {.name = single_name, .max_bytes = max_bytes};
    char **names = NULL;
    size_t count = 0;
    enum espl_status status = fetch_files(work, &index, 1, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (json_object_get(work->results, index_name) == NULL) {
        status = fetch_files(work, &single, 1, err);
        if (status == ESPL_E_NOTFOUND && err->hint[0] == '\0') {
            (void)espl_hint(err, "the repository may hold pickle files only: --revision REV takes "
                                 "another revision, for example one that was converted");
        }
        return status;
    }
    status = read_index(work, &names, &count, err);
    struct espl_registry_file *const shards =
        status == ESPL_OK ? calloc(count + 1, sizeof *shards) : NULL;
    if (status == ESPL_OK && shards == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for %zu shards", count);
    }
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        shards[i] = (struct espl_registry_file){.name = names[i], .max_bytes = max_bytes};
    }
    if (status == ESPL_OK) {
        status = fetch_files(work, shards, count, err);
    }
    free(shards);
    espl_fs_free_names(names, count);
    return status;
}

/* set.json. Nothing in it differs between two fetches of the same files. */
static json_t *describe(const struct work *work)
{
    const struct espl_registry_entry *const entry = work->entry;
    json_t *const files = json_array();
    json_t *const use = json_array();
    const char *name = NULL;
    json_t *event = NULL;
    json_object_foreach(work->results, name, event)
    {
        (void)json_array_append_new(files, json_pack("{s:s, s:O*, s:O*, s:O*, s:O*}", "name", name,
                                                     "sha256", json_object_get(event, "sha256"),
                                                     "size", json_object_get(event, "size"),
                                                     "origin", json_object_get(event, "origin"),
                                                     "check", json_object_get(event, "check")));
    }
    for (size_t i = 0; i < entry->use_count; i++) {
        (void)json_array_append_new(use, json_string(entry->use[i]));
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s*, s:s*, s:o, s:o}", "schema", "espalier.set/1",
                     "name", entry->name, "kind", espl_registry_kind_name(entry->kind), "title",
                     entry->title, "licence", entry->licence, "repository", entry->repository,
                     "revision", entry->repository != NULL ? work->revision : NULL, "use", use,
                     "files", files);
}

enum espl_status espl_fetch_entry(const struct espl_cli *cli,
                                  const struct espl_registry_entry *entry,
                                  const struct espl_fetch_settings *settings,
                                  char folder[ESPL_PATH_MAX], json_t **description,
                                  struct espl_error *err)
{
    struct work work = {.cli = cli, .entry = entry, .settings = settings};
    struct espl_lock active = {.held = false};
    json_t *set = NULL;
    if (entry->manual != NULL) {
        (void)espl_fail(err, ESPL_E_NOTFOUND, "'%s' cannot be fetched by a program", entry->name);
        return espl_hint(err, "%s", entry->manual);
    }
    work.results = json_object();
    espl_fetch_progress_init(&work.progress, cli, entry->name);
    enum espl_status status = espl_gc_cache_announce(&settings->cache, &active, err);
    if (status == ESPL_OK) {
        status = pin_revision(&work, err);
    }
    if (status == ESPL_OK && entry->file_count > 0) {
        status = fetch_files(&work, entry->files, entry->file_count, err);
    }
    if (status == ESPL_OK && entry->weights) {
        status = fetch_weights(&work, err);
    }
    if (status == ESPL_OK) {
        set = describe(&work);
        status = set != NULL ? espl_cache_publish_set(&settings->cache, entry->name, set, err)
                             : espl_fail(err, ESPL_E_NOMEM, "no memory for the description");
    }
    if (status == ESPL_OK) {
        status = espl_cache_find_set(&settings->cache, entry->name, folder, description, err);
    }
    espl_lock_release(&active);
    json_decref(set);
    json_decref(work.results);
    return status == ESPL_OK ? status : espl_context(err, "while fetching '%s'", entry->name);
}

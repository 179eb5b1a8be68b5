#include "datasets/source.h"

#include "datasets/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The next path: folder/name. There is room for it. */
static enum espl_status add_path(struct espl_source *out, const char *name, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    const enum espl_status status = espl_fs_join(path, out->folder, name, err);
    if (status != ESPL_OK) {
        return status;
    }
    char **const slot = &out->paths[out->count];
    *slot = strdup(path);
    if (*slot == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the files of '%s'", out->folder);
    }
    out->count++;
    return ESPL_OK;
}

static enum espl_status make_room(struct espl_source *out, size_t count, struct espl_error *err)
{
    out->paths = calloc(count + 1, sizeof *out->paths);
    return out->paths != NULL
               ? ESPL_OK
               : espl_fail(err, ESPL_E_NOMEM, "no memory for the files of '%s'", out->folder);
}

/* Is there a file of that name in the set? */
static bool has_file(const json_t *description, const char *name)
{
    size_t index = 0;
    const json_t *file = NULL;
    json_array_foreach(json_object_get(description, "files"), index, file)
    {
        const char *const other = json_string_value(json_object_get(file, "name"));
        if (other != NULL && strcmp(other, name) == 0) {
            return true;
        }
    }
    return false;
}

/* The files for use: those of "use", or all. */
static enum espl_status add_files(struct espl_source *out, const json_t *description,
                                  struct espl_error *err)
{
    const json_t *const use = json_object_get(description, "use");
    const json_t *const files = json_object_get(description, "files");
    const bool all = json_array_size(use) == 0;
    const size_t count = json_array_size(all ? files : use);
    enum espl_status status = make_room(out, count, err);
    for (size_t i = 0; i < count && status == ESPL_OK; i++) {
        const json_t *const item = json_array_get(all ? files : use, i);
        const char *const name = json_string_value(all ? json_object_get(item, "name") : item);
        status = name != NULL && has_file(description, name)
                     ? add_path(out, name, err)
                     : espl_fail(err, ESPL_E_CORRUPT, "'%s' names a file that it does not have",
                                 out->folder);
    }
    return status;
}

enum espl_status espl_source_find(const char *source, struct espl_source *out,
                                  struct espl_error *err)
{
    struct espl_cache cache;
    char name[256];
    json_t *description = NULL;
    const size_t name_len = strcspn(source, "/");
    const char *const file = source[name_len] == '/' ? source + name_len + 1 : NULL;
    *out = (struct espl_source){.count = 0};
    if (name_len >= sizeof name) {
        return espl_fail(err, ESPL_E_JOB, "'%.60s...' is no name of a data set or model", source);
    }
    (void)snprintf(name, sizeof name, "%.*s", (int)name_len, source);
    enum espl_status status = espl_cache_locate(NULL, &cache, err);
    if (status == ESPL_OK) {
        status = espl_cache_find_set(&cache, name, out->folder, &description, err);
    }
    if (status == ESPL_OK && file != NULL) {
        status = has_file(description, file)
                     ? make_room(out, 1, err)
                     : espl_fail(err, ESPL_E_NOTFOUND, "'%s' has no file '%s'", name, file);
        status = status == ESPL_OK ? add_path(out, file, err) : status;
    } else if (status == ESPL_OK) {
        status = add_files(out, description, err);
    }
    json_decref(description);
    if (status != ESPL_OK) {
        espl_source_free(out);
    }
    return status;
}

void espl_source_free(struct espl_source *source)
{
    espl_fs_free_names(source->paths, source->count);
    source->paths = NULL;
    source->count = 0;
}

bool espl_source_may_be_name(const char *text)
{
    return text[0] != '\0' && strpbrk(text, "/.") == NULL;
}

void espl_source_hint(const char *path, const char *parameter, struct espl_error *err)
{
    struct espl_source source;
    if (espl_fs_exists(path)) {
        return;
    }
    if (espl_source_find(path, &source, NULL) == ESPL_OK) {
        (void)espl_hint(err, "'%s' was fetched: name it with '%s: %s'", path, parameter, path);
        espl_source_free(&source);
    } else if (espl_source_may_be_name(path)) {
        (void)espl_hint(err,
                        "looked relative to the current folder; a set that `espalier fetch` "
                        "brought is named with '%s: %s'",
                        parameter, path);
    }
}

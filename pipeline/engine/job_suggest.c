/* Which job file was meant, when the one that was named is not there. */
#include "core/fs.h"
#include "core/suggest.h"
#include "engine/job_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 4096, MAX_CANDIDATES = 256, SHOWN_NAMES = 8 };

struct candidates {
    char *paths[MAX_CANDIDATES];
    const char *stems[MAX_CANDIDATES]; /* file names without the ending, allocated as well */
    size_t count;
};

/* Length of the name without ".yaml" or ".yml"; 0 when it has neither. */
static size_t stem_length(const char *name)
{
    const size_t len = strlen(name);
    if (len > 5 && strcmp(name + len - 5, ".yaml") == 0) {
        return len - 5;
    }
    return len > 4 && strcmp(name + len - 4, ".yml") == 0 ? len - 4 : 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Adds the job files of a folder. What cannot be listed or does not fit is left out. */
static void add_folder(struct candidates *candidates, const char *dir)
{
    char **names = NULL;
    size_t count = 0;
    if (espl_fs_list(dir, MAX_NAMES, &names, &count, NULL) != ESPL_OK) {
        return;
    }
    for (size_t i = 0; i < count && candidates->count < MAX_CANDIDATES; i++) {
        const size_t stem = stem_length(names[i]);
        char path[ESPL_PATH_MAX];
        if (stem == 0 ||
            (strcmp(dir, ".") != 0 && espl_fs_join(path, dir, names[i], NULL) != ESPL_OK)) {
            continue;
        }
        char *copy = strdup(strcmp(dir, ".") != 0 ? path : names[i]);
        char *word = strndup(names[i], stem);
        if (copy == NULL || word == NULL) {
            free(copy);
            free(word);
            break;
        }
        candidates->paths[candidates->count] = copy;
        candidates->stems[candidates->count++] = word;
    }
    espl_fs_free_names(names, count);
}

/* "jobs/a.yaml, jobs/b.yaml, ..." */
static void list_paths(const struct candidates *candidates, char *out, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < candidates->count; i++) {
        const char *gap = i > 0 ? ", " : "";
        const bool fits = used + strlen(candidates->paths[i]) + 8 < size;
        if (i == SHOWN_NAMES || !fits) {
            (void)snprintf(out + used, size - used, "%s...", gap);
            return;
        }
        used += (size_t)snprintf(out + used, size - used, "%s%s", gap, candidates->paths[i]);
    }
}

void espl_job_suggest_file(const char *file, struct espl_error *err)
{
    struct candidates candidates = {.count = 0};
    char dir[ESPL_PATH_MAX];
    char list[300] = "";
    const char *name = base_name(file);
    const size_t stem = stem_length(name);
    int dir_len = name > file ? (int)(name - file) - 1 : 0;
    while (dir_len > 0 && file[dir_len - 1] == '/') {
        dir_len--;
    }
    (void)snprintf(dir, sizeof dir, "%.*s", dir_len, file);
    if (dir_len == 0) {
        (void)snprintf(dir, sizeof dir, "%s", name > file ? "/" : ".");
    }
    add_folder(&candidates, dir);
    if (strcmp(dir, "jobs") != 0) {
        add_folder(&candidates, "jobs");
    }
    char *wanted = strndup(name, stem > 0 ? stem : strlen(name));
    const char *near =
        wanted != NULL ? espl_suggest(wanted, candidates.stems, candidates.count) : NULL;
    list_paths(&candidates, list, sizeof list);
    if (near != NULL) {
        size_t index = 0;
        while (candidates.stems[index] != near) {
            index++;
        }
        (void)espl_hint(err, "did you mean '%s'?", candidates.paths[index]);
    } else if (candidates.count > 0) {
        (void)espl_hint(err, "job files here: %s", list);
    } else {
        (void)espl_hint(err, "the path is relative to the current folder; a job is a .yaml file");
    }
    for (size_t i = 0; i < candidates.count; i++) {
        free(candidates.paths[i]);
        free((char *)candidates.stems[i]);
    }
    free(wanted);
}

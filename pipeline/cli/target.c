#include "cli/target.h"

#include "artifact/artifact.h"
#include "cli/job_setup.h"
#include "core/fs.h"
#include "core/suggest.h"
#include "stages/registry.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_NAMES = 4096 };

static enum espl_status resolve_links(const char *path, struct espl_target *out,
                                      struct espl_error *err)
{
    out->type = ESPL_TARGET_ARTIFACT;
    char *real = realpath(path, NULL);
    if (real == NULL || strlen(real) >= sizeof out->path) {
        free(real);
        return espl_fail(err, ESPL_E_NOTFOUND, "cannot find '%s'", path);
    }
    memcpy(out->path, real, strlen(real) + 1);
    free(real);
    return ESPL_OK;
}

/* Name of the job in a job file. */
static enum espl_status job_name_of_file(const char *file, char *name, size_t name_size,
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
        (void)snprintf(name, name_size, "%s", job->name);
    } else if (diags.count > 0) {
        *err = diags.items[0].error;
        status = err->code;
    }
    espl_job_free(job);
    espl_diagnostics_free(&diags);
    return status;
}

static bool is_job_file(const char *text)
{
    const size_t len = strlen(text);
    return (len > 5 && strcmp(text + len - 5, ".yaml") == 0) ||
           (len > 4 && strcmp(text + len - 4, ".yml") == 0);
}

/* Of the names in a folder that have this ending, the one that is nearest to a word without it;
 * false when none is near. */
static bool nearest_name(const char *folder, const char *ending, const char *word,
                         char out[ESPL_JOB_NAME_MAX + 1])
{
    char **names = NULL;
    size_t count = 0;
    if (espl_fs_list(folder, MAX_NAMES, &names, &count, NULL) != ESPL_OK) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        const size_t len = strlen(names[i]);
        const size_t tail = strlen(ending);
        const bool has_it = len > tail && strcmp(names[i] + len - tail, ending) == 0;
        names[i][has_it ? len - tail : 0] = '\0';
    }
    const char *near = espl_suggest(word, (const char *const *)names, count);
    if (near != NULL) {
        (void)snprintf(out, ESPL_JOB_NAME_MAX + 1, "%s", near);
    }
    espl_fs_free_names(names, count);
    return near != NULL;
}

static enum espl_status fail_no_result(const struct espl_store *store, const char *job,
                                       const char *stage, struct espl_error *err)
{
    char jobs[ESPL_PATH_MAX];
    char stages[ESPL_PATH_MAX];
    char near[ESPL_JOB_NAME_MAX + 1];
    espl_fail(err, ESPL_E_NOTFOUND, "job '%s' has no result of stage '%s' in '%s'", job, stage,
              store->root);
    if (espl_fs_join(jobs, store->root, "by-name", NULL) == ESPL_OK &&
        espl_fs_join(stages, jobs, job, NULL) == ESPL_OK) {
        if (!espl_fs_is_dir(stages) && nearest_name(jobs, "", job, near)) {
            return espl_hint(err, "did you mean job '%s'?", near);
        }
        if (nearest_name(stages, ".h5", stage, near)) {
            return espl_hint(err, "did you mean '%s:%s'?  `espalier status %s` shows what was made",
                             job, near, job);
        }
    }
    return espl_hint(err, "`espalier status %s` shows what was made", job);
}

static enum espl_status find_job_stage(const struct espl_store *store, const char *text,
                                       const char *colon, struct espl_target *out,
                                       struct espl_error *err)
{
    char job[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    const size_t len = (size_t)(colon - text);
    if (len == 0 || len >= sizeof job || colon[1] == '\0' || strchr(colon + 1, '/') != NULL) {
        return espl_fail(err, ESPL_E_USAGE, "'%s' is not of the form JOB:STAGE", text);
    }
    memcpy(job, text, len);
    job[len] = '\0';
    if (is_job_file(job)) {
        char file[ESPL_PATH_MAX];
        memcpy(file, job, sizeof file);
        const enum espl_status status = job_name_of_file(file, job, sizeof job, err);
        if (status != ESPL_OK) {
            return espl_context(err, "while looking for the name of job '%s'", file);
        }
    }
    const int n = snprintf(path, sizeof path, "%s/by-name/%s/%s.h5", store->root, job, colon + 1);
    if (n < 0 || (size_t)n >= sizeof path || !espl_fs_exists(path)) {
        return fail_no_result(store, job, colon + 1, err);
    }
    return resolve_links(path, out, err);
}

static bool is_key_prefix(const char *text)
{
    const size_t len = strlen(text);
    return len >= 6 && len <= 64 && strspn(text, "0123456789abcdef") == len;
}

enum espl_status espl_target_artifact(const struct espl_cli *cli, const struct espl_store *store,
                                      const char *text, struct espl_target *out,
                                      struct espl_error *err)
{
    (void)cli;
    memset(out, 0, sizeof *out);
    if (espl_fs_exists(text) && !espl_fs_is_dir(text)) {
        return resolve_links(text, out, err);
    }
    const char *colon = strrchr(text, ':');
    if (colon != NULL) {
        return find_job_stage(store, text, colon, out, err);
    }
    if (is_key_prefix(text)) {
        char path[ESPL_PATH_MAX];
        const enum espl_status status = espl_store_find(store, text, path, err);
        if (status == ESPL_E_NOTFOUND) {
            return espl_hint(err,
                             "`espalier plan JOB` and `espalier status` show the keys of a job");
        }
        return status == ESPL_OK ? resolve_links(path, out, err) : status;
    }
    espl_fail(err, ESPL_E_NOTFOUND, "cannot find artifact '%s'", text);
    return espl_hint(err, "name a file, JOB:STAGE, or the first six or more digits of a key");
}

enum espl_status espl_target_any(struct espl_cli *cli, const struct espl_store *store,
                                 const char *text, struct espl_target *out, struct espl_error *err)
{
    enum espl_status status = espl_target_artifact(cli, store, text, out, err);
    if (status != ESPL_E_NOTFOUND || strchr(text, ':') != NULL) {
        return status;
    }
    struct espl_error run_err = {0};
    out->type = ESPL_TARGET_RUN;
    status = espl_cli_find_run(cli, store, text, out->run_id, &run_err);
    if (status == ESPL_E_NOTFOUND) {
        espl_fail(err, ESPL_E_NOTFOUND, "'%s' is neither an artifact nor a run", text);
        return espl_hint(err,
                         "name a file, JOB:STAGE, the first six or more digits of a key, a run "
                         "or a job");
    }
    if (status != ESPL_OK) {
        *err = run_err;
    }
    return status;
}

enum espl_status espl_target_provenance(struct espl_artifact *artifact, const char *name,
                                        json_t **out, struct espl_error *err)
{
    char *text = NULL;
    *out = NULL;
    enum espl_status status = espl_artifact_provenance(artifact, name, &text, err);
    if (status == ESPL_E_NOTFOUND) {
        espl_error_clear(err);
        return ESPL_OK;
    }
    if (status == ESPL_OK) {
        *out = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        if (*out == NULL) {
            status = espl_fail(err, ESPL_E_CORRUPT, "/provenance/%s of '%s' is not JSON", name,
                               espl_artifact_path(artifact));
        }
    }
    free(text);
    return status;
}

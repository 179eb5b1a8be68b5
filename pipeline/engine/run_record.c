#include "engine/run_record.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    STAMP_LEN = 15, /* YYYYMMDD-HHMMSS */
    TAIL_LEN = 5,   /* -ffff */
    MAX_RUNS = 1 << 20
};

static bool all_of(const char *text, size_t count, int (*test)(int))
{
    for (size_t i = 0; i < count; i++) {
        if (!test((unsigned char)text[i])) {
            return false;
        }
    }
    return true;
}

/* Is `id` a run id, and of this job (NULL = any)? */
static bool is_run_id(const char *id, const char *job_name)
{
    const size_t len = strlen(id);
    if (len < STAMP_LEN + 1 + TAIL_LEN + 1 || len >= ESPL_RUN_ID_MAX || !all_of(id, 8, isdigit) ||
        id[8] != '-' || !all_of(id + 9, 6, isdigit) || id[STAMP_LEN] != '-' ||
        id[len - TAIL_LEN] != '-' || !all_of(id + len - 4, 4, isxdigit)) {
        return false;
    }
    const char *name = id + STAMP_LEN + 1;
    const size_t name_len = len - STAMP_LEN - 1 - TAIL_LEN;
    return job_name == NULL ||
           (strlen(job_name) == name_len && strncmp(name, job_name, name_len) == 0);
}

/* Newest first: by stamp, then by fraction, then by name for a total order. */
static int compare_ids(const void *left, const void *right)
{
    const char *a = left;
    const char *b = right;
    int order = strncmp(b, a, STAMP_LEN);
    if (order == 0) {
        order = strcmp(b + strlen(b) - 4, a + strlen(a) - 4);
    }
    return order != 0 ? order : strcmp(a, b);
}

enum espl_status espl_run_list_read(const struct espl_store *store, const char *job_name,
                                    size_t limit, struct espl_run_list *out, struct espl_error *err)
{
    char dir[ESPL_PATH_MAX];
    char **names = NULL;
    size_t name_count = 0;
    out->ids = NULL;
    out->count = 0;
    enum espl_status status = espl_fs_join(dir, store->root, "runs", err);
    if (status != ESPL_OK || !espl_fs_is_dir(dir)) {
        return status;
    }
    status = espl_fs_list(dir, MAX_RUNS, &names, &name_count, err);
    if (status != ESPL_OK) {
        return status;
    }
    out->ids = calloc(name_count > 0 ? name_count : 1, sizeof *out->ids);
    if (out->ids == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for a list of %zu runs", name_count);
        goto cleanup;
    }
    for (size_t i = 0; i < name_count; i++) {
        if (is_run_id(names[i], job_name)) {
            (void)snprintf(out->ids[out->count], ESPL_RUN_ID_MAX, "%s", names[i]);
            out->count++;
        }
    }
    qsort(out->ids, out->count, sizeof *out->ids, compare_ids);
    if (limit > 0 && out->count > limit) {
        out->count = limit;
    }

cleanup:
    espl_fs_free_names(names, name_count);
    return status;
}

void espl_run_list_free(struct espl_run_list *list)
{
    if (list != NULL) {
        free(list->ids);
        list->ids = NULL;
        list->count = 0;
    }
}

/* The first run of the list whose record can be read. */
static enum espl_status first_readable(const struct espl_store *store,
                                       const struct espl_run_list *list, const struct espl_log *log,
                                       char run_id[ESPL_RUN_ID_MAX], struct espl_error *err)
{
    enum espl_status first = ESPL_OK;
    for (size_t i = 0; i < list->count; i++) {
        struct espl_error problem;
        json_t *record = NULL;
        const enum espl_status status = espl_run_load(store, list->ids[i], &record, &problem);
        json_decref(record);
        if (status == ESPL_OK) {
            memcpy(run_id, list->ids[i], ESPL_RUN_ID_MAX);
            return ESPL_OK;
        }
        if (first == ESPL_OK) {
            first = status;
            *err = problem;
        }
        if (i + 1 < list->count) {
            espl_log(log, ESPL_LOG_WARN, "run '%s' is passed over: %s", list->ids[i],
                     problem.message);
        }
    }
    return first;
}

enum espl_status espl_run_latest(const struct espl_store *store, const char *job_name,
                                 const struct espl_log *log, char run_id[ESPL_RUN_ID_MAX],
                                 struct espl_error *err)
{
    struct espl_run_list list = {NULL, 0};
    enum espl_status status = espl_run_list_read(store, job_name, 0, &list, err);
    if (status == ESPL_OK && list.count == 0) {
        if (job_name != NULL) {
            status = espl_fail(err, ESPL_E_NOTFOUND, "there is no run of job '%s' in '%s'",
                               job_name, store->root);
        } else {
            status = espl_fail(err, ESPL_E_NOTFOUND, "there is no run in '%s'", store->root);
        }
        (void)espl_hint(err, "start one with `espalier run JOB`, or name another results folder "
                             "with --store");
    } else if (status == ESPL_OK) {
        struct espl_error local;
        status = first_readable(store, &list, log, run_id, err != NULL ? err : &local);
    }
    espl_run_list_free(&list);
    return status;
}

/* The last part of a path, without trailing slashes. */
static void base_name(const char *path, char out[ESPL_PATH_MAX])
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    size_t start = len;
    while (start > 0 && path[start - 1] != '/') {
        start--;
    }
    (void)snprintf(out, ESPL_PATH_MAX, "%.*s", (int)(len - start), path + start);
}

/* The id that `name` means and how many it could mean. Exact ids come first, then job names (*job:
 * its newest run is meant), then parts of ids. */
static const char *find_id(const struct espl_run_list *list, const char *name, bool *job,
                           size_t *matches)
{
    const char *found = NULL;
    *matches = 1;
    *job = false;
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->ids[i], name) == 0) {
            return list->ids[i];
        }
    }
    for (size_t i = 0; i < list->count; i++) {
        if (is_run_id(list->ids[i], name)) {
            *job = true;
            return list->ids[i];
        }
    }
    *matches = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (strlen(name) >= 4 && strstr(list->ids[i], name) != NULL) {
            found = list->ids[i];
            (*matches)++;
        }
    }
    return found;
}

enum espl_status espl_run_resolve(const struct espl_store *store, const char *text,
                                  const struct espl_log *log, char run_id[ESPL_RUN_ID_MAX],
                                  struct espl_error *err)
{
    char name[ESPL_PATH_MAX];
    size_t matches = 0;
    bool job = false;
    struct espl_run_list list = {NULL, 0};
    base_name(text, name);
    enum espl_status status = espl_run_list_read(store, NULL, 0, &list, err);
    if (status != ESPL_OK) {
        return status;
    }
    const char *found = find_id(&list, name, &job, &matches);
    if (job) {
        status = espl_run_latest(store, name, log, run_id, err);
    } else if (matches == 1) {
        memcpy(run_id, found, ESPL_RUN_ID_MAX);
    } else if (matches == 0) {
        status = espl_fail(err, ESPL_E_NOTFOUND, "there is no run '%s' in '%s'", text, store->root);
        (void)espl_hint(err, "name a run id, a part of one, a run folder or a job");
    } else {
        status = espl_fail(err, ESPL_E_KIND, "'%s' could be any of %zu runs", text, matches);
        (void)espl_hint(err, "one of them is '%s'; give more of the id", found);
    }
    espl_run_list_free(&list);
    return status;
}

enum espl_status espl_run_path(const struct espl_store *store, const char *run_id, const char *file,
                               char out[ESPL_PATH_MAX], struct espl_error *err)
{
    char runs[ESPL_PATH_MAX];
    char dir[ESPL_PATH_MAX];
    enum espl_status status = espl_fs_join(runs, store->root, "runs", err);
    if (status == ESPL_OK) {
        status = espl_fs_join(file != NULL ? dir : out, runs, run_id, err);
    }
    if (status == ESPL_OK && file != NULL) {
        status = espl_fs_join(out, dir, file, err);
    }
    return status;
}

/* Every stage has an id, and none has it twice: who reads a record finds stages by it. */
static bool stages_are_named(const json_t *stages)
{
    size_t index = 0;
    json_t *stage = NULL;
    json_t *seen = json_object();
    bool good = seen != NULL && json_is_array(stages);
    json_array_foreach(stages, index, stage)
    {
        const char *id = json_string_value(json_object_get(stage, "id"));
        good = good && id != NULL && json_object_get(seen, id) == NULL &&
               json_object_set_new(seen, id, json_true()) == 0;
    }
    json_decref(seen);
    return good;
}

static enum espl_status check_record(const json_t *record, const char *run_id, const char *path,
                                     struct espl_error *err)
{
    static const char family[] = "espalier.run/";
    const char *schema = json_string_value(json_object_get(record, "schema"));
    if (schema == NULL || strncmp(schema, family, sizeof family - 1) != 0) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' is not a run record", path);
    }
    if (strcmp(schema, "espalier.run/1") != 0) {
        (void)espl_fail(err, ESPL_E_VERSION, "'%s' has schema '%s', expected 'espalier.run/1'",
                        path, schema);
        (void)espl_hint(err, "a newer espalier wrote it: use that one");
        return ESPL_E_VERSION;
    }
    const char *own_id = json_string_value(json_object_get(record, "run_id"));
    if (own_id == NULL || strcmp(own_id, run_id) != 0) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' is the record of run '%.80s'", path,
                         own_id != NULL ? own_id : "(none)");
    }
    if (!stages_are_named(json_object_get(record, "stages"))) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' has no list of stages with ids", path);
    }
    return ESPL_OK;
}

enum espl_status espl_run_load(const struct espl_store *store, const char *run_id, json_t **out,
                               struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char *text = NULL;
    size_t len = 0;
    json_error_t problem;
    enum espl_status status = espl_run_path(store, run_id, "run.json", path, err);
    if (status == ESPL_OK) {
        status = espl_fs_read_file(path, ESPL_RUN_RECORD_MAX_BYTES, &text, &len, err);
    }
    if (status != ESPL_OK) {
        (void)espl_context(err, "while reading the record of run '%s'", run_id);
        return status;
    }
    json_t *record = json_loadb(text, len, JSON_REJECT_DUPLICATES, &problem);
    free(text);
    if (record == NULL) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' is damaged: line %d: %s", path, problem.line,
                         problem.text);
    }
    status = check_record(record, run_id, path, err);
    if (status != ESPL_OK) {
        json_decref(record);
        return status;
    }
    *out = record;
    return ESPL_OK;
}

json_t *espl_run_stage(const json_t *record, const char *stage_id)
{
    size_t index = 0;
    json_t *stage = NULL;
    json_array_foreach(json_object_get(record, "stages"), index, stage)
    {
        const char *id = json_string_value(json_object_get(stage, "id"));
        if (id != NULL && strcmp(id, stage_id) == 0) {
            return stage;
        }
    }
    return NULL;
}

/* ---- processes ---- */

/* State letter and start time of a process; false when there is none. */
static bool read_process(int64_t pid, char *state, uint64_t *start_ticks)
{
    char path[64];
    char text[1024];
    (void)snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    FILE *stream = fopen(path, "re");
    if (stream == NULL) {
        return false;
    }
    const size_t len = fread(text, 1, sizeof text - 1, stream);
    (void)fclose(stream); /* only read from */
    text[len] = '\0';
    /* The second field is the name in parentheses and may hold spaces: count from its end. */
    const char *field = strrchr(text, ')');
    if (field == NULL || field[1] != ' ') {
        return false;
    }
    field += 2;
    *state = *field;
    for (int i = 3; i < 22; i++) {
        field = strchr(field, ' ');
        if (field == NULL) {
            return false;
        }
        field++;
    }
    *start_ticks = strtoull(field, NULL, 10);
    return true;
}

uint64_t espl_process_start_ticks(int64_t pid)
{
    char state = 0;
    uint64_t ticks = 0;
    return read_process(pid, &state, &ticks) ? ticks : 0;
}

bool espl_process_is_alive(int64_t pid, uint64_t start_ticks)
{
    char state = 0;
    uint64_t ticks = 0;
    return pid > 0 && read_process(pid, &state, &ticks) && state != 'Z' && state != 'X' &&
           ticks == start_ticks;
}

const char *espl_run_status(const json_t *record)
{
    char host[256] = "";
    const char *status = json_string_value(json_object_get(record, "status"));
    const char *record_host = json_string_value(json_object_get(record, "host"));
    if (status == NULL) {
        return "unknown";
    }
    if (strcmp(status, "running") != 0 || gethostname(host, sizeof host - 1) != 0 ||
        record_host == NULL || strcmp(host, record_host) != 0) {
        return status;
    }
    const json_int_t pid = json_integer_value(json_object_get(record, "pid"));
    const json_int_t ticks = json_integer_value(json_object_get(record, "start_ticks"));
    return espl_process_is_alive((int64_t)pid, (uint64_t)ticks) ? status : "died";
}

/* ---- writing ---- */

enum espl_status espl_run_create(const struct espl_store *store, const char *job_name,
                                 char run_id[ESPL_RUN_ID_MAX], struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    enum espl_status status = espl_fs_join(path, store->root, "runs", err);
    if (status == ESPL_OK) {
        status = espl_fs_make_dirs(path, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    for (int attempt = 0; attempt < 1000; attempt++) {
        struct timespec now;
        struct tm utc;
        if (clock_gettime(CLOCK_REALTIME, &now) != 0 || gmtime_r(&now.tv_sec, &utc) == NULL) {
            return espl_fail_errno(err, errno, "cannot read the clock");
        }
        const unsigned fraction = (unsigned)(((uint64_t)now.tv_nsec << 16) / 1000000000u);
        const int len = snprintf(run_id, ESPL_RUN_ID_MAX, "%04d%02d%02d-%02d%02d%02d-%s-%04x",
                                 utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour,
                                 utc.tm_min, utc.tm_sec, job_name, fraction);
        if (len < 0 || len >= ESPL_RUN_ID_MAX) {
            return espl_fail(err, ESPL_E_JOB, "job name '%s' is too long for a run folder",
                             job_name);
        }
        status = espl_run_path(store, run_id, NULL, path, err);
        if (status != ESPL_OK) {
            return status;
        }
        if (mkdir(path, 0777) == 0) {
            return ESPL_OK;
        }
        if (errno != EEXIST) {
            (void)espl_fail_errno(err, errno, "cannot make the run folder '%s'", path);
            (void)espl_hint(err, "%s", espl_store_write_hint);
            return err != NULL ? err->code : ESPL_E_IO;
        }
        /* Another run took this 1/65536 of a second: the next one is free. */
        const struct timespec pause = {0, 20000};
        (void)nanosleep(&pause, NULL);
    }
    return espl_fail(err, ESPL_E_IO, "cannot make a new run folder in '%s'", store->root);
}

enum espl_status espl_run_save(const struct espl_store *store, const char *run_id,
                               const json_t *record, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    enum espl_status status = espl_run_path(store, run_id, "run.json", path, err);
    if (status != ESPL_OK) {
        return status;
    }
    char *text = json_dumps(record, JSON_INDENT(1));
    if (text == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the run record");
    }
    status = espl_fs_write_file(path, text, strlen(text), err);
    if (status != ESPL_OK) {
        (void)espl_context(err, "while writing the run record");
    }
    free(text);
    return status;
}

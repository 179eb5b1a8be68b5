/* The typed job: file, top-level keys. Stages are in job_stage.c, connections in job_input.c. */
#include "engine/job.h"

#include "core/fs.h"
#include "core/suggest.h"
#include "engine/job_internal.h"
#include "engine/override.h"
#include "engine/source_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { JOB_ARENA_LIMIT = 1 << 29 };

void *espl_job_reader_alloc(struct espl_job_reader *reader, size_t count, size_t size)
{
    void *memory = espl_arena_array(reader->job->arena, count, size);
    reader->no_memory = reader->no_memory || memory == NULL;
    return memory;
}

const char *espl_job_describe_node(const struct espl_node *node)
{
    if (node->type == ESPL_NODE_SCALAR) {
        return espl_node_is_null(node) ? "nothing" : "a text";
    }
    return node->type == ESPL_NODE_SEQUENCE ? "a list" : "a mapping";
}

void espl_job_check_keys(struct espl_job_reader *reader, const struct espl_node *mapping,
                         const char *const *known, const char *where)
{
    size_t count = 0;
    while (known[count] != NULL) {
        count++;
    }
    for (size_t i = 0; i < mapping->count; i++) {
        const struct espl_node *key = mapping->keys[i];
        bool found = false;
        for (size_t j = 0; j < count && !found; j++) {
            found = strcmp(key->text, known[j]) == 0;
        }
        if (!found) {
            char shown[ESPL_CLIP_TEXT];
            espl_text_clip(key->text, shown);
            struct espl_diagnostic *item = espl_diagnostics_add(
                reader->diags, ESPL_E_JOB, &key->at, "unknown key '%s' in %s", shown, where);
            const char *near = espl_suggest(key->text, known, count);
            if (near != NULL) {
                espl_diagnostic_hint(item, "did you mean '%s'?", near);
            }
        }
    }
}

bool espl_job_check_name(struct espl_job_reader *reader, const struct espl_node *node,
                         const char *what)
{
    const char *text = node->type == ESPL_NODE_SCALAR ? node->text : "";
    bool good = text[0] >= 'a' && text[0] <= 'z' && strlen(text) <= ESPL_JOB_NAME_MAX;
    for (const char *c = text; *c != '\0' && good; c++) {
        good = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '_' || *c == '-';
    }
    if (!good) {
        char shown[ESPL_CLIP_TEXT];
        espl_text_clip(text, shown);
        struct espl_diagnostic *item = espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                                                            "'%s' is not a valid %s", shown, what);
        espl_diagnostic_hint(item,
                             "use a lower-case letter, then letters, digits, '-' or '_', at most "
                             "%d in all",
                             ESPL_JOB_NAME_MAX);
    }
    return good;
}

/* A top-level scalar; NULL (after an error when it is needed) when absent. */
static const struct espl_node *top_scalar(struct espl_job_reader *reader,
                                          const struct espl_node *root, const char *key,
                                          const char *example)
{
    const struct espl_node *node = espl_node_get(root, key, NULL);
    const struct espl_srcpos start = {.line = 1, .column = 1};
    if (node == NULL) {
        if (example != NULL) {
            struct espl_srcpos at = start;
            (void)snprintf(at.file, sizeof at.file, "%s", root->at.file);
            espl_diagnostic_hint(
                espl_diagnostics_add(reader->diags, ESPL_E_JOB, &at, "the job has no '%s'", key),
                "add a line '%s: %s'", key, example);
        }
        return NULL;
    }
    if (node->type != ESPL_NODE_SCALAR || espl_node_is_null(node)) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                                   "'%s' must be a single value, got %s", key,
                                   espl_job_describe_node(node));
        return NULL;
    }
    return node;
}

static bool valid_device(const char *text)
{
    if (strcmp(text, "cpu") == 0 || strcmp(text, "auto") == 0) {
        return true;
    }
    int64_t index = 0;
    return strncmp(text, "cuda:", 5) == 0 && text[5] >= '0' && text[5] <= '9' &&
           strlen(text) <= 8 && espl_parse_int(text + 5, &index);
}

static void read_scalars(struct espl_job_reader *reader, const struct espl_node *root)
{
    struct espl_job *job = reader->job;
    char shown[ESPL_CLIP_TEXT];
    int64_t number = 0;
    const struct espl_node *node = top_scalar(reader, root, "version", "1");
    if (node != NULL && (!espl_parse_int(node->text, &number) || number != 1)) {
        espl_text_clip(node->text, shown);
        espl_diagnostic_hint(espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                                                  "job format version '%s' is not known", shown),
                             "this espalier reads version 1");
    }
    node = top_scalar(reader, root, "name", "my-job");
    if (node != NULL && espl_job_check_name(reader, node, "job name")) {
        job->name = node->text;
    }
    node = top_scalar(reader, root, "seed", NULL);
    if (node != NULL && (!espl_parse_int(node->text, &number) || number < 0)) {
        espl_text_clip(node->text, shown);
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                                   "'seed' must be an integer of at least 0, got '%s'", shown);
    } else if (node != NULL) {
        job->seed = (uint64_t)number;
    }
    job->device = "auto";
    node = top_scalar(reader, root, "device", NULL);
    if (node != NULL && !valid_device(node->text)) {
        espl_text_clip(node->text, shown);
        espl_diagnostic_hint(espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                                                  "'device' must be auto, cpu or cuda:N, got '%s'",
                                                  shown),
                             "cuda:0 is the first GPU");
    } else if (node != NULL) {
        job->device = node->text;
        job->device_at = node->at;
    }
}

struct limits {
    uint64_t host_memory;
    uint64_t scratch;
};

static const struct espl_param limit_table[] = {
    {.name = "host_memory",
     .help = "most memory a stage may need",
     .type = ESPL_PARAM_SIZE,
     .flags = ESPL_PARAM_OPTIONAL,
     .offset = offsetof(struct limits, host_memory)},
    {.name = "scratch",
     .help = "most scratch space a stage may need",
     .type = ESPL_PARAM_SIZE,
     .flags = ESPL_PARAM_OPTIONAL,
     .offset = offsetof(struct limits, scratch)},
    {0},
};

static void read_limits(struct espl_job_reader *reader, const struct espl_node *root)
{
    struct limits limits = {0};
    struct espl_param_value values[2] = {{0}};
    espl_schema_read(limit_table, espl_node_get(root, "limits", NULL), "'limits'", NULL, &limits,
                     values, reader->job->arena, reader->diags, &root->at);
    reader->job->limit_host_memory = limits.host_memory;
    reader->job->limit_scratch = limits.scratch;
    reader->job->limit_host_memory_at = values[0].at;
    reader->job->limit_scratch_at = values[1].at;
}

static void read_root(struct espl_job_reader *reader, const struct espl_node *root)
{
    static const char *const known[] = {"version", "name",   "seed", "device",
                                        "limits",  "stages", NULL};
    espl_job_check_keys(reader, root, known, "the job");
    read_scalars(reader, root);
    read_limits(reader, root);
    const struct espl_node *stages = espl_node_get(root, "stages", NULL);
    if (stages == NULL) {
        struct espl_srcpos at = {.line = 1, .column = 1};
        (void)snprintf(at.file, sizeof at.file, "%s", root->at.file);
        espl_diagnostic_hint(
            espl_diagnostics_add(reader->diags, ESPL_E_JOB, &at, "the job has no 'stages'"),
            "add a list 'stages:' with items '- id: ...' and 'use: ...'");
    } else if (stages->type != ESPL_NODE_SEQUENCE || stages->count == 0) {
        (void)espl_diagnostics_add(
            reader->diags, ESPL_E_JOB, &stages->at, "'stages' must be a list of stages, got %s",
            stages->type == ESPL_NODE_SEQUENCE ? "an empty one" : espl_job_describe_node(stages));
    } else {
        espl_job_read_stages(reader, stages);
    }
}

/* An empty job that holds a copy of the text; NULL when out of memory. */
static struct espl_job *create_job(const char *file, const char *text, size_t len)
{
    struct espl_arena *arena = espl_arena_create(JOB_ARENA_LIMIT);
    struct espl_job *job = arena != NULL ? espl_arena_alloc(arena, sizeof *job) : NULL;
    char *copy = job != NULL ? espl_arena_alloc(arena, len + 1) : NULL;
    if (copy == NULL || (job->file = espl_arena_strdup(arena, file)) == NULL) {
        espl_arena_destroy(arena);
        return NULL;
    }
    if (len > 0) {
        memcpy(copy, text, len);
    }
    job->arena = arena;
    job->text = copy;
    job->text_len = len;
    return job;
}

enum espl_status espl_job_parse(const char *file, const char *text, size_t len,
                                const struct espl_stage *const *registry,
                                const struct espl_override *overrides, size_t override_count,
                                struct espl_diagnostics *diags, struct espl_job **out,
                                struct espl_error *err)
{
    const char *shown_file = strcmp(file, "-") == 0 ? "<stdin>" : file;
    *out = NULL;
    struct espl_job *job = create_job(file, text, len);
    if (job == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory while reading '%s'", file);
    }
    job->registry = registry;
    struct espl_job_reader reader = {.job = job, .diags = diags};
    const struct espl_node *root = NULL;
    enum espl_status status = espl_diagnostics_set_source(diags, shown_file, text, len, err);
    if (status == ESPL_OK) {
        status = espl_sha256_bytes(text, len, job->sha256, err);
    }
    if (status == ESPL_OK) {
        status = espl_yaml_parse(shown_file, job->text, len, job->arena, diags, &root, err);
    }
    if (status == ESPL_OK && root != NULL) {
        root = espl_override_apply(root, registry, overrides, override_count, job->arena, diags);
        reader.no_memory = root == NULL;
        if (root != NULL) {
            read_root(&reader, root);
        }
    }
    if (status == ESPL_OK && reader.no_memory) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory while reading '%s'", file);
    }
    if (status == ESPL_OK) {
        espl_diagnostics_sort(diags);
        status = espl_diagnostics_fail(diags, file, err);
    }
    if (status != ESPL_OK) {
        espl_job_free(job);
        return status;
    }
    *out = job;
    return ESPL_OK;
}

/* Reads standard input to its end, at most one byte more than a job may have. */
static enum espl_status read_stdin(char **text, size_t *len, struct espl_error *err)
{
    const size_t limit = (size_t)ESPL_YAML_MAX_BYTES + 1;
    char *data = malloc(limit);
    if (data == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory while reading standard input");
    }
    size_t used = 0;
    while (used < limit) {
        const ssize_t got = read(STDIN_FILENO, data + used, limit - used);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            const int sys_errno = errno;
            free(data);
            return espl_fail_errno(err, sys_errno, "cannot read the job from standard input");
        }
        if (got == 0) {
            break;
        }
        used += (size_t)got;
    }
    *text = data;
    *len = used;
    return ESPL_OK;
}

static enum espl_status read_job_file(const char *file, char **text, size_t *len,
                                      struct espl_error *err)
{
    char inside[ESPL_PATH_MAX];
    if (espl_fs_is_dir(file)) {
        (void)espl_fail(err, ESPL_E_IO, "cannot read job file '%s': it is a folder", file);
        (void)snprintf(inside, sizeof inside, "%s/", file);
        espl_job_suggest_file(inside, err);
        return ESPL_E_IO;
    }
    enum espl_status status = espl_fs_read_file(file, ESPL_YAML_MAX_BYTES, text, len, err);
    if (status == ESPL_E_NOTFOUND) {
        status = espl_fail(err, ESPL_E_NOTFOUND, "cannot find job file '%s'", file);
        espl_job_suggest_file(file, err);
    } else if (status == ESPL_E_CORRUPT) {
        status = espl_fail(err, ESPL_E_JOB, "job file '%s' is larger than %d bytes", file,
                           ESPL_YAML_MAX_BYTES);
    }
    return status;
}

enum espl_status espl_job_load(const char *file, const struct espl_stage *const *registry,
                               const struct espl_override *overrides, size_t override_count,
                               struct espl_diagnostics *diags, struct espl_job **out,
                               struct espl_error *err)
{
    char *text = NULL;
    size_t len = 0;
    *out = NULL;
    enum espl_status status = strcmp(file, "-") == 0 ? read_stdin(&text, &len, err)
                                                     : read_job_file(file, &text, &len, err);
    if (status == ESPL_OK) {
        status =
            espl_job_parse(file, text, len, registry, overrides, override_count, diags, out, err);
    }
    free(text);
    return status;
}

void espl_job_free(struct espl_job *job)
{
    if (job != NULL) {
        espl_arena_destroy(job->arena);
    }
}

const struct espl_job_stage *espl_job_find(const struct espl_job *job, const char *id)
{
    for (size_t i = 0; i < job->stage_count; i++) {
        if (job->stages[i].id != NULL && strcmp(job->stages[i].id, id) == 0) {
            return &job->stages[i];
        }
    }
    return NULL;
}

/* The stage process. It dies with its driver, leaves no core, keeps away from the terminal, and
 * says how it ended in one last message. */
#include "engine/exec_internal.h"
#include "engine/exec_message.h"
#include "engine/stage_ctx.h"

#include "core/units.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* One output: its private file and what it becomes. */
struct child_output {
    char private_path[ESPL_PATH_MAX];
    const char *port; /* "" = the only one */
};

struct child {
    const struct espl_exec *exec;
    const struct espl_plan_stage *stage;
    size_t index;
    int message_fd;
    struct espl_stage_ctx *ctx;
    struct espl_ctx_port *inputs;
    struct espl_artifact **input_artifacts;
    size_t input_count;
    struct espl_ctx_port *outputs;
    struct child_output *output_files;
    size_t output_count;
    double started;
    uint64_t output_bytes;
};

/* Most memory this process ever had resident, mapped files included. */
static uint64_t peak_rss_bytes(void)
{
    char line[256];
    uint64_t kib = 0;
    struct rusage usage;
    FILE *stream = fopen("/proc/self/status", "re");
    while (stream != NULL && fgets(line, sizeof line, stream) != NULL) {
        if (strncmp(line, "VmHWM:", 6) == 0) {
            kib = strtoull(line + 6, NULL, 10);
            break;
        }
    }
    if (stream != NULL) {
        (void)fclose(stream); /* only read from */
    }
    if (kib == 0 && getrusage(RUSAGE_SELF, &usage) == 0) {
        kib = (uint64_t)usage.ru_maxrss;
    }
    return kib * 1024u;
}

static enum espl_status open_inputs(struct child *child, struct espl_error *err)
{
    const struct espl_job_stage *job_stage = child->stage->job_stage;
    for (size_t i = 0; i < job_stage->input_count; i++) {
        char path[ESPL_PATH_MAX];
        enum espl_status status =
            espl_exec_input_path(child->exec->store, child->exec->plan, child->stage, i, path, err);
        if (status == ESPL_OK) {
            status = espl_artifact_open(path, &child->input_artifacts[i], err);
        }
        if (status != ESPL_OK) {
            char blame[64];
            (void)snprintf(blame, sizeof blame, "input:%s", job_stage->inputs[i].port);
            (void)espl_blame(err, blame);
            if (status == ESPL_E_CORRUPT && job_stage->inputs[i].stage_id != NULL) {
                (void)espl_hint(err, "run the same command again: it makes '%.250s' again", path);
            }
            return espl_context(err, "while opening input '%s'", job_stage->inputs[i].port);
        }
        child->inputs[i].name = job_stage->inputs[i].port;
        child->inputs[i].artifact = child->input_artifacts[i];
        child->input_count++;
    }
    return ESPL_OK;
}

static enum espl_status create_outputs(struct child *child, struct espl_error *err)
{
    const struct espl_stage *kind = child->stage->job_stage->stage;
    const size_t count = espl_exec_port_count(kind->outputs);
    for (size_t i = 0; i < count; i++) {
        struct child_output *file = &child->output_files[i];
        file->port = espl_exec_output_port(kind, i);
        enum espl_status status = espl_store_private_path(
            child->exec->store, child->stage->key, kind->outputs[i].name, file->private_path, err);
        if (status == ESPL_OK) {
            status = espl_artifact_create(file->private_path, kind->outputs[i].kind,
                                          &child->outputs[i].artifact, err);
        }
        if (status != ESPL_OK) {
            return status;
        }
        child->outputs[i].name = kind->outputs[i].name;
        child->output_count++;
    }
    return ESPL_OK;
}

static enum espl_status create_ctx(struct child *child, struct espl_error *err)
{
    const struct espl_job_stage *job_stage = child->stage->job_stage;
    const struct espl_ctx_config config = {
        .store = child->exec->store,
        .stage = job_stage->stage,
        .stage_id = job_stage->id,
        .key = child->stage->key,
        .device = child->exec->plan->job->device,
        .device_fingerprint = child->exec->plan->device_fingerprint,
        .seed = child->exec->plan->job->seed,
        .inputs = child->inputs,
        .input_count = child->input_count,
        .outputs = child->outputs,
        .output_count = child->output_count,
        .message_fd = child->message_fd,
    };
    return espl_stage_ctx_create(&config, &child->ctx, err);
}

/* The remark beside the artifact: everything that differs between two runs of one recipe. It is
 * written before the artifact is published, so that a visible artifact always has one. */
static enum espl_status write_side_file(const struct child *child, const char *port,
                                        struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char dir[ESPL_PATH_MAX];
    char now[ESPL_UNIT_TEXT];
    char host[256] = "";
    (void)gethostname(host, sizeof host - 1); /* then it stays empty */
    espl_print_utc(espl_clock_utc(), now);
    enum espl_status status =
        espl_exec_side_path(child->exec->store, child->stage->key, port, path, err);
    if (status != ESPL_OK) {
        return status;
    }
    (void)snprintf(dir, sizeof dir, "%s", path);
    *strrchr(dir, '/') = '\0';
    status = espl_fs_make_dirs(dir, err);
    if (status != ESPL_OK) {
        return status;
    }
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:I, s:I, s:O}", "schema", "espalier.side/1",
        "created_utc", now, "run_id", child->exec->result->run_id, "job",
        child->exec->plan->job->name, "stage", child->stage->job_stage->id, "host", host, "seconds",
        espl_clock_monotonic() - child->started, "peak_rss_bytes", (json_int_t)peak_rss_bytes(),
        "resumed_units", (json_int_t)espl_stage_ctx_resumed_units(child->ctx), "volatile_metrics",
        espl_stage_ctx_metrics(child->ctx, true));
    char *text = object != NULL ? json_dumps(object, JSON_INDENT(1)) : NULL;
    json_decref(object);
    if (text == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for '%s'", path);
    }
    status = espl_fs_write_file(path, text, strlen(text), err);
    free(text);
    return status;
}

static enum espl_status publish_outputs(struct child *child, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    json_t *layers = espl_stage_ctx_layers(child->ctx);
    const json_t *metrics = espl_stage_ctx_metrics(child->ctx, false);
    if (layers == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for layer metrics");
    }
    for (size_t i = 0; i < child->output_count && status == ESPL_OK; i++) {
        status = espl_exec_set_provenance(child->exec, child->index, child->outputs[i].name,
                                          child->input_artifacts, metrics, layers,
                                          child->outputs[i].artifact, err);
        if (status == ESPL_OK) {
            status = espl_artifact_finish(&child->outputs[i].artifact, NULL, err);
        }
    }
    json_decref(layers);
    for (size_t i = 0; i < child->output_count && status == ESPL_OK; i++) {
        const struct child_output *file = &child->output_files[i];
        uint64_t bytes = 0;
        status = espl_fs_file_size(file->private_path, &bytes, err);
        if (status == ESPL_OK) {
            status = write_side_file(child, file->port, err);
        }
        if (status == ESPL_OK) {
            status = espl_store_publish(child->exec->store, file->private_path, child->stage->key,
                                        file->port, err);
        }
        child->output_bytes += bytes;
    }
    if (status != ESPL_OK) {
        (void)espl_context(err, "while publishing the result of '%s'", child->stage->job_stage->id);
    }
    return status;
}

static enum espl_status allocate(struct child *child, struct espl_error *err)
{
    const struct espl_job_stage *job_stage = child->stage->job_stage;
    const size_t inputs = job_stage->input_count;
    const size_t outputs = espl_exec_port_count(job_stage->stage->outputs);
    child->inputs = calloc(inputs + 1, sizeof *child->inputs);
    child->input_artifacts = calloc(inputs + 1, sizeof(struct espl_artifact *));
    child->outputs = calloc(outputs + 1, sizeof *child->outputs);
    child->output_files = calloc(outputs + 1, sizeof *child->output_files);
    if (child->inputs == NULL || child->input_artifacts == NULL || child->outputs == NULL ||
        child->output_files == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for stage '%s'", job_stage->id);
    }
    return ESPL_OK;
}

static enum espl_status run_stage(struct child *child, struct espl_error *err)
{
    const struct espl_job_stage *job_stage = child->stage->job_stage;
    enum espl_status status = allocate(child, err);
    if (status == ESPL_OK) {
        status = open_inputs(child, err);
    }
    if (status == ESPL_OK) {
        status = create_outputs(child, err);
    }
    if (status == ESPL_OK) {
        status = create_ctx(child, err);
    }
    if (status == ESPL_OK) {
        status = job_stage->stage->run(child->ctx, job_stage->params, err);
    }
    if (status == ESPL_OK) {
        status = publish_outputs(child, err);
    }
    /* Whatever was not published goes; after success there is nothing left to go. */
    for (size_t i = 0; status != ESPL_OK && i < child->output_count; i++) {
        espl_artifact_abandon(child->outputs[i].artifact);
        (void)unlink(child->output_files[i].private_path); /* gone in most cases */
    }
    for (size_t i = 0; i < child->input_count; i++) {
        espl_artifact_close(child->input_artifacts[i]);
    }
    return status;
}

static enum espl_status send_status(struct child *child, struct espl_error *problem)
{
    uint64_t done = 0;
    uint64_t total = 0;
    uint64_t resumed = 0;
    const char *what = "";
    if (child->ctx != NULL) {
        espl_stage_ctx_last_progress(child->ctx, &done, &total, &what);
        resumed = espl_stage_ctx_resumed_units(child->ctx);
    }
    json_t *body = json_pack(
        "{s:o, s:f, s:I, s:I, s:I, s:I, s:I, s:s}", "error", espl_error_to_json(problem), "seconds",
        espl_clock_monotonic() - child->started, "peak_rss_bytes", (json_int_t)peak_rss_bytes(),
        "output_bytes", (json_int_t)child->output_bytes, "resumed_units", (json_int_t)resumed,
        "done", (json_int_t)done, "total", (json_int_t)total, "what", what);
    return espl_message_send_take(child->message_fd, ESPL_MESSAGE_STATUS, body, NULL);
}

int espl_exec_child(const struct espl_exec *exec, size_t index, int message_fd)
{
    struct espl_error problem;
    struct child child = {
        .exec = exec,
        .stage = &exec->plan->stages[index],
        .index = index,
        .message_fd = message_fd,
        .started = espl_clock_monotonic(),
    };
    espl_error_clear(&problem);
    const enum espl_status status = run_stage(&child, &problem);
    if (status == ESPL_OK) {
        espl_error_clear(&problem);
    } else if (problem.code == ESPL_OK) {
        (void)espl_fail(&problem, status, "the stage failed without a message");
    }
    const enum espl_status sent = send_status(&child, &problem);
    espl_stage_ctx_destroy(child.ctx); /* units that were not published are deleted */
    free(child.inputs);
    free(child.input_artifacts);
    free(child.outputs);
    free(child.output_files);
    return sent == ESPL_OK ? 0 : 1;
}

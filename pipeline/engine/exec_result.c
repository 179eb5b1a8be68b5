/* What a finished stage left in the store: is it there, and which figures came with it. */
#include "engine/exec_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE_FILE_LIMIT = 16 << 20 };

size_t espl_exec_port_count(const struct espl_port *ports)
{
    size_t count = 0;
    while (ports != NULL && ports[count].name != NULL) {
        count++;
    }
    return count;
}

const char *espl_exec_output_port(const struct espl_stage *stage, size_t index)
{
    return espl_exec_port_count(stage->outputs) == 1 ? "" : stage->outputs[index].name;
}

static enum espl_status open_output(const struct espl_store *store,
                                    const struct espl_plan_stage *stage, size_t index,
                                    struct espl_artifact **out, struct espl_error *err)
{
    const char *port = espl_exec_output_port(stage->job_stage->stage, index);
    return espl_store_open_artifact(store, stage->key, port, out, err);
}

/* Opens one output and asks the stage about the first. */
static enum espl_status examine_output(const struct espl_store *store,
                                       const struct espl_plan_stage *stage, size_t index,
                                       bool *valid, char stale[ESPL_EXEC_STALE],
                                       struct espl_error *err)
{
    const struct espl_stage *kind = stage->job_stage->stage;
    struct espl_artifact *artifact = NULL;
    enum espl_status status = open_output(store, stage, index, &artifact, err);
    if (status == ESPL_E_CORRUPT || status == ESPL_E_KIND) {
        *valid = false;
        (void)snprintf(stale, ESPL_EXEC_STALE, "%s", err->message);
        espl_error_clear(err);
        return ESPL_OK;
    }
    if (status == ESPL_OK && index == 0 && kind->still_valid != NULL) {
        status =
            kind->still_valid(store, false, artifact, stage->job_stage->params, valid, stale, err);
    }
    espl_artifact_close(artifact);
    return status;
}

enum espl_status espl_exec_is_ready(const struct espl_store *store,
                                    const struct espl_plan_stage *stage, bool *ready,
                                    char stale[ESPL_EXEC_STALE], struct espl_error *err)
{
    const struct espl_stage *kind = stage->job_stage->stage;
    const size_t outputs = espl_exec_port_count(kind->outputs);
    enum espl_status status = ESPL_OK;
    *ready = false;
    stale[0] = '\0';
    if (!stage->key_known) {
        return ESPL_OK;
    }
    for (size_t i = 0; i < outputs; i++) {
        if (!espl_store_has(store, stage->key, espl_exec_output_port(kind, i))) {
            return ESPL_OK;
        }
    }
    *ready = true;
    for (size_t i = 0; i < outputs && status == ESPL_OK && *ready; i++) {
        status = examine_output(store, stage, i, ready, stale, err);
    }
    return status;
}

enum espl_status espl_exec_side_path(const struct espl_store *store, const char *key,
                                     const char *port, char out[ESPL_PATH_MAX],
                                     struct espl_error *err)
{
    enum espl_status status = espl_store_artifact_path(store, key, port, out, err);
    const size_t len = status == ESPL_OK ? strlen(out) : 0;
    if (len + 3 > ESPL_PATH_MAX || len < 3) {
        return status != ESPL_OK ? status : espl_fail(err, ESPL_E_IO, "path is too long");
    }
    (void)snprintf(out + len - 3, ESPL_PATH_MAX - (len - 3), ".json"); /* in place of ".h5" */
    return ESPL_OK;
}

static void replace(json_t **slot, json_t *value)
{
    json_decref(*slot);
    *slot = value;
}

/* Figures of the artifact: /provenance/metrics. Results of stages without figures have none. */
static enum espl_status load_metrics(struct espl_artifact *artifact, struct espl_exec_stage *out,
                                     struct espl_error *err)
{
    char *text = NULL;
    enum espl_status status = espl_artifact_provenance(artifact, "metrics", &text, err);
    if (status == ESPL_E_NOTFOUND) {
        espl_error_clear(err);
        return ESPL_OK;
    }
    if (status != ESPL_OK) {
        return status;
    }
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    json_t *metrics = json_object_get(root, "metrics");
    json_t *layers = json_object_get(root, "layers");
    if (json_is_object(metrics) && json_is_array(layers)) {
        replace(&out->metrics, json_incref(metrics));
        replace(&out->layers, json_incref(layers));
    } else {
        status = espl_fail(err, ESPL_E_CORRUPT, "the metrics in '%s' are damaged",
                           espl_artifact_path(artifact));
    }
    json_decref(root);
    return status;
}

/* Volatile figures from the side file. It is a remark beside the artifact: when it is missing or
 * damaged, those figures are unknown and nothing else suffers. */
static void load_side_file(const struct espl_store *store, const struct espl_plan_stage *stage,
                           struct espl_exec_stage *out)
{
    char path[ESPL_PATH_MAX];
    char *text = NULL;
    size_t len = 0;
    if (espl_exec_side_path(store, stage->key, espl_exec_output_port(stage->job_stage->stage, 0),
                            path, NULL) != ESPL_OK ||
        espl_fs_read_file(path, SIDE_FILE_LIMIT, &text, &len, NULL) != ESPL_OK) {
        return;
    }
    json_t *root = json_loadb(text, len, 0, NULL);
    free(text);
    json_t *metrics = json_object_get(root, "volatile_metrics");
    if (json_is_object(metrics)) {
        replace(&out->volatile_metrics, json_incref(metrics));
    }
    json_decref(root);
}

enum espl_status espl_exec_load_result(const struct espl_store *store,
                                       const struct espl_plan_stage *stage,
                                       struct espl_exec_stage *out, struct espl_error *err)
{
    const struct espl_stage *kind = stage->job_stage->stage;
    char path[ESPL_PATH_MAX];
    struct espl_artifact *artifact = NULL;
    enum espl_status status = open_output(store, stage, 0, &artifact, err);
    if (status == ESPL_OK) {
        status = load_metrics(artifact, out, err);
    }
    espl_artifact_close(artifact);
    load_side_file(store, stage, out);
    out->output_bytes = 0;
    for (size_t i = 0; i < espl_exec_port_count(kind->outputs) && status == ESPL_OK; i++) {
        uint64_t bytes = 0;
        status =
            espl_store_artifact_path(store, stage->key, espl_exec_output_port(kind, i), path, err);
        if (status == ESPL_OK) {
            status = espl_fs_file_size(path, &bytes, err);
        }
        out->output_bytes += bytes;
    }
    if (status != ESPL_OK) {
        (void)espl_context(err, "while reading the result of stage '%s'", stage->job_stage->id);
    }
    return status;
}

enum espl_status espl_exec_input_path(const struct espl_store *store, const struct espl_plan *plan,
                                      const struct espl_plan_stage *stage, size_t index,
                                      char out[ESPL_PATH_MAX], struct espl_error *err)
{
    const struct espl_job_input *input = &stage->job_stage->inputs[index];
    if (input->file != NULL) {
        const int len = snprintf(out, ESPL_PATH_MAX, "%s", input->file);
        return len < ESPL_PATH_MAX ? ESPL_OK : espl_fail(err, ESPL_E_IO, "path is too long");
    }
    const struct espl_plan_stage *source = &plan->stages[stage->input_stage[index]];
    const struct espl_stage *kind = source->job_stage->stage;
    /* "" in the job means the only output; the store then wants no port either. */
    const char *port = espl_exec_port_count(kind->outputs) == 1 ? "" : input->output_port;
    return espl_store_artifact_path(store, source->key, port, out, err);
}

/* What the engine writes into artifacts: where they come from, and nothing that differs between two
 * runs of one recipe on one machine. */
#include "engine/exec_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOB_TEXT_LIMIT = 4 << 20 };

struct attribute {
    const char *name;
    const char *value;
};

static enum espl_status set_attributes(const struct espl_exec *exec, size_t index, const char *port,
                                       struct espl_artifact *output, struct espl_error *err)
{
    const struct espl_plan_stage *stage = &exec->plan->stages[index];
    const struct espl_job *job = exec->plan->job;
    const char *version =
        json_string_value(json_object_get(exec->options->environment, "tool_version"));
    char cache_version[32];
    char seed[32];
    (void)snprintf(cache_version, sizeof cache_version, "%" PRIu32,
                   stage->job_stage->stage->cache_version);
    (void)snprintf(seed, sizeof seed, "%" PRIu64, job->seed);
    const struct attribute attributes[] = {
        {"key", stage->key},
        {"port", port},
        {"stage", stage->job_stage->stage->name},
        {"cache_version", cache_version},
        {"job_name", job->name},
        {"seed", seed},
        {"tool_version", version != NULL ? version : "unknown"},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0] && status == ESPL_OK; i++) {
        status = espl_artifact_set_attribute(output, attributes[i].name, attributes[i].value, err);
    }
    return status;
}

/* Takes the reference. */
static enum espl_status set_json_take(struct espl_artifact *output, const char *name, json_t *value,
                                      struct espl_error *err)
{
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    if (text == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for provenance '%s'", name);
    }
    const enum espl_status status = espl_artifact_set_provenance(output, name, text, err);
    free(text);
    return status;
}

static json_t *inputs_json(const struct espl_job_stage *stage, struct espl_artifact *const *inputs)
{
    json_t *list = json_array();
    for (size_t i = 0; i < stage->input_count; i++) {
        json_t *entry = json_pack("{s:s, s:s, s:s, s:s}", "port", stage->inputs[i].port, "kind",
                                  espl_artifact_kind(inputs[i]), "key",
                                  espl_artifact_attribute(inputs[i], "key"), "content_sha256",
                                  espl_artifact_content_sha256(inputs[i]));
        if (json_array_append_new(list, entry) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *fields_json(const struct espl_plan_stage *stage)
{
    json_t *list = json_array();
    for (size_t i = 0; i < stage->field_count; i++) {
        json_t *entry = json_pack("[s, s]", stage->fields[i].label, stage->fields[i].value);
        if (json_array_append_new(list, entry) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* The facts of the machine that can matter for results. The number of threads cannot, and would
 * make equal results differ in their bytes. */
static json_t *environment_json(const json_t *environment)
{
    json_t *copy = environment != NULL ? json_deep_copy(environment) : json_object();
    if (copy != NULL) {
        (void)json_object_del(copy, "threads"); /* absent is fine */
    }
    return copy;
}

static enum espl_status set_job(const struct espl_exec *exec, struct espl_artifact *output,
                                struct espl_error *err)
{
    struct espl_buf text;
    espl_buf_init(&text, JOB_TEXT_LIMIT);
    espl_job_resolved_yaml(exec->plan->job, &text);
    enum espl_status status = espl_buf_check(&text, "the resolved job", err);
    if (status == ESPL_OK) {
        status = espl_artifact_set_provenance(output, "job", espl_buf_text(&text), err);
    }
    espl_buf_free(&text);
    return status;
}

enum espl_status espl_exec_set_provenance(const struct espl_exec *exec, size_t index,
                                          const char *port, struct espl_artifact *const *inputs,
                                          const json_t *metrics, const json_t *layers,
                                          struct espl_artifact *output, struct espl_error *err)
{
    const struct espl_plan_stage *stage = &exec->plan->stages[index];
    const struct espl_job_stage *job_stage = stage->job_stage;
    enum espl_status status = set_attributes(exec, index, port, output, err);
    if (status == ESPL_OK) {
        status = set_json_take(output, "params",
                               espl_schema_json(job_stage->stage->params, job_stage->values), err);
    }
    if (status == ESPL_OK) {
        status = set_job(exec, output, err);
    }
    if (status == ESPL_OK) {
        status = set_json_take(output, "inputs", inputs_json(job_stage, inputs), err);
    }
    if (status == ESPL_OK) {
        status =
            set_json_take(output, "environment", environment_json(exec->options->environment), err);
    }
    if (status == ESPL_OK) {
        status = set_json_take(output, "hash_fields", fields_json(stage), err);
    }
    if (status == ESPL_OK) {
        status = set_json_take(output, "metrics",
                               json_pack("{s:O, s:O}", "metrics", metrics, "layers", layers), err);
    }
    if (status != ESPL_OK) {
        (void)espl_context(err, "while recording where the result comes from");
    }
    return status;
}

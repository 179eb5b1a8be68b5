/* The plan for scripts: schema "espalier.plan/1". Fields are only ever added. */
#include "engine/plan_internal.h"

#include <string.h>

static json_t *text_or_null(const char *text)
{
    return text != NULL && text[0] != '\0' ? json_string(text) : json_null();
}

static json_t *bytes_json(uint64_t bytes)
{
    return json_integer(bytes > INT64_MAX ? INT64_MAX : (json_int_t)bytes);
}

static void set(json_t *object, const char *key, json_t *value)
{
    /* jansson refuses NULL; a missing key is then the worst that comes of no memory. */
    (void)json_object_set_new(object, key, value);
}

static json_t *inputs_json(const struct espl_plan_stage *stage)
{
    json_t *list = json_array();
    for (size_t i = 0; i < stage->job_stage->input_count; i++) {
        const struct espl_job_input *input = &stage->job_stage->inputs[i];
        json_t *entry = json_object();
        set(entry, "port", json_string(input->port));
        set(entry, "stage", text_or_null(input->stage_id));
        set(entry, "output", text_or_null(input->output_port));
        set(entry, "file", text_or_null(input->file));
        set(entry, "kind", text_or_null(stage->inputs[i].kind));
        set(entry, "key", text_or_null(stage->inputs[i].key));
        set(entry, "content_sha256", text_or_null(stage->inputs[i].content_sha256));
        (void)json_array_append_new(list, entry);
    }
    return list;
}

static json_t *outputs_json(const struct espl_plan_stage *stage)
{
    json_t *list = json_array();
    const struct espl_port *outputs = stage->job_stage->stage->outputs;
    for (size_t i = 0; outputs[i].name != NULL; i++) {
        json_t *entry = json_object();
        set(entry, "port", json_string(outputs[i].name));
        set(entry, "kind", json_string(outputs[i].kind));
        set(entry, "description",
            stage->descriptions[i] != NULL ? json_deep_copy(stage->descriptions[i]) : json_null());
        (void)json_array_append_new(list, entry);
    }
    return list;
}

static json_t *fields_json(const struct espl_plan_stage *stage)
{
    json_t *list = json_array();
    for (size_t i = 0; i < stage->field_count; i++) {
        (void)json_array_append_new(
            list, json_pack("[s, s]", stage->fields[i].label, stage->fields[i].value));
    }
    return list;
}

static json_t *estimate_json(const struct espl_estimate *estimate)
{
    json_t *object = json_object();
    set(object, "host_bytes", bytes_json(estimate->host_bytes));
    set(object, "device_bytes", bytes_json(estimate->device_bytes));
    set(object, "scratch_bytes", bytes_json(estimate->scratch_bytes));
    set(object, "output_bytes", bytes_json(estimate->output_bytes));
    set(object, "units", bytes_json(estimate->units));
    set(object, "flop", json_real(estimate->flop));
    set(object, "note", json_string(estimate->note));
    return object;
}

static json_t *warnings_json(const char *warnings)
{
    json_t *list = json_array();
    for (const char *line = warnings; *line != '\0';) {
        const size_t len = strcspn(line, "\n");
        (void)json_array_append_new(list, json_stringn(line, len));
        line += len + (line[len] == '\n' ? 1 : 0);
    }
    return list;
}

static json_t *origins_json(const struct espl_job_stage *stage)
{
    static const char *const names[] = {"default", "job", "set"};
    json_t *object = json_object();
    for (size_t i = 0; stage->stage->params[i].name != NULL; i++) {
        set(object, stage->stage->params[i].name, json_string(names[stage->values[i].origin]));
    }
    return object;
}

static json_t *stage_json(const struct espl_plan_stage *stage)
{
    const struct espl_job_stage *job_stage = stage->job_stage;
    json_t *object = json_object();
    set(object, "id", json_string(job_stage->id));
    set(object, "use", json_string(job_stage->stage->name));
    set(object, "state", json_string(espl_plan_state_name(stage->state)));
    set(object, "why", json_string(stage->why));
    set(object, "key", stage->key_known ? json_string(stage->key) : json_null());
    set(object, "has_result", json_boolean(stage->has_result));
    set(object, "units_done", bytes_json(stage->units_done));
    set(object, "seconds", stage->seconds >= 0.0 ? json_real(stage->seconds) : json_null());
    set(object, "estimate", estimate_json(&stage->estimate));
    set(object, "inputs", inputs_json(stage));
    set(object, "outputs", outputs_json(stage));
    set(object, "params", espl_schema_json(job_stage->stage->params, job_stage->values));
    set(object, "param_origins", origins_json(job_stage));
    set(object, "hash_fields", fields_json(stage));
    set(object, "warnings", warnings_json(stage->warnings));
    return object;
}

static json_t *resources_json(const struct espl_plan *plan)
{
    json_t *object = json_object();
    json_t *errors = json_array();
    for (size_t i = 0; i < plan->resource_error_count; i++) {
        const struct espl_error *error = &plan->resource_errors[i];
        (void)json_array_append_new(errors, json_pack("{s:s, s:s, s:s}", "code",
                                                      espl_status_name(error->code), "message",
                                                      error->message, "hint", error->hint));
    }
    set(object, "ok", json_boolean(plan->resources_ok));
    set(object, "host_bytes_needed", bytes_json(plan->host_bytes_needed));
    set(object, "host_bytes_free", bytes_json(plan->host_bytes_free));
    set(object, "device_bytes_needed", bytes_json(plan->device_bytes_needed));
    set(object, "disk_bytes_needed", bytes_json(plan->disk_bytes_needed));
    set(object, "disk_bytes_free", bytes_json(plan->disk_bytes_free));
    set(object, "errors", errors);
    return object;
}

static json_t *counts_json(const struct espl_plan *plan)
{
    json_t *object = json_object();
    for (int state = ESPL_PLAN_CACHED; state <= ESPL_PLAN_SKIPPED; state++) {
        json_int_t count = 0;
        for (size_t i = 0; i < plan->stage_count; i++) {
            count += (int)plan->stages[i].state == state ? 1 : 0;
        }
        set(object, espl_plan_state_name((enum espl_plan_state)state), json_integer(count));
    }
    return object;
}

json_t *espl_plan_json(const struct espl_plan *plan)
{
    const struct espl_job *job = plan->job;
    json_t *object = json_object();
    json_t *stages = json_array();
    for (size_t i = 0; i < plan->stage_count; i++) {
        (void)json_array_append_new(stages, stage_json(&plan->stages[i]));
    }
    set(object, "schema", json_string("espalier.plan/1"));
    set(object, "job", json_string(job->name));
    set(object, "job_file", json_string(job->file));
    set(object, "job_sha256", json_string(job->sha256));
    set(object, "seed", bytes_json(job->seed));
    set(object, "device", json_string(job->device));
    set(object, "stages", stages);
    set(object, "counts", counts_json(plan));
    set(object, "resources", resources_json(plan));
    return object;
}

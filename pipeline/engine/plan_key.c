/* Recipe keys: SHA-256 over labelled, length-prefixed fields, so that a key is known before
 * anything runs and every difference between two keys has a name.
 *
 *   "espl-key-1", then for every field its label and its value, each with its length before it:
 *   stage, cache_version,
 *   parameter <name>      canonical text, by name; not: NO_HASH, INPUT_PATH, absent optional ones
 *   seed                  ESPL_STAGE_SEEDED
 *   device                ESPL_STAGE_MEASURES
 *   input <port>          in the order of the port table: key of the producing stage, with
 * ".<port>" when it has several outputs; for a file "content <sha256>" file <role> <n> external
 * files in the order in which the stage named them
 */
#include "engine/plan_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct field_list {
    struct espl_planner *planner;
    struct espl_plan_stage *stage;
    size_t capacity;
};

static void add_field(struct field_list *list, const char *label, const char *value)
{
    struct espl_plan_stage *stage = list->stage;
    const char *label_copy = espl_arena_strdup(list->planner->plan->arena, label);
    const char *value_copy = espl_arena_strdup(list->planner->plan->arena, value);
    if (label_copy == NULL || value_copy == NULL || stage->field_count == list->capacity) {
        list->planner->no_memory = true;
        return;
    }
    stage->fields[stage->field_count++] = (struct espl_hash_field){label_copy, value_copy};
}

static int compare_params(const void *left, const void *right)
{
    const struct espl_param *const *a = left;
    const struct espl_param *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

/* By name, so that the order of the table can change. */
static void add_params(struct field_list *list)
{
    const struct espl_job_stage *job_stage = list->stage->job_stage;
    const struct espl_param *table = job_stage->stage->params;
    const size_t count = espl_schema_count(table);
    const struct espl_param **sorted =
        espl_planner_alloc(list->planner, count, sizeof(const struct espl_param *));
    if (sorted == NULL) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        sorted[i] = &table[i];
    }
    qsort(sorted, count, sizeof(const struct espl_param *), compare_params);
    for (size_t i = 0; i < count; i++) {
        const struct espl_param *param = sorted[i];
        const char *text = job_stage->values[param - table].text;
        const char *absent = (param->flags & ESPL_PARAM_LIST) != 0 ? "[]" : "";
        if ((param->flags & (ESPL_PARAM_NO_HASH | ESPL_PARAM_INPUT_PATH)) != 0 ||
            ((param->flags & ESPL_PARAM_OPTIONAL) != 0 && strcmp(text, absent) == 0)) {
            continue;
        }
        char label[96];
        (void)snprintf(label, sizeof label, "parameter %s", param->name);
        add_field(list, label, text);
    }
}

static void add_inputs(struct field_list *list)
{
    const struct espl_plan_stage *stage = list->stage;
    for (size_t i = 0; i < stage->job_stage->input_count; i++) {
        const struct espl_job_input *input = &stage->job_stage->inputs[i];
        char label[96];
        char value[256];
        (void)snprintf(label, sizeof label, "input %s", input->port);
        if (input->file != NULL) {
            (void)snprintf(value, sizeof value, "content %s", stage->inputs[i].content_sha256);
        } else {
            (void)snprintf(value, sizeof value, "%s%s%s", stage->inputs[i].key,
                           input->output_port[0] != '\0' ? "." : "", input->output_port);
        }
        add_field(list, label, value);
    }
}

static void hash_fields(struct espl_planner *planner, struct espl_plan_stage *stage)
{
    static const char domain[] = "espl-key-1";
    struct espl_sha256 *hash = espl_sha256_create();
    if (hash == NULL) {
        planner->no_memory = true;
        return;
    }
    espl_sha256_update_field(hash, domain, strlen(domain));
    for (size_t i = 0; i < stage->field_count; i++) {
        espl_sha256_update_field(hash, stage->fields[i].label, strlen(stage->fields[i].label));
        espl_sha256_update_field(hash, stage->fields[i].value, strlen(stage->fields[i].value));
    }
    espl_sha256_finish(hash, stage->key);
    espl_sha256_destroy(hash);
    stage->key_known = true;
}

void espl_plan_make_key(struct espl_planner *planner, size_t index)
{
    struct espl_plan_stage *stage = &planner->plan->stages[index];
    const struct espl_job_stage *job_stage = stage->job_stage;
    const struct espl_plan_file *files = planner->work[index].files;
    struct field_list list = {.planner = planner, .stage = stage};
    char text[64];
    list.capacity = 4 + espl_schema_count(job_stage->stage->params) + job_stage->input_count;
    for (const struct espl_plan_file *file = files; file != NULL; file = file->next) {
        list.capacity++;
    }
    stage->fields = espl_planner_alloc(planner, list.capacity, sizeof *stage->fields);
    if (stage->fields == NULL) {
        return;
    }
    add_field(&list, "stage", job_stage->stage->name);
    (void)snprintf(text, sizeof text, "%" PRIu32, job_stage->stage->cache_version);
    add_field(&list, "cache_version", text);
    add_params(&list);
    if ((job_stage->stage->flags & ESPL_STAGE_SEEDED) != 0) {
        (void)snprintf(text, sizeof text, "%" PRIu64, planner->job->seed);
        add_field(&list, "seed", text);
    }
    if ((job_stage->stage->flags & ESPL_STAGE_MEASURES) != 0) {
        const char *device = planner->options->device_fingerprint;
        add_field(&list, "device", device != NULL ? device : planner->job->device);
    }
    add_inputs(&list);
    for (const struct espl_plan_file *file = files; file != NULL; file = file->next) {
        char label[ESPL_PLAN_ROLE_TEXT + 40];
        (void)snprintf(label, sizeof label, "file %s %zu", file->role, file->number);
        add_field(&list, label, file->sha256);
    }
    hash_fields(planner, stage);
}

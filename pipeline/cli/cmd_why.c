/* espalier why: which hashed fields of a stage differ from its last result. */
#include "cli/job_setup.h"
#include "cli/print.h"
#include "core/suggest.h"
#include "engine/explain.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE_FILE_BYTES = 16 << 20, MAX_STAGES = 256 };

static const struct espl_option options[] = {ESPL_PLAN_OPTIONS, {0}};

static enum espl_status find_stage(const struct espl_plan *plan, const char *id, size_t *index,
                                   struct espl_error *err)
{
    const char *names[MAX_STAGES];
    size_t count = 0;
    for (size_t i = 0; i < plan->stage_count; i++) {
        const char *known = plan->stages[i].job_stage->id;
        if (strcmp(known, id) == 0) {
            *index = i;
            return ESPL_OK;
        }
        if (count < MAX_STAGES) {
            names[count++] = known;
        }
    }
    (void)espl_fail(err, ESPL_E_USAGE, "job '%s' has no stage '%s'", plan->job->name, id);
    const char *near = espl_suggest(id, names, count);
    return near != NULL ? espl_hint(err, "did you mean '%s'?", near)
                        : espl_hint(err, "`espalier plan %s` lists its stages", plan->job->file);
}

/* When was the result of this key made? "" when that is not known. */
static void read_made(const struct espl_store *store, const char *key, char out[32])
{
    char path[ESPL_PATH_MAX];
    char *text = NULL;
    size_t len = 0;
    out[0] = '\0';
    const int n = snprintf(path, sizeof path, "%s/store/%.2s/%s.json", store->root, key, key);
    if (n < 0 || (size_t)n >= sizeof path ||
        espl_fs_read_file(path, SIDE_FILE_BYTES, &text, &len, NULL) != ESPL_OK) {
        return;
    }
    json_t *side = json_loadb(text, len, 0, NULL);
    const char *made = json_string_value(json_object_get(side, "created_utc"));
    (void)snprintf(out, 32, "%s", made != NULL ? made : "");
    json_decref(side);
    free(text);
}

/* "set by --set", "jobs/x.yaml:12:7" or "" for a parameter, from its label "parameter NAME". */
static void find_origin(const struct espl_plan_stage *stage, const char *label, char out[320])
{
    static const char prefix[] = "parameter ";
    const struct espl_param *table = stage->job_stage->stage->params;
    out[0] = '\0';
    if (strncmp(label, prefix, sizeof prefix - 1) != 0) {
        return;
    }
    const struct espl_param *row = espl_schema_find(table, label + sizeof prefix - 1);
    if (row == NULL) {
        return;
    }
    const struct espl_param_value *value = &stage->job_stage->values[row - table];
    if (value->origin == ESPL_ORIGIN_OVERRIDE) {
        (void)snprintf(out, 320, "set by --set");
    } else if (value->origin == ESPL_ORIGIN_DEFAULT) {
        (void)snprintf(out, 320, "default");
    } else {
        (void)snprintf(out, 320, "%s:%u:%u", value->at.file, value->at.line, value->at.column);
    }
}

static bool is_different(const struct espl_explanation *why, const char *label)
{
    for (size_t i = 0; i < why->difference_count; i++) {
        if (strcmp(why->differences[i].label, label) == 0) {
            return true;
        }
    }
    return false;
}

static void print_same(const struct espl_cli *cli, const struct espl_plan_stage *stage,
                       const struct espl_explanation *why)
{
    bool first = true;
    for (size_t i = 0; i < stage->field_count; i++) {
        if (!is_different(why, stage->fields[i].label)) {
            (void)fprintf(cli->out, "%s%s", first ? "same: " : ", ", stage->fields[i].label);
            first = false;
        }
    }
    if (!first) {
        (void)fputc('\n', cli->out);
    }
}

static enum espl_status print_differences(const struct espl_cli *cli,
                                          const struct espl_plan_stage *stage,
                                          const struct espl_explanation *why,
                                          struct espl_error *err)
{
    static const struct espl_column columns[] = {
        {.title = ""}, {.title = "", .gives_way = true}, {.title = "", .gives_way = true}};
    struct espl_table *table = NULL;
    const enum espl_status status = espl_table_create(columns, 3, &table, err);
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t i = 0; i < why->difference_count; i++) {
        const struct espl_difference *difference = &why->differences[i];
        char origin[320];
        find_origin(stage, difference->label, origin);
        espl_table_cell(table, ESPL_STYLE_BOLD, "%s", difference->label);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%.64s -> %.64s",
                        difference->before != NULL ? difference->before : "(absent)",
                        difference->now != NULL ? difference->now : "(absent)");
        espl_table_cell(table, ESPL_STYLE_DIM, "%s", origin);
    }
    const enum espl_status printed = espl_table_print(table, cli->out, 2, cli->colour_out, err);
    espl_table_destroy(table);
    return printed;
}

static enum espl_status print_text(const struct espl_cli *cli, const struct espl_store *store,
                                   const struct espl_plan_stage *stage,
                                   const struct espl_explanation *why, struct espl_error *err)
{
    const char *id = stage->job_stage->id;
    char made[32];
    const bool runs = stage->state == ESPL_PLAN_RUN || stage->state == ESPL_PLAN_RESUME;
    if (stage->state == ESPL_PLAN_RESUME) {
        (void)fprintf(cli->out, "%s resumes: %s\n", id, stage->why);
    }
    if (!why->has_previous) {
        (void)fprintf(cli->out, "%s %s: it has no earlier result in this job\n", id,
                      runs ? "must run" : espl_plan_state_name(stage->state));
        return ESPL_OK;
    }
    const size_t fields = why->same_count + why->difference_count;
    if (why->difference_count == 0) {
        (void)fprintf(cli->out, "%s %s: %s\n", id,
                      runs ? "must run" : espl_plan_state_name(stage->state), stage->why);
        if (fields > 0) {
            (void)fprintf(cli->out, "same: all %zu hashed fields\n", fields);
        }
        return ESPL_OK;
    }
    read_made(store, why->previous_key, made);
    (void)fprintf(cli->out,
                  "%s %s: %zu of %zu hashed fields %s from its last result (key %.8s%s%s)\n", id,
                  runs ? "must run" : espl_plan_state_name(stage->state), why->difference_count,
                  fields, why->difference_count == 1 ? "differs" : "differ", why->previous_key,
                  made[0] != '\0' ? ", " : "", made);
    const enum espl_status status = print_differences(cli, stage, why, err);
    if (status == ESPL_OK) {
        print_same(cli, stage, why);
    }
    return status;
}

static json_t *text_or_null(const char *text)
{
    return text != NULL ? json_string(text) : json_null();
}

static json_t *why_json(const struct espl_plan_stage *stage, const struct espl_explanation *why)
{
    json_t *list = json_array();
    for (size_t i = 0; i < why->difference_count; i++) {
        char origin[320];
        find_origin(stage, why->differences[i].label, origin);
        (void)json_array_append_new(
            list, json_pack("{s:s, s:o, s:o, s:s}", "label", why->differences[i].label, "before",
                            text_or_null(why->differences[i].before), "now",
                            text_or_null(why->differences[i].now), "origin", origin));
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:I, s:o}", "schema", "espalier.why/1",
                     "stage", stage->job_stage->id, "state", espl_plan_state_name(stage->state),
                     "why", stage->why, "key", stage->key, "previous_key",
                     text_or_null(why->has_previous ? why->previous_key : NULL), "same",
                     (json_int_t)why->same_count, "differences", list);
}

static enum espl_status run(struct espl_cli *cli, struct espl_error *err)
{
    struct espl_job_setup setup;
    struct espl_explanation why;
    size_t index = 0;
    enum espl_status status = espl_job_setup_load(cli, false, &setup, err);
    if (status == ESPL_OK) {
        status = find_stage(setup.plan, cli->args->positional[1], &index, err);
    }
    if (status == ESPL_OK) {
        status = espl_explain(setup.plan, index, &setup.store, &why, err);
        if (status == ESPL_E_CORRUPT || status == ESPL_E_KIND) { /* the plan says so in its why */
            espl_error_clear(err);
            status = ESPL_OK;
        }
    }
    if (status == ESPL_OK) {
        const struct espl_plan_stage *stage = &setup.plan->stages[index];
        status = cli->json ? espl_print_json_take(cli, why_json(stage, &why), err)
                           : print_text(cli, &setup.store, stage, &why, err);
    }
    espl_job_setup_free(&setup);
    return status;
}

const struct espl_command espl_command_why = {
    .name = "why",
    .summary = "say why a stage must run: what differs from its last result",
    .positional = "JOB STAGE",
    .complete = ESPL_COMPLETE_JOB,
    .min_positional = 2,
    .max_positional = 2,
    .options = options,
    .run = run,
};

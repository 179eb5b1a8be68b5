/* Items of `stages:`: id, use, with, expect. */
#include "core/suggest.h"
#include "engine/job_internal.h"
#include "engine/source_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct espl_node *stage_text(struct espl_job_reader *reader,
                                          const struct espl_node *item, const char *key,
                                          const char *help)
{
    const struct espl_node *node = espl_node_get(item, key, NULL);
    if (node == NULL) {
        espl_diagnostic_hint(espl_diagnostics_add(reader->diags, ESPL_E_JOB, &item->at,
                                                  "this stage has no '%s'", key),
                             "%s", help);
        return NULL;
    }
    if (node->type != ESPL_NODE_SCALAR || espl_node_is_null(node)) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                                   "'%s' must be a single word, got %s", key,
                                   espl_job_describe_node(node));
        return NULL;
    }
    return node;
}

static const struct espl_stage *find_stage(struct espl_job_reader *reader,
                                           const struct espl_node *use)
{
    const struct espl_stage *const *registry = reader->job->registry;
    const char *near = NULL;
    size_t near_distance = 0;
    for (size_t i = 0; registry[i] != NULL; i++) {
        const char *name = registry[i]->name;
        if (strcmp(name, use->text) == 0) {
            return registry[i];
        }
        const size_t distance = espl_edit_distance(use->text, name);
        if (espl_suggest(use->text, &name, 1) != NULL &&
            (near == NULL || distance < near_distance)) {
            near = name;
            near_distance = distance;
        }
    }
    char shown[ESPL_CLIP_TEXT];
    espl_text_clip(use->text, shown);
    struct espl_diagnostic *item =
        espl_diagnostics_add(reader->diags, ESPL_E_JOB, &use->at, "unknown stage '%s'", shown);
    if (near != NULL) {
        espl_diagnostic_hint(item, "did you mean '%s'?  `espalier stages` lists all stages", near);
    } else {
        espl_diagnostic_hint(item, "`espalier stages` lists all stages");
    }
    return NULL;
}

static void read_params(struct espl_job_reader *reader, struct espl_job_stage *stage,
                        const struct espl_node *with)
{
    char what[2 * ESPL_CLIP_TEXT + 16];
    char help_verb[ESPL_CLIP_TEXT + 32];
    (void)snprintf(what, sizeof what, stage->id[0] != '\0' ? "stage '%s' (%s)" : "stage%s (%s)",
                   stage->id, stage->stage->name);
    (void)snprintf(help_verb, sizeof help_verb, "espalier stages %s", stage->stage->name);
    stage->params = espl_job_reader_alloc(reader, 1, stage->stage->params_size);
    stage->values = espl_job_reader_alloc(reader, espl_schema_count(stage->stage->params),
                                          sizeof *stage->values);
    if (stage->params != NULL && stage->values != NULL) {
        espl_schema_read(stage->stage->params, with, what, help_verb, stage->params, stage->values,
                         reader->job->arena, reader->diags, &stage->use_at);
    }
}

static void read_stage(struct espl_job_reader *reader, struct espl_job_stage *stage,
                       const struct espl_node *item)
{
    static const char *const known[] = {"id", "use", "in", "with", "expect", NULL};
    stage->at = item->at;
    stage->id = "";
    if (item->type != ESPL_NODE_MAPPING) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &item->at,
                                   "a stage is a mapping with 'id' and 'use', got %s",
                                   espl_job_describe_node(item));
        return;
    }
    const struct espl_node *id =
        stage_text(reader, item, "id", "give each stage a name: 'id: prune'");
    if (id != NULL && espl_job_check_name(reader, id, "stage id")) {
        stage->id = id->text;
        if (strcmp(id->text, "limits") == 0) {
            (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &id->at,
                                       "'limits' cannot be a stage id: --set limits.x means the "
                                       "limits of the job");
        }
    }
    char where[ESPL_CLIP_TEXT + 32];
    (void)snprintf(where, sizeof where, stage->id[0] != '\0' ? "stage '%s'" : "this stage%s",
                   stage->id);
    espl_job_check_keys(reader, item, known, where);
    const struct espl_node *use =
        stage_text(reader, item, "use", "`espalier stages` lists all stages");
    if (use != NULL) {
        stage->use_at = use->at;
        stage->stage = find_stage(reader, use);
    }
    if (stage->stage != NULL) {
        read_params(reader, stage, espl_node_get(item, "with", NULL));
    }
}

struct id_order {
    const char *id;
    size_t index;
};

static int compare_ids(const void *left, const void *right)
{
    const struct id_order *a = left;
    const struct id_order *b = right;
    const int by_id = strcmp(a->id, b->id);
    return by_id != 0 ? by_id : (a->index < b->index ? -1 : 1);
}

static void check_unique_ids(struct espl_job_reader *reader)
{
    const size_t count = reader->job->stage_count;
    struct id_order *order = espl_job_reader_alloc(reader, count, sizeof *order);
    if (order == NULL) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        order[i] = (struct id_order){reader->ids[i], i};
    }
    qsort(order, count, sizeof *order, compare_ids);
    size_t first = 0;
    for (size_t i = 1; i < count; i++) {
        if (strcmp(order[first].id, order[i].id) != 0) {
            first = i;
        } else if (order[i].id[0] != '\0') {
            const struct espl_node *again =
                espl_node_get(reader->items[order[i].index], "id", NULL);
            const struct espl_node *before =
                espl_node_get(reader->items[order[first].index], "id", NULL);
            struct espl_diagnostic *item = espl_diagnostics_add(
                reader->diags, ESPL_E_JOB, &again->at, "two stages have the id '%s'", order[i].id);
            espl_diagnostic_remark(item, "again here");
            espl_diagnostic_also(item, &before->at, "first here");
        }
    }
}

/* A threshold: a number, or a duration or size in seconds or bytes. */
static bool read_bound(struct espl_job_reader *reader, const struct espl_node *node,
                       const char *metric, double *out)
{
    uint64_t bytes = 0;
    if (node->type == ESPL_NODE_SCALAR) {
        if (espl_parse_real(node->text, out) || espl_parse_duration(node->text, out)) {
            return true;
        }
        if (espl_parse_size(node->text, &bytes)) {
            *out = (double)bytes;
            return true;
        }
    }
    (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                               "a threshold of '%s' must be a number, a duration or a size",
                               metric);
    return false;
}

static void read_expect(struct espl_job_reader *reader, struct espl_job_expect *expect,
                        const struct espl_node *key, const struct espl_node *limits)
{
    static const char *const known[] = {"min", "max", NULL};
    char where[ESPL_CLIP_TEXT + 32];
    char shown[ESPL_CLIP_TEXT];
    espl_text_clip(key->text, shown);
    (void)snprintf(where, sizeof where, "the expectation of '%s'", shown);
    expect->metric = key->text;
    expect->at = key->at;
    (void)espl_job_check_name(reader, key, "metric name");
    if (limits->type != ESPL_NODE_MAPPING || limits->count == 0) {
        espl_diagnostic_hint(espl_diagnostics_add(reader->diags, ESPL_E_JOB, &limits->at,
                                                  "%s must be a mapping with min, max or both",
                                                  where),
                             "for example %s: {max: 1.08}", shown);
        return;
    }
    espl_job_check_keys(reader, limits, known, where);
    const struct espl_node *min = espl_node_get(limits, "min", NULL);
    const struct espl_node *max = espl_node_get(limits, "max", NULL);
    expect->has_min = min != NULL && read_bound(reader, min, shown, &expect->min);
    expect->has_max = max != NULL && read_bound(reader, max, shown, &expect->max);
    if (expect->has_min && expect->has_max && expect->min > expect->max) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &limits->at,
                                   "%s has a min above its max", where);
    }
}

static void read_expects(struct espl_job_reader *reader, struct espl_job_stage *stage,
                         const struct espl_node *node)
{
    if (node == NULL || espl_node_is_null(node)) {
        return;
    }
    if (node->type != ESPL_NODE_MAPPING) {
        (void)espl_diagnostics_add(reader->diags, ESPL_E_JOB, &node->at,
                                   "'expect' must be a mapping of metrics, got %s",
                                   espl_job_describe_node(node));
        return;
    }
    stage->expects = espl_job_reader_alloc(reader, node->count, sizeof *stage->expects);
    for (size_t i = 0; stage->expects != NULL && i < node->count; i++) {
        read_expect(reader, &stage->expects[i], node->keys[i], node->items[i]);
        stage->expect_count++;
    }
}

void espl_job_read_stages(struct espl_job_reader *reader, const struct espl_node *stages)
{
    struct espl_job *job = reader->job;
    job->stages = espl_job_reader_alloc(reader, stages->count, sizeof *job->stages);
    reader->ids = espl_job_reader_alloc(reader, stages->count, sizeof *reader->ids);
    reader->items = espl_job_reader_alloc(reader, stages->count, sizeof(const struct espl_node *));
    if (job->stages == NULL || reader->ids == NULL || reader->items == NULL) {
        return;
    }
    job->stage_count = stages->count;
    for (size_t i = 0; i < stages->count; i++) {
        reader->items[i] = stages->items[i];
        read_stage(reader, &job->stages[i], stages->items[i]);
        reader->ids[i] = job->stages[i].id;
    }
    check_unique_ids(reader);
    for (size_t i = 0; i < stages->count; i++) {
        if (job->stages[i].stage != NULL) {
            espl_job_read_inputs(reader, &job->stages[i],
                                 espl_node_get(stages->items[i], "in", NULL));
        }
        if (stages->items[i]->type == ESPL_NODE_MAPPING) {
            read_expects(reader, &job->stages[i], espl_node_get(stages->items[i], "expect", NULL));
        }
    }
}

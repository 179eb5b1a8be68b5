/* From names to a graph: order, connections, kinds, cycles. */
#include "artifact/kinds.h"
#include "engine/plan_internal.h"

#include <stdio.h>
#include <string.h>

void *espl_planner_alloc(struct espl_planner *planner, size_t count, size_t size)
{
    void *memory = espl_arena_array(planner->plan->arena, count, size);
    planner->no_memory = planner->no_memory || memory == NULL;
    return memory;
}

size_t espl_plan_find_port(const struct espl_port *ports, const char *name)
{
    for (size_t i = 0; ports[i].name != NULL; i++) {
        if (strcmp(ports[i].name, name) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

/* ---- order ---- */

/* Producer of each input by index in the job, SIZE_MAX for files. */
static size_t **find_producers(struct espl_planner *planner)
{
    const struct espl_job *job = planner->job;
    size_t **producers = espl_planner_alloc(planner, job->stage_count, sizeof *producers);
    for (size_t i = 0; producers != NULL && i < job->stage_count; i++) {
        const struct espl_job_stage *stage = &job->stages[i];
        producers[i] = espl_planner_alloc(planner, stage->input_count, sizeof **producers);
        for (size_t j = 0; producers[i] != NULL && j < stage->input_count; j++) {
            const char *id = stage->inputs[j].stage_id;
            const struct espl_job_stage *producer = id != NULL ? espl_job_find(job, id) : NULL;
            producers[i][j] = producer != NULL ? (size_t)(producer - job->stages) : SIZE_MAX;
        }
    }
    return producers;
}

/* The first input of a stage that is not placed yet, SIZE_MAX when all are. */
static size_t open_input(const struct espl_job_stage *stage, const size_t *producers,
                         const bool *placed)
{
    for (size_t i = 0; i < stage->input_count; i++) {
        if (producers[i] != SIZE_MAX && !placed[producers[i]]) {
            return i;
        }
    }
    return SIZE_MAX;
}

/* What the last run of the job tells: a connection of the cycle that led elsewhere then. */
static void advise_on_cycle(struct espl_planner *planner, struct espl_diagnostic *item,
                            size_t *const *producers, const bool *placed, const size_t *cycle,
                            size_t length)
{
    const struct espl_job *job = planner->job;
    for (size_t i = 0; i < length; i++) {
        const struct espl_job_stage *stage = &job->stages[cycle[i]];
        const char *port = stage->inputs[open_input(stage, producers[cycle[i]], placed)].port;
        const char *needed = job->stages[cycle[i + 1 < length ? i + 1 : 0]].id;
        char source[ESPL_JOB_NAME_MAX + 1];
        espl_explain_last_source(planner->store, job->name, stage->id, port, source);
        if (source[0] != '\0' && strcmp(source, needed) != 0) {
            espl_diagnostic_hint(item, "'%s' took its %s from '%s' in the last run of this job",
                                 stage->id, port, source);
            return;
        }
    }
    espl_diagnostic_hint(item, "take one of these connections away");
}

static void report_cycle(struct espl_planner *planner, size_t *const *producers, const bool *placed,
                         const size_t *cycle, size_t length)
{
    const struct espl_job *job = planner->job;
    struct espl_buf path;
    espl_buf_init(&path, 400);
    struct espl_diagnostic *item = NULL;
    for (size_t i = 0; i <= length && !path.failed; i++) {
        espl_buf_printf(&path, "%s%s", i > 0 ? " -> " : "",
                        job->stages[cycle[i < length ? i : 0]].id);
    }
    for (size_t i = 0; i < length; i++) {
        const struct espl_job_stage *stage = &job->stages[cycle[i]];
        const size_t input = open_input(stage, producers[cycle[i]], placed);
        const struct espl_srcpos *at = &stage->inputs[input].at;
        const char *needed = job->stages[cycle[i + 1 < length ? i + 1 : 0]].id;
        if (i == 0) {
            item = espl_diagnostics_add(planner->diags, ESPL_E_JOB, at, "stages form a cycle: %s%s",
                                        espl_buf_text(&path), path.failed ? " -> ..." : "");
            espl_diagnostic_remark(item, "'%s' needs '%s'", stage->id, needed);
        } else {
            espl_diagnostic_also(item, at, "'%s' needs '%s'", stage->id, needed);
        }
    }
    advise_on_cycle(planner, item, producers, placed, cycle, length);
    espl_buf_free(&path);
}

/* Memory of break_cycle(), one entry a stage each. */
struct cycle_scratch {
    size_t *seen, *path, *turned;
};

/* Every stage that is left has an open input; following first open inputs ends in a cycle. Reports
 * it and places its members, so that the rest can be looked at. Returns how many were placed. */
static size_t break_cycle(struct espl_planner *planner, size_t *const *producers, bool *placed,
                          size_t start, const struct cycle_scratch *scratch)
{
    const struct espl_job *job = planner->job;
    size_t *seen = scratch->seen;
    size_t *path = scratch->path;
    size_t *turned = scratch->turned;
    memset(seen, 0, job->stage_count * sizeof *seen);
    size_t length = 0;
    size_t at = start;
    while (seen[at] == 0) {
        path[length++] = at;
        seen[at] = length;
        at = producers[at][open_input(&job->stages[at], producers[at], placed)];
    }
    const size_t *cycle = path + (seen[at] - 1);
    const size_t cycle_length = length - (seen[at] - 1);
    size_t first = 0;
    for (size_t i = 1; i < cycle_length; i++) {
        first = cycle[i] < cycle[first] ? i : first;
    }
    for (size_t i = 0; i < cycle_length; i++) {
        turned[i] = cycle[(first + i) % cycle_length];
    }
    report_cycle(planner, producers, placed, turned, cycle_length);
    for (size_t i = 0; i < cycle_length; i++) {
        placed[turned[i]] = true;
    }
    return cycle_length;
}

/* Execution order: always the first stage of the file that has all its inputs. */
static void order_stages(struct espl_planner *planner, size_t *const *producers, size_t *position)
{
    const struct espl_job *job = planner->job;
    bool *placed = espl_planner_alloc(planner, job->stage_count, sizeof *placed);
    const struct cycle_scratch scratch = {
        .seen = espl_planner_alloc(planner, job->stage_count, sizeof *scratch.seen),
        .path = espl_planner_alloc(planner, job->stage_count, sizeof *scratch.path),
        .turned = espl_planner_alloc(planner, job->stage_count, sizeof *scratch.turned)};
    size_t done = 0;
    size_t lowest = 0; /* no stage before it is unplaced */
    while (!planner->no_memory && done < job->stage_count) {
        while (placed[lowest]) {
            lowest++;
        }
        size_t next = lowest;
        while (
            next < job->stage_count &&
            (placed[next] || open_input(&job->stages[next], producers[next], placed) != SIZE_MAX)) {
            next++;
        }
        if (next == job->stage_count) {
            done += break_cycle(planner, producers, placed, lowest, &scratch);
            continue;
        }
        placed[next] = true;
        position[next] = planner->plan->stage_count;
        planner->plan->stages[planner->plan->stage_count++].job_stage = &job->stages[next];
        done++;
    }
}

/* ---- kinds ---- */

static void print_kinds(const char *accepted, struct espl_buf *out)
{
    for (const char *c = accepted; *c != '\0'; c++) {
        if (*c == '|') {
            espl_buf_puts(out, " or ");
        } else {
            espl_buf_add(out, c, 1);
        }
    }
}

void espl_plan_report_kind(struct espl_planner *planner, const struct espl_job_stage *stage,
                           const struct espl_job_input *input, const char *found)
{
    const char *accepted =
        stage->stage->inputs[espl_plan_find_port(stage->stage->inputs, input->port)].kind;
    struct espl_buf kinds;
    struct espl_buf makers;
    espl_buf_init(&kinds, 4096);
    espl_buf_init(&makers, 4096);
    print_kinds(accepted, &kinds);
    for (size_t i = 0; planner->job->registry[i] != NULL; i++) {
        const struct espl_stage *maker = planner->job->registry[i];
        for (const struct espl_port *port = maker->outputs; port->name != NULL; port++) {
            if (espl_kind_accepts(accepted, port->kind)) {
                espl_buf_printf(&makers, "%s%s", makers.len > 0 ? ", " : "", maker->name);
                break;
            }
        }
    }
    struct espl_diagnostic *item = espl_diagnostics_add(
        planner->diags, ESPL_E_JOB, &input->at, "input '%s' of '%s' needs kind %s, but %s",
        input->port, stage->id, espl_buf_text(&kinds), found);
    if (makers.len > 0) {
        espl_diagnostic_hint(item, "these stages make %s: %s", espl_buf_text(&kinds),
                             espl_buf_text(&makers));
    } else {
        espl_diagnostic_hint(item, "no stage of this build makes %s", espl_buf_text(&kinds));
    }
    espl_buf_free(&makers);
    espl_buf_free(&kinds);
}

static const struct espl_port *output_of(const struct espl_job_stage *producer,
                                         const struct espl_job_input *input)
{
    const size_t index = input->output_port[0] != '\0'
                             ? espl_plan_find_port(producer->stage->outputs, input->output_port)
                             : 0;
    return &producer->stage->outputs[index];
}

static void check_kinds(struct espl_planner *planner, const struct espl_job_stage *stage)
{
    for (size_t i = 0; i < stage->input_count; i++) {
        const struct espl_job_input *input = &stage->inputs[i];
        if (input->stage_id == NULL) {
            continue;
        }
        const struct espl_job_stage *producer = espl_job_find(planner->job, input->stage_id);
        const struct espl_port *output = output_of(producer, input);
        const size_t port = espl_plan_find_port(stage->stage->inputs, input->port);
        if (!espl_kind_accepts(stage->stage->inputs[port].kind, output->kind)) {
            char found[160];
            (void)snprintf(found, sizeof found, "'%s' makes %s", producer->id, output->kind);
            espl_plan_report_kind(planner, stage, input, found);
        }
    }
}

static void fill_connections(struct espl_planner *planner, size_t *const *producers,
                             const size_t *position)
{
    const struct espl_job *job = planner->job;
    for (size_t i = 0; i < planner->plan->stage_count; i++) {
        struct espl_plan_stage *stage = &planner->plan->stages[i];
        const struct espl_job_stage *job_stage = stage->job_stage;
        const size_t count = job_stage->input_count;
        size_t outputs = 0;
        while (job_stage->stage->outputs[outputs].name != NULL) {
            outputs++;
        }
        stage->seconds = -1.0;
        stage->input_stage = espl_planner_alloc(planner, count, sizeof *stage->input_stage);
        stage->inputs = espl_planner_alloc(planner, count, sizeof *stage->inputs);
        stage->descriptions = espl_planner_alloc(planner, outputs, sizeof(json_t *));
        if (stage->input_stage == NULL || stage->inputs == NULL) {
            return;
        }
        for (size_t j = 0; j < count; j++) {
            const size_t producer = producers[job_stage - job->stages][j];
            stage->input_stage[j] = producer != SIZE_MAX ? position[producer] : SIZE_MAX;
            if (producer != SIZE_MAX) {
                (void)snprintf(stage->inputs[j].kind, sizeof stage->inputs[j].kind, "%s",
                               output_of(&job->stages[producer], &job_stage->inputs[j])->kind);
            }
        }
    }
}

void espl_plan_connect(struct espl_planner *planner)
{
    const struct espl_job *job = planner->job;
    planner->plan->stages =
        espl_planner_alloc(planner, job->stage_count, sizeof *planner->plan->stages);
    size_t *position = espl_planner_alloc(planner, job->stage_count, sizeof *position);
    size_t **producers = find_producers(planner);
    if (planner->no_memory) {
        return;
    }
    order_stages(planner, producers, position);
    for (size_t i = 0; i < job->stage_count; i++) {
        check_kinds(planner, &job->stages[i]);
    }
    if (planner->diags->count == 0 && !planner->no_memory) {
        fill_connections(planner, producers, position);
    }
}

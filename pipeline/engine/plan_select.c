/* --from, --until and --force. */
#include "core/suggest.h"
#include "engine/plan_internal.h"

#include <stdio.h>
#include <string.h>

/* Index in plan order; reports an unknown id and returns SIZE_MAX. */
static size_t find_stage(struct espl_planner *planner, const char *option, const char *id)
{
    const struct espl_plan *plan = planner->plan;
    const char *near = NULL;
    size_t near_distance = 0;
    for (size_t i = 0; i < plan->stage_count; i++) {
        const char *known = plan->stages[i].job_stage->id;
        if (strcmp(known, id) == 0) {
            return i;
        }
        const size_t distance = espl_edit_distance(id, known);
        if (espl_suggest(id, &known, 1) != NULL && (near == NULL || distance < near_distance)) {
            near = known;
            near_distance = distance;
        }
    }
    struct espl_srcpos at = {0};
    (void)snprintf(at.file, sizeof at.file, "%s", option);
    struct espl_diagnostic *item =
        espl_diagnostics_add(planner->diags, ESPL_E_USAGE, &at, "the job has no stage '%s'", id);
    if (near != NULL) {
        espl_diagnostic_hint(item, "did you mean '%s'?", near);
    } else {
        struct espl_buf ids;
        espl_buf_init(&ids, 300);
        for (size_t i = 0; i < planner->job->stage_count && !ids.failed; i++) {
            espl_buf_printf(&ids, "%s%s", i > 0 ? ", " : "", planner->job->stages[i].id);
        }
        espl_diagnostic_hint(item, "its stages: %s%s", espl_buf_text(&ids),
                             ids.failed ? ", ..." : "");
        espl_buf_free(&ids);
    }
    return SIZE_MAX;
}

/* Marks the stages that need `start`. Inputs come first in plan order: one pass. */
static void mark_needing(const struct espl_plan *plan, size_t start, bool *marked)
{
    marked[start] = true;
    for (size_t i = start + 1; i < plan->stage_count; i++) {
        for (size_t j = 0; j < plan->stages[i].job_stage->input_count; j++) {
            const size_t input = plan->stages[i].input_stage[j];
            marked[i] = marked[i] || (input != SIZE_MAX && marked[input]);
        }
    }
}

/* Marks the stages that `end` needs. */
static void mark_needed(const struct espl_plan *plan, size_t end, bool *marked)
{
    marked[end] = true;
    for (size_t i = end + 1; i-- > 0;) {
        for (size_t j = 0; marked[i] && j < plan->stages[i].job_stage->input_count; j++) {
            const size_t input = plan->stages[i].input_stage[j];
            if (input != SIZE_MAX) {
                marked[input] = true;
            }
        }
    }
}

void espl_plan_select(struct espl_planner *planner)
{
    const struct espl_plan_options *options = planner->options;
    const struct espl_plan *plan = planner->plan;
    bool *needing = espl_planner_alloc(planner, plan->stage_count, sizeof *needing);
    bool *needed = espl_planner_alloc(planner, plan->stage_count, sizeof *needed);
    planner->work = espl_planner_alloc(planner, plan->stage_count, sizeof *planner->work);
    if (needing == NULL || needed == NULL || planner->work == NULL) {
        return;
    }
    const size_t from =
        options->from != NULL ? find_stage(planner, "--from", options->from) : SIZE_MAX;
    const size_t until =
        options->until != NULL ? find_stage(planner, "--until", options->until) : SIZE_MAX;
    if (from != SIZE_MAX) {
        mark_needing(plan, from, needing);
    }
    if (until != SIZE_MAX) {
        mark_needed(plan, until, needed);
    }
    for (size_t i = 0; i < plan->stage_count; i++) {
        planner->work[i].files_end = &planner->work[i].files;
        planner->work[i].unneeded = options->until != NULL && !needed[i];
        planner->work[i].selected =
            (options->from == NULL || needing[i]) && !planner->work[i].unneeded;
    }
    for (size_t i = 0; i < options->force_count; i++) {
        const size_t forced = find_stage(planner, "--force", options->force[i]);
        if (forced != SIZE_MAX) {
            planner->work[forced].forced = true;
        }
    }
}

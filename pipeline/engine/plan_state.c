/* Cached, resume, run or blocked, and why. */
#include "engine/plan_internal.h"
#include "engine/source_text.h"
#include "engine/stage_ctx.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *espl_plan_store_port(const struct espl_stage *stage, size_t output)
{
    return stage->outputs[1].name == NULL ? NULL : stage->outputs[output].name;
}

static void set_why(struct espl_plan_stage *stage, const char *fmt, ...) ESPL_PRINTF(2, 3);

static void set_why(struct espl_plan_stage *stage, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const int needed = vsnprintf(stage->why, sizeof stage->why, fmt, args);
    va_end(args);
    if (needed >= (int)sizeof stage->why) {
        memcpy(stage->why + sizeof stage->why - 4, "...", 4);
    }
}

/* ---- stored results ---- */

static bool all_outputs_stored(const struct espl_planner *planner,
                               const struct espl_plan_stage *stage)
{
    const struct espl_stage *kind = stage->job_stage->stage;
    for (size_t i = 0; kind->outputs[i].name != NULL; i++) {
        if (!espl_store_has(planner->store, stage->key, espl_plan_store_port(kind, i))) {
            return false;
        }
    }
    return true;
}

/* Takes the description of a stored output, and lets the stage look whether what it wrote outside
 * the store is still there. */
static enum espl_status look_at_output(struct espl_planner *planner, struct espl_plan_stage *stage,
                                       size_t output, char stale[160], struct espl_error *err)
{
    const struct espl_job_stage *job_stage = stage->job_stage;
    struct espl_artifact *artifact = NULL;
    bool valid = true;
    enum espl_status status = espl_store_open_artifact(
        planner->store, stage->key, espl_plan_store_port(job_stage->stage, output), &artifact, err);
    if (status == ESPL_OK) {
        json_t *description = json_loads(espl_artifact_description(artifact), 0, NULL);
        if (description != NULL) {
            json_decref(stage->descriptions[output]);
            stage->descriptions[output] = description;
        }
    }
    if (status == ESPL_OK && output == 0 && job_stage->stage->still_valid != NULL) {
        status = job_stage->stage->still_valid(planner->store, planner->options->rehash, artifact,
                                               job_stage->params, &valid, stale, err);
        if (status == ESPL_OK && !valid && stale[0] == '\0') {
            (void)snprintf(stale, 160, "its result is no longer valid");
        }
    }
    espl_artifact_close(artifact);
    return status;
}

/* A result that cannot be looked at (a newer format, a read error) is an error: making it again
 * could lose what somebody else needs. */
static void report_result(struct espl_planner *planner, struct espl_plan_stage *stage,
                          struct espl_error *err)
{
    (void)espl_context(err, "while reading the stored result of '%s'", stage->job_stage->id);
    stage->state = ESPL_PLAN_BLOCKED;
    (void)snprintf(stage->blocked_by, sizeof stage->blocked_by, "its stored result");
    set_why(stage, "%s", err->message);
    (void)espl_diagnostics_add_error(planner->diags, &stage->job_stage->use_at, err);
}

/* Looks at all stored outputs. A damaged one counts as none, with a warning that names the file:
 * the stage makes it again. False when an error blocks the stage. */
static bool look_at_result(struct espl_planner *planner, size_t index, char stale[160])
{
    struct espl_plan_stage *stage = &planner->plan->stages[index];
    const struct espl_stage *kind = stage->job_stage->stage;
    struct espl_error problem = {0};
    for (size_t i = 0; stage->has_result && kind->outputs[i].name != NULL; i++) {
        const enum espl_status status = look_at_output(planner, stage, i, stale, &problem);
        if (status == ESPL_E_CORRUPT || status == ESPL_E_KIND) {
            struct espl_plan_ctx ctx = {.planner = planner, .index = index};
            stage->has_result = false;
            (void)snprintf(stale, 160, "stored result is damaged: it will be made again");
            espl_plan_warn(&ctx, "%s%s", problem.message,
                           planner->work[index].selected ? "; it will be made again" : "");
        } else if (status != ESPL_OK) {
            report_result(planner, stage, &problem);
            return false;
        }
    }
    return true;
}

/* ---- reasons to run ---- */

static const char *after_prefix(const char *label, const char *prefix)
{
    const size_t len = strlen(prefix);
    return strncmp(label, prefix, len) == 0 ? label + len : NULL;
}

/* "sparsity 0.5 -> 0.6 (--set)" and the like; "" for an input. */
static void describe_difference(const struct espl_plan_stage *stage,
                                const struct espl_difference *difference, char *out, size_t size)
{
    char before[ESPL_CLIP_TEXT] = "none";
    char now[ESPL_CLIP_TEXT] = "none";
    if (difference->before != NULL) {
        espl_text_clip(difference->before, before);
    }
    if (difference->now != NULL) {
        espl_text_clip(difference->now, now);
    }
    const char *param = after_prefix(difference->label, "parameter ");
    const char *file = after_prefix(difference->label, "file ");
    const char *origin = "";
    const struct espl_param *table = stage->job_stage->stage->params;
    const struct espl_param *row = param != NULL ? espl_schema_find(table, param) : NULL;
    if (row != NULL && stage->job_stage->values[row - table].origin == ESPL_ORIGIN_OVERRIDE) {
        origin = " (--set)";
    }
    if (param != NULL || strcmp(difference->label, "seed") == 0 ||
        strcmp(difference->label, "stage") == 0) {
        (void)snprintf(out, size, "%s %s -> %s%s", param != NULL ? param : difference->label,
                       before, now, origin);
    } else if (file != NULL) {
        (void)snprintf(out, size, "file '%s' %s", file,
                       difference->before == NULL ? "is new"
                       : difference->now == NULL  ? "is gone"
                                                  : "changed");
    } else if (strcmp(difference->label, "cache_version") == 0) {
        (void)snprintf(out, size, "the method changed (cache version %s -> %s)", before, now);
    } else if (after_prefix(difference->label, "input ") != NULL) {
        out[0] = '\0';
    } else {
        (void)snprintf(out, size, "%s changed", difference->label);
    }
}

/* "input 'prune' will change" for a stage that runs first, else what the connection shows. */
static void describe_input(const struct espl_planner *planner, const struct espl_plan_stage *stage,
                           const struct espl_difference *difference, char *out, size_t size)
{
    const char *port = after_prefix(difference->label, "input ");
    for (size_t i = 0; i < stage->job_stage->input_count; i++) {
        const struct espl_job_input *input = &stage->job_stage->inputs[i];
        if (port == NULL || strcmp(input->port, port) != 0) {
            continue;
        }
        if (input->file != NULL) {
            char shown[ESPL_CLIP_TEXT];
            espl_text_clip(input->file, shown);
            (void)snprintf(out, size, "input file '%s' changed", shown);
            return;
        }
        const enum espl_plan_state state = planner->plan->stages[stage->input_stage[i]].state;
        const bool will = state == ESPL_PLAN_RUN || state == ESPL_PLAN_RESUME;
        (void)snprintf(out, size, "input '%s' %s", input->stage_id,
                       will ? "will change" : "changed");
        return;
    }
    (void)snprintf(out, size, "input '%s' was taken away", port);
}

static void explain_difference(struct espl_planner *planner, struct espl_plan_stage *stage,
                               const struct espl_explanation *why)
{
    char text[224] = "";
    /* What the user changed in this stage says more than what came down to it. */
    for (size_t i = 0; i < why->difference_count && text[0] == '\0'; i++) {
        describe_difference(stage, &why->differences[i], text, sizeof text);
    }
    for (size_t i = 0; i < why->difference_count && text[0] == '\0'; i++) {
        describe_input(planner, stage, &why->differences[i], text, sizeof text);
    }
    if (why->difference_count > 1) {
        set_why(stage, "%s, and %zu more", text, why->difference_count - 1);
    } else {
        set_why(stage, "%s", text);
    }
}

static void explain_run(struct espl_planner *planner, size_t index, const char *stale)
{
    struct espl_plan_stage *stage = &planner->plan->stages[index];
    struct espl_explanation why;
    struct espl_error problem = {0};
    if (planner->work[index].forced) {
        set_why(stage, "forced");
        return;
    }
    if (stale[0] != '\0') {
        set_why(stage, "%s", stale);
        return;
    }
    if (stage->has_result) {
        set_why(stage, "measured again (--remeasure)");
        return;
    }
    if (espl_explain(planner->plan, index, planner->store, &why, &problem) != ESPL_OK) {
        set_why(stage, "its last result cannot be read: %s", problem.message);
    } else if (!why.has_previous) {
        set_why(stage, "never run");
    } else if (strcmp(why.previous_key, stage->key) == 0) {
        set_why(stage, "its result was deleted");
    } else if (why.difference_count == 0) {
        set_why(stage, "it changed since its last result, which was deleted");
    } else {
        explain_difference(planner, stage, &why);
    }
}

static void explain_resume(struct espl_plan_stage *stage)
{
    if (stage->estimate.units > 0) {
        set_why(stage, "%" PRIu64 " of %" PRIu64 " units are kept", stage->units_done,
                stage->estimate.units);
    } else {
        set_why(stage, "%" PRIu64 " %s kept", stage->units_done,
                stage->units_done == 1 ? "unit is" : "units are");
    }
}

/* A stage that must run, but needs a result that --from or --until keeps from being made. */
static bool input_left_out(struct espl_planner *planner, struct espl_plan_stage *stage)
{
    for (size_t i = 0; i < stage->job_stage->input_count; i++) {
        const size_t source = stage->input_stage[i];
        const struct espl_plan_stage *producer =
            source != SIZE_MAX ? &planner->plan->stages[source] : NULL;
        if (producer == NULL || producer->state != ESPL_PLAN_SKIPPED || producer->has_result) {
            continue;
        }
        const char *id = producer->job_stage->id;
        stage->state = ESPL_PLAN_BLOCKED;
        set_why(stage, "input '%s' has no result and is left out", id);
        struct espl_diagnostic *item = espl_diagnostics_add(
            planner->diags, ESPL_E_USAGE, &stage->job_stage->inputs[i].at,
            "'%s' must run, but its input '%s' has no result and --from leaves it out",
            stage->job_stage->id, id);
        espl_diagnostic_hint(item, "use --from %s, or leave --from away", id);
        return true;
    }
    return false;
}

void espl_plan_leave_out(const struct espl_planner *planner, struct espl_plan_stage *stage)
{
    stage->state = ESPL_PLAN_SKIPPED;
    set_why(stage, "left out by %s",
            planner->options->from == NULL    ? "--until"
            : planner->options->until == NULL ? "--from"
                                              : "--from or --until");
}

/* What a stage writes outside the store may be there already, made by another recipe; not so when
 * its own result is there and valid, and only made again. */
static void warn_of_replacement(struct espl_planner *planner, size_t index, const char *stale)
{
    struct espl_plan_stage *stage = &planner->plan->stages[index];
    const struct espl_stage *kind = stage->job_stage->stage;
    struct espl_plan_ctx ctx = {.planner = planner, .index = index};
    char what[ESPL_STAGE_REPLACES_TEXT] = "";
    if ((!stage->has_result || stale[0] != '\0') && kind->replaces != NULL) {
        kind->replaces(stage->job_stage->params, what);
    }
    if (what[0] != '\0') {
        espl_plan_warn(&ctx, "%s, which this run replaces", what);
    }
}

void espl_plan_find_state(struct espl_planner *planner, size_t index)
{
    struct espl_plan_stage *stage = &planner->plan->stages[index];
    const struct espl_plan_work *work = &planner->work[index];
    const struct espl_stage *kind = stage->job_stage->stage;
    char stale[160] = "";
    stage->has_result = all_outputs_stored(planner, stage);
    if (!look_at_result(planner, index, stale)) {
        return;
    }
    if (!work->selected) {
        espl_plan_leave_out(planner, stage);
        return;
    }
    const bool again =
        work->forced || (planner->options->remeasure && (kind->flags & ESPL_STAGE_MEASURES) != 0);
    if (stage->has_result && stale[0] == '\0' && !again) {
        stage->state = ESPL_PLAN_CACHED;
        set_why(stage, "key %.8s", stage->key);
        return;
    }
    if (input_left_out(planner, stage)) {
        return;
    }
    stage->state = ESPL_PLAN_RUN;
    warn_of_replacement(planner, index, stale);
    if ((kind->flags & ESPL_STAGE_RESUMABLE) != 0 && !again) {
        stage->units_done = espl_stage_count_units(planner->store, stage->key);
    }
    if (stage->units_done > 0) {
        stage->state = ESPL_PLAN_RESUME;
        explain_resume(stage);
    } else {
        explain_run(planner, index, stale);
    }
}

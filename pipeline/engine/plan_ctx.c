/* What a stage's plan() may ask and tell. */
#include "engine/plan_internal.h"

#include <stdio.h>
#include <string.h>

static struct espl_plan_stage *this_stage(const struct espl_plan_ctx *ctx)
{
    return &ctx->planner->plan->stages[ctx->index];
}

bool espl_plan_is_connected(const struct espl_plan_ctx *ctx, const char *port)
{
    const struct espl_plan_stage *stage = this_stage(ctx);
    for (size_t i = 0; i < stage->job_stage->input_count; i++) {
        if (strcmp(stage->job_stage->inputs[i].port, port) == 0) {
            return true;
        }
    }
    return false;
}

const json_t *espl_plan_input(const struct espl_plan_ctx *ctx, const char *port)
{
    const struct espl_plan_stage *stage = this_stage(ctx);
    for (size_t i = 0; i < stage->job_stage->input_count; i++) {
        const struct espl_job_input *input = &stage->job_stage->inputs[i];
        if (strcmp(input->port, port) != 0) {
            continue;
        }
        if (input->file != NULL) {
            return stage->inputs[i].description;
        }
        const struct espl_plan_stage *producer = &ctx->planner->plan->stages[stage->input_stage[i]];
        const struct espl_port *outputs = producer->job_stage->stage->outputs;
        const size_t output =
            input->output_port[0] != '\0' ? espl_plan_find_port(outputs, input->output_port) : 0;
        return producer->descriptions[output];
    }
    return NULL;
}

const char *espl_plan_device(const struct espl_plan_ctx *ctx)
{
    return ctx->planner->job->device;
}

void espl_plan_set_output(struct espl_plan_ctx *ctx, const char *port, json_t *description)
{
    struct espl_plan_stage *stage = this_stage(ctx);
    const size_t output = espl_plan_find_port(stage->job_stage->stage->outputs, port);
    if (output == SIZE_MAX) {
        json_decref(description);
        return;
    }
    json_decref(stage->descriptions[output]);
    stage->descriptions[output] = description;
}

/* A file with its role and its number among those of the same role; not yet in the list. NULL when
 * out of memory. */
static struct espl_plan_file *new_file(struct espl_plan_ctx *ctx, const char *role)
{
    struct espl_plan_file *file = espl_planner_alloc(ctx->planner, 1, sizeof *file);
    if (file == NULL) {
        return NULL;
    }
    (void)snprintf(file->role, sizeof file->role, "%s", role);
    for (const struct espl_plan_file *other = ctx->planner->work[ctx->index].files; other != NULL;
         other = other->next) {
        file->number += strcmp(other->role, file->role) == 0 ? 1u : 0u;
    }
    return file;
}

static void append_file(struct espl_plan_ctx *ctx, struct espl_plan_file *file)
{
    struct espl_plan_work *work = &ctx->planner->work[ctx->index];
    *work->files_end = file;
    work->files_end = &file->next;
}

enum espl_status espl_plan_add_file(struct espl_plan_ctx *ctx, const char *role, const char *path,
                                    struct espl_error *err)
{
    const struct espl_planner *planner = ctx->planner;
    if (!espl_fs_exists(path)) {
        return espl_fail(err, ESPL_E_NOTFOUND, "cannot find %s file '%s'", role, path);
    }
    struct espl_plan_file *file = new_file(ctx, role);
    if (file == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the plan");
    }
    const enum espl_status status =
        espl_store_file_hash(planner->store, path, planner->options->rehash, file->sha256, err);
    if (status == ESPL_OK) {
        append_file(ctx, file);
    }
    return status;
}

enum espl_status espl_plan_add_digest(struct espl_plan_ctx *ctx, const char *role,
                                      const char *sha256, struct espl_error *err)
{
    struct espl_plan_file *file = new_file(ctx, role);
    if (file == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the plan");
    }
    (void)snprintf(file->sha256, sizeof file->sha256, "%s", sha256);
    append_file(ctx, file);
    return ESPL_OK;
}

void espl_plan_warn(struct espl_plan_ctx *ctx, const char *fmt, ...)
{
    char *warnings = this_stage(ctx)->warnings;
    const size_t size = sizeof this_stage(ctx)->warnings;
    const size_t len = strlen(warnings);
    char line[sizeof this_stage(ctx)->warnings];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    /* What does not fit is cut: warnings are for people. */
    (void)snprintf(warnings + len, size - len, "%s%s", len > 0 ? "\n" : "", line);
}

/* Does this machine have what the stages that run say they need? */
#include "engine/plan_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool will_run(const struct espl_plan_stage *stage)
{
    return stage->state == ESPL_PLAN_RUN || stage->state == ESPL_PLAN_RESUME;
}

/* The next free error record, NULL when there are enough. */
static struct espl_error *next_error(struct espl_plan *plan)
{
    plan->resources_ok = false;
    if (plan->resource_error_count == ESPL_MAX_RESOURCE_ERRORS) {
        return NULL;
    }
    return &plan->resource_errors[plan->resource_error_count++];
}

/* MemAvailable in bytes; 0 = not known here, then memory is not checked. */
static uint64_t available_memory(void)
{
    static const char label[] = "MemAvailable:";
    char text[4096] = "";
    FILE *file = fopen("/proc/meminfo", "re");
    if (file == NULL) {
        return 0;
    }
    const size_t len = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file); /* read only: nothing can be lost */
    text[len] = '\0';
    const char *found = strstr(text, label);
    return found != NULL ? strtoull(found + strlen(label), NULL, 10) * 1024u : 0;
}

static void check_host_memory(struct espl_planner *planner, const struct espl_plan_stage *stage)
{
    struct espl_plan *plan = planner->plan;
    const struct espl_job *job = planner->job;
    const uint64_t needed_bytes = stage->estimate.host_bytes;
    char needed[ESPL_UNIT_TEXT];
    char there[ESPL_UNIT_TEXT];
    espl_print_size(needed_bytes, needed);
    if (plan->host_bytes_free > 0 && needed_bytes > plan->host_bytes_free) {
        struct espl_error *error = next_error(plan);
        espl_print_size(plan->host_bytes_free, there);
        (void)espl_fail(error, ESPL_E_MACHINE,
                        "not enough memory for stage '%s': needs %s, %s available",
                        stage->job_stage->id, needed, there);
        (void)espl_hint(error, "free memory, or run the job on a larger machine");
    }
    if (job->limit_host_memory > 0 && needed_bytes > job->limit_host_memory) {
        struct espl_error *error = next_error(plan);
        espl_print_size(job->limit_host_memory, there);
        (void)espl_fail(error, ESPL_E_MACHINE,
                        "stage '%s' needs %s of memory, limits.host_memory allows %s",
                        stage->job_stage->id, needed, there);
        (void)espl_hint(error, "raise the limit: --set limits.host_memory=...");
        if (error != NULL) {
            error->at = job->limit_host_memory_at;
        }
    }
}

static void check_scratch_limit(struct espl_planner *planner, const struct espl_plan_stage *stage)
{
    const struct espl_job *job = planner->job;
    if (job->limit_scratch == 0 || stage->estimate.scratch_bytes <= job->limit_scratch) {
        return;
    }
    char needed[ESPL_UNIT_TEXT];
    char allowed[ESPL_UNIT_TEXT];
    espl_print_size(stage->estimate.scratch_bytes, needed);
    espl_print_size(job->limit_scratch, allowed);
    struct espl_error *error = next_error(planner->plan);
    (void)espl_fail(error, ESPL_E_NOSPACE,
                    "stage '%s' needs %s of scratch space, limits.scratch allows %s",
                    stage->job_stage->id, needed, allowed);
    (void)espl_hint(error, "raise the limit: --set limits.scratch=...");
    if (error != NULL) {
        error->at = job->limit_scratch_at;
    }
}

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* "3.8 GiB result + 3.8 GiB scratch + 1.0 GiB earlier results" */
static void print_parts(const struct espl_estimate *estimate, uint64_t earlier, char *out,
                        size_t size)
{
    char result[ESPL_UNIT_TEXT];
    char scratch[ESPL_UNIT_TEXT];
    char before[ESPL_UNIT_TEXT];
    espl_print_size(estimate->output_bytes, result);
    espl_print_size(estimate->scratch_bytes, scratch);
    espl_print_size(earlier, before);
    int used = snprintf(out, size, "%s result", result);
    if (estimate->scratch_bytes > 0) {
        used += snprintf(out + used, size - (size_t)used, " + %s scratch", scratch);
    }
    if (earlier > 0) {
        (void)snprintf(out + used, size - (size_t)used, " + %s earlier results", before);
    }
}

/* Results stay, scratch goes when its stage ends: the need of a stage is what was written before it
 * in this run, its result and its scratch. Only the first stage that does not fit is reported. */
static void check_disk(struct espl_planner *planner)
{
    struct espl_plan *plan = planner->plan;
    uint64_t earlier = 0;
    bool reported = false;
    for (size_t i = 0; i < plan->stage_count; i++) {
        const struct espl_plan_stage *stage = &plan->stages[i];
        if (!will_run(stage)) {
            continue;
        }
        const uint64_t own =
            add_saturating(stage->estimate.output_bytes, stage->estimate.scratch_bytes);
        const uint64_t needed_bytes = add_saturating(earlier, own);
        if (needed_bytes > plan->disk_bytes_needed) {
            plan->disk_bytes_needed = needed_bytes;
        }
        if (needed_bytes > plan->disk_bytes_free && !reported) {
            char needed[ESPL_UNIT_TEXT];
            char there[ESPL_UNIT_TEXT];
            char parts[3 * ESPL_UNIT_TEXT + 64];
            char shown[ESPL_PATH_MAX];
            espl_print_size(needed_bytes, needed);
            espl_print_size(plan->disk_bytes_free, there);
            print_parts(&stage->estimate, earlier, parts, sizeof parts);
            struct espl_error *error = next_error(plan);
            (void)espl_fail(
                error, ESPL_E_NOSPACE,
                "not enough disk space for stage '%s': needs %s (%s), %s free in '%.200s'",
                stage->job_stage->id, needed, parts, there,
                espl_fs_shown_path(planner->store->root, shown));
            (void)espl_hint(
                error, "`espalier gc` shows what can be deleted; or use --store on another disk");
            reported = true;
        }
        earlier = add_saturating(earlier, stage->estimate.output_bytes);
    }
}

static bool is_on_device(const struct espl_plan_stage *stage)
{
    return (stage->job_stage->stage->flags & ESPL_STAGE_ON_DEVICE) != 0;
}

static bool has_kernels(const struct espl_plan_stage *stage)
{
    const unsigned flags = stage->job_stage->stage->flags;
    return (flags & (ESPL_STAGE_ON_DEVICE | ESPL_STAGE_MAY_USE_DEVICE)) != 0;
}

/* On a CUDA device a stage without kernels for it runs on the CPU: it says so. */
static void warn_of_cpu_stages(struct espl_planner *planner)
{
    struct espl_plan_ctx ctx = {.planner = planner};
    size_t count = 0;
    for (size_t i = planner->plan->stage_count; i-- > 0;) {
        if (will_run(&planner->plan->stages[i]) && !has_kernels(&planner->plan->stages[i])) {
            ctx.index = i;
            count++;
        }
    }
    if (count == 1) {
        espl_plan_warn(&ctx, "this stage has no CUDA kernels: it runs on the CPU");
    } else if (count > 1) {
        espl_plan_warn(&ctx, "this stage and %zu more have no CUDA kernels: they run on the CPU",
                       count - 1);
    }
}

static void check_device(struct espl_planner *planner)
{
    const struct espl_plan_options *options = planner->options;
    const char *device = planner->job->device;
    const char *stage = NULL;
    bool device_only = false;
    struct espl_error problem = {0};
    for (size_t i = planner->plan->stage_count; i-- > 0;) {
        const struct espl_plan_stage *each = &planner->plan->stages[i];
        if (will_run(each) && is_on_device(each) && (each->estimate.device_only || !device_only)) {
            stage = each->job_stage->id;
            device_only = each->estimate.device_only;
        }
    }
    if (options->check_device == NULL ||
        options->check_device(options->check_device_user, device, stage, device_only, &problem) ==
            ESPL_OK) {
        if (strncmp(device, "cuda:", 5) == 0) {
            warn_of_cpu_stages(planner);
        }
        return;
    }
    struct espl_error *error = next_error(planner->plan);
    if (error != NULL) {
        *error = problem;
        if (problem.at.line == 0) {
            error->at = planner->job->device_at;
        }
    }
}

enum espl_status espl_plan_check_resources(struct espl_planner *planner, struct espl_error *err)
{
    struct espl_plan *plan = planner->plan;
    const struct espl_plan_options *options = planner->options;
    plan->resources_ok = true;
    plan->resource_errors =
        espl_planner_alloc(planner, ESPL_MAX_RESOURCE_ERRORS, sizeof *plan->resource_errors);
    if (plan->resource_errors == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the plan");
    }
    plan->host_bytes_free =
        options->host_bytes_free > 0 ? options->host_bytes_free : available_memory();
    plan->disk_bytes_free = options->disk_bytes_free;
    if (plan->disk_bytes_free == 0) {
        const enum espl_status status =
            espl_fs_free_bytes(planner->store->root, &plan->disk_bytes_free, err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    /* The stage that needs most stands for all: they run one after the other. */
    const struct espl_plan_stage *most_memory = NULL;
    const struct espl_plan_stage *most_scratch = NULL;
    for (size_t i = 0; i < plan->stage_count; i++) {
        const struct espl_plan_stage *stage = &plan->stages[i];
        if (!will_run(stage)) {
            continue;
        }
        if (most_memory == NULL || stage->estimate.host_bytes > most_memory->estimate.host_bytes) {
            most_memory = stage;
        }
        if (most_scratch == NULL ||
            stage->estimate.scratch_bytes > most_scratch->estimate.scratch_bytes) {
            most_scratch = stage;
        }
        if (stage->estimate.device_bytes > plan->device_bytes_needed) {
            plan->device_bytes_needed = stage->estimate.device_bytes;
        }
    }
    if (most_memory == NULL) {
        return ESPL_OK; /* nothing runs: nothing is needed */
    }
    plan->host_bytes_needed = most_memory->estimate.host_bytes;
    check_host_memory(planner, most_memory);
    check_scratch_limit(planner, most_scratch);
    check_disk(planner);
    check_device(planner);
    return ESPL_OK;
}

/* Bytes -> job -> plan, with the stages of this build. Their plan() is left out: it would open the
 * files that the bytes name. What reads must render, resolve to YAML that reads again to the same
 * job, and plan to the same keys. */
#include "engine/plan.h"
#include "stages/registry.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_STAGES = 64 };

static struct espl_stage copies[MAX_STAGES];
static const struct espl_stage *registry[MAX_STAGES + 1];

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

static void fill_registry(void)
{
    for (size_t i = 0; espl_stages[i] != NULL; i++) {
        require(i < MAX_STAGES);
        copies[i] = *espl_stages[i];
        copies[i].plan = NULL;
        copies[i].still_valid = NULL;
        registry[i] = &copies[i];
    }
}

static bool has_file_input(const struct espl_job *job)
{
    for (size_t i = 0; i < job->stage_count; i++) {
        for (size_t j = 0; j < job->stages[i].input_count; j++) {
            if (job->stages[i].inputs[j].file != NULL) {
                return true;
            }
        }
    }
    return false;
}

static struct espl_job *parse(const char *text, size_t len, const struct espl_override *override)
{
    struct espl_diagnostics diags;
    struct espl_error err = {0};
    struct espl_job *job = NULL;
    struct espl_buf rendered;
    espl_buf_init(&rendered, 1 << 22);
    require(espl_diagnostics_init(&diags, &err) == ESPL_OK);
    const enum espl_status status = espl_job_parse("job.yaml", text, len, registry, override,
                                                   override != NULL ? 1 : 0, &diags, &job, &err);
    require((status == ESPL_OK) == (job != NULL));
    require((status == ESPL_OK) == (diags.count == 0));
    espl_diagnostics_render(&diags, true, &rendered);
    require(!rendered.failed);
    espl_buf_free(&rendered);
    espl_diagnostics_free(&diags);
    return job;
}

static struct espl_plan *make_plan(const struct espl_job *job)
{
    struct espl_store store = {0};
    struct espl_diagnostics diags;
    struct espl_error err = {0};
    struct espl_plan *plan = NULL;
    require(espl_store_open_readonly("/nonexistent/espalier", &store, &err) == ESPL_OK);
    require(espl_diagnostics_init(&diags, &err) == ESPL_OK);
    const enum espl_status status = espl_plan_build(job, &store, NULL, &diags, &plan, &err);
    require((status == ESPL_OK) == (diags.count == 0));
    require(status != ESPL_OK || plan != NULL);
    espl_diagnostics_free(&diags);
    return plan;
}

static void check_job(const struct espl_job *job)
{
    struct espl_buf first;
    struct espl_buf second;
    espl_buf_init(&first, 1 << 24);
    espl_buf_init(&second, 1 << 24);
    espl_job_resolved_yaml(job, &first);
    require(!first.failed);
    /* Written out, a job may pass the limit of a file; else it must read back. */
    if (first.len <= ESPL_YAML_MAX_BYTES) {
        struct espl_job *again = parse(espl_buf_text(&first), first.len, NULL);
        if (again != NULL) {
            espl_job_resolved_yaml(again, &second);
            require(strcmp(espl_buf_text(&first), espl_buf_text(&second)) == 0);
        } else {
            /* Defaults count as values too: only a job near the limit may fail here. */
            require(job->stage_count > 100);
        }
        struct espl_plan *plan = has_file_input(job) ? NULL : make_plan(job);
        struct espl_plan *plan_again = plan != NULL && again != NULL ? make_plan(again) : NULL;
        for (size_t i = 0; plan_again != NULL && i < plan->stage_count; i++) {
            require(strcmp(plan->stages[i].key, plan_again->stages[i].key) == 0);
        }
        if (plan != NULL) {
            json_decref(espl_plan_json(plan));
        }
        espl_plan_free(plan_again);
        espl_plan_free(plan);
        espl_job_free(again);
    }
    espl_buf_free(&second);
    espl_buf_free(&first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (registry[0] == NULL) {
        fill_registry();
    }
    struct espl_job *job = parse((const char *)data, size, NULL);
    if (job != NULL) {
        check_job(job);
    }
    espl_job_free(job);
    /* The same bytes as the value of an option. */
    static const char base[] = "version: 1\nname: t\nstages:\n  - {id: t, use: tokens}\n";
    char value[256];
    if (size < sizeof value) {
        memcpy(value, data, size);
        value[size] = '\0';
        const struct espl_override override = {.path = "t.text", .value = value};
        espl_job_free(parse(base, sizeof base - 1, &override));
    }
    return 0;
}

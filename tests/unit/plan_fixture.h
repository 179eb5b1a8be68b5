/* Plans of short jobs through the planner, with a model and tokens made for the test. */
#ifndef ESPL_TESTS_PLAN_FIXTURE_H
#define ESPL_TESTS_PLAN_FIXTURE_H

#include "prune_fixture.h"

#include "engine/plan.h"

struct planned {
    struct prune_fixture fixture;
    struct espl_diagnostics diags;
    struct espl_job *job;
    struct espl_plan *plan;
};

/** Plans a job of these stages (YAML list, indented by two), in which M and T stand for the files
 * of a random model of `config` and of `windows` windows of `tokens` tokens (0: one text).
 * registry: ends with NULL. */
void plan_stages(struct planned *planned, const struct espl_stage *const *registry,
                 const struct espl_model_config *config, uint64_t windows, uint64_t tokens,
                 const char *stages);
void plan_free(struct planned *planned);
/** No errors, and a plan. */
void plan_expect_clean(const struct planned *planned);
/** Error number `index`, its line, and a part of its hint. */
void plan_expect_error(const struct planned *planned, size_t index, unsigned line,
                       const char *message, const char *hint);
/** These stages give this one error, as in plan_expect_error(). */
void plan_expect_refusal(const struct espl_stage *const *registry,
                         const struct espl_model_config *config, uint64_t windows, uint64_t tokens,
                         const char *stages, unsigned line, const char *message, const char *hint);

#endif

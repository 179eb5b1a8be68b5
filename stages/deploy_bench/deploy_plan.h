/* deploy-bench: what the plans of all modes refuse in the same words, blaming the parameter. */
#ifndef ESPL_STAGES_DEPLOY_PLAN_H
#define ESPL_STAGES_DEPLOY_PLAN_H

#include "engine/stage.h"

/** Adds hint and blame ("param:NAME", "input:NAME") to an error; returns its status. */
enum espl_status espl_deploy_refuse(struct espl_error *err, const char *blamed, const char *hint);

/** A list of int64_t, parameter `name`: 1 to `most` numbers (0 = any number of them), none of them
 *  twice. Errors: JOB. */
enum espl_status espl_deploy_check_numbers(const struct espl_list *list, const char *name,
                                           size_t most, struct espl_error *err);
/** A list of int, indices into `choices`: one or more, none twice. Errors: JOB. */
enum espl_status espl_deploy_check_choices(const struct espl_list *list, const char *name,
                                           const char *const *choices, struct espl_error *err);
/** Of devices beside the CPU, "auto" and "cuda:0" are measured. Errors: UNSUPPORTED. */
enum espl_status espl_deploy_check_cuda(const char *device, struct espl_error *err);

#endif

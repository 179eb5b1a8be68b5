/* deploy-bench: what the plans of all modes refuse in the same words. */
#ifndef ESPL_STAGES_DEPLOY_PLAN_H
#define ESPL_STAGES_DEPLOY_PLAN_H

#include "engine/stage.h"

/** Adds a hint and the place in the job file ("param:tokens", "input:model") to an error. Returns
 *  the error's status. */
enum espl_status espl_deploy_refuse(struct espl_error *err, const char *blamed, const char *hint);
/** Every number of a list (int64_t) stands there once. Errors: JOB, at parameter `name`. */
enum espl_status espl_deploy_check_numbers(const struct espl_list *list, const char *name,
                                           struct espl_error *err);
/** The same of choices (int, of `choices`). Errors: JOB. */
enum espl_status espl_deploy_check_choices(const struct espl_list *list, const char *name,
                                           const char *const *choices, struct espl_error *err);
/** Of CUDA devices only the first is measured. device: the job's, no CPU. Errors: UNSUPPORTED. */
enum espl_status espl_deploy_check_cuda(const char *device, struct espl_error *err);

#endif

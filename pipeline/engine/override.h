/* `--set path=value`: laid over the job's tree before it is typed, so that overrides get the same
 * checks as the file. */
#ifndef ESPL_ENGINE_OVERRIDE_H
#define ESPL_ENGINE_OVERRIDE_H

#include "engine/job.h"

/** Returns the root mapping with all overrides in it; replaced nodes have the place "--set <path>",
 * line 0. Problems go to diags; NULL when out of memory. */
const struct espl_node *espl_override_apply(const struct espl_node *root,
                                            const struct espl_stage *const *registry,
                                            const struct espl_override *overrides, size_t count,
                                            struct espl_arena *arena,
                                            struct espl_diagnostics *diags);

#endif

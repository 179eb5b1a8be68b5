/* All stages of this build. */
#ifndef ESPL_STAGES_REGISTRY_H
#define ESPL_STAGES_REGISTRY_H

#include "engine/stage.h"

/** The table; ends with NULL. To add a stage, add a line in registry.c. */
extern const struct espl_stage *const espl_stages[];

#endif

/* Asks CUDA what this machine has without starting CUDA here: a process that forks stages must not
 * have used it. */
#ifndef ESPL_CLI_DEVICE_PROBE_H
#define ESPL_CLI_DEVICE_PROBE_H

#include "core/error.h"

#include <espalier/cuda_probe.h>

/** espl_cuda_probe() in a process of its own. Errors: those of espl_cuda_probe(), MACHINE when that
 * process died, IO. */
enum espl_status espl_cli_probe_cuda(struct espl_cuda_info *info, struct espl_error *err);

#endif

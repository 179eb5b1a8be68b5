/* Random matrices of bytes on a CUDA device, N of M kept in patterns that V rows share: for speed,
 * which does not depend on the values. */
#ifndef ESPL_EVAL_DEVICE_VISION_RANDOM_H
#define ESPL_EVAL_DEVICE_VISION_RANDOM_H

#include "espalier/cuda_nm.h"

/** The same matrix for the same layout. Errors: UNSUPPORTED, NOMEM, MACHINE. */
enum espl_status espl_device_vision_random_matrix(const struct espl_nm_layout *layout,
                                                  struct espl_cuda_nm_matrix **out,
                                                  struct espl_error *err);

#endif

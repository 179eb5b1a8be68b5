/* The answer of a build without CUDA. With CUDA: kernels/cuda/probe.cu. */
#include "espalier/cuda_probe.h"

#ifndef ESPL_WITH_CUDA
#include <string.h>

enum espl_status espl_cuda_probe(struct espl_cuda_info *info, struct espl_error *err)
{
    memset(info, 0, sizeof *info);
    espl_fail(err, ESPL_E_UNSUPPORTED, "this program was built without CUDA");
    return espl_hint(err, "build with -DWITH_CUDA=ON on a machine that has nvcc");
}
#endif

/* What OpenBLAS chose on this machine, and whether a restart with another choice would be better.
 */
#include "espalier/kernels.h"

#include <cblas.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
static bool cpu_has_avx2_fma(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/* What OpenBLAS's SkylakeX kernels use. */
static bool cpu_has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#else
static bool cpu_has_avx2_fma(void)
{
    return false;
}

static bool cpu_has_avx512(void)
{
    return false;
}
#endif

/* Cores of OpenBLAS 0.3 whose kernels stop at SSE: a CPU with AVX2 that gets one of them is newer
 * than the library's own table. */
static const char *const sse_cores[] = {
    "Katmai",     "Coppermine", "Northwood", "Prescott",     "Banias", "Core2",  "Penryn",
    "Dunnington", "Athlon",     "Opteron",   "Opteron_SSE3", "Atom",   "Generic"};

const char *espl_blas_better_core(const char *core, bool has_avx2_fma, bool has_avx512)
{
    if (!has_avx2_fma) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof sse_cores / sizeof sse_cores[0]; i++) {
        if (strcmp(sse_cores[i], core) == 0) {
            return has_avx512 ? "SkylakeX" : "Haswell";
        }
    }
    return NULL;
}

const char *espl_blas_better_core_here(void)
{
    return espl_blas_better_core(openblas_get_corename(), cpu_has_avx2_fma(), cpu_has_avx512());
}

void espl_blas_get_info(struct espl_blas_info *info)
{
    const char *parallel = "openmp";
    if (openblas_get_parallel() == 0) {
        parallel = "serial";
    } else if (openblas_get_parallel() == 1) {
        parallel = "pthreads";
    }
    memset(info, 0, sizeof *info);
    (void)snprintf(info->core, sizeof info->core, "%s", openblas_get_corename());
    (void)snprintf(info->config, sizeof info->config, "%s", openblas_get_config());
    (void)snprintf(info->parallel, sizeof info->parallel, "%s", parallel);
    info->old_core_on_new_cpu = espl_blas_better_core_here() != NULL;
}

#include "cli/environment.h"

#include "cli/command.h"
#include "cli/device_probe.h"
#include "core/units.h"

#include <espalier/kernels.h>
#include <hdf5.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* Model name of the first processor; "unknown" where /proc does not tell (AArch64). */
static void read_cpu(char *out, size_t size)
{
    char line[512];
    FILE *stream = fopen("/proc/cpuinfo", "re");
    (void)snprintf(out, size, "unknown");
    while (stream != NULL && fgets(line, sizeof line, stream) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL && colon[1] != '\0') {
            (void)snprintf(out, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
            break;
        }
    }
    if (stream != NULL) {
        (void)fclose(stream); /* only read from */
    }
}

static int count_cores(void)
{
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

/* Threads that stages will use: asking OpenMP would start it, and a process that forks stages must
 * not. */
static int count_threads(void)
{
    int64_t wanted = 0;
    const char *text = getenv("OMP_NUM_THREADS");
    if (text != NULL && espl_parse_int(text, &wanted) && wanted > 0 && wanted < 100000) {
        return (int)wanted;
    }
    return count_cores();
}

void espl_cli_compiler(char *out, size_t size)
{
#ifdef __clang__
    (void)snprintf(out, size, "clang %d.%d.%d", __clang_major__, __clang_minor__,
                   __clang_patchlevel__);
#else
    (void)snprintf(out, size, "gcc %d.%d.%d", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

void espl_cli_device_fingerprint(const char *device, char *out, size_t size)
{
    struct espl_blas_info blas;
    struct espl_cuda_info cuda;
    char cpu[256];
    espl_blas_get_info(&blas);
    read_cpu(cpu, sizeof cpu);
    int used = snprintf(out, size, "%s; cpu %s, %d cores, openblas %s", device, cpu, count_cores(),
                        blas.core);
    if (strcmp(device, "cpu") == 0 || espl_cli_probe_cuda(&cuda, NULL) != ESPL_OK) {
        return;
    }
    for (unsigned i = 0; i < cuda.device_count && i < ESPL_CUDA_MAX_DEVICES; i++) {
        const struct espl_cuda_device *gpu = &cuda.devices[i];
        if (used > 0 && (size_t)used < size) {
            used += snprintf(out + used, size - (size_t)used, "; gpu %u %s cc %u.%u, driver %u.%u",
                             i, gpu->name, gpu->compute_major, gpu->compute_minor,
                             cuda.driver_major, cuda.driver_minor);
        }
    }
}

json_t *espl_cli_environment(void)
{
    char compiler[64];
    struct espl_blas_info blas;
    struct utsname system;
    char cpu[256];
    char hdf5[48];
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
    memset(&system, 0, sizeof system);
    espl_cli_compiler(compiler, sizeof compiler);
    espl_blas_get_info(&blas);
    read_cpu(cpu, sizeof cpu);
    (void)uname(&system);                             /* then the texts stay empty */
    (void)H5get_libversion(&major, &minor, &release); /* cannot fail after start-up */
    (void)snprintf(hdf5, sizeof hdf5, "%u.%u.%u", major, minor, release);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i}", "tool_version", ESPL_TOOL_VERSION,
                     "compiler", compiler, "hdf5", hdf5, "openblas", blas.config, "openblas_core",
                     blas.core, "cpu", cpu, "kernel", system.release, "threads", count_threads());
}

#include "cli/environment.h"

#include "cli/command.h"
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

/* Threads that stages will use: asking OpenMP would start it, and a process that forks stages must
 * not. */
static int count_threads(void)
{
    int64_t wanted = 0;
    cpu_set_t allowed;
    const char *text = getenv("OMP_NUM_THREADS");
    if (text != NULL && espl_parse_int(text, &wanted) && wanted > 0 && wanted < 100000) {
        return (int)wanted;
    }
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

json_t *espl_cli_environment(void)
{
    struct espl_blas_info blas;
    struct utsname system;
    char cpu[256];
    char hdf5[48];
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
    memset(&system, 0, sizeof system);
    espl_blas_get_info(&blas);
    read_cpu(cpu, sizeof cpu);
    (void)uname(&system);                             /* then the texts stay empty */
    (void)H5get_libversion(&major, &minor, &release); /* cannot fail after start-up */
    (void)snprintf(hdf5, sizeof hdf5, "%u.%u.%u", major, minor, release);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i}", "tool_version", ESPL_TOOL_VERSION,
                     "compiler", __VERSION__, "hdf5", hdf5, "openblas", blas.config,
                     "openblas_core", blas.core, "cpu", cpu, "kernel", system.release, "threads",
                     count_threads());
}

#include "cli/doctor.h"

#include "cli/device_probe.h"
#include "core/fs.h"
#include "core/units.h"
#include "espalier/kernels.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* ---- CPU ---- */

/* Value of the first "name : value" line of a file in /proc; false when there is none. */
static bool proc_value(const char *path, const char *name, char *out, size_t out_size)
{
    FILE *file = fopen(path, "r");
    char line[4096];
    bool found = false;
    const size_t len = strlen(name);
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, name, len) == 0 && colon != NULL) {
            colon += 1 + strspn(colon + 1, " \t");
            (void)snprintf(out, out_size, "%.*s", (int)strcspn(colon, "\n"), colon);
            found = true;
        }
    }
    if (file != NULL) {
        (void)fclose(file); /* only read from */
    }
    return found;
}

static unsigned usable_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        return (unsigned)CPU_COUNT(&set);
    }
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

static bool has_word(const char *words, const char *word)
{
    const size_t len = strlen(word);
    for (const char *at = strstr(words, word); at != NULL; at = strstr(at + 1, word)) {
        const bool starts = at == words || at[-1] == ' ';
        if (starts && (at[len] == ' ' || at[len] == '\0')) {
            return true;
        }
    }
    return false;
}

void espl_check_cpu(const struct espl_cli *cli, struct espl_check *check)
{
    (void)cli;
    char model[160] = "unknown model";
    char flags[4096] = "";
    struct utsname names;
    const char *machine = uname(&names) == 0 ? names.machine : "unknown";
    (void)proc_value("/proc/cpuinfo", "model name", model, sizeof model);
    if (!proc_value("/proc/cpuinfo", "flags", flags, sizeof flags)) {
        (void)proc_value("/proc/cpuinfo", "Features", flags, sizeof flags); /* the name on Arm */
    }
    static const char *const wanted[] = {"avx2",  "fma",     "avx512f", "avx512_vnni",
                                         "asimd", "asimdhp", "sve"};
    char found[128] = "";
    size_t len = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i) {
        if (has_word(flags, wanted[i])) {
            len += (size_t)snprintf(found + len, sizeof found - len, " %s", wanted[i]);
        }
    }
    const bool slow = strcmp(machine, "x86_64") == 0 && !has_word(flags, "avx2");
    (void)snprintf(check->facts, sizeof check->facts, "%s, %s, %u cores usable,%s", model, machine,
                   usable_cores(), found[0] != '\0' ? found : " no vector extensions named");
    check->state = slow ? ESPL_CHECK_WARN : ESPL_CHECK_OK;
    if (slow) {
        (void)snprintf(check->advice, sizeof check->advice,
                       "without AVX2 everything works and is several times slower");
    }
}

/* ---- memory ---- */

/* Bytes of a "MemTotal: 123 kB" line, 0 when absent. */
static uint64_t meminfo_bytes(const char *name)
{
    char text[64];
    if (!proc_value("/proc/meminfo", name, text, sizeof text)) {
        return 0;
    }
    return strtoull(text, NULL, 10) * 1024u;
}

/* Limit of the container that we run in, 0 when there is none. */
static uint64_t container_limit(void)
{
    static const char *const paths[] = {"/sys/fs/cgroup/memory.max",
                                        "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; ++i) {
        char *text = NULL;
        size_t len = 0;
        if (espl_fs_read_file(paths[i], 4096, &text, &len, NULL) == ESPL_OK) {
            const uint64_t limit = strtoull(text, NULL, 10);
            free(text);
            /* Version 1 writes a number near 2^63 for "no limit", version 2 the word "max". */
            return limit < (uint64_t)1 << 60 ? limit : 0;
        }
    }
    return 0;
}

void espl_check_memory(const struct espl_cli *cli, struct espl_check *check)
{
    (void)cli;
    char total_text[ESPL_UNIT_TEXT];
    char free_text[ESPL_UNIT_TEXT];
    char limit_text[ESPL_UNIT_TEXT];
    const uint64_t total = meminfo_bytes("MemTotal");
    const uint64_t available = meminfo_bytes("MemAvailable");
    const uint64_t limit = container_limit();
    if (total == 0) {
        check->state = ESPL_CHECK_NONE;
        (void)snprintf(check->facts, sizeof check->facts, "/proc/meminfo cannot be read");
        return;
    }
    espl_print_size(total, total_text);
    espl_print_size(available, free_text);
    espl_print_size(limit, limit_text);
    const bool limited = limit > 0 && limit < total;
    (void)snprintf(check->facts, sizeof check->facts, "%s of %s free%s%s", free_text, total_text,
                   limited ? "; limit of this container " : "", limited ? limit_text : "");
    check->state = ESPL_CHECK_OK;
    if (available < (uint64_t)512 << 20) {
        check->state = ESPL_CHECK_WARN;
        (void)snprintf(check->advice, sizeof check->advice,
                       "little memory is free: `espalier plan JOB` says what a job needs");
    }
}

/* ---- threads ---- */

void espl_check_threads(const struct espl_cli *cli, struct espl_check *check)
{
    (void)cli;
    struct espl_backend *backend = NULL;
    struct espl_error err = {0};
    const unsigned cores = usable_cores();
    if (espl_backend_open("cpu", 0, &backend, &err) != ESPL_OK) {
        check->state = ESPL_CHECK_FAIL;
        (void)snprintf(check->facts, sizeof check->facts, "%s", err.message);
        return;
    }
    const unsigned threads = espl_backend_threads(backend);
    const char *variable = getenv("OMP_NUM_THREADS");
    espl_backend_close(backend);
    (void)snprintf(check->facts, sizeof check->facts, "%u threads on %u cores%s%s", threads, cores,
                   variable != NULL ? ", OMP_NUM_THREADS=" : "", variable != NULL ? variable : "");
    check->state = ESPL_CHECK_OK;
    if (threads > cores) {
        check->state = ESPL_CHECK_WARN;
        (void)snprintf(check->advice, sizeof check->advice,
                       "more threads than cores slow each other down: set OMP_NUM_THREADS=%u",
                       cores);
    }
}

/* ---- CUDA ---- */

void espl_check_cuda(const struct espl_cli *cli, struct espl_check *check)
{
    (void)cli;
    struct espl_cuda_info info;
    struct espl_error err = {0};
    const enum espl_status status = espl_cli_probe_cuda(&info, &err);
    if (status != ESPL_OK) {
        check->state = ESPL_CHECK_NONE;
        (void)snprintf(check->facts, sizeof check->facts, "%s", err.message);
        return;
    }
    char memory[ESPL_UNIT_TEXT];
    size_t used = (size_t)snprintf(check->facts, sizeof check->facts, "driver %u.%u, runtime %u.%u",
                                   info.driver_major, info.driver_minor, info.runtime_major,
                                   info.runtime_minor);
    for (unsigned i = 0; i < info.device_count && i < ESPL_CUDA_MAX_DEVICES; ++i) {
        const struct espl_cuda_device *gpu = &info.devices[i];
        espl_print_size(gpu->memory_bytes, memory);
        if (used < sizeof check->facts) {
            used += (size_t)snprintf(check->facts + used, sizeof check->facts - used,
                                     "; cuda:%u %.80s, %s, compute %u.%u", i, gpu->name, memory,
                                     gpu->compute_major, gpu->compute_minor);
        }
    }
    check->state = ESPL_CHECK_OK;
}

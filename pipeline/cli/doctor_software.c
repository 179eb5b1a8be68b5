#define PCRE2_CODE_UNIT_WIDTH 8

#include "cli/doctor.h"

#include "cli/environment.h"
#include "espalier/kernels.h"
#include "stages/registry.h"

#include <archive.h>
#include <hdf5.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <pcre2.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include <yaml.h>

void espl_check_program(const struct espl_cli *cli, struct espl_check *check)
{
    (void)cli;
    static const char *const known[] = {"ref", "cpu", "cuda"};
    char backends[64] = "";
    char compiler[64];
    size_t used = 0;
    size_t stages = 0;
    while (espl_stages[stages] != NULL) {
        ++stages;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; ++i) {
        struct espl_backend *backend = NULL;
        if (espl_backend_open(known[i], 1, &backend, NULL) == ESPL_OK) {
            used += (size_t)snprintf(backends + used, sizeof backends - used, "%s%s",
                                     used > 0 ? ", " : "", known[i]);
            espl_backend_close(backend);
        }
    }
    espl_cli_compiler(compiler, sizeof compiler);
    check->state = ESPL_CHECK_OK;
    (void)snprintf(check->facts, sizeof check->facts,
                   "espalier %s, %zu stages, kernels %s, built by %s", ESPL_TOOL_VERSION, stages,
                   backends, compiler);
}

void espl_check_openblas(const struct espl_cli *cli, struct espl_check *check)
{
    (void)cli;
    struct espl_blas_info info;
    /* main.c starts the program again with a better core and leaves this mark. */
    const bool restarted = getenv("ESPL_BLAS_REEXEC") != NULL;
    const char *how = getenv("OPENBLAS_CORETYPE") == NULL ? ""
                      : restarted ? " (chosen by espalier: this OpenBLAS does not know the CPU)"
                                  : " (OPENBLAS_CORETYPE is set)";
    espl_blas_get_info(&info);
    (void)snprintf(check->facts, sizeof check->facts, "core %s%s, threads %s; %s", info.core, how,
                   info.parallel, info.config);
    check->state = ESPL_CHECK_OK;
    if (info.old_core_on_new_cpu) {
        check->state = ESPL_CHECK_WARN;
        (void)snprintf(check->advice, sizeof check->advice,
                       "OpenBLAS chose kernels of 1999 for this CPU, several times too slow: set "
                       "OPENBLAS_CORETYPE=Haswell, or install OpenBLAS 0.3.25 or later");
    } else if (strcmp(info.parallel, "openmp") != 0) {
        check->state = ESPL_CHECK_WARN;
        (void)snprintf(check->advice, sizeof check->advice,
                       "made for and tested with OpenBLAS's OpenMP build, which shares its threads "
                       "with the program: libopenblas-openmp-dev");
    }
}

void espl_check_hdf5(const struct espl_cli *cli, struct espl_check *check)
{
    (void)cli;
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
    if (H5get_libversion(&major, &minor, &release) < 0) {
        check->state = ESPL_CHECK_FAIL;
        (void)snprintf(check->facts, sizeof check->facts, "the library does not answer");
        return;
    }
    check->state = ESPL_CHECK_OK;
    (void)snprintf(check->facts, sizeof check->facts,
                   "%u.%u.%u, file format pinned to 1.10, plug-ins off; artifacts are opened by a "
                   "file driver of espalier's own, without HDF5 file locks",
                   major, minor, release);
}

void espl_check_libraries(const struct espl_cli *cli, struct espl_check *check)
{
    (void)cli;
    char pcre2[64] = "?";
    (void)pcre2_config(PCRE2_CONFIG_VERSION, pcre2); /* the text is at most 24 characters */
    *strchrnul(pcre2, ' ') = '\0';
    check->state = ESPL_CHECK_OK;
    (void)snprintf(check->facts, sizeof check->facts,
                   "libyaml %s, jansson %s, OpenSSL %s, sqlite %s, pcre2 %s, utf8proc %s, %s",
                   yaml_get_version_string(), jansson_version_str(),
                   OpenSSL_version(OPENSSL_VERSION_STRING), sqlite3_libversion(), pcre2,
                   utf8proc_version(), archive_version_string());
}

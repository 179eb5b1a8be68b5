/* Facts of program and machine that run records and results keep. */
#ifndef ESPL_CLI_ENVIRONMENT_H
#define ESPL_CLI_ENVIRONMENT_H

#include <jansson.h>
#include <stddef.h>

/** "gcc 12.2.0", "clang 14.0.6": what built this program. */
void espl_cli_compiler(char *out, size_t size);
/** What a measurement depends on, as one line for keys of measuring stages: CPU model, usable
 * cores, OpenBLAS core and, for a device other than "cpu", the GPUs with compute capability and
 * driver. */
void espl_cli_device_fingerprint(const char *device, char *out, size_t size);

/** {"tool_version", "compiler", "hdf5", "openblas", "openblas_core", "cpu", "kernel", "threads"}.
 *  Starts no thread. New reference, NULL when out of memory. */
json_t *espl_cli_environment(void);

#endif

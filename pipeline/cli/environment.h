/* Facts of program and machine that run records and results keep. */
#ifndef ESPL_CLI_ENVIRONMENT_H
#define ESPL_CLI_ENVIRONMENT_H

#include <jansson.h>

/** {"tool_version", "compiler", "hdf5", "openblas", "openblas_core", "cpu", "kernel", "threads"}.
 *  Starts no thread. New reference, NULL when out of memory. */
json_t *espl_cli_environment(void);

#endif

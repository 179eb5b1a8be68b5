/* Finding and reading the reference data of tests. */
#ifndef ESPL_TESTS_GOLDEN_DATA_H
#define ESPL_TESTS_GOLDEN_DATA_H

#include <stdbool.h>
#include <stddef.h>

enum { GOLDEN_PATH = 4096 };

/** Whole file, malloc'ed; fails the running test when it is not there. */
void *golden_read(const char *path, size_t *bytes);
/** tests/data/<name> */
void golden_path(const char *name, char out[GOLDEN_PATH]);
/** Folder of a reference model: datasets/samples/<name>, or ../shared/models/<name>. False when
 * neither is there. */
bool golden_model_dir(const char *name, char out[GOLDEN_PATH]);
/** Text ../shared/data/<name>. False when absent. */
bool golden_text_path(const char *name, char out[GOLDEN_PATH]);

#endif

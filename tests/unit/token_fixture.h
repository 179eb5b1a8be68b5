/* Reading the fixtures of the tokenizer tests. */
#ifndef ESPL_TESTS_TOKEN_FIXTURE_H
#define ESPL_TESTS_TOKEN_FIXTURE_H

#include "core/error.h"

#include <jansson.h>
#include <stddef.h>

/** Absolute path of tests/data/<name>. out: ESPL_PATH_MAX bytes. */
void token_fixture_path(char *out, const char *name);
/** tests/data/<name> as text, malloc'ed; fails the running test when it is not there. */
char *token_fixture_read(const char *name, size_t *len);
/** tests/data/<name> as JSON; fails the running test when it is not valid. */
json_t *token_fixture_json(const char *name);
/** Fails the running test with the error's texts unless status is ESPL_OK. */
void token_fixture_ok(enum espl_status status, const struct espl_error *err);

#endif

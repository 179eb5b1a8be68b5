/* Typed access to tokenizer.json with errors that name the field ("model.merges[3]"). */
#ifndef ESPL_DATASETS_TOKEN_JSON_H
#define ESPL_DATASETS_TOKEN_JSON_H

#include "core/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { ESPL_JSON_PATH = 160 };

/** Member of an object, NULL when it is absent or JSON null. */
const json_t *espl_token_json_get(const json_t *object, const char *key);
/** Boolean member; absent gives fallback. path: name of the object for messages ("" = the root). */
enum espl_status espl_token_json_bool(const json_t *object, const char *path, const char *key,
                                      bool fallback, bool *out, struct espl_error *err);
/** String member that must be there. *out is borrowed from the JSON value; it may hold NULs, so use
 * *len. */
enum espl_status espl_token_json_string(const json_t *object, const char *path, const char *key,
                                        const char **out, size_t *len, struct espl_error *err);
/** Token id: an integer 0 .. 2^31 - 2. what names the value for the message. */
enum espl_status espl_token_json_id(const json_t *value, const char *what, int32_t *out,
                                    struct espl_error *err);
/** `path`.`key`, or key alone when path is "". */
void espl_token_json_path(char out[ESPL_JSON_PATH], const char *path, const char *key);
/** ESPL_E_UNSUPPORTED for a type name that this build does not do. */
enum espl_status espl_token_json_refuse(const char *path, const char *key, const char *value,
                                        struct espl_error *err);

#endif

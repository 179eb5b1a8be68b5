#include "datasets/token_json.h"

#include <stdio.h>

const json_t *espl_token_json_get(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    return value == NULL || json_is_null(value) ? NULL : value;
}

void espl_token_json_path(char out[ESPL_JSON_PATH], const char *path, const char *key)
{
    (void)snprintf(out, ESPL_JSON_PATH, "%s%s%s", path, path[0] != '\0' ? "." : "", key);
}

static const char *type_name(const json_t *value)
{
    if (value == NULL) {
        return "nothing";
    }
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a real number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

enum espl_status espl_token_json_bool(const json_t *object, const char *path, const char *key,
                                      bool fallback, bool *out, struct espl_error *err)
{
    const json_t *const value = espl_token_json_get(object, key);
    if (value == NULL) {
        *out = fallback;
        return ESPL_OK;
    }
    if (!json_is_boolean(value)) {
        char full[ESPL_JSON_PATH];
        espl_token_json_path(full, path, key);
        return espl_fail(err, ESPL_E_CORRUPT, "field '%s' must be true or false, got %s", full,
                         type_name(value));
    }
    *out = json_is_true(value);
    return ESPL_OK;
}

enum espl_status espl_token_json_string(const json_t *object, const char *path, const char *key,
                                        const char **out, size_t *len, struct espl_error *err)
{
    const json_t *const value = json_object_get(object, key);
    if (!json_is_string(value)) {
        char full[ESPL_JSON_PATH];
        espl_token_json_path(full, path, key);
        return espl_fail(err, ESPL_E_CORRUPT, "field '%s' must be a string, got %s", full,
                         type_name(value));
    }
    *out = json_string_value(value);
    *len = json_string_length(value);
    return ESPL_OK;
}

enum espl_status espl_token_json_id(const json_t *value, const char *what, int32_t *out,
                                    struct espl_error *err)
{
    if (!json_is_integer(value)) {
        return espl_fail(err, ESPL_E_CORRUPT, "id of %s must be an integer, got %s", what,
                         type_name(value));
    }
    const json_int_t id = json_integer_value(value);
    if (id < 0 || id >= INT32_MAX) {
        return espl_fail(err, ESPL_E_CORRUPT, "id of %s is %lld, expected 0 .. %d", what,
                         (long long)id, INT32_MAX - 1);
    }
    *out = (int32_t)id;
    return ESPL_OK;
}

enum espl_status espl_token_json_refuse(const char *path, const char *key, const char *value,
                                        struct espl_error *err)
{
    char full[ESPL_JSON_PATH];
    espl_token_json_path(full, path, key);
    (void)espl_fail(err, ESPL_E_UNSUPPORTED, "field '%s' is '%.80s', which is not supported", full,
                    value);
    return espl_hint(err, "tokenise the text elsewhere and give the ids as a raw int32 file");
}

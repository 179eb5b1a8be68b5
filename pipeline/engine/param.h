/* Parameter tables: the single source for validation, defaults, help, canonical hash text, JSON
 * Schema and completion. A stage describes its parameters as a const array; schema.c does the rest.
 */
#ifndef ESPL_ENGINE_PARAM_H
#define ESPL_ENGINE_PARAM_H

#include "core/units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Type of one value and of the field it is stored in. */
enum espl_param_type {
    ESPL_PARAM_BOOL,   /* bool */
    ESPL_PARAM_INT,    /* int64_t */
    ESPL_PARAM_REAL,   /* double */
    ESPL_PARAM_STRING, /* const char *, owned by the job */
    ESPL_PARAM_ENUM,   /* int: index into choices */
    ESPL_PARAM_PATH, /* const char *, owned by the job, as written (relative to the root folder) */
    ESPL_PARAM_DURATION, /* double, seconds */
    ESPL_PARAM_SIZE,     /* uint64_t, bytes */
    ESPL_PARAM_NM,       /* struct espl_nm */
    ESPL_PARAM_GRID      /* struct espl_grid; YAML takes {rows: R, cols: C}, either may be left out,
                          * or RxC; "none" = {1, 1} */
};

/** Storage of a list parameter: `count` items of the type's field type. Owned by the job. */
struct espl_list {
    size_t count;
    const void *items;
};

enum espl_param_flag {
    ESPL_PARAM_LIST =
        1u << 0, /* the field is a struct espl_list; YAML takes a sequence (or one scalar) */
    ESPL_PARAM_NO_HASH = 1u << 1, /* cannot change results (log detail): not part of the key */
    ESPL_PARAM_OPTIONAL =
        1u << 2, /* absent is allowed and means NULL / 0 / empty: default_text is NULL */
    ESPL_PARAM_NULLABLE_NM = 1u << 3, /* an nm parameter that also takes "none" = {0, 0} */
    ESPL_PARAM_INPUT_PATH =
        1u << 4, /* a path parameter that names input files: what they hold enters the key
                  * through espl_plan_add_file(), the path itself does not */
    ESPL_PARAM_AUTO_INT = 1u << 5 /* an int parameter that also takes "auto" = -1 */
};

/** default_text: what a user would write in YAML ("128", "2:4", "[a, b]"); NULL = required, unless
 *  ESPL_PARAM_OPTIONAL. min/max: inclusive, for int, real, duration (s) and size (bytes); both 0 =
 * no limits. choices: for enum, ends with NULL. */
struct espl_param {
    const char *name; /* YAML key, snake_case */
    const char *help; /* one sentence, lower case, no full stop */
    const char *unit; /* "", "tokens", "windows", ... */
    enum espl_param_type type;
    unsigned flags;
    const char *default_text;
    double min;
    double max;
    const char *const *choices;
    size_t offset; /* offsetof the field in the stage's parameter struct */
};

#endif

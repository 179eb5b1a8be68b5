/* Tables of diff: named values on two sides. Text and JSON come from one list. */
#ifndef ESPL_CLI_DIFF_PRINT_H
#define ESPL_CLI_DIFF_PRINT_H

#include "cli/command.h"

#include <jansson.h>
#include <stdbool.h>

/** One section under way. entries: list of {"name", "a", "b"}; values are JSON, null = absent. */
struct espl_diff_section {
    const char *title; /* "parameters" */
    json_t *entries;   /* owned */
    size_t same;       /* names with equal values */
};

/** Compares the members of two objects (NULL = empty) under a common name prefix. Appends to the
 *  section; equal values are only counted. */
void espl_diff_objects(struct espl_diff_section *section, const char *prefix, const json_t *a,
                       const json_t *b);
/** Compares two values. a, b: borrowed, NULL = absent. */
void espl_diff_values(struct espl_diff_section *section, const char *name, const json_t *a,
                      const json_t *b);
/** Prints the section: a table of what differs, and how much is the same. numbers: with a column of
 *  the relative change. */
enum espl_status espl_diff_print(const struct espl_cli *cli,
                                 const struct espl_diff_section *section, bool numbers,
                                 struct espl_error *err);
/** {"different": [...], "same": n}. New reference. */
json_t *espl_diff_json(const struct espl_diff_section *section);

#endif

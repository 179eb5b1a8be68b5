/* "Did you mean": nearest name by weighted edit distance. */
#ifndef ESPL_CORE_SUGGEST_H
#define ESPL_CORE_SUGGEST_H

#include <stddef.h>

/** Damerau-Levenshtein distance with cost 1 for insert, delete, substitute and neighbour swap. */
size_t espl_edit_distance(const char *a, const char *b);
/** The candidate nearest to `word`, or NULL when none is near enough to be worth saying: near are
 * those within a third of the longer length, rounded up, and those that begin with the word when it
 * has three characters or more. Ties go to the earlier candidate. */
const char *espl_suggest(const char *word, const char *const *candidates, size_t count);

#endif

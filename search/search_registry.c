/* The strategies of this build: to add one, add a line. */
#include "search/search_internal.h"

#include <string.h>

const struct espl_search_strategy *const espl_search_strategies[] = {
    &espl_search_overshoot,
    &espl_search_evopress,
    &espl_search_uniform_strategy,
    &espl_search_greedy,
    NULL,
};

const struct espl_search_strategy *espl_search_strategy_find(const char *name)
{
    const struct espl_search_strategy *const *strategy = espl_search_strategies;
    while (*strategy != NULL && strcmp((*strategy)->name, name) != 0) {
        strategy++;
    }
    return *strategy;
}

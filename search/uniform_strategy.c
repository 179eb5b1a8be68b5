/* The baseline: the largest N for all layers that the budget allows. */
#include "search/search_internal.h"

static enum espl_status start(struct espl_search *search, struct espl_error *err)
{
    espl_search_uniform(search->space, espl_search_uniform_limit(search->space), search->offspring);
    espl_search_uniform(search->space, espl_search_uniform_limit(search->space), search->parent);
    return espl_search_select(search, 1, false, err);
}

const struct espl_search_strategy espl_search_uniform_strategy = {
    .name = "uniform",
    .summary = "the largest N for all layers that the budget allows",
    .start = start,
    .step = NULL,
};

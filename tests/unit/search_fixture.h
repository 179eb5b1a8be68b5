/* A made-up search problem: additive costs by shape, losses per layer with interactions between
 * neighbours, so that the best configuration is not greedy. */
#ifndef ESPL_TESTS_SEARCH_FIXTURE_H
#define ESPL_TESTS_SEARCH_FIXTURE_H

#include "search/search.h"

enum { FIXTURE_MAX_LAYERS = 16 };

struct search_fixture {
    struct espl_search_space space;
    uint8_t level_count[FIXTURE_MAX_LAYERS];
    uint8_t level_n[FIXTURE_MAX_LAYERS * ESPL_SEARCH_MAX_LEVELS];
    double cost[FIXTURE_MAX_LAYERS * ESPL_SEARCH_MAX_LEVELS];
    double energy[FIXTURE_MAX_LAYERS * ESPL_SEARCH_MAX_LEVELS];
    double weight[FIXTURE_MAX_LAYERS];
    uint64_t calls;   /* of the score function */
    uint64_t scored;  /* configurations in them */
    bool over_budget; /* an infeasible configuration was scored */
};

/** layers <= FIXTURE_MAX_LAYERS, levels <= 8; share: budget over the cost of the dense model.
 *  energy: a second constraint too. */
void search_fixture_make(struct search_fixture *fixture, size_t layers, unsigned levels,
                         double share, bool energy, uint64_t seed);
/** An espl_search_score_fn; user: the fixture. */
enum espl_status search_fixture_score(void *user, uint64_t epoch, unsigned fidelity, size_t count,
                                      const uint8_t *levels, double *scores,
                                      struct espl_error *err);
/** Score at the highest fidelity of epoch 0. */
double search_fixture_value(const struct search_fixture *fixture, const uint8_t *levels);

#endif

#include "search_fixture.h"

#include "core/rng.h"

#include <math.h>
#include <string.h>

void search_fixture_make(struct search_fixture *fixture, size_t layers, unsigned levels,
                         double share, bool energy, uint64_t seed)
{
    struct espl_rng rng = espl_rng_stream(seed, "search-fixture", 0);
    double dense = 0.3;
    double dense_energy = 0.0;
    memset(fixture, 0, sizeof *fixture);
    for (size_t layer = 0; layer < layers; layer++) {
        const double base = layer % 4 == 0 ? 3.0 : layer % 4 == 1 ? 1.0 : 4.0;
        fixture->level_count[layer] = (uint8_t)levels;
        fixture->weight[layer] = exp(espl_rng_normal(&rng));
        for (unsigned level = 0; level < levels; level++) {
            const size_t at = layer * ESPL_SEARCH_MAX_LEVELS + level;
            const double part = (level + 1.0) / levels;
            fixture->level_n[at] = (uint8_t)(level + 1);
            fixture->cost[at] = base * (0.3 + 0.7 * part);
            fixture->energy[at] = base * (0.5 + 0.5 * part * part);
        }
        dense += fixture->cost[layer * ESPL_SEARCH_MAX_LEVELS + levels - 1];
        dense_energy += fixture->energy[layer * ESPL_SEARCH_MAX_LEVELS + levels - 1];
    }
    fixture->space = (struct espl_search_space){
        .layers = layers,
        .level_count = fixture->level_count,
        .level_n = fixture->level_n,
        .constraints = energy ? 2 : 1,
        .constraint = {{"latency", share * dense, 0.3, fixture->cost},
                       {"energy", (share + 0.15) * dense_energy, 0.0, fixture->energy}},
    };
}

/* Loss grows faster than linearly with sparsity, and more when a neighbour is sparse too. */
static double loss_of(const struct search_fixture *fixture, const uint8_t *levels, size_t layer)
{
    const double top = fixture->level_count[layer] - 1.0;
    const double here = (top - levels[layer]) / top;
    double loss = fixture->weight[layer] * pow(here, 2.2);
    if (layer > 0) {
        loss += 0.6 * here * (top - levels[layer - 1]) / top;
    }
    return loss;
}

double search_fixture_value(const struct search_fixture *fixture, const uint8_t *levels)
{
    double sum = 0.0;
    for (size_t layer = 0; layer < fixture->space.layers; layer++) {
        sum -= loss_of(fixture, levels, layer);
    }
    return sum;
}

enum espl_status search_fixture_score(void *user, uint64_t epoch, unsigned fidelity, size_t count,
                                      const uint8_t *levels, double *scores, struct espl_error *err)
{
    struct search_fixture *fixture = user;
    (void)err;
    fixture->calls++;
    fixture->scored += count;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *config = levels + i * fixture->space.layers;
        fixture->over_budget |= !espl_search_feasible(&fixture->space, config);
        scores[i] = search_fixture_value(fixture, config);
        if (epoch != 0) { /* another draw of pictures: a little off, the same for all */
            scores[i] *= 1.0 + 0.001 * (double)(epoch % 7);
        }
        if (fidelity == 0) {
            scores[i] = floor(scores[i] * 200.0) / 200.0;
        }
    }
    return ESPL_OK;
}

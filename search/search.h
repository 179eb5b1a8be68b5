/* Searches a level per layer that scores best within cost budgets.
 *
 * Calling sequence: espl_search_create() -> [espl_search_restore()] -> espl_search_step() until
 * espl_search_finished() -> espl_search_best(). One step is one generation; between steps the whole
 * state can be saved, and a search that is restored goes on to the same result byte for byte:
 * random numbers depend on (seed, generation, offspring) alone.
 *
 * Scores come from a callback, higher is better. A strategy never returns, and but for the greedy
 * one never scores, a configuration over budget.
 * A strategy is one `const struct espl_search_strategy` in a file of its own, listed in
 * search_registry.c. It is driven by generations and not by single questions, because what a
 * refinement asks next depends on the score it just got. */
#ifndef ESPL_SEARCH_SEARCH_H
#define ESPL_SEARCH_SEARCH_H

#include "core/buf.h"
#include "core/error.h"
#include "search/search_space.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ESPL_SEARCH_MAX_FIDELITIES = 4, ESPL_SEARCH_MAX_OFFSPRING = 256 };

/** Scores `count` configurations, levels (count, layers), on the data of `epoch` at a fidelity (0 =
 * cheapest). scores (count): higher is better; equal arguments must give equal scores. */
typedef enum espl_status (*espl_search_score_fn)(void *user, uint64_t epoch, unsigned fidelity,
                                                 size_t count, const uint8_t *levels,
                                                 double *scores, struct espl_error *err);

enum espl_search_repair {
    ESPL_REPAIR_FEWEST, /* a random layer among those whose next level suffices, if there is one */
    ESPL_REPAIR_RANDOM  /* Algorithm 1: any random layer */
};
enum espl_search_refine {
    ESPL_REFINE_LAZY, /* random order, take the first move that does not lower the score, restart */
    ESPL_REFINE_LITERAL,     /* Algorithm 1: score all moves, take a random good one, repeat */
    ESPL_REFINE_LATENCY_ONLY /* densify while the budget allows, at random, without scoring */
};
enum espl_search_selection {
    ESPL_SELECT_PLUS, /* the parent competes with its offspring */
    ESPL_SELECT_COMMA /* Algorithm 1, line 21: the best offspring takes its place */
};
/** Words of the enums in their order; end with NULL. */
extern const char *const espl_search_repair_names[];
extern const char *const espl_search_refine_names[];
extern const char *const espl_search_selection_names[];

struct espl_search_options {
    uint64_t seed;
    uint64_t generations;   /* after the initial one */
    size_t offspring;       /* lambda */
    size_t initial;         /* configurations the first parent is chosen from */
    bool fill_initial;      /* densify them by latency alone first */
    unsigned overshoot_min; /* layers to densify at once: uniform in [min, max] */
    unsigned overshoot_max;
    int repair;                                   /* enum espl_search_repair */
    int refine;                                   /* enum espl_search_refine */
    int selection;                                /* enum espl_search_selection */
    unsigned fidelities;                          /* 1..ESPL_SEARCH_MAX_FIDELITIES */
    size_t survivors[ESPL_SEARCH_MAX_FIDELITIES]; /* that go from fidelity f to f + 1 */
    bool resample;            /* every generation is an epoch of its own; else all are epoch 0 */
    uint64_t max_evaluations; /* scores computed in all fidelities together; 0 = no limit */
    uint64_t patience; /* stop after so many generations without a better parent; 0 = never */
};

/** Algorithm 1 with an elitist parent, the shortest repair, refinement by latency alone, lambda 8,
 * 100 generations, patience 20, one fidelity. */
void espl_search_default_options(struct espl_search_options *options);

struct espl_search;

struct espl_search_strategy {
    const char *name;    /* "overshoot-repair-refine" */
    const char *summary; /* one line */
    /** Finds the first parent (generation 0). */
    enum espl_status (*start)(struct espl_search *search, struct espl_error *err);
    /** One generation. NULL: the strategy is done after start(). */
    enum espl_status (*step)(struct espl_search *search, struct espl_error *err);
};

/** The table; ends with NULL. */
extern const struct espl_search_strategy *const espl_search_strategies[];
const struct espl_search_strategy *espl_search_strategy_find(const char *name);

/** space: checked, borrowed. Errors: those of espl_search_space_check(); KIND for options out of
 * range; NOMEM. */
enum espl_status espl_search_create(const struct espl_search_space *space,
                                    const struct espl_search_options *options,
                                    const struct espl_search_strategy *strategy,
                                    espl_search_score_fn score, void *user,
                                    struct espl_search **out, struct espl_error *err);
void espl_search_destroy(struct espl_search *search);

/** The first call finds the initial parent, each further one runs a generation. Errors: what the
 * score callback returns; NUMERIC for a score that is NaN. After an error the search can only be
 * destroyed. */
enum espl_status espl_search_step(struct espl_search *search, struct espl_error *err);
bool espl_search_finished(const struct espl_search *search);
/** Why it finished: "generations", "evaluations", "patience", "strategy"; "" while it has not. */
const char *espl_search_stop_reason(const struct espl_search *search);

/** The parent: levels (layers), borrowed until the next step. Never over budget. NULL before the
 * first step. */
const uint8_t *espl_search_best(const struct espl_search *search);
double espl_search_best_score(const struct espl_search *search);

/** One generation, as trajectories show it. */
struct espl_search_record {
    uint64_t generation;
    uint64_t computed;                        /* scores computed up to here */
    double score;                             /* of the parent */
    double cost[ESPL_SEARCH_MAX_CONSTRAINTS]; /* of the parent; 0 for absent constraints */
};
size_t espl_search_record_count(const struct espl_search *search);
const struct espl_search_record *espl_search_record_at(const struct espl_search *search,
                                                       size_t index);
/** Scores asked for at a fidelity, the remembered ones too. */
uint64_t espl_search_asked(const struct espl_search *search, unsigned fidelity);
/** Scores computed, all fidelities together. */
uint64_t espl_search_computed(const struct espl_search *search);

/** The feasible configurations scored at the highest fidelity that no other one beats in cost (of
 * the first constraint) and score together, by ascending cost. levels: borrowed, NULL allowed. */
size_t espl_search_front_count(const struct espl_search *search);
void espl_search_front_at(const struct espl_search *search, size_t index, const uint8_t **levels,
                          double *cost, double *score);

/** Appends the whole state to *state. Errors: NOMEM. */
enum espl_status espl_search_save(const struct espl_search *search, struct espl_buf *state,
                                  struct espl_error *err);
/** Continues from a saved state; call right after espl_search_create() with the same arguments.
 *  Errors: CORRUPT; KIND when the state belongs to another search (space, options, strategy). */
enum espl_status espl_search_restore(struct espl_search *search, const void *state, size_t len,
                                     struct espl_error *err);

#endif

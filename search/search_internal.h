/* The search object and what strategies share. Private to search/. */
#ifndef ESPL_SEARCH_SEARCH_INTERNAL_H
#define ESPL_SEARCH_SEARCH_INTERNAL_H

#include "core/rng.h"
#include "search/pareto.h"
#include "search/search.h"
#include "search/search_memo.h"

enum espl_search_stop {
    ESPL_SEARCH_RUNNING = 0, /* stored in states: never renumber */
    ESPL_SEARCH_GENERATIONS = 1,
    ESPL_SEARCH_EVALUATIONS = 2,
    ESPL_SEARCH_PATIENCE = 3,
    ESPL_SEARCH_STRATEGY = 4
};

struct espl_search {
    const struct espl_search_space *space;
    struct espl_search_options options;
    const struct espl_search_strategy *strategy;
    espl_search_score_fn score;
    void *user;

    /* the state that is saved */
    bool started;
    enum espl_search_stop stop;
    uint64_t generation;
    uint64_t stale;                             /* generations since the parent got better */
    uint64_t asked[ESPL_SEARCH_MAX_FIDELITIES]; /* scores asked for, the remembered ones too */
    uint64_t computed;
    double parent_score; /* NaN: not scored on this epoch yet */
    uint8_t *parent;     /* (layers) */
    double *table;       /* (layers, ESPL_SEARCH_MAX_LEVELS): for strategies; NaN = not known */
    struct espl_search_memo memo;
    struct espl_pareto front;
    struct espl_search_record *records;
    size_t record_count, record_capacity;

    /* work space */
    uint8_t *offspring; /* (ESPL_SEARCH_MAX_OFFSPRING + 1, layers) */
    uint8_t *pending;   /* configurations of one call of the callback, as many */
    uint8_t *trial;     /* (moves, layers): moves of a refinement; moves = layers or offspring */
    double *scores;     /* (moves) */
    double *pending_scores;
    size_t *order; /* (layers) */
    size_t moves;  /* most configurations scored at once */
};

/** Random stream of one offspring of the running generation. */
struct espl_rng espl_search_rng(const struct espl_search *search, uint64_t offspring);
/** Epoch of the running generation. */
uint64_t espl_search_epoch(const struct espl_search *search);
/** Scores computed before max_evaluations is reached; UINT64_MAX without a limit. */
uint64_t espl_search_left(const struct espl_search *search);
/** Scores `count` <= search->moves configurations, remembering what was computed. Those past
 * max_evaluations get -INFINITY and are not remembered. */
enum espl_status espl_search_score(struct espl_search *search, unsigned fidelity, size_t count,
                                   const uint8_t *levels, double *scores, struct espl_error *err);
/** Scores `count` offspring (search->offspring) through all fidelities and makes the best one the
 * parent. with_parent: the parent joins at the last fidelity and stays unless an offspring is at
 * least as good. Without it the parent stays only when count is 0 or nothing could be scored. */
enum espl_status espl_search_select(struct espl_search *search, size_t count, bool with_parent,
                                    struct espl_error *err);
/** Shuffles 0..layers-1 into search->order. */
void espl_search_shuffle(struct espl_search *search, struct espl_rng *rng);
/** Densifies layers at random as long as the budgets allow: one step at a time, until no layer can
 * take a step. */
void espl_search_fill(struct espl_search *search, struct espl_rng *rng, uint8_t *levels);
/** The first parent of the evolutionary strategies. */
enum espl_status espl_search_start_initial(struct espl_search *search, struct espl_error *err);
/** Is `levels` the parent or one of the first `count` offspring? */
bool espl_search_is_duplicate(const struct espl_search *search, const uint8_t *levels,
                              size_t count);

/* Parts of the random stream of a generation. */
enum { ESPL_SEARCH_STREAM_INITIAL = 60000 };

extern const struct espl_search_strategy espl_search_overshoot;
extern const struct espl_search_strategy espl_search_evopress;
extern const struct espl_search_strategy espl_search_uniform_strategy;
extern const struct espl_search_strategy espl_search_greedy;

#endif

#include "search/search_internal.h"

#include "core/checked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const espl_search_repair_names[] = {"fewest", "random", NULL};
const char *const espl_search_refine_names[] = {"lazy", "literal", "latency_only", NULL};
const char *const espl_search_selection_names[] = {"plus", "comma", NULL};

void espl_search_default_options(struct espl_search_options *options)
{
    *options = (struct espl_search_options){
        .generations = 100,
        .offspring = 8,
        .initial = 8,
        .fill_initial = true,
        .overshoot_min = 1,
        .overshoot_max = 1,
        .repair = ESPL_REPAIR_FEWEST,
        .refine = ESPL_REFINE_LATENCY_ONLY,
        .selection = ESPL_SELECT_PLUS,
        .fidelities = 1,
        .survivors = {1, 1, 1, 1},
        .patience = 20,
    };
}

static enum espl_status check_options(const struct espl_search_options *options,
                                      struct espl_error *err)
{
    bool good = options->offspring >= 1 && options->offspring <= ESPL_SEARCH_MAX_OFFSPRING &&
                options->initial >= 1 && options->initial <= ESPL_SEARCH_MAX_OFFSPRING &&
                options->overshoot_min >= 1 && options->overshoot_max >= options->overshoot_min &&
                options->fidelities >= 1 && options->fidelities <= ESPL_SEARCH_MAX_FIDELITIES;
    for (unsigned f = 0; good && f + 1 < options->fidelities; f++) {
        good = options->survivors[f] >= 1;
    }
    if (!good) {
        return espl_fail(err, ESPL_E_KIND,
                         "search options are out of range: 1 to %d offspring and initial "
                         "configurations, 1 <= overshoot_min <= overshoot_max, 1 to %d fidelities "
                         "with survivors",
                         (int)ESPL_SEARCH_MAX_OFFSPRING, (int)ESPL_SEARCH_MAX_FIDELITIES);
    }
    return ESPL_OK;
}

static bool allocate(struct espl_search *search)
{
    const size_t layers = search->space->layers;
    size_t bytes = 0;
    search->moves = layers > ESPL_SEARCH_MAX_OFFSPRING + 1 ? layers : ESPL_SEARCH_MAX_OFFSPRING + 1;
    if (!espl_mul_size(search->moves, layers, &bytes) ||
        layers > SIZE_MAX / sizeof(double) / ESPL_SEARCH_MAX_LEVELS) {
        return false;
    }
    search->parent = calloc(layers, 1);
    search->table = malloc(layers * ESPL_SEARCH_MAX_LEVELS * sizeof *search->table);
    search->offspring = malloc(bytes);
    search->pending = malloc(bytes);
    search->trial = malloc(bytes);
    search->scores = calloc(search->moves, sizeof *search->scores);
    search->pending_scores = calloc(search->moves, sizeof *search->pending_scores);
    search->order = calloc(layers, sizeof *search->order);
    if (search->parent == NULL || search->table == NULL || search->offspring == NULL ||
        search->pending == NULL || search->trial == NULL || search->scores == NULL ||
        search->pending_scores == NULL || search->order == NULL) {
        return false;
    }
    for (size_t i = 0; i < layers * ESPL_SEARCH_MAX_LEVELS; i++) {
        search->table[i] = (double)NAN;
    }
    return true;
}

enum espl_status espl_search_create(const struct espl_search_space *space,
                                    const struct espl_search_options *options,
                                    const struct espl_search_strategy *strategy,
                                    espl_search_score_fn score, void *user,
                                    struct espl_search **out, struct espl_error *err)
{
    enum espl_status status = check_options(options, err);
    if (status == ESPL_OK) {
        status = espl_search_space_check(space, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    struct espl_search *search = calloc(1, sizeof *search);
    if (search == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a search");
    }
    search->space = space;
    search->options = *options;
    search->strategy = strategy;
    search->score = score;
    search->user = user;
    search->parent_score = (double)NAN;
    search->memo.layers = space->layers;
    search->front.layers = space->layers;
    if (!allocate(search)) {
        espl_search_destroy(search);
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a search over %zu layers",
                         space->layers);
    }
    *out = search;
    return ESPL_OK;
}

void espl_search_destroy(struct espl_search *search)
{
    if (search == NULL) {
        return;
    }
    free(search->parent);
    free(search->table);
    free(search->offspring);
    free(search->pending);
    free(search->trial);
    free(search->scores);
    free(search->pending_scores);
    free(search->order);
    free(search->records);
    espl_search_memo_free(&search->memo);
    espl_pareto_free(&search->front);
    free(search);
}

struct espl_rng espl_search_rng(const struct espl_search *search, uint64_t offspring)
{
    return espl_rng_stream(search->options.seed, "budget-search",
                           search->generation << 16 | offspring);
}

uint64_t espl_search_epoch(const struct espl_search *search)
{
    return search->options.resample ? search->generation : 0;
}

uint64_t espl_search_left(const struct espl_search *search)
{
    const uint64_t most = search->options.max_evaluations;
    return most == 0 ? UINT64_MAX : most > search->computed ? most - search->computed : 0;
}

/* Is `levels` among the first `count` pending configurations? */
static bool is_pending(const struct espl_search *search, const uint8_t *levels, size_t count)
{
    const size_t layers = search->space->layers;
    for (size_t i = 0; i < count; i++) {
        if (memcmp(search->pending + i * layers, levels, layers) == 0) {
            return true;
        }
    }
    return false;
}

/* Computes and remembers the pending scores. */
static enum espl_status compute(struct espl_search *search, unsigned fidelity, size_t count,
                                struct espl_error *err)
{
    const size_t layers = search->space->layers;
    enum espl_status status = search->score(search->user, espl_search_epoch(search), fidelity,
                                            count, search->pending, search->pending_scores, err);
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        const uint8_t *levels = search->pending + i * layers;
        const double score = search->pending_scores[i];
        if (isnan(score)) {
            return espl_fail(err, ESPL_E_NUMERIC, "the score of a configuration is not a number");
        }
        search->computed++;
        status = espl_search_memo_add(&search->memo, fidelity, levels, score, err);
        if (status == ESPL_OK && fidelity + 1 == search->options.fidelities &&
            espl_search_feasible(search->space, levels)) {
            status = espl_pareto_add(&search->front, levels,
                                     espl_search_cost(search->space, 0, levels), score, err);
        }
    }
    return status;
}

enum espl_status espl_search_score(struct espl_search *search, unsigned fidelity, size_t count,
                                   const uint8_t *levels, double *scores, struct espl_error *err)
{
    const size_t layers = search->space->layers;
    const uint64_t left = espl_search_left(search);
    size_t pending = 0;
    search->asked[fidelity] += count;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *asked = levels + i * layers;
        double known = 0.0;
        if (pending < left && !espl_search_memo_find(&search->memo, fidelity, asked, &known) &&
            !is_pending(search, asked, pending)) {
            memcpy(search->pending + pending * layers, asked, layers);
            pending++;
        }
    }
    if (pending > 0) {
        const enum espl_status status = compute(search, fidelity, pending, err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (!espl_search_memo_find(&search->memo, fidelity, levels + i * layers, &scores[i])) {
            scores[i] = -INFINITY;
        }
    }
    return ESPL_OK;
}

static enum espl_status add_record(struct espl_search *search, struct espl_error *err)
{
    if (search->record_count == search->record_capacity) {
        const size_t capacity = search->record_capacity == 0 ? 64 : 2 * search->record_capacity;
        struct espl_search_record *records = realloc(search->records, capacity * sizeof *records);
        if (records == NULL) {
            return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu generations", capacity);
        }
        search->records = records;
        search->record_capacity = capacity;
    }
    struct espl_search_record *record = &search->records[search->record_count++];
    memset(record, 0, sizeof *record);
    record->generation = search->generation;
    record->computed = search->computed;
    record->score = search->parent_score;
    for (size_t c = 0; c < search->space->constraints; c++) {
        record->cost[c] = espl_search_cost(search->space, c, search->parent);
    }
    return ESPL_OK;
}

static void decide_stop(struct espl_search *search)
{
    const struct espl_search_options *options = &search->options;
    if (search->stop != ESPL_SEARCH_RUNNING) {
        return;
    }
    if (search->strategy->step == NULL) {
        search->stop = ESPL_SEARCH_STRATEGY;
    } else if (search->generation >= options->generations) {
        search->stop = ESPL_SEARCH_GENERATIONS;
    } else if (espl_search_left(search) == 0) {
        search->stop = ESPL_SEARCH_EVALUATIONS;
    } else if (options->patience > 0 && search->stale >= options->patience) {
        search->stop = ESPL_SEARCH_PATIENCE;
    }
}

enum espl_status espl_search_step(struct espl_search *search, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    if (search->stop != ESPL_SEARCH_RUNNING) {
        return ESPL_OK;
    }
    if (!search->started) {
        status = search->strategy->start(search, err);
        search->started = true;
    } else {
        search->generation++;
        if (search->options.resample) {
            espl_search_memo_clear(&search->memo);
            search->parent_score = (double)NAN;
        }
        search->stale++; /* selection sets it back */
        status = search->strategy->step(search, err);
    }
    if (status == ESPL_OK) {
        status = add_record(search, err);
    }
    if (status == ESPL_OK) {
        decide_stop(search);
    }
    return status;
}

bool espl_search_finished(const struct espl_search *search)
{
    return search->stop != ESPL_SEARCH_RUNNING;
}

const char *espl_search_stop_reason(const struct espl_search *search)
{
    static const char *const reasons[] = {"", "generations", "evaluations", "patience", "strategy"};
    return reasons[search->stop];
}

const uint8_t *espl_search_best(const struct espl_search *search)
{
    return search->started ? search->parent : NULL;
}

double espl_search_best_score(const struct espl_search *search)
{
    return search->parent_score;
}

size_t espl_search_record_count(const struct espl_search *search)
{
    return search->record_count;
}

const struct espl_search_record *espl_search_record_at(const struct espl_search *search,
                                                       size_t index)
{
    return &search->records[index];
}

uint64_t espl_search_asked(const struct espl_search *search, unsigned fidelity)
{
    return search->asked[fidelity];
}

uint64_t espl_search_computed(const struct espl_search *search)
{
    return search->computed;
}

size_t espl_search_front_count(const struct espl_search *search)
{
    return search->front.count;
}

void espl_search_front_at(const struct espl_search *search, size_t index, const uint8_t **levels,
                          double *cost, double *score)
{
    if (levels != NULL) {
        *levels = search->front.levels + index * search->space->layers;
    }
    *cost = search->front.cost[index];
    *score = search->front.score[index];
}

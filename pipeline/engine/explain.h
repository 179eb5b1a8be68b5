/* Why does a stage run? Compares the labelled fields of its key with those of its last result. */
#ifndef ESPL_ENGINE_EXPLAIN_H
#define ESPL_ENGINE_EXPLAIN_H

#include "engine/plan.h"

enum { ESPL_MAX_DIFFERENCES = 64 };

struct espl_difference {
    const char *label;
    const char *before; /* NULL = was not there */
    const char *now;    /* NULL = is no longer there */
};

struct espl_explanation {
    bool has_previous;
    char previous_key[ESPL_SHA256_HEX];
    struct espl_difference differences[ESPL_MAX_DIFFERENCES];
    size_t difference_count;
    size_t same_count;
};

/** Compares plan stage `index` with the result that results/by-name/<job>/<stage id> points at
 * (whatever key that has). Texts live in plan->arena. */
enum espl_status espl_explain(struct espl_plan *plan, size_t index, const struct espl_store *store,
                              struct espl_explanation *out, struct espl_error *err);

#endif

/* End-to-end cost of a model from a lookup table of its layers:
 *
 *     T(s) = sum over layers l of gamma_l * t_l(s_l) + b,    gamma, b >= 0
 *
 * fitted to measured runs by non-negative least squares on RELATIVE errors (every row divided by
 * its measurement). The form also holds energy.
 *
 * One gamma a layer is more than a few dozen runs can tell apart: least squares then sets many of
 * them to exactly 0, the fit still looks good on its own data, and a search drives just those
 * layers dense, for nothing as it believes. So gammas are tied per layer shape by default, or
 * shrunk towards 1, and the fit carries figures that say whether to trust it. */
#ifndef ESPL_SEARCH_PREDICTOR_H
#define ESPL_SEARCH_PREDICTOR_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum espl_gamma_mode {
    ESPL_GAMMA_PER_SHAPE, /* one for all layers of a shape */
    ESPL_GAMMA_SHRUNK,    /* one a layer, held near 1 by a ridge */
    ESPL_GAMMA_PER_LAYER  /* one a layer, free */
};

/** Measured runs of whole models. All pointers borrowed. */
struct espl_predictor_data {
    size_t layers, runs;
    size_t shapes;
    const size_t *shape_of; /* (layers): 0..shapes-1 */
    const double *costs;    /* (runs, layers): table cost of the level each layer had */
    const double *measured; /* (runs): of the whole model, > 0 */
};

struct espl_predictor_options {
    enum espl_gamma_mode gamma;
    double ridge;     /* weight of (gamma - 1) against a relative error; SHRUNK only */
    double max_error; /* largest leave-one-out error of a safe fit, relative */
};

/** "per_shape", "shrunk", "per_layer"; ends with NULL; in order of the enum. */
extern const char *const espl_gamma_modes[];

struct espl_predictor_health {
    size_t runs;
    size_t unknowns;            /* gammas and b */
    double mean_error;          /* of the fit on its own runs, relative */
    double max_error;           /* the same, largest */
    double left_out_mean_error; /* every run predicted by a fit to the others */
    double left_out_max_error;
    size_t zero_gammas; /* of unknowns, without b */
    double condition;   /* of the weighted design with unit columns; infinite = deficient */
    bool safe;
    char reason[200]; /* why not; "" when safe */
};

struct espl_predictor {
    size_t layers;
    double *gamma; /* (layers) */
    double intercept;
    struct espl_predictor_health health;
};

/** Fits and judges. Safe means: at least as many runs as unknowns (SHRUNK: two), no gamma at 0, a
 * finite condition number, left-out error within options->max_error. An unsafe fit is returned all
 * the same, with health.safe false: callers must refuse it unless the user insists.
 * *predictor: free with espl_predictor_free(), also after a failure.
 * Errors: NOMEM; NUMERIC for values that are not finite or not positive; KIND for no runs. */
enum espl_status espl_predictor_fit(const struct espl_predictor_data *data,
                                    const struct espl_predictor_options *options,
                                    struct espl_predictor *predictor, struct espl_error *err);
/** The trivial predictor gamma = 1, b = 0: no end-to-end run was measured. Its health says so and
 * is not safe. Errors: NOMEM. */
enum espl_status espl_predictor_sum(size_t layers, struct espl_predictor *predictor,
                                    struct espl_error *err);
void espl_predictor_free(struct espl_predictor *predictor);

/** T of table costs (layers). */
double espl_predictor_cost(const struct espl_predictor *predictor, const double *costs);

/** A design for the runs to measure: level index (0 = sparsest .. levels - 1 = dense) of every
 * layer in run `run` of `runs`. Half of the runs keep all layers near one level, each up to one
 * step beside it, over all levels in turn: where searches end up. A quarter sets one shape against
 * all others (sparsest against dense, then the reverse), a quarter draws every layer sparsest or
 * dense: without them the shapes' costs rise and fall together and no fit could tell them apart.
 * shape_of (layers): 0..shapes-1. out (layers). Deterministic in (seed, run). */
void espl_predictor_design(size_t layers, const size_t *shape_of, size_t shapes, size_t levels,
                           size_t runs, size_t run, uint64_t seed, uint8_t *out);

#endif

/* Measured costs of a model's layers and of whole runs of it: the content of latency/1 artifacts
 * and of table files that come from elsewhere. One JSON form for both (docs/search.md):
 *
 *  {"schema": "espalier.latency/1", "device": text, "threads": of the CPU (optional), "batch":
 *   images, "m": M, "vector": V,
 *   "kernels": [names],
 *   "shapes": [{"tokens", "in", "out"}],          products for the whole batch
 *   "layers": [{"module", "shape": index}],       in the order of a supernet
 *   "runs": [[N of every layer], ...],            whole models that were measured
 *   "latency": {"raw": [shape][n - 1][kernel], "spread": the same, "measured": [run]},  seconds
 *   "energy": the same in joules; absent when nobody measured it}
 * null stands for what was not measured. Artifacts add "fit" (how to fit predictors), "accepted"
 * (the user took a table of another device) and "health" (of the predictors, for people). */
#ifndef ESPL_STAGES_LATENCY_RECORD_H
#define ESPL_STAGES_LATENCY_RECORD_H

#include "core/error.h"
#include "search/latency_table.h"
#include "search/predictor.h"

#include <jansson.h>

enum {
    ESPL_LATENCY_DEVICE_TEXT = 2048,
    ESPL_LATENCY_NAME = 112, /* of a module or kernel */
    ESPL_LATENCY_MAX_LAYERS = 4096,
    ESPL_LATENCY_MAX_RUNS = 4096
};

/** One kind of cost. */
struct espl_latency_cost_record {
    bool present;
    struct espl_latency_table table; /* closed */
    double *measured;                /* (runs) */
    struct espl_predictor predictor; /* after espl_latency_record_fit() */
};

struct espl_latency_record {
    char device[ESPL_LATENCY_DEVICE_TEXT];
    bool accepted;  /* to be used although it is of another device */
    size_t threads; /* 0 = does not apply */
    size_t batch, vector;
    unsigned m;
    size_t kernel_count;
    char kernels[ESPL_LATENCY_MAX_KERNELS][ESPL_LATENCY_NAME];
    size_t shape_count;
    struct espl_latency_shape *shapes;
    size_t layer_count;
    char (*modules)[ESPL_LATENCY_NAME]; /* (layers) */
    size_t *shape_of;                   /* (layers) */
    size_t run_count;
    uint8_t *run_n; /* (runs, layers) */
    struct espl_latency_cost_record latency, energy;
    size_t holdout_count;
    uint8_t *holdout_n;       /* (holdout runs, layers) */
    double *holdout_measured; /* (holdout runs), seconds */
    struct espl_predictor_options fit;
};

/** Checks and takes a whole document; closes the tables. Free with espl_latency_record_free(), also
 * after a failure. Errors: CORRUPT naming the member that is missing or wrong; those of
 * espl_latency_table_close(); NOMEM. */
enum espl_status espl_latency_record_from_json(const json_t *json,
                                               struct espl_latency_record *record,
                                               struct espl_error *err);
/** The document, with fit, accepted and, after a fit, health. New reference; NULL when out of
 * memory. */
json_t *espl_latency_record_to_json(const struct espl_latency_record *record);
/** Fits the predictors of both costs; without runs they are plain sums. Errors as
 * espl_predictor_fit(). */
enum espl_status espl_latency_record_fit(struct espl_latency_record *record,
                                         struct espl_error *err);
void espl_latency_record_free(struct espl_latency_record *record);

/** Do two device texts name the same machine? What stands before the first ';' is how the job
 * called it ("auto", "cpu"), and does not count. */
bool espl_latency_same_device(const char *a, const char *b);

/** Position of a module; layer_count when the record has none of this name. */
size_t espl_latency_record_layer(const struct espl_latency_record *record, const char *module);

/** Predicted cost of a configuration n (layers): N of every layer, 1..m. */
double espl_latency_record_predict(const struct espl_latency_record *record,
                                   const struct espl_latency_cost_record *cost, const uint8_t *n);

#endif

/* What deploy-bench measured in mode decode, and its forms for programs: an artifact of kind
 * bench.decode/1, metrics and figures. docs/formats/bench.md describes them. */
#ifndef ESPL_STAGES_DECODE_RECORD_H
#define ESPL_STAGES_DECODE_RECORD_H

#include "engine/stage.h"
#include "eval/device_decode.h"

enum { ESPL_DECODE_DEVICE = 1024, ESPL_DECODE_WHY = 200 };

/** Energy of an encoded model's runs. */
struct espl_decode_energy {
    bool measured;
    char why[ESPL_DECODE_WHY]; /* not measured, or no number: the reason; "" */
    double seconds;            /* of the run */
    double watts;              /* gross */
    double idle_watts;
    double tokens;      /* generated */
    double sequences;   /* of them */
    double gross_j;     /* of the run */
    double net_j;       /* gross less idle */
    double deviation_j; /* standard uncertainty of net_j */
    double
        other_ratio; /* nvml: gross_j by the counter over that by integrated power; NaN without */
};

/** One runtime at one place of the grid. */
struct espl_decode_cell {
    enum espl_device_form runtime;
    size_t sequences, prompt, output;
    bool measured;
    char why[ESPL_DECODE_WHY]; /* not measured: the reason */
    enum espl_iebme_areas areas;
    double first_token_seconds; /* median */
    double step_median, step_p95;
    double tokens_per_second; /* of all sequences, first tokens not counted */
    struct espl_device_step_times times;
    uint64_t weight_bytes; /* that a step reads of the linears */
    uint64_t device_bytes; /* measured */
    uint64_t planned_bytes;
    struct espl_decode_energy energy;
};

struct espl_decode_record {
    char device[ESPL_DECODE_DEVICE];
    double copy_bytes_a_second;
    size_t repeats;
    char meter[32];     /* "none" */
    char boundary[128]; /* what its first total holds; "" */
    struct espl_decode_cell *cells;
    size_t count;
};

/** The cell of another runtime at the same place; NULL when it was not measured. */
const struct espl_decode_cell *espl_decode_record_find(const struct espl_decode_record *record,
                                                       const struct espl_decode_cell *like,
                                                       enum espl_device_form runtime);
/** Writes description and datasets. Errors: NOMEM, IO. */
enum espl_status espl_decode_record_write(const struct espl_decode_record *record,
                                          struct espl_artifact *artifact, struct espl_error *err);
/** Says a measured cell in the log. */
void espl_decode_cell_say(const struct espl_decode_cell *cell, struct espl_stage_ctx *ctx);
/** Metrics and what the report draws. Errors: those of the context. */
enum espl_status espl_decode_record_report(const struct espl_decode_record *record,
                                           struct espl_stage_ctx *ctx, struct espl_error *err);

#endif

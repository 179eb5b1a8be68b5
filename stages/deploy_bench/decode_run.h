/* What the files of deploy-bench's mode decode share: the bench, and a decoder behind the same
 * calls on either device. */
#ifndef ESPL_STAGES_DECODE_RUN_H
#define ESPL_STAGES_DECODE_RUN_H

#include "espalier/iebme.h"
#include "stages/deploy_bench/decode_mode.h"

struct espl_energy_meter;

/** Reads prompts ids (cell's sequences, prompt), makes further tokens, times the parts of a step:
 *  calls of eval/device_decode.h or eval/host_decode.h. */
struct espl_decode_runner {
    void *self;
    enum espl_status (*read_prompt)(void *self, const int32_t *ids, struct espl_error *err);
    enum espl_status (*decode)(void *self, size_t count, double *seconds, struct espl_error *err);
    enum espl_status (*time_step)(void *self, size_t repeats, struct espl_device_step_times *times,
                                  struct espl_error *err);
};

struct espl_decode_bench {
    struct espl_stage_ctx *ctx;
    const struct espl_deploy_params *params;
    struct espl_model *model;
    struct espl_energy_meter *meter; /* NULL: no energy */
    struct espl_decode_record record;
    double sparsity; /* that pruning aimed at; 0 when the model does not say */
    size_t cells;    /* of all runtimes */
};

/* decode_plan.c: the job's values. */
/** Runtimes that are measured on this device; the first is the model as it is. */
size_t espl_decode_runtimes(const struct espl_deploy_params *params, bool cpu);
bool espl_decode_is_against(const struct espl_deploy_params *params, enum espl_device_form runtime);
/** How a runtime's weights come to a CUDA device. */
struct espl_device_weights_options espl_decode_weights_of(const struct espl_deploy_params *params,
                                                          enum espl_device_form form);
/** The largest of each list. */
size_t espl_decode_most(const struct espl_list *list);
/** Sparsity that pruning aimed at; 0 when the model does not say. */
double espl_decode_sparsity(const json_t *description);

/* decode_measure.c */
typedef enum espl_status (*espl_decode_cell_fn)(struct espl_decode_bench *bench, void *self,
                                                struct espl_decode_cell *cell,
                                                struct espl_error *err);
/** Calls `measure` with every place of the grid for a runtime. Errors: CANCELLED, its own. */
enum espl_status espl_decode_measure_grid(struct espl_decode_bench *bench,
                                          enum espl_device_form runtime,
                                          espl_decode_cell_fn measure, void *self,
                                          struct espl_error *err);
/** Times prompts, outputs and a step, and energy when the job asks for it. */
enum espl_status espl_decode_measure_runner(struct espl_decode_bench *bench,
                                            const struct espl_decode_runner *runner,
                                            struct espl_decode_cell *cell, struct espl_error *err);

/* decode_energy.c */
/** *meter: NULL when the job asks for none. Close it with espl_energy_close(). Errors: MACHINE. */
enum espl_status espl_decode_energy_open(const struct espl_deploy_params *params, bool cpu,
                                         struct espl_decode_record *record,
                                         struct espl_energy_meter **meter, struct espl_error *err);
/** Repeats prompt and output of the cell for the job's energy_seconds between two idle windows.
 *  What the readings do not carry is said in cell->energy.why. Errors: those of the decoder and of
 *  the meter. */
enum espl_status espl_decode_measure_energy(struct espl_decode_bench *bench,
                                            const struct espl_decode_runner *runner,
                                            const int32_t *ids, struct espl_decode_cell *cell,
                                            struct espl_error *err);

/* decode_cuda.c, decode_host.c: all runtimes of the job on the device. */
enum espl_status espl_decode_run_cuda(struct espl_decode_bench *bench, struct espl_error *err);
enum espl_status espl_decode_run_host(struct espl_decode_bench *bench, struct espl_error *err);

#endif

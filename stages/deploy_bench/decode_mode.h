/* deploy-bench, mode decode: whole language models on the CUDA device, token by token. */
#ifndef ESPL_STAGES_DECODE_MODE_H
#define ESPL_STAGES_DECODE_MODE_H

#include "engine/stage.h"
#include "stages/deploy_bench/decode_record.h"
#include "stages/deploy_bench/deploy_run.h"

struct espl_energy_meter;

/** Values of the enum parameters. */
extern const char *const espl_decode_against[]; /* dense-int4, dense-int8, dense-fp16, none */
extern const char *const espl_decode_areas[];   /* auto, dense, 1x1, 1x2, 2x1, 2x2 */
extern const char *const espl_decode_meters[];  /* none, auto, ina3221, nvml */

/** Checks the parameters and the model, and estimates. Errors: JOB, KIND, UNSUPPORTED, blamed. */
enum espl_status espl_decode_plan(struct espl_plan_ctx *ctx,
                                  const struct espl_deploy_params *params,
                                  struct espl_estimate *est, struct espl_error *err);
/** Measures, writes the artifact and reports. */
enum espl_status espl_decode_run(struct espl_stage_ctx *ctx,
                                 const struct espl_deploy_params *params, struct espl_error *err);

/* decode_energy.c */
/** *meter: NULL when the job asks for none. Close it with espl_energy_close(). Errors: MACHINE. */
enum espl_status espl_decode_energy_open(const struct espl_deploy_params *params,
                                         struct espl_decode_record *record,
                                         struct espl_energy_meter **meter, struct espl_error *err);
/** Repeats prompt and output of the cell for the job's energy_seconds between two idle windows.
 *  What the readings do not carry is said in cell->energy.why. Errors: those of the decoder and of
 *  the meter. */
enum espl_status espl_decode_measure_energy(struct espl_stage_ctx *ctx,
                                            const struct espl_deploy_params *params,
                                            struct espl_energy_meter *meter,
                                            struct espl_device_decoder *decoder, const int32_t *ids,
                                            struct espl_decode_cell *cell, struct espl_error *err);

#endif

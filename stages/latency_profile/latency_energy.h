/* Fills the energy of a latency record by measuring this machine. */
#ifndef ESPL_STAGES_LATENCY_ENERGY_H
#define ESPL_STAGES_LATENCY_ENERGY_H

#include "engine/stage.h"
#include "stages/latency_profile/nm_stack.h"

struct espl_latency_energy_plan {
    double run_s;  /* each entry and each pass is repeated for as long as this */
    double idle_s; /* of the idle windows between them */
};

struct espl_energy_meter;

/** Seconds that measuring takes. */
double espl_latency_energy_seconds(const struct espl_latency_energy_plan *plan, size_t entries);
/** Net energy (docs/energy.md) of one product of every entry of the latency table and of one pass
 * of every run, each repeated for run_s between idle windows; spread: its uncertainty. Passes use
 * the kernels that the latencies chose. record: measured (espl_latency_measure()). Errors: NUMERIC
 * when the readings do not carry the energy of an entry, naming it and why; CANCELLED, NOMEM, those
 * of the kernels. */
enum espl_status espl_latency_measure_energy(struct espl_stage_ctx *ctx,
                                             struct espl_nm_stack *stack,
                                             const struct espl_latency_energy_plan *plan,
                                             struct espl_energy_meter *meter,
                                             struct espl_latency_record *record,
                                             struct espl_error *err);

#endif

/* How far is the running stage of a run? Read from the end of its events.jsonl while the run goes
 * on: the last line may be half written. */
#ifndef ESPL_CLI_RUN_PROGRESS_H
#define ESPL_CLI_RUN_PROGRESS_H

#include "artifact/store.h"

#include <stdbool.h>
#include <stdint.h>

struct espl_run_progress {
    bool known;
    uint64_t done, total;
    char what[32];
    double eta; /* seconds; < 0 = unknown */
    double time;
};

/** Latest progress of a stage. Not knowing is no error. */
void espl_run_progress_read(const struct espl_store *store, const char *run_id,
                            const char *stage_id, struct espl_run_progress *out);

#endif

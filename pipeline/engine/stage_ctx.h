/* The context of a running stage: what the functions espl_ctx_* of stage.h work on. It lives in the
 * stage process. Made by the executor; tests of stages make one too, without a process. */
#ifndef ESPL_ENGINE_STAGE_CTX_H
#define ESPL_ENGINE_STAGE_CTX_H

#include "engine/stage.h"

#include <jansson.h>

/** One open input or unfinished output. */
struct espl_ctx_port {
    const char *name;
    struct espl_artifact *artifact; /* NULL = optional and not connected */
};

/** Everything a context borrows; it must stay valid as long as the context. */
struct espl_ctx_config {
    const struct espl_store *store;
    const struct espl_stage *stage;
    const char *stage_id;
    const char *key;
    const char *device;
    const char *device_fingerprint; /* NULL = not known */
    uint64_t seed;
    const struct espl_ctx_port *inputs;
    size_t input_count;
    const struct espl_ctx_port *outputs;
    size_t output_count;
    int message_fd;             /* pipe to the driver; -1 = nobody listens */
    const struct espl_log *log; /* used when nobody listens; may be NULL */
    const volatile int
        *stopped; /* asks to stop when not 0, for tests; NULL = pending SIGTERM only */
};

/** NOMEM. Destroy with espl_stage_ctx_destroy(). */
enum espl_status espl_stage_ctx_create(const struct espl_ctx_config *config,
                                       struct espl_stage_ctx **out, struct espl_error *err);
/** Abandons units that were not published. */
void espl_stage_ctx_destroy(struct espl_stage_ctx *ctx);

/** Figures reported so far. metrics: those that belong into the artifact, or the volatile ones, as
 *  {name: value}. Borrowed. */
const json_t *espl_stage_ctx_metrics(const struct espl_stage_ctx *ctx, bool volatile_values);
/** [{"series", "layer", "module", "value"}, ...] sorted by layer, module, series, so that the order
 *  does not tell whether the stage was resumed. New reference; NULL when out of memory. */
json_t *espl_stage_ctx_layers(const struct espl_stage_ctx *ctx);
/** Units that were there from an earlier run and whole, as far as the stage has asked. */
uint64_t espl_stage_ctx_resumed_units(const struct espl_stage_ctx *ctx);
/** Last progress that was reported; what: "" when there was none. */
void espl_stage_ctx_last_progress(const struct espl_stage_ctx *ctx, uint64_t *done, uint64_t *total,
                                  const char **what);

/** Units of a key that are in the store now, without looking inside. */
uint64_t espl_stage_count_units(const struct espl_store *store, const char *key);

#endif

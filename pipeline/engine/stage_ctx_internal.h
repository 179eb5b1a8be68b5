/* The context struct, shared by stage_ctx.c and stage_ctx_units.c only. */
#ifndef ESPL_ENGINE_STAGE_CTX_INTERNAL_H
#define ESPL_ENGINE_STAGE_CTX_INTERNAL_H

#include "engine/stage_ctx.h"

/** What is known of a unit that the stage has asked for. */
struct espl_ctx_unit {
    uint64_t index;
    bool kept; /* published by an earlier run and whole */
};

/** A unit file being written, and the layer metrics reported since it was created. */
struct espl_ctx_open_unit {
    struct espl_artifact *artifact;
    json_t *layers; /* array */
};

/** What changes while a stage runs. Behind a pointer because the interface hands out contexts as
 *  const where a stage only asks. */
struct espl_ctx_state {
    json_t *metrics;
    json_t *volatile_metrics;
    json_t
        *layers; /* object: composite key -> entry, so that a repeated report replaces the first */
    struct espl_ctx_unit *units;
    size_t unit_count;
    struct espl_ctx_open_unit *open_units;
    size_t open_count;
    uint64_t resumed;
    double progress_sent; /* when the last progress message went out */
    bool progress_held;   /* the last report was not sent */
    uint64_t done, total;
    char what[32];
};

struct espl_stage_ctx {
    struct espl_ctx_config config;
    struct espl_log log;
    struct espl_ctx_state *state;
};

/** Sends a message to the driver. Takes the reference. With nobody listening it succeeds. */
enum espl_status espl_ctx_send_take(const struct espl_stage_ctx *ctx, int type, json_t *body,
                                    struct espl_error *err);
/** Keeps a layer metric entry and tells the driver. entry: borrowed. */
enum espl_status espl_ctx_keep_layer(const struct espl_stage_ctx *ctx, json_t *entry,
                                     struct espl_error *err);
/** Drops everything a context knows of units; unpublished files are deleted. */
void espl_ctx_units_destroy(struct espl_ctx_state *state);

#endif

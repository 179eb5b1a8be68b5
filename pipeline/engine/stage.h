/* THE stage interface. A stage is one `const struct espl_stage` in stages/<name>/stage.c, listed in
 * stages/registry.c. It has no state; everything goes through the context it is given.
 * docs/extending.md walks through adding one. */
#ifndef ESPL_ENGINE_STAGE_H
#define ESPL_ENGINE_STAGE_H

#include "artifact/artifact.h"
#include "artifact/store.h"
#include "core/error.h"
#include "core/log.h"
#include "core/rng.h"
#include "engine/param.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum espl_stage_flag {
    ESPL_STAGE_MEASURES =
        1u << 0,                  /* measures this machine: the device fingerprint enters the key */
    ESPL_STAGE_NETWORK = 1u << 1, /* may open connections */
    ESPL_STAGE_RESUMABLE = 1u << 2, /* publishes units; a restart continues after the last one */
    ESPL_STAGE_SEEDED = 1u << 3,    /* draws random numbers: the job seed enters the key */
    ESPL_STAGE_ON_DEVICE = 1u << 4, /* runs on the job's device: `auto` means cuda:0, and a device
                                     * that is missing is an error, never another one */
    ESPL_STAGE_MAY_USE_DEVICE = 1u << 5 /* runs on the job's device when it names one, and on the
                                         * CPU when it says `auto` */
};

enum espl_port_flag { ESPL_PORT_OPTIONAL = 1u << 0 };

/** An input accepts kinds separated by '|'. An output makes one kind; where several stand there,
 * the stage says which with espl_artifact_set_kind(), the first otherwise. */
struct espl_port {
    const char *name;
    const char *kind;
    unsigned flags;
    const char *help;
};

/** What a stage will need, for `plan`. 0 = unknown or none. */
struct espl_estimate {
    uint64_t host_bytes;
    uint64_t device_bytes;
    uint64_t scratch_bytes; /* in results/partial while it runs */
    uint64_t output_bytes;
    uint64_t units;   /* resumable units (layers) */
    double flop;      /* arithmetic, for a first guess of time on a machine without history */
    bool device_only; /* of stages on the device: what they measure does not exist on the CPU */
    char note[160];   /* shown in `plan`: "224 of 225 linear layers"; may be empty */
};

struct espl_plan_ctx;
struct espl_stage_ctx;

/* ---- at plan time ---- */

/** Description (the artifact's JSON header) of the input at `port`: of the real artifact when it
 * exists, otherwise as the producing stage predicted it. NULL when the port is not connected or
 * nothing is known. Borrowed. */
const json_t *espl_plan_input(const struct espl_plan_ctx *ctx, const char *port);
/** Does the job connect this (optional) port? */
bool espl_plan_is_connected(const struct espl_plan_ctx *ctx, const char *port);
/** Device text of the job: "cpu", "cuda:0", "auto". Never NULL. */
const char *espl_plan_device(const struct espl_plan_ctx *ctx);
/** Predicts the description of the output at `port` for stages downstream. Takes a new reference.
 */
void espl_plan_set_output(struct espl_plan_ctx *ctx, const char *port, json_t *description);
/** Names an external file whose content enters the key, under a role ("config", "weights"): the
 * path itself does not matter, the order of the calls does. Give the parameter that holds the path
 * ESPL_PARAM_INPUT_PATH. Fails with NOTFOUND when it is not there. */
enum espl_status espl_plan_add_file(struct espl_plan_ctx *ctx, const char *role, const char *path,
                                    struct espl_error *err);
/** The same for content that the stage hashed itself (a folder of thousands of files): sha256 in
 * hex enters the key. */
enum espl_status espl_plan_add_digest(struct espl_plan_ctx *ctx, const char *role,
                                      const char *sha256, struct espl_error *err);
/** Adds a warning line to the plan. */
void espl_plan_warn(struct espl_plan_ctx *ctx, const char *fmt, ...) ESPL_PRINTF(2, 3);

/* ---- while running ---- */

/** The open input, or NULL when an optional port is not connected. */
struct espl_artifact *espl_ctx_input(struct espl_stage_ctx *ctx, const char *port);
/** The private, unfinished output. The engine finishes and publishes it after run() returned
 * ESPL_OK. */
struct espl_artifact *espl_ctx_output(struct espl_stage_ctx *ctx, const char *port);
const struct espl_store *espl_ctx_store(const struct espl_stage_ctx *ctx);
/** Stage id in the job ("prune"). */
const char *espl_ctx_stage_id(const struct espl_stage_ctx *ctx);
/** Device text of the job: "cpu", "cuda:0", "auto". */
const char *espl_ctx_device(const struct espl_stage_ctx *ctx);
/** What tells this machine from others for measurements: processor, cores, libraries, GPUs. The
 * device text where nothing is known. */
const char *espl_ctx_device_fingerprint(const struct espl_stage_ctx *ctx);
/** Random stream of this stage: depends on the job seed, the stage id and `index`. */
struct espl_rng espl_ctx_rng(const struct espl_stage_ctx *ctx, uint64_t index);
/** Progress: done of total units of `what` ("layer", "window"). Cheap: call as often as you like.
 */
void espl_ctx_progress(struct espl_stage_ctx *ctx, uint64_t done, uint64_t total, const char *what);
const struct espl_log *espl_ctx_log(const struct espl_stage_ctx *ctx);
/** True once the user asked to stop. Check between units; return espl_ctx_stop(). */
bool espl_ctx_cancelled(const struct espl_stage_ctx *ctx);
enum espl_status espl_ctx_stop(const struct espl_stage_ctx *ctx, struct espl_error *err);

/** A figure for metrics.json, the database, `expect:` and the report. Names are snake_case.
 *  volatile_value: differs between equal runs (times, rates), so it stays out of the artifact. */
enum espl_status espl_ctx_metric(struct espl_stage_ctx *ctx, const char *name, double value,
                                 bool volatile_value, struct espl_error *err);
/** A figure that the report draws per layer: series "sparsity", "output_error"; layer 0-based. */
enum espl_status espl_ctx_layer_metric(struct espl_stage_ctx *ctx, const char *series,
                                       uint64_t layer, const char *module, double value,
                                       struct espl_error *err);

/* ---- resume (ESPL_STAGE_RESUMABLE) ---- */

/** Was unit `index` published by an earlier, interrupted run of the same key? */
bool espl_ctx_unit_done(const struct espl_stage_ctx *ctx, uint64_t index);
/** Opens a published unit for reading; close it with espl_artifact_close(). */
enum espl_status espl_ctx_unit_open(struct espl_stage_ctx *ctx, uint64_t index,
                                    struct espl_artifact **out, struct espl_error *err);
/** Starts a private unit file (an artifact of kind "unit/1"). */
enum espl_status espl_ctx_unit_create(struct espl_stage_ctx *ctx, uint64_t index,
                                      struct espl_artifact **out, struct espl_error *err);
/** Finishes and publishes it durably; layer metrics reported since the unit was created travel in
 * it and come back when it is resumed. *unit is NULL afterwards, also on failure. */
enum espl_status espl_ctx_unit_publish(struct espl_stage_ctx *ctx, uint64_t index,
                                       struct espl_artifact **unit, struct espl_error *err);

/* ---- the stage ---- */

enum { ESPL_STAGE_REPLACES_TEXT = 320 };

struct espl_stage {
    const char *name;       /* YAML name: "wanda-prune" */
    const char *summary;    /* one line for `espalier stages` */
    uint32_t cache_version; /* raise when equal inputs would give different output */
    unsigned flags;
    const struct espl_param *params; /* ends with .name == NULL */
    size_t params_size;
    const struct espl_port *inputs; /* end with .name == NULL */
    const struct espl_port *outputs;
    /** Optional. Checks parameter combinations against input descriptions, names external files,
     *  predicts outputs, estimates needs. Reads headers only, never tensor data; called by `plan`.
     */
    enum espl_status (*plan)(struct espl_plan_ctx *ctx, const void *params,
                             struct espl_estimate *est, struct espl_error *err);
    /** Does the work. Inputs are open read-only; outputs are unpublished and private. */
    enum espl_status (*run)(struct espl_stage_ctx *ctx, const void *params, struct espl_error *err);
    /** Optional, for stages that also write outside the store (export): is what the cached artifact
     *  describes still there and whole? *stale gets the reason when not. store, rehash: for
     *  espl_store_file_hash(), so that unchanged files are not read at every plan. */
    enum espl_status (*still_valid)(const struct espl_store *store, bool rehash,
                                    struct espl_artifact *cached, const void *params, bool *valid,
                                    char stale[160], struct espl_error *err);
    /** Optional, for the same stages: what of other results lies where run() would write, "folder
     *  'x' holds an earlier export"; "" when nothing does. For a warning of `plan`. */
    void (*replaces)(const void *params, char what[ESPL_STAGE_REPLACES_TEXT]);
};

#endif

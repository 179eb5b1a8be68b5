/* Runs the stages of layer-wise search without the planner, in a results folder of its own: a tiny
 * ViT, random pictures, a made-up latency table. Everything fails through cmocka's assertions. */
#ifndef ESPL_TESTS_SEARCH_STAGE_FIXTURE_H
#define ESPL_TESTS_SEARCH_STAGE_FIXTURE_H

#include "core/buf.h"
#include "engine/stage.h"
#include "prune_fixture.h"

enum { SEARCH_MOST_PORTS = 6, SEARCH_PICTURES = 40 };

/** Result of a run; free with search_result_free(). */
struct search_result {
    enum espl_status status;
    struct espl_error err;
    json_t *metrics, *volatile_metrics, *layers; /* owned; NULL after a failure */
    uint64_t resumed;
    char content[2][ESPL_SHA256_HEX]; /* of each output */
};

/** Key digits: 'a' the model, 'b' pictures, 'c' a model that a stage made, 'd' supernet, 'e'
 *  latencies; a run publishes its first output under its digit, the second as port of the same key.
 */
struct search_run {
    const struct espl_stage *stage;
    const void *params;
    char key_digit;
    const char *ports[SEARCH_MOST_PORTS]; /* names; NULL ends */
    char digits[SEARCH_MOST_PORTS];
    const char *fingerprint; /* NULL = "cpu" */
    uint64_t seed;
    const volatile int *stopped; /* NULL allowed */
};

/** Publishes the model 'a' and the pictures 'b'. */
void search_fixture_open_stage(struct prune_fixture *fixture);
/** Writes a latency table with one kernel for the model to a new file, for device "dev". runs:
 *  measured whole passes (0 = none); energy: with a made-up energy. */
void search_write_table(struct prune_fixture *fixture, size_t runs, bool energy, const char *kernel,
                        char path[ESPL_PATH_MAX]);
void search_run_stage(struct prune_fixture *fixture, const struct search_run *run,
                      struct search_result *result);
void search_result_free(struct search_result *result);
double search_metric(const struct search_result *result, const char *name);
/** params <- defaults of the stage, as a job without `with:` has them. Texts and lists live in the
 *  arena. */
void search_default_params(const struct espl_stage *stage, struct espl_arena *arena, void *params);
/** The model of the fixture; its configuration. */
struct espl_model_config search_vit_config(void);

#endif

/* A results folder of its own for tests of the pruning stages: makes models and tokens, runs a
 * stage without the planner. Everything fails through cmocka's assertions. */
#ifndef ESPL_TESTS_PRUNE_FIXTURE_H
#define ESPL_TESTS_PRUNE_FIXTURE_H

#include "engine/stage.h"
#include "model/model.h"

#include <stdbool.h>

enum { PRUNE_KEY_TEXT = 65 };

struct prune_fixture {
    char folder[ESPL_PATH_MAX];
    struct espl_store store;
    char key[PRUNE_KEY_TEXT]; /* scratch of prune_key() */
};

/** What a stage run left. */
struct prune_result {
    json_t *metrics; /* owned */
    json_t *layers;  /* owned */
    uint64_t resumed;
    char content_sha256[ESPL_SHA256_HEX];
};

/** Changes the values (rows x cols, f32) of a tensor of a random model before it is written. */
typedef void (*prune_edit_fn)(const struct espl_tensor_spec *spec, float *values);

void prune_fixture_open(struct prune_fixture *fixture);
void prune_fixture_close(struct prune_fixture *fixture);
/** Key of 64 times `digit`. Valid until the next call. */
const char *prune_key(struct prune_fixture *fixture, char digit);

/** LLaMA of 3 blocks: hidden 24, 3 heads of 8, one key/value head, ffn 40, vocabulary 50, 64
 * positions, tied. */
struct espl_model_config prune_llama_config(void);
/** OPT of 2 blocks with learned positions and biases: hidden 24, ffn 36, 64 positions. */
struct espl_model_config prune_opt_config(void);
/** Publishes a random model. edit: NULL allowed. */
void prune_make_model(struct prune_fixture *fixture, char key_digit,
                      const struct espl_model_config *config, enum espl_dtype dtype,
                      prune_edit_fn edit);
/** Publishes the model of a checkpoint folder. */
void prune_import(struct prune_fixture *fixture, char key_digit, const char *folder);
/** Publishes windows of ids. */
void prune_make_tokens(struct prune_fixture *fixture, char key_digit, const int32_t *ids,
                       uint64_t windows, uint64_t tokens, uint64_t vocab);
/** Publishes `windows` windows of random ids below 50. */
void prune_make_random_tokens(struct prune_fixture *fixture, char key_digit, uint64_t windows,
                              uint64_t tokens);

/** An input port and the key of what is read there. */
struct prune_port {
    const char *name;
    char key_digit;
};
enum { PRUNE_MOST_PORTS = 4 };

/** Runs a stage and publishes its first output as `key_digit`. stopped: NULL allowed. result:
 * filled when the stage succeeded; freed with prune_result_free(); NULL allowed. */
enum espl_status prune_run_ports(struct prune_fixture *fixture, const struct espl_stage *stage,
                                 const void *params, char key_digit, const struct prune_port *ports,
                                 size_t port_count, const volatile int *stopped,
                                 struct prune_result *result, struct espl_error *err);
/** The same with the ports that most stages have. tokens_digit: 0 = the stage has no such
 * port. */
enum espl_status prune_run(struct prune_fixture *fixture, const struct espl_stage *stage,
                           const void *params, char key_digit, char model_digit, char tokens_digit,
                           const volatile int *stopped, struct prune_result *result,
                           struct espl_error *err);
void prune_result_free(struct prune_result *result);
double prune_metric(const struct prune_result *result, const char *name);

/** Opens a published artifact and the model in it. */
void prune_open(struct prune_fixture *fixture, char key_digit, struct espl_artifact **artifact,
                struct espl_model **model);
/** Path of a published artifact. */
void prune_path(struct prune_fixture *fixture, char key_digit, char path[ESPL_PATH_MAX]);
/** Whole mask of a linear, malloc'ed: rows x stride. */
uint8_t *prune_read_mask(struct espl_model *model, const struct espl_tensor_spec *spec);
bool prune_mask_bit(const uint8_t *mask, uint64_t cols, uint64_t row, uint64_t col);

/** Publishes model 'a' and 11 windows of 16 tokens 'b' in a fixture of its own. edit: NULL
 * allowed. */
void prune_open_case(struct prune_fixture *fixture, const struct espl_model_config *config,
                     enum espl_dtype dtype, prune_edit_fn edit);
/** A run from 'a' (and tokens_digit unless 0) gives the same when it continues after 1, 2 or 3 kept
 * units; the model has at least 3 blocks. */
void prune_check_resume(const struct espl_model_config *config, enum espl_dtype dtype,
                        const struct espl_stage *stage, const void *params, char tokens_digit);
/** ... and with 1, 2 and 3 threads. */
void prune_check_threads(const struct espl_model_config *config, enum espl_dtype dtype,
                         const struct espl_stage *stage, const void *params, char tokens_digit);

/** Gives `to` the first `count` units of the run 'c' in `from`: what a run leaves that was killed
 *  after that many blocks. */
void prune_copy_units(struct prune_fixture *from, struct prune_fixture *to, unsigned count);
/** The same metrics, layer metrics, content hash and file bytes of 'c'. */
void prune_assert_same(struct prune_fixture *left, struct prune_fixture *right,
                       const struct prune_result *a, const struct prune_result *b);

#endif

/* What the tests of wanda-prune and magnitude-prune share, on top of prune_fixture.h. */
#ifndef ESPL_TESTS_PRUNE_CASES_H
#define ESPL_TESTS_PRUNE_CASES_H

#include "prune_fixture.h"

#include "stages/wanda_prune/wanda_setup.h"

extern const struct espl_stage espl_stage_wanda_prune;
extern const struct espl_stage espl_stage_magnitude_prune;

/** The head of magnitude-prune's parameters is shared; scope follows. */
struct prune_magnitude_params {
    struct espl_prune_params common;
    int scope; /* 0: matrix, 1: row */
};

/** The stages' defaults. */
struct espl_wanda_params prune_wanda_params(void);
struct prune_magnitude_params prune_magnitude_params(void);
/** A folder with a random LLaMA 'a' and 11 windows of 16 tokens 'b'. edit: NULL allowed. */
void prune_open_llama(struct prune_fixture *fixture, enum espl_dtype dtype, prune_edit_fn edit);
/** Runs a stage; fails the test when it does not succeed. result: NULL allowed. */
void prune_run_ok(struct prune_fixture *fixture, const struct espl_stage *stage, const void *params,
                  char key, char model, char tokens, struct prune_result *result);
/** Runs a stage from 'a' (and 'b') to 'c', which must fail with a message that holds `part` and
 * leave no artifact. */
void prune_run_fails(struct prune_fixture *fixture, const struct espl_stage *stage,
                     const void *params, enum espl_status code, const char *part,
                     struct espl_error *err);

#endif

/* What the tests of quantising stages share, on top of prune_fixture.h. */
#ifndef ESPL_TESTS_QUANT_FIXTURE_H
#define ESPL_TESTS_QUANT_FIXTURE_H

#include "prune_fixture.h"

#include "eval/forward.h"
#include "stages/atom_quantize/atom_setup.h"
#include "stages/sparsegpt_prune/sparsegpt_setup.h"
#include "stages/wanda_prune/wanda_setup.h"

extern const struct espl_stage espl_stage_atom_quantize;
extern const struct espl_stage espl_stage_sparsegpt_prune;
extern const struct espl_stage espl_stage_wanda_prune;

/** The stage's defaults for models of 24 columns: groups of 8, 8 outlier channels. */
struct espl_atom_params quant_atom_params(void);
/** The stage's own defaults. */
struct espl_atom_params quant_atom_defaults(void);
struct espl_sparsegpt_params quant_sparsegpt_params(void);
struct espl_wanda_params quant_wanda_params(void);
/** Runs a stage; fails the test when it does not succeed. result: NULL allowed. */
void quant_run(struct prune_fixture *fixture, const struct espl_stage *stage, const void *params,
               char key, char model, struct prune_result *result);

/** Mean of a per-layer series, for example "quant_error". */
double quant_mean_layer(const struct prune_result *result, const char *series);

/** Changes the resident block of a model before it runs. */
typedef void (*quant_block_fn)(void *user, struct espl_forward *forward, struct espl_block *block,
                               uint64_t layer);
/** Logits (windows * tokens, vocab) of the model `key` on ids below 50 of a fixed stream;
 * malloc'ed. edit: NULL allowed. */
float *quant_logits(struct prune_fixture *fixture, char key, size_t windows, size_t tokens,
                    quant_block_fn edit, void *user, size_t *count);
/** Largest difference of a and b over the largest magnitude in a. */
double quant_difference(const float *a, const float *b, size_t count);

#endif

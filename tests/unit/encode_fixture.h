/* What the tests of row-reorder and iebme-encode share: a sparse, quantised model of several tiles
 * with tails, and runs of both stages. */
#ifndef ESPL_TESTS_ENCODE_FIXTURE_H
#define ESPL_TESTS_ENCODE_FIXTURE_H

#include "quant_fixture.h"

#include "stages/iebme_encode/encode_run.h"
#include "stages/row_reorder/reorder_run.h"

extern const struct espl_stage espl_stage_row_reorder;
extern const struct espl_stage espl_stage_iebme_encode;

/** Hidden 96, ffn 148: 88 and 140 columns without outliers, so short last tiles; 148 rows, so a
 *  short last stripe. */
struct espl_model_config encode_llama_config(void);
struct espl_model_config encode_opt_config(void);
/** Opens the fixture: dense 'a' with 60 % zeros, tokens 'b', quantised 'e'. params: of
 *  quant_atom_params() or changed. */
void encode_open(struct prune_fixture *fixture, const struct espl_model_config *config,
                 const struct espl_atom_params *params);
/** Row order of 'e' as `key`. result: NULL allowed. */
void encode_reorder(struct prune_fixture *fixture, int64_t rows, int64_t cols, int scope, char key,
                    struct prune_result *result);
/** 'e' encoded as `key`; areas: a YAML word. order: key of a row order, 0 = none. result: NULL
 *  allowed. */
void encode_model(struct prune_fixture *fixture, const char *areas, char order, char key,
                  struct prune_result *result);
/** A layer figure of a result. */
double encode_layer(const struct prune_result *result, const char *series, const char *module);
/** A run of either stage as 'c'. */
typedef void (*encode_run_fn)(struct prune_fixture *fixture, struct prune_result *result);
/** The run gives the same bytes when it continues after one block. */
void encode_check_resume(const struct espl_model_config *config, encode_run_fn run);
/** encode_model() for runs that may fail. */
enum espl_status encode_try(struct prune_fixture *fixture, const char *areas, char model,
                            char order, char key, const volatile int *stopped,
                            struct prune_result *result, struct espl_error *err);

#endif

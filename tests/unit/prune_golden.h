/* Runs wanda-prune on a reference model and compares masks and perplexity with golden values of an
 * independent implementation (tests/data/golden/masks/README.md). */
#ifndef ESPL_TESTS_PRUNE_GOLDEN_H
#define ESPL_TESTS_PRUNE_GOLDEN_H

#include <stdbool.h>

/** model: "llama-6m"; calibration: "novels-calib-sample.txt.xz", looked for in datasets/samples and
 * in the shared data; name: "50", "2:4", ...; perplexity: "16", "64" or "all" windows of
 * novels-test. Skips the running test, saying so, when model or texts are not there. */
void prune_golden_check(const char *model, const char *calibration, const char *name,
                        const char *perplexity);

/** A main(): both reference models with the whole calibration text, which does not ship, in every
 * case. perplexity: as above. */
int prune_golden_run_all(const char *perplexity);

#endif

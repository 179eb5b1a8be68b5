/* Reference models on reference texts: calibration windows and perplexity, for tests that compare
 * whole models. Everything fails through cmocka's assertions. */
#ifndef ESPL_TESTS_TEXT_FIXTURE_H
#define ESPL_TESTS_TEXT_FIXTURE_H

#include "golden_data.h"
#include "prune_fixture.h"

/** datasets/samples/<name>, or ../shared/data/<name>. False when neither is there. */
bool text_find(const char *name, char path[GOLDEN_PATH]);
/** Ids of a whole text with the tokenizer of a model folder, BOS once in front; malloc'ed. vocab:
 *  NULL allowed. */
int32_t *text_tokenise(const char *model_dir, const char *path, size_t *count, size_t *vocab);
/** Draws windows as the tokens stage does and publishes them as `key`. first_starts: NULL, or room
 *  for the first four places. Returns how many ids the text has. */
size_t text_calibration(struct prune_fixture *fixture, char key, const char *model_dir,
                        const char *path, uint64_t seed, uint64_t windows, size_t tokens,
                        uint64_t *first_starts);
/** Perplexity of the model `key` over the first windows of ids. */
double text_perplexity(struct prune_fixture *fixture, char key, const int32_t *ids,
                       uint64_t windows, size_t tokens);

#endif

/* atom-quantize against the whole-model golden values of tests/data/golden/atom. */
#ifndef ESPL_TESTS_ATOM_GOLDEN_H
#define ESPL_TESTS_ATOM_GOLDEN_H

/** Quantises `model` ("llama-6m"), dense or pruned ("dense", "pruned"), in the given scheme of the
 *  golden file ("w4a4", "w4a16", "w8a8", "w4a4-rtn"; NULL = all) and compares perplexities, and for
 *  "w4a4-rtn" every code and scale. Skips when the model or its texts are not there. */
void atom_golden_check(const char *model, const char *kind, const char *scheme);

#endif

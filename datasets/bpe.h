/* The BPE model: vocabulary, merges and the merge loop.
 *
 * A word starts as its characters and the pair with the lowest rank merges first, the leftmost of
 * equal ones, until no pair merges (Sennrich et al. 2016). A heap over the pairs makes that
 * O(n log n), so a long text without a cut costs no more per byte than a short word. */
#ifndef ESPL_DATASETS_BPE_H
#define ESPL_DATASETS_BPE_H

#include "core/error.h"
#include "datasets/token_map.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A growing list of token ids. Zero-initialise; free(ids). */
struct espl_id_list {
    int32_t *ids;
    size_t count;
    size_t capacity;
};

/** false: out of memory. */
bool espl_id_list_add(struct espl_id_list *list, const int32_t *ids, size_t count);

struct espl_bpe;

/** value: field "model". Errors: CORRUPT, UNSUPPORTED naming the field, NOMEM. */
enum espl_status espl_bpe_parse(const json_t *value, struct espl_bpe **out, struct espl_error *err);
void espl_bpe_destroy(struct espl_bpe *bpe);
const struct espl_token_map *espl_bpe_vocab(const struct espl_bpe *bpe);
/** Largest id of the vocabulary, -1 when it is empty. */
int32_t espl_bpe_max_id(const struct espl_bpe *bpe);

struct espl_bpe_run; /* working memory of one caller: symbols, heap, a cache of words */

/** text_len: bytes that will be encoded in all (sizes the cache). NULL when out of memory. */
struct espl_bpe_run *espl_bpe_run_create(const struct espl_bpe *bpe, size_t text_len);
void espl_bpe_run_destroy(struct espl_bpe_run *run);
/** Appends the ids of one word (valid UTF-8, not empty). Characters that the vocabulary lacks
 * become byte tokens, the unknown token, or nothing, as the model says. */
enum espl_status espl_bpe_encode(struct espl_bpe_run *run, const char *word, size_t len,
                                 struct espl_id_list *out, struct espl_error *err);

#endif

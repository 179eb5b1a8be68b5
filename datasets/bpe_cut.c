/* Exact cuts of long words.
 *
 * Tokenizers of the LLaMA 1 and 2 kind have no pre-tokeniser: a whole book is one word. Two
 * neighbouring characters can only end up in one token when some merged token holds them side by
 * side. Where no token does, no merge ever crosses, and the word can be cut without changing one
 * id; memory then stays small and the cache of words works. Cuts are made between characters of the
 * vocabulary only: unknown ones may fuse. */
#include "datasets/bpe_internal.h"
#include "datasets/unicode.h"

#include <stdlib.h>

static int compare_ids(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a;
    const int32_t y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

/* Merges work on ids: with two texts for one id, texts say nothing about what may merge. */
static enum espl_status ids_are_unique(const struct espl_bpe *bpe, bool *unique,
                                       struct espl_error *err)
{
    *unique = true;
    int32_t *const ids = malloc((bpe->vocab.count + 1) * sizeof *ids);
    if (ids == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the vocabulary");
    }
    size_t count = 0;
    for (size_t i = 0; i < bpe->vocab.capacity; i++) {
        if (bpe->vocab.slots[i].text != NULL) {
            ids[count] = bpe->vocab.slots[i].id;
            count++;
        }
    }
    qsort(ids, count, sizeof *ids, compare_ids);
    for (size_t i = 1; i < count; i++) {
        *unique = *unique && ids[i] != ids[i - 1];
    }
    free(ids);
    return ESPL_OK;
}

enum espl_status espl_bpe_prepare_cuts(struct espl_bpe *bpe, struct espl_error *err)
{
    /* With ignore_merges a whole word may be looked up, so a part of a word is not a word. */
    bpe->can_cut = false;
    if (bpe->ignore_merges) {
        return ESPL_OK;
    }
    bool unique = false;
    const enum espl_status status = ids_are_unique(bpe, &unique, err);
    if (status != ESPL_OK || !unique) {
        return status;
    }
    if (!espl_merge_map_reserve(&bpe->inner_pairs, 1)) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the vocabulary");
    }
    for (size_t i = 0; i < bpe->vocab.capacity; i++) {
        const struct espl_token_slot *const token = &bpe->vocab.slots[i];
        uint32_t last = 0;
        size_t at =
            token->text != NULL && token->len > 0 ? espl_utf8_decode(token->text, &last) : 0;
        while (at < token->len) {
            uint32_t code = 0;
            at += espl_utf8_decode(token->text + at, &code);
            if (!espl_merge_map_grow_put(&bpe->inner_pairs, (int32_t)last, (int32_t)code, 0, 0)) {
                return espl_fail(err, ESPL_E_NOMEM, "out of memory for the vocabulary");
            }
            last = code;
        }
    }
    bpe->can_cut = true;
    return ESPL_OK;
}

size_t espl_bpe_next_cut(const struct espl_bpe *bpe, const char *word, size_t len, size_t from)
{
    uint32_t last = 0;
    size_t last_at = from;
    size_t at = from + espl_utf8_decode(word + from, &last);
    while (at < len) {
        uint32_t code = 0;
        const size_t bytes = espl_utf8_decode(word + at, &code);
        if (espl_merge_map_get(&bpe->inner_pairs, (int32_t)last, (int32_t)code) == NULL &&
            espl_bpe_char_id(bpe, last, word + last_at, at - last_at) >= 0 &&
            espl_bpe_char_id(bpe, code, word + at, bytes) >= 0) {
            return at;
        }
        last = code;
        last_at = at;
        at += bytes;
    }
    return len;
}

/* The BPE model as its reader and its merge loop see it. */
#ifndef ESPL_DATASETS_BPE_INTERNAL_H
#define ESPL_DATASETS_BPE_INTERNAL_H

#include "core/buf.h"
#include "datasets/bpe.h"

enum { ESPL_BPE_DIRECT_CODES = 512 /* characters with a table entry; holds the byte-level ones */ };

struct espl_bpe {
    struct espl_arena *texts; /* owns the token texts */
    struct espl_token_map vocab;
    struct espl_merge_map merges;
    int32_t max_id;
    int32_t char_ids[ESPL_BPE_DIRECT_CODES]; /* -1 = not in the vocabulary */
    int32_t byte_ids[256];                   /* ids of "<0x00>" .. "<0xFF>", -1 = missing */
    bool byte_fallback;
    bool fuse_unk;
    bool ignore_merges;
    bool has_unk;
    int32_t unk_id;                    /* -1: named, but not in the vocabulary */
    bool can_cut;                      /* inner_pairs is filled */
    struct espl_merge_map inner_pairs; /* neighbouring characters inside merged tokens */
};

/** Id of a character that is a token of its own, -1 when it is not. text: its bytes. */
static inline int32_t espl_bpe_char_id(const struct espl_bpe *bpe, uint32_t code, const char *text,
                                       size_t len)
{
    return code < ESPL_BPE_DIRECT_CODES ? bpe->char_ids[code]
                                        : espl_token_map_get(&bpe->vocab, text, len);
}

/** Fills inner_pairs when the model allows exact cuts (bpe_cut.c). */
enum espl_status espl_bpe_prepare_cuts(struct espl_bpe *bpe, struct espl_error *err);
/** First byte after `from` where a long word may be cut without changing its ids; len when there is
 * none. */
size_t espl_bpe_next_cut(const struct espl_bpe *bpe, const char *word, size_t len, size_t from);

#endif

#include "datasets/bpe.h"

#include "core/checked.h"
#include "datasets/bpe_internal.h"
#include "datasets/unicode.h"

#include <stdlib.h>
#include <string.h>

enum {
    LONG_WORD = 512,              /* bytes from which on exact cuts are looked for */
    CACHED_WORD = 256,            /* longest word that is remembered, bytes */
    CACHE_LEAST = 256,            /* slots */
    CACHE_MOST = 1 << 16,         /* slots */
    CACHE_POOL = 8 * 1024 * 1024, /* bytes of remembered words; then the cache starts anew */
};

static const uint32_t no_symbol = UINT32_MAX;

/* A run of text that is one token so far; a list linked through indices. */
struct symbol {
    int32_t id; /* -1 = merged into its left neighbour */
    uint32_t previous;
    uint32_t next;
};

/* Two neighbours that may merge, ordered by rank and then by place. */
struct candidate {
    uint32_t rank;
    uint32_t left;
    int32_t id; /* of the merged token */
};

struct cache_slot {
    uint64_t hash;
    uint32_t word; /* offset in words */
    uint32_t word_len;
    uint32_t ids; /* offset in ids */
    uint32_t id_count;
};

struct espl_bpe_run {
    const struct espl_bpe *bpe;
    struct symbol *symbols;
    size_t symbol_count;
    size_t symbol_capacity;
    struct candidate *heap;
    size_t heap_count;
    size_t heap_capacity;
    struct cache_slot *slots;
    size_t slot_count; /* a power of two */
    struct espl_buf words;
    struct espl_id_list ids;
};

static enum espl_status out_of_memory(struct espl_error *err)
{
    return espl_fail(err, ESPL_E_NOMEM, "out of memory while tokenising");
}

bool espl_id_list_add(struct espl_id_list *list, const int32_t *ids, size_t count)
{
    size_t wanted = 0;
    if (!espl_add_size(list->count, count, &wanted)) {
        return false;
    }
    if (wanted > list->capacity) {
        size_t capacity = list->capacity + list->capacity / 2;
        capacity = capacity > wanted ? capacity : wanted + 64;
        size_t bytes = 0;
        int32_t *const grown =
            espl_mul_size(capacity, sizeof *grown, &bytes) ? realloc(list->ids, bytes) : NULL;
        if (grown == NULL) {
            return false;
        }
        list->ids = grown;
        list->capacity = capacity;
    }
    if (count > 0) {
        memcpy(list->ids + list->count, ids, count * sizeof *ids);
    }
    list->count = wanted;
    return true;
}

struct espl_bpe_run *espl_bpe_run_create(const struct espl_bpe *bpe, size_t text_len)
{
    struct espl_bpe_run *const run = calloc(1, sizeof *run);
    if (run == NULL) {
        return NULL;
    }
    run->bpe = bpe;
    espl_buf_init(&run->words, CACHE_POOL);
    run->slot_count = CACHE_LEAST;
    while (run->slot_count < CACHE_MOST && run->slot_count < text_len / 8) {
        run->slot_count *= 2;
    }
    run->slots = calloc(run->slot_count, sizeof *run->slots);
    if (run->slots == NULL) {
        espl_bpe_run_destroy(run);
        return NULL;
    }
    return run;
}

void espl_bpe_run_destroy(struct espl_bpe_run *run)
{
    if (run != NULL) {
        free(run->symbols);
        free(run->heap);
        free(run->slots);
        espl_buf_free(&run->words);
        free(run->ids.ids);
        free(run);
    }
}

/* ---- heap of candidates, the smallest first ---- */

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static void sift_down(struct espl_bpe_run *run, size_t at)
{
    const struct candidate moving = run->heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= run->heap_count) {
            break;
        }
        if (child + 1 < run->heap_count && before(&run->heap[child + 1], &run->heap[child])) {
            child++;
        }
        if (!before(&run->heap[child], &moving)) {
            break;
        }
        run->heap[at] = run->heap[child];
        at = child;
    }
    run->heap[at] = moving;
}

static struct candidate heap_pop(struct espl_bpe_run *run)
{
    const struct candidate top = run->heap[0];
    run->heap_count--;
    if (run->heap_count > 0) {
        run->heap[0] = run->heap[run->heap_count];
        sift_down(run, 0);
    }
    return top;
}

/* Appends without ordering. */
static bool heap_append(struct espl_bpe_run *run, struct candidate candidate)
{
    if (run->heap_count == run->heap_capacity) {
        const size_t capacity = run->heap_capacity > 0 ? 2 * run->heap_capacity : 256;
        size_t bytes = 0;
        struct candidate *const grown =
            espl_mul_size(capacity, sizeof *grown, &bytes) ? realloc(run->heap, bytes) : NULL;
        if (grown == NULL) {
            return false;
        }
        run->heap = grown;
        run->heap_capacity = capacity;
    }
    run->heap[run->heap_count] = candidate;
    run->heap_count++;
    return true;
}

static bool heap_push(struct espl_bpe_run *run, struct candidate candidate)
{
    if (!heap_append(run, candidate)) {
        return false;
    }
    size_t at = run->heap_count - 1;
    while (at > 0 && before(&candidate, &run->heap[(at - 1) / 2])) {
        run->heap[at] = run->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    run->heap[at] = candidate;
    return true;
}

/* ---- symbols of a word ---- */

static bool reserve_symbols(struct espl_bpe_run *run, size_t count)
{
    if (count <= run->symbol_capacity) {
        return true;
    }
    size_t bytes = 0;
    struct symbol *const grown =
        espl_mul_size(count, sizeof *grown, &bytes) ? realloc(run->symbols, bytes) : NULL;
    if (grown == NULL) {
        return false;
    }
    run->symbols = grown;
    run->symbol_capacity = count;
    return true;
}

static void add_symbol(struct espl_bpe_run *run, int32_t id)
{
    const uint32_t at = (uint32_t)run->symbol_count;
    run->symbols[at] = (struct symbol){id, at > 0 ? at - 1 : no_symbol, no_symbol};
    if (at > 0) {
        run->symbols[at - 1].next = at;
    }
    run->symbol_count++;
}

/* Byte tokens for a character; all of them or none. */
static bool add_byte_tokens(struct espl_bpe_run *run, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (run->bpe->byte_ids[(unsigned char)text[i]] < 0) {
            return false;
        }
    }
    for (size_t i = 0; i < bytes; i++) {
        add_symbol(run, run->bpe->byte_ids[(unsigned char)text[i]]);
    }
    return true;
}

/* The word as characters. An unknown character waits for the next known one, as in the reference:
 * it then fuses with more of its kind when the model says so, and byte tokens overtake it. */
static enum espl_status split_characters(struct espl_bpe_run *run, const char *word, size_t len,
                                         struct espl_error *err)
{
    const struct espl_bpe *const bpe = run->bpe;
    run->symbol_count = 0;
    bool waiting = false;
    size_t at = 0;
    while (at < len) {
        uint32_t code = 0;
        const char *const text = word + at;
        const size_t bytes = espl_utf8_decode(text, &code);
        at += bytes;
        const int32_t id = espl_bpe_char_id(bpe, code, text, bytes);
        if (id >= 0) {
            if (waiting) {
                add_symbol(run, bpe->unk_id);
                waiting = false;
            }
            add_symbol(run, id);
            continue;
        }
        if ((bpe->byte_fallback && add_byte_tokens(run, text, bytes)) || !bpe->has_unk) {
            continue;
        }
        if (bpe->unk_id < 0) {
            return espl_fail(err, ESPL_E_CORRUPT,
                             "the tokenizer's unk_token is not in its vocabulary, but the text "
                             "needs it for U+%04X",
                             (unsigned)code);
        }
        if (waiting && !bpe->fuse_unk) {
            add_symbol(run, bpe->unk_id);
        }
        waiting = true;
    }
    if (waiting) {
        add_symbol(run, bpe->unk_id);
    }
    return ESPL_OK;
}

/* ---- merging ---- */

static bool push_pair(struct espl_bpe_run *run, uint32_t left)
{
    const uint32_t right = left != no_symbol ? run->symbols[left].next : no_symbol;
    if (right == no_symbol) {
        return true;
    }
    const struct espl_merge_slot *const merge =
        espl_merge_map_get(&run->bpe->merges, run->symbols[left].id, run->symbols[right].id);
    return merge == NULL || heap_push(run, (struct candidate){merge->rank, left, merge->id});
}

/* Applies a candidate unless its symbols have changed since it was found. */
static bool apply_candidate(struct espl_bpe_run *run, struct candidate candidate)
{
    struct symbol *const left = &run->symbols[candidate.left];
    if (left->id < 0 || left->next == no_symbol) {
        return true;
    }
    struct symbol *const right = &run->symbols[left->next];
    const struct espl_merge_slot *const merge =
        espl_merge_map_get(&run->bpe->merges, left->id, right->id);
    if (merge == NULL || merge->id != candidate.id) {
        return true;
    }
    left->id = candidate.id;
    left->next = right->next;
    right->id = -1;
    if (left->next != no_symbol) {
        run->symbols[left->next].previous = candidate.left;
    }
    return push_pair(run, left->previous) && push_pair(run, candidate.left);
}

static enum espl_status merge_word(struct espl_bpe_run *run, const char *word, size_t len,
                                   struct espl_id_list *out, struct espl_error *err)
{
    if (len >= no_symbol) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "a word of %zu bytes is too long", len);
    }
    if (!reserve_symbols(run, len)) {
        return out_of_memory(err);
    }
    const enum espl_status status = split_characters(run, word, len, err);
    if (status != ESPL_OK) {
        return status;
    }
    run->heap_count = 0;
    for (size_t i = 0; i + 1 < run->symbol_count; i++) {
        const struct espl_merge_slot *const merge =
            espl_merge_map_get(&run->bpe->merges, run->symbols[i].id, run->symbols[i + 1].id);
        if (merge != NULL &&
            !heap_append(run, (struct candidate){merge->rank, (uint32_t)i, merge->id})) {
            return out_of_memory(err);
        }
    }
    for (size_t i = run->heap_count / 2; i > 0; i--) {
        sift_down(run, i - 1);
    }
    while (run->heap_count > 0) {
        if (!apply_candidate(run, heap_pop(run))) {
            return out_of_memory(err);
        }
    }
    for (size_t i = 0; i < run->symbol_count; i++) {
        if (run->symbols[i].id >= 0 && !espl_id_list_add(out, &run->symbols[i].id, 1)) {
            return out_of_memory(err);
        }
    }
    return ESPL_OK;
}

/* ---- cache ---- */

static void cache_add(struct espl_bpe_run *run, struct cache_slot *slot, uint64_t hash,
                      const char *word, size_t len, const int32_t *ids, size_t count)
{
    if (run->words.len + len > CACHE_POOL) {
        memset(run->slots, 0, run->slot_count * sizeof *run->slots);
        espl_buf_reset(&run->words);
        run->ids.count = 0;
    }
    const struct cache_slot filled = {hash, (uint32_t)run->words.len, (uint32_t)len,
                                      (uint32_t)run->ids.count, (uint32_t)count};
    /* A cache that cannot grow only costs time. */
    if (espl_buf_add(&run->words, word, len) && espl_id_list_add(&run->ids, ids, count)) {
        *slot = filled;
    }
}

static enum espl_status encode_part(struct espl_bpe_run *run, const char *word, size_t len,
                                    struct espl_id_list *out, struct espl_error *err)
{
    if (len > CACHED_WORD) {
        return merge_word(run, word, len, out, err);
    }
    const uint64_t hash = espl_token_hash(word, len);
    struct cache_slot *const slot = &run->slots[hash & (run->slot_count - 1)];
    if (slot->hash == hash && slot->word_len == len &&
        memcmp(run->words.data + slot->word, word, len) == 0) {
        return espl_id_list_add(out, run->ids.ids + slot->ids, slot->id_count) ? ESPL_OK
                                                                               : out_of_memory(err);
    }
    const size_t start = out->count;
    const enum espl_status status = merge_word(run, word, len, out, err);
    if (status == ESPL_OK && out->count > start) {
        cache_add(run, slot, hash, word, len, out->ids + start, out->count - start);
    }
    return status;
}

enum espl_status espl_bpe_encode(struct espl_bpe_run *run, const char *word, size_t len,
                                 struct espl_id_list *out, struct espl_error *err)
{
    if (run->bpe->ignore_merges) {
        const int32_t id = espl_token_map_get(&run->bpe->vocab, word, len);
        if (id >= 0) {
            return espl_id_list_add(out, &id, 1) ? ESPL_OK : out_of_memory(err);
        }
    }
    size_t done = 0;
    while (done < len) {
        const size_t end = len >= LONG_WORD && run->bpe->can_cut
                               ? espl_bpe_next_cut(run->bpe, word, len, done)
                               : len;
        const enum espl_status status = encode_part(run, word + done, end - done, out, err);
        if (status != ESPL_OK) {
            return status;
        }
        done = end;
    }
    return ESPL_OK;
}

#include "datasets/bpe_internal.h"

#include "datasets/token_json.h"
#include "datasets/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 1 << 24, MAX_TOKEN_BYTES = 64 * 1024 };

static const size_t texts_limit = (size_t)1 << 30;

static enum espl_status out_of_memory(struct espl_error *err)
{
    return espl_fail(err, ESPL_E_NOMEM, "out of memory for the vocabulary");
}

static enum espl_status parse_vocab(struct espl_bpe *bpe, const json_t *value,
                                    struct espl_error *err)
{
    const json_t *const vocab = json_object_get(value, "vocab");
    const size_t count = json_object_size(vocab);
    if (!json_is_object(vocab) || count > MAX_TOKENS) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "field 'model.vocab' must be an object of at most %d tokens", MAX_TOKENS);
    }
    bpe->texts = espl_arena_create(texts_limit);
    if (bpe->texts == NULL || !espl_token_map_reserve(&bpe->vocab, count)) {
        return out_of_memory(err);
    }
    const char *text = NULL;
    json_t *id_value = NULL;
    json_object_foreach((json_t *)vocab, text, id_value) /* the macro only reads */
    {
        char what[80];
        (void)snprintf(what, sizeof what, "token '%.60s'", text);
        int32_t id = 0;
        const enum espl_status status = espl_token_json_id(id_value, what, &id, err);
        if (status != ESPL_OK) {
            return status;
        }
        const size_t len = strlen(text);
        if (len > MAX_TOKEN_BYTES) {
            return espl_fail(err, ESPL_E_CORRUPT, "%s is %zu bytes long, at most %d", what, len,
                             MAX_TOKEN_BYTES);
        }
        const char *const copy = espl_arena_strndup(bpe->texts, text, len);
        if (copy == NULL) {
            return out_of_memory(err);
        }
        espl_token_map_put(&bpe->vocab, copy, len, id);
        bpe->max_id = id > bpe->max_id ? id : bpe->max_id;
    }
    return ESPL_OK;
}

static enum espl_status bad_merge(size_t index, const char *why, struct espl_error *err)
{
    return espl_fail(err, ESPL_E_CORRUPT, "field 'model.merges[%zu]' %s", index, why);
}

/* The two texts of a merge, written "a b" or ["a", "b"]. *skip: an old version line. */
static enum espl_status merge_texts(const json_t *merge, size_t index, const char *text[2],
                                    size_t len[2], bool *skip, struct espl_error *err)
{
    *skip = false;
    if (json_is_string(merge)) {
        const char *const all = json_string_value(merge);
        const size_t all_len = json_string_length(merge);
        if (strncmp(all, "#version", strlen("#version")) == 0) {
            *skip = true;
            return ESPL_OK;
        }
        const char *const space = memchr(all, ' ', all_len);
        if (space == NULL || memchr(space + 1, ' ', all_len - (size_t)(space + 1 - all)) != NULL) {
            return bad_merge(index, "must hold two texts with one space between", err);
        }
        text[0] = all;
        len[0] = (size_t)(space - all);
        text[1] = space + 1;
        len[1] = all_len - len[0] - 1;
        return ESPL_OK;
    }
    if (!json_is_array(merge) || json_array_size(merge) != 2) {
        return bad_merge(index, "must be a string or an array of two strings", err);
    }
    for (size_t i = 0; i < 2; i++) {
        const json_t *const part = json_array_get(merge, i);
        if (!json_is_string(part)) {
            return bad_merge(index, "must be a string or an array of two strings", err);
        }
        text[i] = json_string_value(part);
        len[i] = json_string_length(part);
    }
    return ESPL_OK;
}

static enum espl_status add_merge(struct espl_bpe *bpe, const json_t *merge, size_t index,
                                  struct espl_buf *joined, uint32_t *rank, struct espl_error *err)
{
    const char *text[2] = {NULL, NULL};
    size_t len[2] = {0, 0};
    bool skip = false;
    enum espl_status status = merge_texts(merge, index, text, len, &skip, err);
    if (status != ESPL_OK || skip) {
        return status;
    }
    espl_buf_reset(joined);
    (void)espl_buf_add(joined, text[0], len[0]);
    (void)espl_buf_add(joined, text[1], len[1]);
    status = espl_buf_check(joined, "merged token", err);
    if (status != ESPL_OK) {
        return status;
    }
    const int32_t left = espl_token_map_get(&bpe->vocab, text[0], len[0]);
    const int32_t right = espl_token_map_get(&bpe->vocab, text[1], len[1]);
    const int32_t whole = espl_token_map_get(&bpe->vocab, espl_buf_text(joined), joined->len);
    if (left < 0 || right < 0 || whole < 0) {
        const char *const missing = left < 0    ? text[0]
                                    : right < 0 ? text[1]
                                                : espl_buf_text(joined);
        return espl_fail(err, ESPL_E_CORRUPT,
                         "field 'model.merges[%zu]' uses token '%.80s', which is not in the "
                         "vocabulary",
                         index, missing);
    }
    espl_merge_map_put(&bpe->merges, left, right, *rank, whole);
    (*rank)++;
    return ESPL_OK;
}

static enum espl_status parse_merges(struct espl_bpe *bpe, const json_t *value,
                                     struct espl_error *err)
{
    const json_t *const merges = json_object_get(value, "merges");
    const size_t count = json_array_size(merges);
    if (!json_is_array(merges) || count > MAX_TOKENS) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "field 'model.merges' must be an array of at most %d merges", MAX_TOKENS);
    }
    if (!espl_merge_map_reserve(&bpe->merges, count)) {
        return out_of_memory(err);
    }
    struct espl_buf joined;
    espl_buf_init(&joined, (size_t)2 * MAX_TOKEN_BYTES);
    enum espl_status status = ESPL_OK;
    uint32_t rank = 0;
    for (size_t i = 0; i < count && status == ESPL_OK; i++) {
        status = add_merge(bpe, json_array_get(merges, i), i, &joined, &rank, err);
    }
    espl_buf_free(&joined);
    return status;
}

/* Settings that would change ids and that we do not do: refused unless they are off. */
static enum espl_status check_refused(const json_t *value, struct espl_error *err)
{
    const json_t *const type = espl_token_json_get(value, "type");
    if (type != NULL && (!json_is_string(type) || strcmp(json_string_value(type), "BPE") != 0)) {
        return espl_token_json_refuse("model", "type",
                                      json_is_string(type) ? json_string_value(type) : "?", err);
    }
    const json_t *const dropout = espl_token_json_get(value, "dropout");
    if (dropout != NULL && (!json_is_number(dropout) || json_number_value(dropout) != 0.0)) {
        return espl_token_json_refuse("model", "dropout", "not null", err);
    }
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < sizeof affixes / sizeof affixes[0]; i++) {
        const json_t *const affix = espl_token_json_get(value, affixes[i]);
        if (affix != NULL && (!json_is_string(affix) || json_string_length(affix) != 0)) {
            return espl_token_json_refuse(
                "model", affixes[i], json_is_string(affix) ? json_string_value(affix) : "?", err);
        }
    }
    return ESPL_OK;
}

static enum espl_status parse_unknown(struct espl_bpe *bpe, const json_t *value,
                                      struct espl_error *err)
{
    bpe->unk_id = -1;
    if (espl_token_json_get(value, "unk_token") == NULL) {
        return ESPL_OK;
    }
    const char *text = NULL;
    size_t len = 0;
    const enum espl_status status =
        espl_token_json_string(value, "model", "unk_token", &text, &len, err);
    if (status == ESPL_OK) {
        bpe->has_unk = true;
        bpe->unk_id = espl_token_map_get(&bpe->vocab, text, len);
    }
    return status;
}

static enum espl_status parse_switches(struct espl_bpe *bpe, const json_t *value,
                                       struct espl_error *err)
{
    const struct {
        const char *key;
        bool *out;
    } switches[] = {{"byte_fallback", &bpe->byte_fallback},
                    {"fuse_unk", &bpe->fuse_unk},
                    {"ignore_merges", &bpe->ignore_merges}};
    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++) {
        const enum espl_status status =
            espl_token_json_bool(value, "model", switches[i].key, false, switches[i].out, err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    return ESPL_OK;
}

static void fill_tables(struct espl_bpe *bpe)
{
    for (uint32_t code = 0; code < ESPL_BPE_DIRECT_CODES; code++) {
        char text[4];
        bpe->char_ids[code] = espl_token_map_get(&bpe->vocab, text, espl_utf8_encode(code, text));
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        (void)snprintf(text, sizeof text, "<0x%02X>", byte);
        bpe->byte_ids[byte] = espl_token_map_get(&bpe->vocab, text, strlen(text));
    }
}

enum espl_status espl_bpe_parse(const json_t *value, struct espl_bpe **out, struct espl_error *err)
{
    if (!json_is_object(value)) {
        return espl_fail(err, ESPL_E_CORRUPT, "field 'model' must be an object");
    }
    struct espl_bpe *const bpe = calloc(1, sizeof *bpe);
    if (bpe == NULL) {
        return out_of_memory(err);
    }
    bpe->max_id = -1;
    enum espl_status status = check_refused(value, err);
    if (status == ESPL_OK) {
        status = parse_switches(bpe, value, err);
    }
    if (status == ESPL_OK) {
        status = parse_vocab(bpe, value, err);
    }
    if (status == ESPL_OK) {
        status = parse_merges(bpe, value, err);
    }
    if (status == ESPL_OK) {
        status = parse_unknown(bpe, value, err);
    }
    if (status == ESPL_OK) {
        fill_tables(bpe);
        status = espl_bpe_prepare_cuts(bpe, err);
    }
    if (status != ESPL_OK) {
        espl_bpe_destroy(bpe);
        return status;
    }
    *out = bpe;
    return ESPL_OK;
}

void espl_bpe_destroy(struct espl_bpe *bpe)
{
    if (bpe != NULL) {
        espl_token_map_free(&bpe->vocab);
        espl_merge_map_free(&bpe->merges);
        espl_merge_map_free(&bpe->inner_pairs);
        espl_arena_destroy(bpe->texts);
        free(bpe);
    }
}

const struct espl_token_map *espl_bpe_vocab(const struct espl_bpe *bpe)
{
    return &bpe->vocab;
}

int32_t espl_bpe_max_id(const struct espl_bpe *bpe)
{
    return bpe->max_id;
}

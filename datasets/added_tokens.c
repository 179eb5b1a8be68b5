#include "datasets/added_tokens.h"

#include "core/checked.h"
#include "datasets/token_json.h"
#include "datasets/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 1 << 20, MAX_CONTENT = 1024, NO_TOKEN = -1 };

struct added_token {
    char *content; /* as written in the file */
    size_t len;
    int32_t id;
    bool single_word;
    bool lstrip;
    bool rstrip;
    bool normalized;
    bool special;
};

/* A trie over bytes: the edge (node, byte) leads to a node; token[node] is the token that ends
 * there. Node 0 is the root. */
struct trie {
    struct espl_merge_map edges; /* pair (node, byte) -> node */
    int32_t *token;
    size_t nodes;
    bool starts[256]; /* bytes that some token starts with */
};

struct espl_added_tokens {
    struct added_token *tokens;
    size_t count;
    struct espl_token_map by_content;
    struct trie tries[2]; /* by `normalized` */
};

static enum espl_status out_of_memory(struct espl_error *err)
{
    return espl_fail(err, ESPL_E_NOMEM, "out of memory for the added tokens");
}

/* ---- reading ---- */

static enum espl_status parse_token(const json_t *value, size_t index,
                                    const struct espl_token_map *vocab, struct added_token *token,
                                    struct espl_error *err)
{
    char path[ESPL_JSON_PATH];
    (void)snprintf(path, sizeof path, "added_tokens[%zu]", index);
    const char *content = NULL;
    enum espl_status status =
        espl_token_json_string(value, path, "content", &content, &token->len, err);
    if (status == ESPL_OK) {
        status = espl_token_json_id(json_object_get(value, "id"), path, &token->id, err);
    }
    const struct {
        const char *key;
        bool *out;
    } flags[] = {{"special", &token->special},
                 {"single_word", &token->single_word},
                 {"lstrip", &token->lstrip},
                 {"rstrip", &token->rstrip}};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0] && status == ESPL_OK; i++) {
        status = espl_token_json_bool(value, path, flags[i].key, false, flags[i].out, err);
    }
    if (status == ESPL_OK) {
        status = espl_token_json_bool(value, path, "normalized", !token->special,
                                      &token->normalized, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    if (token->len == 0 || token->len > MAX_CONTENT) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "field '%s.content' has %zu bytes, expected 1 .. %d", path, token->len,
                         MAX_CONTENT);
    }
    const int32_t known = espl_token_map_get(vocab, content, token->len);
    if (known >= 0 && known != token->id) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "token '%.80s' has id %d in added_tokens and %d in the vocabulary",
                         content, (int)token->id, (int)known);
    }
    token->content = malloc(token->len + 1);
    if (token->content == NULL) {
        return out_of_memory(err);
    }
    memcpy(token->content, content, token->len + 1);
    return ESPL_OK;
}

/* ---- tries ---- */

static bool trie_reserve(struct trie *trie, size_t bytes)
{
    size_t size = 0;
    if (!espl_mul_size(bytes + 1, sizeof *trie->token, &size) ||
        !espl_merge_map_reserve(&trie->edges, bytes)) {
        return false;
    }
    trie->token = malloc(size);
    if (trie->token == NULL) {
        return false;
    }
    trie->token[0] = NO_TOKEN;
    trie->nodes = 1;
    return true;
}

/* Returns the token that already has this text, NO_TOKEN when there is none. */
static int32_t trie_add(struct trie *trie, const char *text, size_t len, int32_t token)
{
    int32_t node = 0;
    for (size_t i = 0; i < len; i++) {
        const unsigned char byte = (unsigned char)text[i];
        const struct espl_merge_slot *const edge = espl_merge_map_get(&trie->edges, node, byte);
        if (edge != NULL) {
            node = edge->id;
            continue;
        }
        const int32_t next = (int32_t)trie->nodes;
        espl_merge_map_put(&trie->edges, node, byte, 0, next);
        trie->token[trie->nodes] = NO_TOKEN;
        trie->nodes++;
        node = next;
    }
    const int32_t before = trie->token[node];
    trie->token[node] = token;
    trie->starts[(unsigned char)text[0]] = true;
    return before;
}

/* The longest token at text, NO_TOKEN when there is none; *len: its bytes. */
static int32_t trie_match(const struct trie *trie, const char *text, size_t left, size_t *len)
{
    int32_t best = NO_TOKEN;
    int32_t node = 0;
    for (size_t i = 0; i < left; i++) {
        const struct espl_merge_slot *const edge =
            espl_merge_map_get(&trie->edges, node, (unsigned char)text[i]);
        if (edge == NULL) {
            break;
        }
        node = edge->id;
        if (trie->token[node] != NO_TOKEN) {
            best = trie->token[node];
            *len = i + 1;
        }
    }
    return best;
}

/* The text that a normalised token matches: its content, normalised. */
static enum espl_status normalised_content(const struct espl_normalizer *normalizer,
                                           const struct added_token *token, struct espl_buf *out,
                                           struct espl_buf *spare, struct espl_error *err)
{
    if (normalizer == NULL) {
        espl_buf_reset(out);
        (void)espl_buf_add(out, token->content, token->len);
        return espl_buf_check(out, "added token", err);
    }
    struct espl_regex_matcher *const matcher = espl_regex_matcher_create();
    if (matcher == NULL) {
        return out_of_memory(err);
    }
    enum espl_status status =
        espl_normalizer_apply(normalizer, matcher, token->content, token->len, out, spare, err);
    if (status == ESPL_OK && out->len == 0) {
        status = espl_fail(err, ESPL_E_UNSUPPORTED,
                           "added token '%.80s' is empty once it is normalised", token->content);
    }
    espl_regex_matcher_destroy(matcher);
    return status;
}

static enum espl_status fill_trie(struct espl_added_tokens *added, bool normalized,
                                  const struct espl_normalizer *normalizer, struct espl_error *err)
{
    struct trie *const trie = &added->tries[normalized];
    enum espl_status status = ESPL_OK;
    struct espl_buf text;
    struct espl_buf spare;
    espl_buf_init(&text, (size_t)32 * MAX_CONTENT);
    espl_buf_init(&spare, (size_t)32 * MAX_CONTENT);
    /* Room for the largest case: a first pass measures, the second fills. */
    size_t bytes = 0;
    for (int pass = 0; pass < 2 && status == ESPL_OK; pass++) {
        if (pass == 1 && (bytes >= INT32_MAX || !trie_reserve(trie, bytes))) {
            status = out_of_memory(err);
        }
        for (size_t i = 0; i < added->count && status == ESPL_OK; i++) {
            const struct added_token *const token = &added->tokens[i];
            if (token->normalized != normalized) {
                continue;
            }
            status = normalised_content(normalized ? normalizer : NULL, token, &text, &spare, err);
            bytes += text.len;
            const int32_t twin = status == ESPL_OK && pass == 1
                                     ? trie_add(trie, text.data, text.len, (int32_t)i)
                                     : NO_TOKEN;
            if (twin != NO_TOKEN) { /* versions of the reference disagree which one wins */
                status = espl_fail(err, ESPL_E_UNSUPPORTED,
                                   "added tokens '%.80s' and '%.80s' match the same text",
                                   added->tokens[twin].content, token->content);
            }
        }
    }
    espl_buf_free(&text);
    espl_buf_free(&spare);
    return status;
}

static enum espl_status parse_all(const json_t *value, const struct espl_token_map *vocab,
                                  const struct espl_normalizer *normalizer,
                                  struct espl_added_tokens *added, struct espl_error *err)
{
    const size_t count = json_array_size(value);
    if (!json_is_array(value) || count > MAX_TOKENS) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "field 'added_tokens' must be an array of at most %d tokens", MAX_TOKENS);
    }
    added->tokens = calloc(count > 0 ? count : 1, sizeof *added->tokens);
    if (added->tokens == NULL || !espl_token_map_reserve(&added->by_content, count)) {
        return out_of_memory(err);
    }
    for (size_t i = 0; i < count; i++) {
        struct added_token *const token = &added->tokens[i];
        added->count = i + 1; /* so that destroy sees a half-read token too */
        const enum espl_status status = parse_token(json_array_get(value, i), i, vocab, token, err);
        if (status != ESPL_OK) {
            return status;
        }
        if (espl_token_map_get(&added->by_content, token->content, token->len) >= 0) {
            return espl_fail(err, ESPL_E_CORRUPT, "added token '%.80s' is listed twice",
                             token->content);
        }
        espl_token_map_put(&added->by_content, token->content, token->len, token->id);
    }
    const enum espl_status status = fill_trie(added, false, normalizer, err);
    return status != ESPL_OK ? status : fill_trie(added, true, normalizer, err);
}

enum espl_status espl_added_tokens_parse(const json_t *value, const struct espl_token_map *vocab,
                                         const struct espl_normalizer *normalizer,
                                         struct espl_added_tokens **out, struct espl_error *err)
{
    struct espl_added_tokens *const added = calloc(1, sizeof *added);
    if (added == NULL) {
        return out_of_memory(err);
    }
    const enum espl_status status =
        value != NULL ? parse_all(value, vocab, normalizer, added, err) : ESPL_OK;
    if (status != ESPL_OK) {
        espl_added_tokens_destroy(added);
        return status;
    }
    *out = added;
    return ESPL_OK;
}

void espl_added_tokens_destroy(struct espl_added_tokens *added)
{
    if (added == NULL) {
        return;
    }
    for (size_t i = 0; i < added->count; i++) {
        free(added->tokens[i].content);
    }
    for (size_t i = 0; i < 2; i++) {
        espl_merge_map_free(&added->tries[i].edges);
        free(added->tries[i].token);
    }
    espl_token_map_free(&added->by_content);
    free(added->tokens);
    free(added);
}

int32_t espl_added_tokens_find(const struct espl_added_tokens *added, const char *text, size_t len)
{
    return espl_token_map_get(&added->by_content, text, len);
}

int32_t espl_added_tokens_max_id(const struct espl_added_tokens *added)
{
    int32_t most = -1;
    for (size_t i = 0; i < added->count; i++) {
        most = added->tokens[i].id > most ? added->tokens[i].id : most;
    }
    return most;
}

/* ---- cutting ---- */

static bool touches_word(const char *text, size_t len, size_t start, size_t end)
{
    uint32_t code = 0;
    if (start > 0) {
        (void)espl_utf8_decode_last(text, start, &code);
        if (espl_unicode_is_word(code)) {
            return true;
        }
    }
    if (end < len) {
        (void)espl_utf8_decode(text + end, &code);
        return espl_unicode_is_word(code);
    }
    return false;
}

/* The start of the run of spaces before `start`, not before `floor`. */
static size_t skip_spaces_back(const char *text, size_t start, size_t floor)
{
    while (start > floor) {
        uint32_t code = 0;
        const size_t bytes = espl_utf8_decode_last(text, start, &code);
        if (!espl_unicode_is_space(code)) {
            break;
        }
        start -= bytes;
    }
    return start;
}

static size_t skip_spaces(const char *text, size_t len, size_t end)
{
    while (end < len) {
        uint32_t code = 0;
        const size_t bytes = espl_utf8_decode(text + end, &code);
        if (!espl_unicode_is_space(code)) {
            break;
        }
        end += bytes;
    }
    return end;
}

enum espl_status espl_added_tokens_split(const struct espl_added_tokens *added, bool normalized,
                                         const char *text, size_t len, espl_part_fn part,
                                         void *user, struct espl_error *err)
{
    const struct trie *const trie = &added->tries[normalized];
    size_t done = 0; /* text before it was handed out */
    size_t at = 0;   /* where the search goes on */
    while (at < len) {
        size_t bytes = 0;
        const int32_t found = trie->starts[(unsigned char)text[at]]
                                  ? trie_match(trie, text + at, len - at, &bytes)
                                  : NO_TOKEN;
        if (found == NO_TOKEN) {
            at++;
            continue;
        }
        const struct added_token *const token = &added->tokens[found];
        size_t start = at;
        size_t end = at + bytes;
        at = end;
        if (token->single_word && touches_word(text, len, start, end)) {
            continue;
        }
        /* The token before may have taken these bytes with its spaces; then one that takes spaces
         * too is empty and vanishes, and one that does not is a token all the same. */
        if (token->lstrip) {
            start = start < done ? done : skip_spaces_back(text, start, done);
        }
        if (token->rstrip) {
            end = skip_spaces(text, len, end);
        }
        enum espl_status status = ESPL_OK;
        if (done < start) {
            status = part(user, done, start, -1, err);
        }
        if (status == ESPL_OK && start < end) {
            status = part(user, start, end, token->id, err);
        }
        if (status != ESPL_OK) {
            return status;
        }
        done = end;
    }
    return done < len ? part(user, done, len, -1, err) : ESPL_OK;
}

#include "datasets/tokenizer.h"

#include "core/buf.h"
#include "core/checked.h"
#include "core/fs.h"
#include "datasets/added_tokens.h"
#include "datasets/bpe.h"
#include "datasets/normalizer.h"
#include "datasets/pretokenizer.h"
#include "datasets/token_json.h"
#include "datasets/token_template.h"
#include "datasets/unicode.h"

#include <stdlib.h>
#include <string.h>

enum {
    FILE_LIMIT = 256 * 1024 * 1024,  /* bytes of a tokenizer.json */
    CONFIG_LIMIT = 16 * 1024 * 1024, /* bytes of a tokenizer_config.json */
    GROWTH = 32,                     /* a normaliser may make a text this many times longer ... */
    GROWTH_BASE = 64 * 1024,         /* ... plus this many bytes */
};

struct espl_tokenizer {
    char sha256[ESPL_SHA256_HEX];
    struct espl_bpe *bpe;
    struct espl_normalizer *normalizer; /* NULL = none */
    struct espl_pretokenizer *pretokenizer;
    struct espl_added_tokens *added;
    struct espl_token_template template_ids;
};

/* ---- reading ---- */

static enum espl_status load_json(const char *text, size_t len, const char *what, json_t **out,
                                  struct espl_error *err)
{
    json_error_t error;
    json_t *const root = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (root == NULL) {
        return espl_fail(err, ESPL_E_CORRUPT, "%s is not valid JSON: line %d, column %d: %s", what,
                         error.line, error.column, error.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return espl_fail(err, ESPL_E_CORRUPT, "%s must hold a JSON object", what);
    }
    *out = root;
    return ESPL_OK;
}

static int32_t find_token(const void *user, const char *text, size_t len)
{
    const struct espl_tokenizer *const tokenizer = user;
    const int32_t added = espl_added_tokens_find(tokenizer->added, text, len);
    return added >= 0 ? added : espl_token_map_get(espl_bpe_vocab(tokenizer->bpe), text, len);
}

static enum espl_status parse_parts(struct espl_tokenizer *tokenizer, const json_t *root,
                                    struct espl_error *err)
{
    enum espl_status status =
        espl_bpe_parse(espl_token_json_get(root, "model"), &tokenizer->bpe, err);
    if (status == ESPL_OK) {
        status = espl_normalizer_parse(espl_token_json_get(root, "normalizer"),
                                       &tokenizer->normalizer, err);
    }
    if (status == ESPL_OK) {
        status = espl_pretokenizer_parse(espl_token_json_get(root, "pre_tokenizer"),
                                         espl_normalizer_moves_start(tokenizer->normalizer),
                                         &tokenizer->pretokenizer, err);
    }
    if (status == ESPL_OK) {
        status = espl_added_tokens_parse(espl_token_json_get(root, "added_tokens"),
                                         espl_bpe_vocab(tokenizer->bpe), tokenizer->normalizer,
                                         &tokenizer->added, err);
    }
    if (status == ESPL_OK) {
        status = espl_token_template_parse(espl_token_json_get(root, "post_processor"),
                                           &tokenizer->template_ids, err);
    }
    return status;
}

enum espl_status espl_tokenizer_parse(const char *json, size_t json_len, const char *config_json,
                                      size_t config_len, struct espl_tokenizer **out,
                                      struct espl_error *err)
{
    json_t *root = NULL;
    json_t *config = NULL;
    struct espl_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (tokenizer == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a tokenizer");
    }
    enum espl_status status = load_json(json, json_len, "tokenizer.json", &root, err);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    status = espl_sha256_bytes(json, json_len, tokenizer->sha256, err);
    if (status == ESPL_OK) {
        status = parse_parts(tokenizer, root, err);
    }
    if (status == ESPL_OK && config_json != NULL) {
        status = load_json(config_json, config_len, "tokenizer_config.json", &config, err);
        if (status == ESPL_OK) {
            status = espl_token_template_configure(config, find_token, tokenizer,
                                                   &tokenizer->template_ids, err);
        }
    }
    if (status == ESPL_OK) {
        *out = tokenizer;
        tokenizer = NULL;
    }
cleanup:
    json_decref(config);
    json_decref(root);
    espl_tokenizer_destroy(tokenizer);
    return status;
}

enum espl_status espl_tokenizer_load(const char *path, struct espl_tokenizer **out,
                                     struct espl_error *err)
{
    char *json = NULL;
    char *config = NULL;
    size_t json_len = 0;
    size_t config_len = 0;
    char json_path[ESPL_PATH_MAX] = "";
    char config_path[ESPL_PATH_MAX] = "";
    enum espl_status status = espl_tokenizer_files(path, json_path, config_path, err);
    if (status == ESPL_OK) {
        status = espl_fs_read_file(json_path, FILE_LIMIT, &json, &json_len, err);
    }
    if (status == ESPL_OK && config_path[0] != '\0') {
        status = espl_fs_read_file(config_path, CONFIG_LIMIT, &config, &config_len, err);
    }
    if (status == ESPL_OK) {
        status = espl_tokenizer_parse(json, json_len, config, config_len, out, err);
        if (status != ESPL_OK) {
            (void)espl_context(err, "while reading tokenizer '%s'", json_path);
        }
    }
    free(json);
    free(config);
    return status;
}

enum espl_status espl_tokenizer_files(const char *path, char json_path[ESPL_PATH_MAX],
                                      char config_path[ESPL_PATH_MAX], struct espl_error *err)
{
    char folder[ESPL_PATH_MAX];
    const char *const slash = strrchr(path, '/');
    enum espl_status status = ESPL_OK;
    if (espl_fs_is_dir(path)) {
        status = espl_fs_join(folder, path, "", err);
        if (status == ESPL_OK) {
            status = espl_fs_join(json_path, path, "tokenizer.json", err);
        }
    } else {
        const int folder_len = slash != NULL ? (int)(slash - path) + 1 : 2;
        const char *const start = slash != NULL ? path : "./";
        if (strlen(path) >= ESPL_PATH_MAX) {
            return espl_fail(err, ESPL_E_IO, "path '%.80s...' is too long", path);
        }
        memcpy(json_path, path, strlen(path) + 1);
        memcpy(folder, start, (size_t)folder_len);
        folder[folder_len] = '\0';
    }
    if (status == ESPL_OK) {
        status = espl_fs_join(config_path, folder, "tokenizer_config.json", err);
    }
    if (status == ESPL_OK && !espl_fs_exists(json_path)) {
        (void)espl_fail(err, ESPL_E_NOTFOUND, "cannot find tokenizer '%s'", json_path);
        return espl_hint(err, "give a folder that holds tokenizer.json, or the file itself; only "
                              "that format is read");
    }
    if (status == ESPL_OK && !espl_fs_exists(config_path)) {
        config_path[0] = '\0';
    }
    return status;
}

void espl_tokenizer_destroy(struct espl_tokenizer *tokenizer)
{
    if (tokenizer != NULL) {
        espl_added_tokens_destroy(tokenizer->added);
        espl_pretokenizer_destroy(tokenizer->pretokenizer);
        espl_normalizer_destroy(tokenizer->normalizer);
        espl_bpe_destroy(tokenizer->bpe);
        free(tokenizer);
    }
}

const char *espl_tokenizer_sha256(const struct espl_tokenizer *tokenizer)
{
    return tokenizer->sha256;
}

size_t espl_tokenizer_vocab_size(const struct espl_tokenizer *tokenizer)
{
    const int32_t added = espl_added_tokens_max_id(tokenizer->added);
    const int32_t model = espl_bpe_max_id(tokenizer->bpe);
    return (size_t)(added > model ? added : model) + 1; /* -1 wraps to 0: no token at all */
}

int32_t espl_tokenizer_bos(const struct espl_tokenizer *tokenizer)
{
    return tokenizer->template_ids.before_count > 0 ? tokenizer->template_ids.before[0] : -1;
}

/* ---- encoding ---- */

struct encoder {
    const struct espl_tokenizer *tokenizer;
    const char *text;
    struct espl_id_list ids;
    struct espl_regex_matcher *matcher;
    struct espl_bpe_run *bpe;
    struct espl_pretokenizer_run cutter;
    struct espl_buf normalised;
    struct espl_buf spare;
    /* The section at hand: between two tokens of the text as written. */
    const char *section;
    bool section_first; /* it starts at the beginning of the text */
};

static enum espl_status add_ids(struct encoder *e, const int32_t *ids, size_t count,
                                struct espl_error *err)
{
    return espl_id_list_add(&e->ids, ids, count)
               ? ESPL_OK
               : espl_fail(err, ESPL_E_NOMEM, "out of memory for token ids");
}

static enum espl_status encode_word(void *user, const char *word, size_t len,
                                    struct espl_error *err)
{
    struct encoder *const e = user;
    return espl_bpe_encode(e->bpe, word, len, &e->ids, err);
}

/* A part of a normalised section: a token, or text to cut and merge. */
static enum espl_status encode_part(void *user, size_t start, size_t end, int32_t id,
                                    struct espl_error *err)
{
    struct encoder *const e = user;
    if (id >= 0) {
        return add_ids(e, &id, 1, err);
    }
    return espl_pretokenizer_apply(e->tokenizer->pretokenizer, &e->cutter, e->section + start,
                                   end - start, e->section_first && start == 0, err);
}

/* A part of the text as written: a token, or a section to normalise and search again. */
static enum espl_status encode_section(void *user, size_t start, size_t end, int32_t id,
                                       struct espl_error *err)
{
    struct encoder *const e = user;
    if (id >= 0) {
        return add_ids(e, &id, 1, err);
    }
    size_t len = end - start;
    e->section = e->text + start;
    e->section_first = start == 0;
    if (e->tokenizer->normalizer != NULL) {
        const enum espl_status status = espl_normalizer_apply(
            e->tokenizer->normalizer, e->matcher, e->section, len, &e->normalised, &e->spare, err);
        if (status != ESPL_OK) {
            return status;
        }
        e->section = espl_buf_text(&e->normalised);
        len = e->normalised.len;
    }
    return espl_added_tokens_split(e->tokenizer->added, true, e->section, len, encode_part, e, err);
}

static enum espl_status prepare(struct encoder *e, size_t len, struct espl_error *err)
{
    size_t limit = len;
    if (e->tokenizer->normalizer != NULL &&
        (!espl_mul_size(len, GROWTH, &limit) || !espl_add_size(limit, GROWTH_BASE, &limit))) {
        return espl_fail(err, ESPL_E_NOMEM, "a text of %zu bytes is too long", len);
    }
    espl_buf_init(&e->normalised, limit);
    espl_buf_init(&e->spare, limit);
    e->matcher = espl_regex_matcher_create();
    e->bpe = espl_bpe_run_create(e->tokenizer->bpe, len);
    espl_pretokenizer_run_init(&e->cutter, e->matcher, limit, encode_word, e);
    return e->matcher != NULL && e->bpe != NULL
               ? ESPL_OK
               : espl_fail(err, ESPL_E_NOMEM, "out of memory while tokenising");
}

enum espl_status espl_tokenizer_encode(const struct espl_tokenizer *tokenizer, const char *text,
                                       size_t len, bool add_special, int32_t **ids, size_t *count,
                                       struct espl_error *err)
{
    const size_t invalid = espl_utf8_invalid_at(text, len);
    if (invalid != len) {
        return espl_fail(err, ESPL_E_CORRUPT, "text is not valid UTF-8: byte 0x%02x at offset %zu",
                         (unsigned)(unsigned char)text[invalid], invalid);
    }
    const struct espl_token_template *const ends = &tokenizer->template_ids;
    struct encoder e = {.tokenizer = tokenizer, .text = text};
    enum espl_status status = prepare(&e, len, err);
    if (status == ESPL_OK && add_special) {
        status = add_ids(&e, ends->before, ends->before_count, err);
    }
    if (status == ESPL_OK) {
        status =
            espl_added_tokens_split(tokenizer->added, false, text, len, encode_section, &e, err);
    }
    if (status == ESPL_OK && add_special) {
        status = add_ids(&e, ends->after, ends->after_count, err);
    }
    if (status == ESPL_OK) {
        *ids = e.ids.ids;
        *count = e.ids.count;
        e.ids.ids = NULL;
    }
    espl_pretokenizer_run_free(&e.cutter);
    espl_bpe_run_destroy(e.bpe);
    espl_regex_matcher_destroy(e.matcher);
    espl_buf_free(&e.normalised);
    espl_buf_free(&e.spare);
    free(e.ids.ids);
    return status;
}

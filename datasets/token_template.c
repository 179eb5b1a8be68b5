#include "datasets/token_template.h"

#include "datasets/token_json.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NESTING = 8 };

static const char config_file[] = "tokenizer_config.json";

/* A template of one post-processor while it is read. */
struct reader {
    const json_t *special_tokens;
    const char *path;
    struct espl_token_template single;
    bool seen_text;
    struct espl_error *err;
};

static enum espl_status append_ids(int32_t *ids, size_t *count, const int32_t *more,
                                   size_t more_count, const char *path, struct espl_error *err)
{
    if (more_count > ESPL_TEMPLATE_IDS - *count) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "field '%s' adds more than %d tokens", path,
                         ESPL_TEMPLATE_IDS);
    }
    memcpy(ids + *count, more, more_count * sizeof *ids);
    *count += more_count;
    return ESPL_OK;
}

static enum espl_status read_special(struct reader *r, const json_t *piece)
{
    const char *name = NULL;
    size_t len = 0;
    enum espl_status status = espl_token_json_string(piece, r->path, "id", &name, &len, r->err);
    if (status != ESPL_OK) {
        return status;
    }
    const json_t *const ids = json_object_get(json_object_get(r->special_tokens, name), "ids");
    if (!json_is_array(ids)) {
        return espl_fail(r->err, ESPL_E_CORRUPT, "field '%s.special_tokens' has no ids for '%.80s'",
                         r->path, name);
    }
    for (size_t i = 0; i < json_array_size(ids) && status == ESPL_OK; i++) {
        int32_t id = 0;
        status = espl_token_json_id(json_array_get(ids, i), name, &id, r->err);
        if (status == ESPL_OK) {
            status = r->seen_text ? append_ids(r->single.after, &r->single.after_count, &id, 1,
                                               r->path, r->err)
                                  : append_ids(r->single.before, &r->single.before_count, &id, 1,
                                               r->path, r->err);
        }
    }
    return status;
}

static enum espl_status read_piece(struct reader *r, const json_t *piece)
{
    const json_t *const special = json_object_get(piece, "SpecialToken");
    if (special != NULL) {
        return read_special(r, special);
    }
    const json_t *const id = json_object_get(json_object_get(piece, "Sequence"), "id");
    if (!json_is_string(id) || strcmp(json_string_value(id), "A") != 0 || r->seen_text) {
        return espl_fail(r->err, ESPL_E_UNSUPPORTED,
                         "field '%s.single' must hold special tokens and the sequence 'A' once",
                         r->path);
    }
    r->seen_text = true;
    return ESPL_OK;
}

static enum espl_status parse_template(const json_t *value, const char *path,
                                       struct espl_token_template *out, struct espl_error *err)
{
    struct reader reader = {
        .special_tokens = json_object_get(value, "special_tokens"), .path = path, .err = err};
    const json_t *const single = json_object_get(value, "single");
    if (!json_is_array(single)) {
        return espl_fail(err, ESPL_E_CORRUPT, "field '%s.single' must be an array", path);
    }
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < json_array_size(single) && status == ESPL_OK; i++) {
        status = read_piece(&reader, json_array_get(single, i));
    }
    if (status == ESPL_OK && !reader.seen_text) {
        status = espl_fail(err, ESPL_E_UNSUPPORTED, "field '%s.single' leaves out the text", path);
    }
    /* A later processor wraps what the earlier ones made. */
    if (status == ESPL_OK) {
        status = append_ids(reader.single.before, &reader.single.before_count, out->before,
                            out->before_count, path, err);
    }
    if (status == ESPL_OK) {
        status = append_ids(out->after, &out->after_count, reader.single.after,
                            reader.single.after_count, path, err);
    }
    if (status == ESPL_OK) {
        memcpy(out->before, reader.single.before, sizeof out->before);
        out->before_count = reader.single.before_count;
    }
    return status;
}

static enum espl_status parse_value(const json_t *value, const char *path, unsigned depth,
                                    struct espl_token_template *out, struct espl_error *err)
{
    const char *type = NULL;
    size_t len = 0;
    enum espl_status status = espl_token_json_string(value, path, "type", &type, &len, err);
    if (status != ESPL_OK || strcmp(type, "ByteLevel") == 0) { /* ByteLevel only moves offsets */
        return status;
    }
    if (strcmp(type, "TemplateProcessing") == 0) {
        return parse_template(value, path, out, err);
    }
    if (strcmp(type, "Sequence") != 0) {
        return espl_token_json_refuse(path, "type", type, err);
    }
    const json_t *const list = json_object_get(value, "processors");
    if (!json_is_array(list) || depth == MAX_NESTING) {
        return espl_fail(err, ESPL_E_CORRUPT, "field '%s.processors' must be an array, %s", path,
                         depth == MAX_NESTING ? "not so deeply nested" : "got none");
    }
    for (size_t i = 0; i < json_array_size(list) && status == ESPL_OK; i++) {
        char item[ESPL_JSON_PATH];
        (void)snprintf(item, sizeof item, "%s.processors[%zu]", path, i);
        status = parse_value(json_array_get(list, i), item, depth + 1, out, err);
    }
    return status;
}

enum espl_status espl_token_template_parse(const json_t *value, struct espl_token_template *out,
                                           struct espl_error *err)
{
    memset(out, 0, sizeof *out);
    return value != NULL ? parse_value(value, "post_processor", 0, out, err) : ESPL_OK;
}

/* ---- tokenizer_config.json ---- */

/* "bos_token": "<s>" or {"content": "<s>", ...}; *id = -1 when it is null or absent. */
static enum espl_status named_token(const json_t *config, const char *key, espl_token_find_fn find,
                                    const void *user, int32_t *id, struct espl_error *err)
{
    *id = -1;
    const json_t *value = espl_token_json_get(config, key);
    if (json_is_object(value)) {
        value = espl_token_json_get(value, "content");
    }
    if (value == NULL) {
        return ESPL_OK;
    }
    if (!json_is_string(value)) {
        return espl_fail(err, ESPL_E_CORRUPT, "field '%s' of %s must be a string or an object", key,
                         config_file);
    }
    *id = find(user, json_string_value(value), json_string_length(value));
    return ESPL_OK;
}

/* Classes that make their post-processor from add_bos_token and add_eos_token. */
static bool class_follows_flags(const json_t *config)
{
    static const char *const classes[] = {"LlamaTokenizer",
                                          "LlamaTokenizerFast",
                                          "CodeLlamaTokenizer",
                                          "CodeLlamaTokenizerFast",
                                          "GemmaTokenizer",
                                          "GemmaTokenizerFast",
                                          NULL};
    const char *const name = json_string_value(json_object_get(config, "tokenizer_class"));
    for (size_t i = 0; name != NULL && classes[i] != NULL; i++) {
        if (strcmp(name, classes[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* One of the two ends. ids: what the template has there; edge: index of the outermost one. */
static enum espl_status configure_end(const json_t *config, const char *flag, const char *token,
                                      espl_token_find_fn find, const void *user, int32_t *ids,
                                      size_t *count, bool front, struct espl_error *err)
{
    const json_t *const value = espl_token_json_get(config, flag);
    bool add = false;
    int32_t id = -1;
    enum espl_status status = espl_token_json_bool(config, config_file, flag, false, &add, err);
    if (status == ESPL_OK) {
        status = named_token(config, token, find, user, &id, err);
    }
    if (status != ESPL_OK || value == NULL) {
        return status;
    }
    if (add && *count == 0) {
        if (id < 0) {
            return espl_fail(err, ESPL_E_CORRUPT,
                             "%s sets '%s', but its '%s' is not a token of the tokenizer",
                             config_file, flag, token);
        }
        ids[0] = id;
        *count = 1;
    }
    const size_t edge = front || *count == 0 ? 0 : *count - 1;
    if (!add && *count > 0 && id >= 0 && ids[edge] == id && class_follows_flags(config)) {
        memmove(ids + edge, ids + edge + 1, (*count - edge - 1) * sizeof *ids);
        (*count)--;
    }
    return ESPL_OK;
}

enum espl_status espl_token_template_configure(const json_t *config, espl_token_find_fn find,
                                               const void *user, struct espl_token_template *out,
                                               struct espl_error *err)
{
    const enum espl_status status = configure_end(config, "add_bos_token", "bos_token", find, user,
                                                  out->before, &out->before_count, true, err);
    return status != ESPL_OK ? status
                             : configure_end(config, "add_eos_token", "eos_token", find, user,
                                             out->after, &out->after_count, false, err);
}

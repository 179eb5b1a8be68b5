#include "datasets/pretokenizer_internal.h"

#include "datasets/token_json.h"
#include "datasets/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NESTING = 8, MAX_TEXT = 1024 };

/* GPT-2's pattern, which ByteLevel uses. */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
/* What Whitespace finds. Its \w counts the two joiners, unlike that of the patterns in files. */
static const char words_pattern[] = "[\\w\\x{200c}\\x{200d}]+|[^\\w\\s\\x{200c}\\x{200d}]+";

struct parser {
    struct espl_pretokenizer *chain;
    bool start_moves;
    bool has_rewrite; /* a ByteLevel or Metaspace was seen */
    struct espl_error *err;
};

/* NULL, with the error filled, when the chain is full: ESPL_E_UNSUPPORTED. */
static struct espl_pretokenizer_step *add_step(struct parser *p, const char *path)
{
    if (p->chain->count == ESPL_PRETOKENIZER_STEPS) {
        (void)espl_fail(p->err, ESPL_E_UNSUPPORTED, "field '%s' needs more than %d steps", path,
                        ESPL_PRETOKENIZER_STEPS);
        return NULL;
    }
    p->chain->count++;
    return &p->chain->steps[p->chain->count - 1];
}

static enum espl_status add_regex_split(struct parser *p, const char *path, const char *pattern,
                                        size_t len, enum espl_split_behavior behavior, bool invert)
{
    struct espl_pretokenizer_step *const step = add_step(p, path);
    if (step == NULL) {
        return ESPL_E_UNSUPPORTED;
    }
    step->matcher = ESPL_MATCH_REGEX;
    step->behavior = behavior;
    step->invert = invert;
    const enum espl_status status = espl_token_regex_create(pattern, len, &step->regex, p->err);
    if (status != ESPL_OK) {
        (void)espl_context(p->err, "while reading field '%s'", path);
    }
    return status;
}

static enum espl_status add_class_split(struct parser *p, const char *path,
                                        enum espl_split_matcher matcher,
                                        enum espl_split_behavior behavior)
{
    struct espl_pretokenizer_step *const step = add_step(p, path);
    if (step == NULL) {
        return ESPL_E_UNSUPPORTED;
    }
    step->matcher = matcher;
    step->behavior = behavior;
    return ESPL_OK;
}

static enum espl_status add_rewrite(struct parser *p, const char *path,
                                    enum espl_pretokenizer_kind kind)
{
    struct espl_pretokenizer_step *const step = add_step(p, path);
    if (step == NULL) {
        return ESPL_E_UNSUPPORTED;
    }
    step->kind = kind;
    return ESPL_OK;
}

static enum espl_status copy_step_text(struct parser *p, const char *path,
                                       struct espl_pretokenizer_step *step, const char *text,
                                       size_t len)
{
    if (len == 0 || len > MAX_TEXT) {
        return espl_fail(p->err, ESPL_E_UNSUPPORTED, "field '%s' has %zu bytes, expected 1 .. %d",
                         path, len, MAX_TEXT);
    }
    step->text = malloc(len + 1);
    if (step->text == NULL) {
        return espl_fail(p->err, ESPL_E_NOMEM, "out of memory for the pre-tokenizer");
    }
    memcpy(step->text, text, len);
    step->text[len] = '\0';
    step->text_len = len;
    return ESPL_OK;
}

/* Each of these grows the text, so that a chain of many would blow it up. */
static enum espl_status claim_rewrite(struct parser *p, const char *path)
{
    if (p->has_rewrite) {
        return espl_fail(p->err, ESPL_E_UNSUPPORTED,
                         "field '%s': a second ByteLevel or Metaspace is not supported", path);
    }
    p->has_rewrite = true;
    return ESPL_OK;
}

static enum espl_status parse_byte_level(struct parser *p, const json_t *value, const char *path)
{
    bool add_prefix_space = false;
    bool use_regex = false;
    enum espl_status status = claim_rewrite(p, path);
    if (status == ESPL_OK) {
        status =
            espl_token_json_bool(value, path, "add_prefix_space", true, &add_prefix_space, p->err);
    }
    if (status == ESPL_OK) {
        status = espl_token_json_bool(value, path, "use_regex", true, &use_regex, p->err);
    }
    if (status == ESPL_OK && add_prefix_space) {
        status = add_rewrite(p, path, ESPL_STEP_PREFIX_SPACE);
    }
    if (status == ESPL_OK && use_regex) {
        status = add_regex_split(p, path, gpt2_pattern, sizeof gpt2_pattern - 1,
                                 ESPL_SPLIT_ISOLATED, false);
    }
    return status == ESPL_OK ? add_rewrite(p, path, ESPL_STEP_BYTE_MAP) : status;
}

static enum espl_status parse_prepend_scheme(struct parser *p, const json_t *value,
                                             const char *path, enum espl_prepend_scheme *out)
{
    bool add_prefix_space = false;
    enum espl_status status =
        espl_token_json_bool(value, path, "add_prefix_space", true, &add_prefix_space, p->err);
    if (status != ESPL_OK) {
        return status;
    }
    if (espl_token_json_get(value, "prepend_scheme") == NULL) {
        *out = add_prefix_space ? ESPL_PREPEND_ALWAYS : ESPL_PREPEND_NEVER;
        return ESPL_OK;
    }
    const char *scheme = NULL;
    size_t len = 0;
    status = espl_token_json_string(value, path, "prepend_scheme", &scheme, &len, p->err);
    if (status != ESPL_OK) {
        return status;
    }
    if (strcmp(scheme, "always") == 0) {
        *out = ESPL_PREPEND_ALWAYS;
    } else if (strcmp(scheme, "never") == 0) {
        *out = ESPL_PREPEND_NEVER;
    } else if (strcmp(scheme, "first") == 0 && !p->start_moves) {
        *out = ESPL_PREPEND_FIRST;
    } else {
        return espl_token_json_refuse(path, "prepend_scheme", scheme, p->err);
    }
    return ESPL_OK;
}

static enum espl_status parse_metaspace(struct parser *p, const json_t *value, const char *path)
{
    const char *replacement = NULL;
    size_t len = 0;
    bool split = false;
    enum espl_prepend_scheme prepend = ESPL_PREPEND_ALWAYS;
    enum espl_status status = claim_rewrite(p, path);
    if (status == ESPL_OK) {
        status = espl_token_json_string(value, path, "replacement", &replacement, &len, p->err);
    }
    if (status == ESPL_OK) {
        status = espl_token_json_bool(value, path, "split", true, &split, p->err);
    }
    if (status == ESPL_OK) {
        status = parse_prepend_scheme(p, value, path, &prepend);
    }
    uint32_t code = 0;
    if (status == ESPL_OK && (len == 0 || espl_utf8_decode(replacement, &code) != len)) {
        status =
            espl_fail(p->err, ESPL_E_CORRUPT, "field '%s.replacement' must be one character", path);
    }
    if (status == ESPL_OK) {
        status = add_rewrite(p, path, ESPL_STEP_METASPACE);
    }
    if (status == ESPL_OK) {
        struct espl_pretokenizer_step *const step = &p->chain->steps[p->chain->count - 1];
        step->prepend = prepend;
        status = copy_step_text(p, path, step, replacement, len);
    }
    if (status == ESPL_OK && split) {
        status = add_class_split(p, path, ESPL_MATCH_STRING, ESPL_SPLIT_MERGED_WITH_NEXT);
        if (status == ESPL_OK) {
            status =
                copy_step_text(p, path, &p->chain->steps[p->chain->count - 1], replacement, len);
        }
    }
    return status;
}

static enum espl_status parse_behavior(struct parser *p, const json_t *value, const char *path,
                                       enum espl_split_behavior *out)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *name = NULL;
    size_t len = 0;
    const enum espl_status status =
        espl_token_json_string(value, path, "behavior", &name, &len, p->err);
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum espl_split_behavior)i;
            return ESPL_OK;
        }
    }
    return espl_token_json_refuse(path, "behavior", name, p->err);
}

static enum espl_status parse_split(struct parser *p, const json_t *value, const char *path)
{
    enum espl_split_behavior behavior = ESPL_SPLIT_ISOLATED;
    bool invert = false;
    enum espl_status status = parse_behavior(p, value, path, &behavior);
    if (status == ESPL_OK) {
        status = espl_token_json_bool(value, path, "invert", false, &invert, p->err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    char pattern_path[ESPL_JSON_PATH];
    espl_token_json_path(pattern_path, path, "pattern");
    const json_t *const pattern = espl_token_json_get(value, "pattern");
    const bool regex = json_object_get(pattern, "Regex") != NULL;
    const char *text = NULL;
    size_t len = 0;
    status = espl_token_json_string(pattern, pattern_path, regex ? "Regex" : "String", &text, &len,
                                    p->err);
    if (status != ESPL_OK) {
        return status;
    }
    if (regex) {
        return add_regex_split(p, pattern_path, text, len, behavior, invert);
    }
    status = add_class_split(p, path, ESPL_MATCH_STRING, behavior);
    if (status == ESPL_OK) {
        struct espl_pretokenizer_step *const step = &p->chain->steps[p->chain->count - 1];
        step->invert = invert;
        status = copy_step_text(p, pattern_path, step, text, len);
    }
    return status;
}

static enum espl_status parse_digits(struct parser *p, const json_t *value, const char *path)
{
    bool individual = false;
    const enum espl_status status =
        espl_token_json_bool(value, path, "individual_digits", false, &individual, p->err);
    return status != ESPL_OK
               ? status
               : add_class_split(p, path, ESPL_MATCH_NUMERIC,
                                 individual ? ESPL_SPLIT_ISOLATED : ESPL_SPLIT_CONTIGUOUS);
}

static enum espl_status parse_punctuation(struct parser *p, const json_t *value, const char *path)
{
    enum espl_split_behavior behavior = ESPL_SPLIT_ISOLATED;
    if (espl_token_json_get(value, "behavior") != NULL) {
        const enum espl_status status = parse_behavior(p, value, path, &behavior);
        if (status != ESPL_OK) {
            return status;
        }
    }
    return add_class_split(p, path, ESPL_MATCH_PUNCTUATION, behavior);
}

static enum espl_status parse_whitespace(struct parser *p, const json_t *value, const char *path)
{
    (void)value; /* it has no settings */
    return add_regex_split(p, path, words_pattern, sizeof words_pattern - 1, ESPL_SPLIT_REMOVED,
                           true);
}

static enum espl_status parse_whitespace_split(struct parser *p, const json_t *value,
                                               const char *path)
{
    (void)value; /* it has no settings */
    return add_class_split(p, path, ESPL_MATCH_SPACE, ESPL_SPLIT_REMOVED);
}

struct type_row {
    const char *name;
    enum espl_status (*parse)(struct parser *p, const json_t *value, const char *path);
};

static const struct type_row types[] = {
    {"ByteLevel", parse_byte_level},
    {"Metaspace", parse_metaspace},
    {"Split", parse_split},
    {"Digits", parse_digits},
    {"Punctuation", parse_punctuation},
    {"Whitespace", parse_whitespace},
    {"WhitespaceSplit", parse_whitespace_split},
    {NULL, NULL},
};

static enum espl_status parse_value(struct parser *p, const json_t *value, const char *path,
                                    unsigned depth)
{
    const char *type = NULL;
    size_t len = 0;
    enum espl_status status = espl_token_json_string(value, path, "type", &type, &len, p->err);
    if (status != ESPL_OK) {
        return status;
    }
    for (const struct type_row *row = types; row->name != NULL; row++) {
        if (strcmp(row->name, type) == 0) {
            return row->parse(p, value, path);
        }
    }
    if (strcmp(type, "Sequence") != 0) {
        return espl_token_json_refuse(path, "type", type, p->err);
    }
    const json_t *const list = json_object_get(value, "pretokenizers");
    if (!json_is_array(list) || depth == MAX_NESTING) {
        return espl_fail(p->err, ESPL_E_CORRUPT, "field '%s.pretokenizers' must be an array, %s",
                         path, depth == MAX_NESTING ? "not so deeply nested" : "got none");
    }
    for (size_t i = 0; i < json_array_size(list) && status == ESPL_OK; i++) {
        char item[ESPL_JSON_PATH];
        (void)snprintf(item, sizeof item, "%s.pretokenizers[%zu]", path, i);
        status = parse_value(p, json_array_get(list, i), item, depth + 1);
    }
    return status;
}

enum espl_status espl_pretokenizer_parse(const json_t *value, bool start_moves,
                                         struct espl_pretokenizer **out, struct espl_error *err)
{
    struct espl_pretokenizer *const chain = calloc(1, sizeof *chain);
    if (chain == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the pre-tokenizer");
    }
    struct parser p = {.chain = chain, .start_moves = start_moves, .err = err};
    const enum espl_status status =
        value != NULL ? parse_value(&p, value, "pre_tokenizer", 0) : ESPL_OK;
    if (status != ESPL_OK) {
        espl_pretokenizer_destroy(chain);
        return status;
    }
    *out = chain;
    return ESPL_OK;
}

void espl_pretokenizer_destroy(struct espl_pretokenizer *pretokenizer)
{
    if (pretokenizer == NULL) {
        return;
    }
    for (size_t i = 0; i < pretokenizer->count; i++) {
        espl_token_regex_destroy(pretokenizer->steps[i].regex);
        free(pretokenizer->steps[i].text);
    }
    free(pretokenizer);
}

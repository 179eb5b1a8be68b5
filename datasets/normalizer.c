#include "datasets/normalizer.h"

#include "datasets/token_json.h"
#include "datasets/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { MAX_STEPS = 32, MAX_NESTING = 8, MAX_TEXT = 4096 };

enum step_kind { STEP_FORM, STEP_LOWERCASE, STEP_REPLACE, STEP_PREPEND, STEP_STRIP };

struct step {
    enum step_kind kind;
    int form;      /* STEP_FORM: options of utf8proc_map */
    char *pattern; /* STEP_REPLACE of a string */
    size_t pattern_len;
    struct espl_token_regex *regex; /* STEP_REPLACE of a regular expression */
    char *content;                  /* STEP_REPLACE, STEP_PREPEND */
    size_t content_len;
    bool left; /* STEP_STRIP */
    bool right;
};

struct espl_normalizer {
    size_t count;
    struct step steps[MAX_STEPS];
};

struct form_row {
    const char *name;
    int options;
};

static const struct form_row forms[] = {
    {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
    {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
    {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
    {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
    {NULL, 0},
};

/* Copies a short string member. */
static enum espl_status copy_text(const json_t *object, const char *path, const char *key,
                                  char **out, size_t *len, struct espl_error *err)
{
    const char *text = NULL;
    const enum espl_status status = espl_token_json_string(object, path, key, &text, len, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (*len > MAX_TEXT) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "field '%s.%s' is longer than %d bytes", path,
                         key, MAX_TEXT);
    }
    *out = malloc(*len + 1);
    if (*out == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the normalizer");
    }
    memcpy(*out, text, *len);
    (*out)[*len] = '\0';
    return ESPL_OK;
}

static enum espl_status parse_replace(const json_t *value, const char *path, struct step *step,
                                      struct espl_error *err)
{
    step->kind = STEP_REPLACE;
    enum espl_status status =
        copy_text(value, path, "content", &step->content, &step->content_len, err);
    if (status != ESPL_OK) {
        return status;
    }
    char pattern_path[ESPL_JSON_PATH];
    espl_token_json_path(pattern_path, path, "pattern");
    const json_t *const pattern = espl_token_json_get(value, "pattern");
    const json_t *const regex = json_object_get(pattern, "Regex");
    if (regex == NULL) {
        status =
            copy_text(pattern, pattern_path, "String", &step->pattern, &step->pattern_len, err);
        if (status == ESPL_OK && step->pattern_len == 0) {
            return espl_token_json_refuse(pattern_path, "String", "", err);
        }
        return status;
    }
    const char *text = NULL;
    size_t len = 0;
    status = espl_token_json_string(pattern, pattern_path, "Regex", &text, &len, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (memchr(step->content, '$', step->content_len) != NULL) {
        /* Versions of the reference disagree whether $1 names a group. */
        return espl_token_json_refuse(path, "content", step->content, err);
    }
    status = espl_token_regex_create(text, len, &step->regex, err);
    return status == ESPL_OK
               ? ESPL_OK
               : (espl_context(err, "while reading field '%s'", pattern_path), status);
}

static enum espl_status parse_step(const json_t *value, const char *path, const char *type,
                                   struct step *step, struct espl_error *err)
{
    for (const struct form_row *row = forms; row->name != NULL; row++) {
        if (strcmp(row->name, type) == 0) {
            step->kind = STEP_FORM;
            step->form = row->options;
            return ESPL_OK;
        }
    }
    if (strcmp(type, "Lowercase") == 0) {
        step->kind = STEP_LOWERCASE;
        return ESPL_OK;
    }
    if (strcmp(type, "Replace") == 0) {
        return parse_replace(value, path, step, err);
    }
    if (strcmp(type, "Prepend") == 0) {
        step->kind = STEP_PREPEND;
        return copy_text(value, path, "prepend", &step->content, &step->content_len, err);
    }
    if (strcmp(type, "Strip") == 0) {
        step->kind = STEP_STRIP;
        const enum espl_status status =
            espl_token_json_bool(value, path, "strip_left", true, &step->left, err);
        return status != ESPL_OK
                   ? status
                   : espl_token_json_bool(value, path, "strip_right", true, &step->right, err);
    }
    return espl_token_json_refuse(path, "type", type, err);
}

static enum espl_status parse_value(const json_t *value, const char *path, unsigned depth,
                                    struct espl_normalizer *normalizer, struct espl_error *err)
{
    const char *type = NULL;
    size_t len = 0;
    enum espl_status status = espl_token_json_string(value, path, "type", &type, &len, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (strcmp(type, "Sequence") != 0) {
        if (normalizer->count == MAX_STEPS) {
            return espl_fail(err, ESPL_E_UNSUPPORTED, "field '%s' has more than %d normalizers",
                             path, MAX_STEPS);
        }
        normalizer->count++;
        return parse_step(value, path, type, &normalizer->steps[normalizer->count - 1], err);
    }
    const json_t *const list = json_object_get(value, "normalizers");
    if (!json_is_array(list) || depth == MAX_NESTING) {
        return espl_fail(err, ESPL_E_CORRUPT, "field '%s.normalizers' must be an array, %s", path,
                         depth == MAX_NESTING ? "not so deeply nested" : "got none");
    }
    for (size_t i = 0; i < json_array_size(list) && status == ESPL_OK; i++) {
        char item[ESPL_JSON_PATH];
        (void)snprintf(item, sizeof item, "%s.normalizers[%zu]", path, i);
        status = parse_value(json_array_get(list, i), item, depth + 1, normalizer, err);
    }
    return status;
}

enum espl_status espl_normalizer_parse(const json_t *value, struct espl_normalizer **out,
                                       struct espl_error *err)
{
    if (value == NULL) {
        *out = NULL;
        return ESPL_OK;
    }
    struct espl_normalizer *const normalizer = calloc(1, sizeof *normalizer);
    if (normalizer == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the normalizer");
    }
    const enum espl_status status = parse_value(value, "normalizer", 0, normalizer, err);
    if (status != ESPL_OK) {
        espl_normalizer_destroy(normalizer);
        return status;
    }
    *out = normalizer;
    return ESPL_OK;
}

void espl_normalizer_destroy(struct espl_normalizer *normalizer)
{
    if (normalizer == NULL) {
        return;
    }
    for (size_t i = 0; i < normalizer->count; i++) {
        free(normalizer->steps[i].pattern);
        free(normalizer->steps[i].content);
        espl_token_regex_destroy(normalizer->steps[i].regex);
    }
    free(normalizer);
}

bool espl_normalizer_moves_start(const struct espl_normalizer *normalizer)
{
    for (size_t i = 0; normalizer != NULL && i < normalizer->count; i++) {
        const enum step_kind kind = normalizer->steps[i].kind;
        if (kind == STEP_REPLACE || kind == STEP_PREPEND || kind == STEP_STRIP) {
            return true;
        }
    }
    return false;
}

static bool is_ascii(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] >= 0x80u) {
            return false;
        }
    }
    return true;
}

static enum espl_status apply_form(int options, const char *text, size_t len, struct espl_buf *out,
                                   struct espl_error *err)
{
    if (is_ascii(text, len)) {
        (void)espl_buf_add(out, text, len);
        return ESPL_OK;
    }
    utf8proc_uint8_t *mapped = NULL;
    const utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)len,
                                            &mapped, (utf8proc_option_t)options);
    if (n < 0) {
        return espl_fail(err, n == UTF8PROC_ERROR_NOMEM ? ESPL_E_NOMEM : ESPL_E_CORRUPT,
                         "cannot normalise the text: %s", utf8proc_errmsg(n));
    }
    (void)espl_buf_add(out, mapped, (size_t)n);
    free(mapped);
    return ESPL_OK;
}

static void apply_lowercase(const char *text, size_t len, struct espl_buf *out)
{
    size_t at = 0;
    while (at < len) {
        uint32_t code = 0;
        at += espl_utf8_decode(text + at, &code);
        uint32_t lower[2];
        const size_t count = espl_unicode_lower(code, lower);
        for (size_t i = 0; i < count; i++) {
            char bytes[4];
            (void)espl_buf_add(out, bytes, espl_utf8_encode(lower[i], bytes));
        }
    }
}

static void replace_string(const struct step *step, const char *text, size_t len,
                           struct espl_buf *out)
{
    size_t done = 0;
    while (done < len) {
        const char *const found = memmem(text + done, len - done, step->pattern, step->pattern_len);
        const size_t upto = found != NULL ? (size_t)(found - text) : len;
        (void)espl_buf_add(out, text + done, upto - done);
        if (found == NULL) {
            return;
        }
        (void)espl_buf_add(out, step->content, step->content_len);
        done = upto + step->pattern_len;
    }
}

static enum espl_status replace_regex(const struct step *step, struct espl_regex_matcher *matcher,
                                      const char *text, size_t len, struct espl_buf *out,
                                      struct espl_error *err)
{
    struct espl_regex_walk walk = {0};
    size_t done = 0;
    while (len > 0) { /* the reference never matches in an empty text */
        bool found = false;
        size_t start = 0;
        size_t end = 0;
        const enum espl_status status = espl_token_regex_next(step->regex, matcher, text, len,
                                                              &walk, &found, &start, &end, err);
        if (status != ESPL_OK) {
            return status;
        }
        if (!found) {
            (void)espl_buf_add(out, text + done, len - done);
            return ESPL_OK;
        }
        (void)espl_buf_add(out, text + done, start - done);
        (void)espl_buf_add(out, step->content, step->content_len);
        done = end;
    }
    return ESPL_OK;
}

static void apply_strip(const struct step *step, const char *text, size_t len, struct espl_buf *out)
{
    size_t first = 0;
    size_t last = len;
    uint32_t code = 0;
    while (step->left && first < last) {
        const size_t bytes = espl_utf8_decode(text + first, &code);
        if (!espl_unicode_is_space(code)) {
            break;
        }
        first += bytes;
    }
    while (step->right && last > first) {
        const size_t bytes = espl_utf8_decode_last(text, last, &code);
        if (!espl_unicode_is_space(code)) {
            break;
        }
        last -= bytes;
    }
    (void)espl_buf_add(out, text + first, last - first);
}

static enum espl_status apply_step(const struct step *step, struct espl_regex_matcher *matcher,
                                   const char *text, size_t len, struct espl_buf *out,
                                   struct espl_error *err)
{
    switch (step->kind) {
    case STEP_FORM:
        return apply_form(step->form, text, len, out, err);
    case STEP_LOWERCASE:
        apply_lowercase(text, len, out);
        return ESPL_OK;
    case STEP_REPLACE:
        if (step->regex != NULL) {
            return replace_regex(step, matcher, text, len, out, err);
        }
        replace_string(step, text, len, out);
        return ESPL_OK;
    case STEP_PREPEND:
        if (len > 0) {
            (void)espl_buf_add(out, step->content, step->content_len);
            (void)espl_buf_add(out, text, len);
        }
        return ESPL_OK;
    default:
        apply_strip(step, text, len, out);
        return ESPL_OK;
    }
}

enum espl_status espl_normalizer_apply(const struct espl_normalizer *normalizer,
                                       struct espl_regex_matcher *matcher, const char *text,
                                       size_t len, struct espl_buf *out, struct espl_buf *spare,
                                       struct espl_error *err)
{
    espl_buf_reset(out);
    (void)espl_buf_add(out, text, len);
    for (size_t i = 0; i < normalizer->count; i++) {
        espl_buf_reset(spare);
        const enum espl_status status =
            apply_step(&normalizer->steps[i], matcher, espl_buf_text(out), out->len, spare, err);
        if (status != ESPL_OK) {
            return status;
        }
        const struct espl_buf swapped = *out;
        *out = *spare;
        *spare = swapped;
        if (out->failed) {
            return espl_fail(err, ESPL_E_CORRUPT,
                             "the tokenizer's normalizer makes a text of %zu bytes larger than %zu "
                             "bytes, or memory ran out",
                             len, out->limit);
        }
    }
    return ESPL_OK;
}

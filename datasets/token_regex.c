#include "datasets/token_regex.h"

#include "datasets/unicode.h"

#include <stdint.h>
#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
    OUT_LIMIT = 4 * 1024 * 1024,      /* translated pattern */
    JIT_STACK_START = 32 * 1024,      /* bytes */
    JIT_STACK_MOST = 8 * 1024 * 1024, /* bytes */
    HEAP_LIMIT_KIB = 64 * 1024,       /* of the interpreter */
    MATCH_STEPS = 100 * 1000,         /* for a short text ... */
    MATCH_STEPS_PER_BYTE = 32,        /* ... and for each byte of a longer one */
};

struct espl_token_regex {
    pcre2_code *code;
};

struct espl_regex_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static enum espl_status compile(const struct espl_buf *text, pcre2_code **out,
                                struct espl_error *err)
{
    pcre2_compile_context *const context = pcre2_compile_context_create(NULL);
    if (context == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a regular expression");
    }
    (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF); /* what '.' excludes; cannot fail */
    int code = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code *const regex = pcre2_compile((PCRE2_SPTR)text->data, text->len,
                                            PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK |
                                                PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE,
                                            &code, &offset, context);
    pcre2_compile_context_free(context);
    if (regex == NULL) {
        PCRE2_UCHAR message[128] = "";
        (void)pcre2_get_error_message(code, message, sizeof message);
        return espl_fail(err, ESPL_E_CORRUPT, "cannot compile regular expression: %s",
                         (const char *)message);
    }
    /* Without JIT support in the library the interpreter does the same work, slower. */
    (void)pcre2_jit_compile(regex, PCRE2_JIT_COMPLETE);
    *out = regex;
    return ESPL_OK;
}

enum espl_status espl_token_regex_create(const char *pattern, size_t len,
                                         struct espl_token_regex **out, struct espl_error *err)
{
    struct espl_buf text;
    espl_buf_init(&text, OUT_LIMIT);
    struct espl_token_regex *regex = NULL;
    enum espl_status status = espl_token_regex_translate(pattern, len, &text, err);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    regex = calloc(1, sizeof *regex);
    if (regex == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for a regular expression");
        goto cleanup;
    }
    status = compile(&text, &regex->code, err);
    if (status == ESPL_OK) {
        *out = regex;
        regex = NULL;
    }
cleanup:
    espl_token_regex_destroy(regex);
    espl_buf_free(&text);
    return status;
}

void espl_token_regex_destroy(struct espl_token_regex *regex)
{
    if (regex != NULL) {
        pcre2_code_free(regex->code);
        free(regex);
    }
}

struct espl_regex_matcher *espl_regex_matcher_create(void)
{
    struct espl_regex_matcher *const matcher = calloc(1, sizeof *matcher);
    if (matcher == NULL) {
        return NULL;
    }
    matcher->data = pcre2_match_data_create(1, NULL); /* only the whole match is of interest */
    matcher->context = pcre2_match_context_create(NULL);
    matcher->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MOST, NULL);
    if (matcher->data == NULL || matcher->context == NULL) {
        espl_regex_matcher_destroy(matcher);
        return NULL;
    }
    if (matcher->stack != NULL) { /* NULL in a library without JIT */
        pcre2_jit_stack_assign(matcher->context, NULL, matcher->stack);
    }
    (void)pcre2_set_heap_limit(matcher->context, HEAP_LIMIT_KIB); /* cannot fail */
    return matcher;
}

void espl_regex_matcher_destroy(struct espl_regex_matcher *matcher)
{
    if (matcher != NULL) {
        pcre2_match_data_free(matcher->data);
        pcre2_match_context_free(matcher->context);
        pcre2_jit_stack_free(matcher->stack);
        free(matcher);
    }
}

/* Work per match may grow with the text (a long run of spaces is one match), not with its square.
 */
static uint32_t match_limit(size_t len)
{
    const size_t most = (UINT32_MAX - MATCH_STEPS) / MATCH_STEPS_PER_BYTE;
    return MATCH_STEPS + MATCH_STEPS_PER_BYTE * (uint32_t)(len < most ? len : most);
}

enum espl_status espl_token_regex_next(const struct espl_token_regex *regex,
                                       struct espl_regex_matcher *matcher, const char *text,
                                       size_t len, struct espl_regex_walk *walk, bool *found,
                                       size_t *start, size_t *end, struct espl_error *err)
{
    *found = false;
    (void)pcre2_set_match_limit(matcher->context, match_limit(len)); /* cannot fail */
    while (walk->next <= len) {
        const int rc = pcre2_match(regex->code, (PCRE2_SPTR)text, len, walk->next,
                                   PCRE2_NO_UTF_CHECK, matcher->data, matcher->context);
        if (rc == PCRE2_ERROR_NOMATCH) {
            walk->next = len + 1;
            return ESPL_OK;
        }
        if (rc < 0) {
            PCRE2_UCHAR message[128] = "";
            (void)pcre2_get_error_message(rc, message, sizeof message);
            return espl_fail(err, ESPL_E_CORRUPT, "regular expression of the tokenizer gave up: %s",
                             (const char *)message);
        }
        const PCRE2_SIZE *const range = pcre2_get_ovector_pointer(matcher->data);
        if (range[0] == range[1] && walk->matched && range[1] == walk->last_end) {
            /* Empty right behind the last match: step over one character. */
            uint32_t code = 0;
            walk->next += walk->next < len ? espl_utf8_decode(text + walk->next, &code) : 1;
            continue;
        }
        walk->next = range[1];
        walk->last_end = range[1];
        walk->matched = true;
        *start = range[0];
        *end = range[1];
        *found = true;
        return ESPL_OK;
    }
    return ESPL_OK;
}

/* Regular expressions of tokenizer files, on PCRE2.
 *
 * The files are written for Oniguruma. The translator accepts the constructs whose meaning is known
 * to be the same (or can be spelled out) and refuses every other one by name: a pattern that means
 * something else here would change token ids silently. Matching has limits, since patterns come
 * from files. */
#ifndef ESPL_DATASETS_TOKEN_REGEX_H
#define ESPL_DATASETS_TOKEN_REGEX_H

#include "core/buf.h"
#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>

/** Writes the PCRE2 form of an Oniguruma pattern to *out. UNSUPPORTED names the construct and its
 * byte offset. */
enum espl_status espl_token_regex_translate(const char *pattern, size_t len, struct espl_buf *out,
                                            struct espl_error *err);

struct espl_token_regex; /* a compiled pattern; const, may be shared */

/** Errors: UNSUPPORTED (construct), CORRUPT (syntax), NOMEM. */
enum espl_status espl_token_regex_create(const char *pattern, size_t len,
                                         struct espl_token_regex **out, struct espl_error *err);
void espl_token_regex_destroy(struct espl_token_regex *regex);

struct espl_regex_matcher; /* working memory of one caller */

/** NULL when out of memory. */
struct espl_regex_matcher *espl_regex_matcher_create(void);
void espl_regex_matcher_destroy(struct espl_regex_matcher *matcher);

/** Walk over the matches of one text. Zero-initialise. */
struct espl_regex_walk {
    size_t next;     /* where the next search starts */
    size_t last_end; /* end of the last match */
    bool matched;    /* there was one */
};

/** Next match [*start, *end) in text (valid UTF-8); an empty match right after another match is
 * skipped. *found is false at the end. CORRUPT when the pattern exceeds the match limit. */
enum espl_status espl_token_regex_next(const struct espl_token_regex *regex,
                                       struct espl_regex_matcher *matcher, const char *text,
                                       size_t len, struct espl_regex_walk *walk, bool *found,
                                       size_t *start, size_t *end, struct espl_error *err);

#endif

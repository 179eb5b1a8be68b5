/* Pre-tokenisers of tokenizer.json: how a section of text is cut into words. A word never leaves
 * its cut, so a long text is handled piece by piece and memory stays bounded. Done: ByteLevel,
 * Metaspace, Split, Digits, Whitespace, WhitespaceSplit, Punctuation and Sequences of them; all
 * others are refused by name. */
#ifndef ESPL_DATASETS_PRETOKENIZER_H
#define ESPL_DATASETS_PRETOKENIZER_H

#include "core/buf.h"
#include "core/error.h"
#include "datasets/token_regex.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { ESPL_PRETOKENIZER_STEPS = 32 };

struct espl_pretokenizer;

/** Receives one word (never empty). */
typedef enum espl_status (*espl_word_fn)(void *user, const char *word, size_t len,
                                         struct espl_error *err);

/** Working memory of one caller. */
struct espl_pretokenizer_run {
    struct espl_regex_matcher *matcher;               /* borrowed */
    struct espl_buf scratch[ESPL_PRETOKENIZER_STEPS]; /* one per step that rewrites text */
    espl_word_fn word;
    void *user;
};

/** value: field "pre_tokenizer" (NULL = none: gives an empty chain). start_moves: the normaliser
 * can move the start of a text, which Metaspace's prepend_scheme "first" cannot follow. */
enum espl_status espl_pretokenizer_parse(const json_t *value, bool start_moves,
                                         struct espl_pretokenizer **out, struct espl_error *err);
void espl_pretokenizer_destroy(struct espl_pretokenizer *pretokenizer);

/** Sets the limits of the scratch buffers for sections of at most section_len bytes. */
void espl_pretokenizer_run_init(struct espl_pretokenizer_run *run,
                                struct espl_regex_matcher *matcher, size_t section_len,
                                espl_word_fn word, void *user);
void espl_pretokenizer_run_free(struct espl_pretokenizer_run *run);
/** Cuts one section and hands its words to run->word in order. first: the section starts at the
 * very beginning of the text. */
enum espl_status espl_pretokenizer_apply(const struct espl_pretokenizer *pretokenizer,
                                         struct espl_pretokenizer_run *run, const char *text,
                                         size_t len, bool first, struct espl_error *err);

#endif

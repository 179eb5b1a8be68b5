#include "datasets/pretokenizer.h"

#include "core/checked.h"
#include "datasets/pretokenizer_internal.h"
#include "datasets/unicode.h"

#include <stdint.h>
#include <string.h>

unsigned espl_byte_level_code(unsigned char byte)
{
    /* Printable Latin-1 stands for itself; the other 68 bytes get U+0100 and up, in order. */
    if ((byte >= '!' && byte <= '~') || (byte >= 0xA1u && byte != 0xADu)) {
        return byte;
    }
    if (byte <= ' ') {
        return 0x100u + byte;
    }
    if (byte <= 0xA0u) {
        return 0x121u + (byte - 0x7Fu);
    }
    return 0x143u; /* 0xAD */
}

/* The rest of the chain, from step `index` on, for one piece. */
struct cursor {
    const struct espl_pretokenizer *chain;
    struct espl_pretokenizer_run *run;
    size_t index;
    const char *text;
    size_t len;
    bool first; /* the piece starts at the very beginning of the text */
    struct espl_error *err;
};

static enum espl_status run_step(struct cursor cursor);

/* Hands text[start, end) of the piece to the next step; empty pieces vanish. */
static enum espl_status pass_on(const struct cursor *cursor, const char *text, size_t start,
                                size_t end)
{
    if (start == end) {
        return ESPL_OK;
    }
    struct cursor next = *cursor;
    next.index++;
    next.text = text + start;
    next.len = end - start;
    next.first = cursor->first && start == 0;
    return run_step(next);
}

/* ---- splits ---- */

/* Turns a stream of ranges (match or not, in order, covering the piece) into pieces. */
struct splitter {
    const struct cursor *cursor;
    enum espl_split_behavior behavior;
    bool invert;
    bool pending; /* [start, end) is not handed on yet */
    bool pending_match;
    size_t start;
    size_t end;
};

static enum espl_status flush(struct splitter *s)
{
    if (!s->pending) {
        return ESPL_OK;
    }
    s->pending = false;
    return pass_on(s->cursor, s->cursor->text, s->start, s->end);
}

/* Does the new range grow the pending one? pending_match is the kind of the last range seen. */
static bool joins(const struct splitter *s, bool match)
{
    if (!s->pending) {
        return false;
    }
    switch (s->behavior) {
    case ESPL_SPLIT_CONTIGUOUS:
        return match == s->pending_match;
    case ESPL_SPLIT_MERGED_WITH_PREVIOUS:
        return match && !s->pending_match;
    case ESPL_SPLIT_MERGED_WITH_NEXT:
        return !match && s->pending_match;
    default:
        return false;
    }
}

static enum espl_status add_range(struct splitter *s, size_t start, size_t end, bool match)
{
    const bool is_match = match != s->invert;
    if (s->behavior == ESPL_SPLIT_REMOVED && is_match) {
        return ESPL_OK;
    }
    if (joins(s, is_match)) {
        s->end = end;
        s->pending_match = is_match;
        return ESPL_OK;
    }
    const enum espl_status status = flush(s);
    s->pending = true;
    s->pending_match = is_match;
    s->start = start;
    s->end = end;
    return status;
}

static bool in_class(enum espl_split_matcher matcher, uint32_t code)
{
    switch (matcher) {
    case ESPL_MATCH_SPACE:
        return espl_unicode_is_space(code);
    case ESPL_MATCH_NUMERIC:
        return espl_unicode_is_numeric(code);
    default:
        return espl_unicode_is_punctuation(code);
    }
}

/* Where the next match of a step begins. */
struct finder {
    struct espl_regex_walk walk;
    size_t next;
};

static enum espl_status find_next(const struct cursor *cursor, struct finder *finder, bool *found,
                                  size_t *start, size_t *end)
{
    const struct espl_pretokenizer_step *const step = &cursor->chain->steps[cursor->index];
    if (step->matcher == ESPL_MATCH_REGEX) {
        return espl_token_regex_next(step->regex, cursor->run->matcher, cursor->text, cursor->len,
                                     &finder->walk, found, start, end, cursor->err);
    }
    *found = false;
    if (step->matcher == ESPL_MATCH_STRING) {
        const char *const hit = memmem(cursor->text + finder->next, cursor->len - finder->next,
                                       step->text, step->text_len);
        *found = hit != NULL;
        *start = hit != NULL ? (size_t)(hit - cursor->text) : cursor->len;
        *end = hit != NULL ? *start + step->text_len : cursor->len;
        finder->next = *end;
        return ESPL_OK;
    }
    while (finder->next < cursor->len && !*found) {
        uint32_t code = 0;
        *start = finder->next;
        finder->next += espl_utf8_decode(cursor->text + finder->next, &code);
        *end = finder->next;
        *found = in_class(step->matcher, code);
    }
    return ESPL_OK;
}

static enum espl_status split_piece(const struct cursor *cursor)
{
    const struct espl_pretokenizer_step *const step = &cursor->chain->steps[cursor->index];
    struct splitter splitter = {
        .cursor = cursor, .behavior = step->behavior, .invert = step->invert};
    struct finder finder = {0};
    size_t done = 0;
    for (;;) {
        bool found = false;
        size_t start = cursor->len;
        size_t end = cursor->len;
        enum espl_status status = find_next(cursor, &finder, &found, &start, &end);
        if (status == ESPL_OK && found && done != start) {
            status = add_range(&splitter, done, start, false);
        }
        if (status == ESPL_OK && found) {
            status = add_range(&splitter, start, end, true);
            done = end;
        }
        if (status != ESPL_OK) {
            return status;
        }
        if (!found) {
            break;
        }
    }
    if (done != cursor->len) {
        const enum espl_status status = add_range(&splitter, done, cursor->len, false);
        if (status != ESPL_OK) {
            return status;
        }
    }
    return flush(&splitter);
}

/* ---- rewrites ---- */

static void map_bytes(const struct cursor *cursor, struct espl_buf *out)
{
    char mapped[512];
    size_t used = 0;
    for (size_t i = 0; i < cursor->len; i++) {
        used +=
            espl_utf8_encode(espl_byte_level_code((unsigned char)cursor->text[i]), mapped + used);
        if (used + 2 > sizeof mapped) {
            (void)espl_buf_add(out, mapped, used);
            used = 0;
        }
    }
    (void)espl_buf_add(out, mapped, used);
}

static void prefix_space(const struct cursor *cursor, struct espl_buf *out)
{
    if (cursor->text[0] != ' ') {
        (void)espl_buf_add(out, " ", 1);
    }
    (void)espl_buf_add(out, cursor->text, cursor->len);
}

static bool starts_with(const struct cursor *cursor, const char *text, size_t len)
{
    return cursor->len >= len && memcmp(cursor->text, text, len) == 0;
}

static void apply_metaspace(const struct cursor *cursor, struct espl_buf *out)
{
    const struct espl_pretokenizer_step *const step = &cursor->chain->steps[cursor->index];
    const bool wanted = step->prepend == ESPL_PREPEND_ALWAYS ||
                        (step->prepend == ESPL_PREPEND_FIRST && cursor->first);
    if (wanted && cursor->text[0] != ' ' && !starts_with(cursor, step->text, step->text_len)) {
        (void)espl_buf_add(out, step->text, step->text_len);
    }
    size_t done = 0;
    while (done < cursor->len) {
        const char *const space = memchr(cursor->text + done, ' ', cursor->len - done);
        const size_t upto = space != NULL ? (size_t)(space - cursor->text) : cursor->len;
        (void)espl_buf_add(out, cursor->text + done, upto - done);
        if (space != NULL) {
            (void)espl_buf_add(out, step->text, step->text_len);
        }
        done = upto + 1;
    }
}

static enum espl_status rewrite_piece(const struct cursor *cursor)
{
    struct espl_buf *const out = &cursor->run->scratch[cursor->index];
    espl_buf_reset(out);
    switch (cursor->chain->steps[cursor->index].kind) {
    case ESPL_STEP_BYTE_MAP:
        map_bytes(cursor, out);
        break;
    case ESPL_STEP_PREFIX_SPACE:
        prefix_space(cursor, out);
        break;
    default:
        apply_metaspace(cursor, out);
        break;
    }
    const enum espl_status status = espl_buf_check(out, "pre-tokenised text", cursor->err);
    return status != ESPL_OK ? status : pass_on(cursor, out->data, 0, out->len);
}

static enum espl_status run_step(struct cursor cursor)
{
    if (cursor.index == cursor.chain->count) {
        return cursor.run->word(cursor.run->user, cursor.text, cursor.len, cursor.err);
    }
    return cursor.chain->steps[cursor.index].kind == ESPL_STEP_SPLIT ? split_piece(&cursor)
                                                                     : rewrite_piece(&cursor);
}

/* ---- interface ---- */

void espl_pretokenizer_run_init(struct espl_pretokenizer_run *run,
                                struct espl_regex_matcher *matcher, size_t section_len,
                                espl_word_fn word, void *user)
{
    /* A rewrite grows a piece at most fourfold (a space becomes a character of up to four bytes),
     * and at most one prefix space and one such rewrite are in a chain. */
    size_t limit = 0;
    if (!espl_mul_size(section_len, 4, &limit) || !espl_add_size(limit, 64, &limit)) {
        limit = SIZE_MAX;
    }
    memset(run, 0, sizeof *run);
    run->matcher = matcher;
    run->word = word;
    run->user = user;
    for (size_t i = 0; i < ESPL_PRETOKENIZER_STEPS; i++) {
        espl_buf_init(&run->scratch[i], limit);
    }
}

void espl_pretokenizer_run_free(struct espl_pretokenizer_run *run)
{
    for (size_t i = 0; i < ESPL_PRETOKENIZER_STEPS; i++) {
        espl_buf_free(&run->scratch[i]);
    }
}

enum espl_status espl_pretokenizer_apply(const struct espl_pretokenizer *pretokenizer,
                                         struct espl_pretokenizer_run *run, const char *text,
                                         size_t len, bool first, struct espl_error *err)
{
    if (len == 0) {
        return ESPL_OK;
    }
    return run_step((struct cursor){
        .chain = pretokenizer, .run = run, .text = text, .len = len, .first = first, .err = err});
}

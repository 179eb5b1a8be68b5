/* Oniguruma -> PCRE2, one pass over the pattern. What differs between the two: \s, \w and \b follow
 * other tables, \h \v \R mean other things, \uHHHH is unknown to PCRE2, {n,m}+ is not possessive in
 * Oniguruma, classes nest there, and ^ $ are line anchors. */
#include "datasets/token_regex.h"
#include "datasets/unicode.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define SPACE_SET                                                                               \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}" \
    "\\x{205f}\\x{3000}"
#define NOT_SPACE_SET                                                                          \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{" \
    "1fff}"                                                                                    \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"             \
    "\\x{3001}-\\x{d7ff}\\x{e000}-\\x{10ffff}"
#define WORD_SET                                                                               \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{" \
    "1f169}"                                                                                   \
    "\\x{1f170}-\\x{1f189}"
/* Outside a class, Oniguruma's \w and \b also take the superscripts and fractions of Latin-1. */
#define WORD_CHARACTER WORD_SET "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define AFTER_WORD     "(?<=[" WORD_CHARACTER "])"
#define BEFORE_WORD    "(?=[" WORD_CHARACTER "])"
#define NO_WORD_BEFORE "(?<![" WORD_CHARACTER "])"
#define NO_WORD_AFTER  "(?![" WORD_CHARACTER "])"

/* PCRE2 10.40 changed \p{Greek} from "script" to "script extensions". */
#if PCRE2_MINOR >= 40
#define SCRIPT_PREFIX "sc:"
#else
#define SCRIPT_PREFIX ""
#endif

enum { MAX_DEPTH = 64, MAX_PATTERN = 64 * 1024 };

struct translator {
    const char *pattern;
    size_t len;
    size_t at;
    struct espl_buf *out;
    struct espl_error *err;
    unsigned depth;
    bool caseless[MAX_DEPTH + 1];
};

static const char *const categories[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me",
                                         "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi",
                                         "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl",
                                         "Zp", "C",  "Cc", "Cf", "Co", "Cn", NULL};

static const char *const scripts[] = {"Arabic",    "Armenian", "Bengali", "Cyrillic", "Devanagari",
                                      "Ethiopic",  "Georgian", "Greek",   "Gujarati", "Gurmukhi",
                                      "Han",       "Hangul",   "Hebrew",  "Hiragana", "Kannada",
                                      "Katakana",  "Khmer",    "Lao",     "Latin",    "Malayalam",
                                      "Mongolian", "Myanmar",  "Oriya",   "Sinhala",  "Tamil",
                                      "Telugu",    "Thai",     "Tibetan", "Bopomofo", NULL};

static enum espl_status refuse(struct translator *t, size_t at, size_t len, const char *why)
{
    const size_t left = t->len - at;
    const int shown = (int)(len < left ? len : left);
    return espl_fail(t->err, ESPL_E_UNSUPPORTED,
                     "regular expression construct '%.*s' at byte %zu is not supported: %s", shown,
                     t->pattern + at, at, why);
}

static bool in_list(const char *const *list, const char *text, size_t len)
{
    for (; *list != NULL; list++) {
        if (strlen(*list) == len && memcmp(*list, text, len) == 0) {
            return true;
        }
    }
    return false;
}

/* \p{Name} and \P{Name}; t->at is on the backslash. */
static enum espl_status translate_property(struct translator *t)
{
    const size_t at = t->at;
    const char *const open = t->pattern + at + 2;
    const char *const close =
        t->at + 2 < t->len && *open == '{' ? memchr(open, '}', t->len - at - 2) : NULL;
    if (close == NULL) {
        return refuse(t, at, 3, "a property is written \\p{Name}");
    }
    const char *name = open + 1;
    bool negated = t->pattern[at + 1] == 'P';
    if (*name == '^') {
        negated = !negated;
        name++;
    }
    const size_t len = (size_t)(close - name);
    t->at = (size_t)(close - t->pattern) + 1;
    const bool category = in_list(categories, name, len);
    if (!category && !in_list(scripts, name, len)) {
        return refuse(t, at, t->at - at, "unknown property");
    }
    if (t->caseless[t->depth] && len == 2 && name[0] == 'L' && strchr("ult", name[1]) != NULL) {
        return refuse(t, at, t->at - at, "a case property inside a case-insensitive part");
    }
    (void)espl_buf_printf(t->out, "\\%c{%s%.*s}", negated ? 'P' : 'p',
                          category ? "" : SCRIPT_PREFIX, (int)len, name);
    return ESPL_OK;
}

/* \xHH, \x{HHHH} and \uHHHH as a code point; t->at is on the backslash. */
static enum espl_status translate_number(struct translator *t)
{
    const size_t at = t->at;
    const char kind = t->pattern[at + 1];
    size_t first = at + 2;
    const bool braces = kind == 'x' && first < t->len && t->pattern[first] == '{';
    first += braces ? 1 : 0;
    const size_t most = braces ? 6 : kind == 'u' ? 4 : 2;
    uint32_t code = 0;
    size_t digits = 0;
    static const char hex[] = "0123456789abcdef";
    while (digits < most && first + digits < t->len) {
        const char digit = t->pattern[first + digits];
        const char lower = digit >= 'A' && digit <= 'F' ? (char)(digit - 'A' + 'a') : digit;
        const char *const found = lower != '\0' ? strchr(hex, lower) : NULL;
        if (found == NULL) {
            break;
        }
        code = code * 16 + (uint32_t)(found - hex);
        digits++;
    }
    size_t end = first + digits;
    const bool closed = !braces || (end < t->len && t->pattern[end] == '}');
    end += braces ? 1 : 0;
    const bool whole = digits > 0 && (kind != 'u' || digits == 4) && closed;
    if (!whole || code > 0x10FFFFu || (code >= 0xD800u && code <= 0xDFFFu) ||
        (kind == 'x' && !braces && code > 0x7Fu)) {
        return refuse(t, at, 8, "not a code point");
    }
    (void)espl_buf_printf(t->out, "\\x{%x}", (unsigned)code);
    t->at = end;
    return ESPL_OK;
}

/* The literal character at t->at, as a number so that no letter is special. */
static void emit_character(struct translator *t)
{
    uint32_t code = 0;
    t->at += espl_utf8_decode(t->pattern + t->at, &code);
    (void)espl_buf_printf(t->out, "\\x{%x}", (unsigned)code);
}

struct escape_row {
    const char *outside; /* NULL = refused there */
    const char *inside;  /* in a character class */
    char letter;
    bool set; /* stands for several characters */
};

static const struct escape_row escapes[] = {
    {"[" SPACE_SET "]", SPACE_SET, 's', true},
    {"[^" SPACE_SET "]", NOT_SPACE_SET, 'S', true},
    {"[" WORD_CHARACTER "]", WORD_SET, 'w', true},
    {"[^" WORD_CHARACTER "]", NULL, 'W', true},
    {"\\p{Nd}", "\\p{Nd}", 'd', true},
    {"\\P{Nd}", "\\P{Nd}", 'D', true},
    {"(?:" AFTER_WORD NO_WORD_AFTER "|" NO_WORD_BEFORE BEFORE_WORD ")", NULL, 'b', false},
    {"(?:" AFTER_WORD BEFORE_WORD "|" NO_WORD_BEFORE NO_WORD_AFTER ")", NULL, 'B', false},
    {"\\r", "\\r", 'r', false},
    {"\\n", "\\n", 'n', false},
    {"\\t", "\\t", 't', false},
    {"\\f", "\\f", 'f', false},
    {"\\a", "\\a", 'a', false},
    {"\\e", "\\e", 'e', false},
    {"\\x{b}", "\\x{b}", 'v', false},
    {"\\A", NULL, 'A', false},
    {"\\z", NULL, 'z', false},
    {NULL, NULL, '\0', false},
};

/* An escape at t->at. *set: it stands for several characters (may not end a range). */
static enum espl_status translate_escape(struct translator *t, bool in_class, bool *set)
{
    *set = false;
    if (t->at + 1 >= t->len) {
        return refuse(t, t->at, 1, "a pattern cannot end in a backslash");
    }
    const char letter = t->pattern[t->at + 1];
    if (letter == 'p' || letter == 'P') {
        *set = true;
        return translate_property(t);
    }
    if (letter == 'x' || letter == 'u') {
        return translate_number(t);
    }
    if ((unsigned char)letter < 0x80u && espl_unicode_is_punctuation((unsigned char)letter)) {
        (void)espl_buf_add(t->out, t->pattern + t->at, 2);
        t->at += 2;
        return ESPL_OK;
    }
    if (letter == ' ' || (unsigned char)letter >= 0x80u) {
        t->at++;
        emit_character(t);
        return ESPL_OK;
    }
    for (const struct escape_row *row = escapes; row->letter != '\0'; row++) {
        const char *const text = in_class ? row->inside : row->outside;
        if (row->letter == letter && text != NULL) {
            (void)espl_buf_puts(t->out, text);
            *set = row->set;
            t->at += 2;
            return ESPL_OK;
        }
    }
    return refuse(t, t->at, 2, in_class ? "unknown escape in a class" : "unknown escape");
}

/* What the last item of a character class was: decides what a '-' after it may mean. */
enum class_state { CLASS_START, CLASS_SINGLE, CLASS_DASH, CLASS_CLOSED };

/* One item of a class at t->at: a character, an escape or the '-' of a range. */
static enum espl_status translate_class_item(struct translator *t, enum class_state *state)
{
    const size_t at = t->at;
    const char c = t->pattern[at];
    const char next = at + 1 < t->len ? t->pattern[at + 1] : '\0';
    if (c == '[' || (c == '&' && next == '&')) {
        return refuse(t, at, 2, "nested classes and intersections");
    }
    if (c == '-' && *state != CLASS_START && next != ']') {
        if (*state != CLASS_SINGLE) {
            return refuse(t, at, 1, "escape a '-' that is no range");
        }
        (void)espl_buf_puts(t->out, "-");
        t->at++;
        *state = CLASS_DASH;
        return ESPL_OK;
    }
    bool set = false;
    if (c == '\\') {
        const enum espl_status status = translate_escape(t, true, &set);
        if (status != ESPL_OK) {
            return status;
        }
    } else {
        emit_character(t);
    }
    if (set && *state == CLASS_DASH) {
        return refuse(t, at, t->at - at, "a set cannot end a range");
    }
    *state = set || *state == CLASS_DASH ? CLASS_CLOSED : CLASS_SINGLE;
    return ESPL_OK;
}

/* A character class; t->at is on '['. */
static enum espl_status translate_class(struct translator *t)
{
    const size_t open = t->at;
    (void)espl_buf_puts(t->out, "[");
    t->at++;
    if (t->at < t->len && t->pattern[t->at] == '^') {
        (void)espl_buf_puts(t->out, "^");
        t->at++;
    }
    enum class_state state = CLASS_START;
    while (t->at < t->len && t->pattern[t->at] != ']') {
        const enum espl_status status = translate_class_item(t, &state);
        if (status != ESPL_OK) {
            return status;
        }
    }
    if (t->at >= t->len || state == CLASS_START) {
        return refuse(t, open, t->at + 1 - open, "an empty or open class");
    }
    (void)espl_buf_puts(t->out, "]");
    t->at++;
    return ESPL_OK;
}

/* An opening parenthesis at t->at. */
static enum espl_status translate_group(struct translator *t)
{
    static const char *const openers[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", NULL};
    if (t->at == 0 && t->len >= 4 && memcmp(t->pattern, "(?i)", 4) == 0) {
        (void)espl_buf_puts(t->out, "(?i)");
        t->caseless[0] = true;
        t->at += 4;
        return ESPL_OK;
    }
    if (t->depth == MAX_DEPTH) {
        return refuse(t, t->at, 1, "groups nest too deeply");
    }
    const char *opener = "(";
    if (t->at + 1 < t->len && (t->pattern[t->at + 1] == '?' || t->pattern[t->at + 1] == '*')) {
        opener = NULL;
        for (size_t i = 0; openers[i] != NULL; i++) {
            const size_t len = strlen(openers[i]);
            if (t->len - t->at >= len && memcmp(t->pattern + t->at, openers[i], len) == 0) {
                opener = openers[i];
            }
        }
        if (opener == NULL) {
            return refuse(t, t->at, 4, "unknown kind of group");
        }
    }
    t->depth++;
    t->caseless[t->depth] = t->caseless[t->depth - 1] || strcmp(opener, "(?i:") == 0;
    (void)espl_buf_puts(t->out, opener);
    t->at += strlen(opener);
    return ESPL_OK;
}

/* {n}, {n,} or {n,m} at t->at. */
static enum espl_status translate_interval(struct translator *t)
{
    const size_t open = t->at;
    size_t at = open + 1;
    size_t low_digits = 0;
    size_t high_digits = 0;
    while (at < t->len && t->pattern[at] >= '0' && t->pattern[at] <= '9') {
        at++;
        low_digits++;
    }
    const bool comma = at < t->len && t->pattern[at] == ',';
    at += comma ? 1 : 0;
    while (comma && at < t->len && t->pattern[at] >= '0' && t->pattern[at] <= '9') {
        at++;
        high_digits++;
    }
    if (at >= t->len || t->pattern[at] != '}' || low_digits == 0 || low_digits > 4 ||
        high_digits > 4) {
        return refuse(t, open, 4, "write {n}, {n,} or {n,m}, or escape the brace");
    }
    at++;
    const char after = at < t->len ? t->pattern[at] : '\0';
    if (after == '+' || (after == '?' && !comma)) {
        return refuse(t, open, at + 1 - open, "this suffix means different things in engines");
    }
    (void)espl_buf_add(t->out, t->pattern + open, at - open);
    t->at = at;
    return ESPL_OK;
}

static enum espl_status translate_item(struct translator *t)
{
    bool set = false;
    const char c = t->pattern[t->at];
    switch (c) {
    case '\\':
        return translate_escape(t, false, &set);
    case '[':
        return translate_class(t);
    case '(':
        return translate_group(t);
    case '{':
        return translate_interval(t);
    case '^':
    case '$':
        return refuse(t, t->at, 1, "line anchors");
    case ')':
        if (t->depth == 0) {
            return refuse(t, t->at, 1, "no group to close");
        }
        t->depth--;
        break;
    case ']':
    case '}':
        (void)espl_buf_puts(t->out, "\\");
        break;
    default:
        break;
    }
    (void)espl_buf_add(t->out, &c, 1);
    t->at++;
    return ESPL_OK;
}

enum espl_status espl_token_regex_translate(const char *pattern, size_t len, struct espl_buf *out,
                                            struct espl_error *err)
{
    if (len > MAX_PATTERN) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "regular expression is %zu bytes long, at most %d", len, MAX_PATTERN);
    }
    if (len == 0 || espl_utf8_invalid_at(pattern, len) != len || memchr(pattern, '\0', len)) {
        return espl_fail(err, ESPL_E_CORRUPT, "regular expression is empty or not plain UTF-8");
    }
    struct translator *const t = calloc(1, sizeof *t);
    if (t == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a regular expression");
    }
    t->pattern = pattern;
    t->len = len;
    t->out = out;
    t->err = err;
    enum espl_status status = ESPL_OK;
    while (status == ESPL_OK && t->at < t->len) {
        status = translate_item(t);
    }
    if (status == ESPL_OK && t->depth != 0) {
        status = espl_fail(err, ESPL_E_CORRUPT, "regular expression has an open group");
    }
    free(t);
    return status != ESPL_OK ? status : espl_buf_check(out, "regular expression", err);
}

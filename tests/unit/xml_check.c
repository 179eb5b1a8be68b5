#include "xml_check.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, NAME_SIZE = 64, MAX_IDS = 512 };

struct checker {
    const char *text;
    size_t len;
    size_t at;
    char *message;
    char open[MAX_DEPTH][NAME_SIZE];
    size_t depth;
    char ids[MAX_IDS][NAME_SIZE];
    size_t id_count;
};

static bool fail(struct checker *checker, const char *fmt, ...)
{
    va_list args;
    const int n = snprintf(checker->message, 256, "byte %zu: ", checker->at);
    va_start(args, fmt);
    (void)vsnprintf(checker->message + n, 256 - (size_t)n, fmt, args);
    va_end(args);
    return false;
}

static char peek(const struct checker *checker)
{
    return checker->at < checker->len ? checker->text[checker->at] : '\0';
}

static bool starts_with(const struct checker *checker, const char *word)
{
    const size_t len = strlen(word);
    return checker->at + len <= checker->len && memcmp(checker->text + checker->at, word, len) == 0;
}

static bool read_name(struct checker *checker, char name[NAME_SIZE])
{
    size_t len = 0;
    while (isalnum((unsigned char)peek(checker)) || strchr("-:_", peek(checker)) != NULL) {
        if (peek(checker) == '\0' || len + 1 >= NAME_SIZE) {
            break;
        }
        name[len++] = checker->text[checker->at++];
    }
    name[len] = '\0';
    return len > 0 ? true : fail(checker, "a name is missing");
}

/* One character of content or of an attribute value. */
static bool read_character(struct checker *checker)
{
    const unsigned char c = (unsigned char)peek(checker);
    if (c == '&') {
        static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
        for (size_t i = 0; i < sizeof entities / sizeof entities[0]; ++i) {
            if (starts_with(checker, entities[i])) {
                checker->at += strlen(entities[i]);
                return true;
            }
        }
        return fail(checker, "'&' does not start an entity");
    }
    if (c < 0x20 && c != '\n' && c != '\t') {
        return fail(checker, "control character %d", c);
    }
    const size_t tail = c < 0x80 ? 0 : c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
    if ((c >= 0x80 && c < 0xC2) || c > 0xF4) {
        return fail(checker, "byte %02x starts no character", c);
    }
    ++checker->at;
    for (size_t i = 0; i < tail; ++i, ++checker->at) {
        if (((unsigned char)peek(checker) & 0xC0) != 0x80) {
            return fail(checker, "character is cut short");
        }
    }
    return true;
}

static void skip_space(struct checker *checker)
{
    while (peek(checker) != '\0' && strchr(" \n\t", peek(checker)) != NULL) {
        ++checker->at;
    }
}

static bool remember_id(struct checker *checker, const char *value, size_t len)
{
    for (size_t i = 0; i < checker->id_count; ++i) {
        if (strlen(checker->ids[i]) == len && memcmp(checker->ids[i], value, len) == 0) {
            return fail(checker, "id '%.*s' stands twice", (int)len, value);
        }
    }
    if (checker->id_count == MAX_IDS || len >= NAME_SIZE) {
        return fail(checker, "too many ids or one too long");
    }
    memcpy(checker->ids[checker->id_count++], value, len);
    return true;
}

static bool read_attribute(struct checker *checker)
{
    char name[NAME_SIZE];
    if (!read_name(checker, name)) {
        return false;
    }
    if (!starts_with(checker, "=\"")) {
        return fail(checker, "attribute '%s' has no quoted value", name);
    }
    checker->at += 2;
    const size_t start = checker->at;
    while (peek(checker) != '"') {
        if (checker->at >= checker->len || peek(checker) == '<') {
            return fail(checker, "attribute '%s' does not end", name);
        }
        if (!read_character(checker)) {
            return false;
        }
    }
    const size_t len = checker->at++ - start;
    return strcmp(name, "id") != 0 || remember_id(checker, checker->text + start, len);
}

static bool read_tag(struct checker *checker)
{
    char name[NAME_SIZE];
    const bool closing = starts_with(checker, "</");
    checker->at += closing ? 2 : 1;
    if (!read_name(checker, name)) {
        return false;
    }
    skip_space(checker);
    if (closing) {
        if (peek(checker) != '>') {
            return fail(checker, "</%s does not end", name);
        }
        ++checker->at;
        if (checker->depth == 0 || strcmp(checker->open[checker->depth - 1], name) != 0) {
            return fail(checker, "</%s> closes <%s>", name,
                        checker->depth > 0 ? checker->open[checker->depth - 1] : "nothing");
        }
        --checker->depth;
        return true;
    }
    while (peek(checker) != '>' && !starts_with(checker, "/>")) {
        if (checker->at >= checker->len || !read_attribute(checker)) {
            return checker->at >= checker->len ? fail(checker, "<%s does not end", name) : false;
        }
        skip_space(checker);
    }
    const bool empty = peek(checker) == '/';
    checker->at += empty ? 2 : 1;
    if (!empty) {
        if (checker->depth == MAX_DEPTH) {
            return fail(checker, "nested too deep");
        }
        memcpy(checker->open[checker->depth++], name, sizeof name);
    }
    return true;
}

bool xml_check(const char *text, size_t len, char message[256])
{
    struct checker *checker = calloc(1, sizeof *checker);
    if (checker == NULL) {
        (void)snprintf(message, 256, "out of memory");
        return false;
    }
    checker->text = text;
    checker->len = len;
    checker->message = message;
    bool ok = true;
    static const char doctype[] = "<!DOCTYPE html>\n";
    if (starts_with(checker, doctype)) {
        checker->at = strlen(doctype);
    }
    while (ok && checker->at < len) {
        ok = peek(checker) == '<' ? read_tag(checker) : read_character(checker);
        if (ok && checker->depth == 0 && checker->at < len && peek(checker) != '\n') {
            ok = fail(checker, "text after the end");
        }
    }
    if (ok && checker->depth != 0) {
        ok = fail(checker, "<%s> is never closed", checker->open[checker->depth - 1]);
    }
    free(checker);
    return ok;
}

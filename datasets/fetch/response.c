#include "datasets/fetch/response.h"

#include "datasets/cache.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Decimal digits only, without overflow. Returns the character after them, NULL when there is none
 * or the number is too large. */
static const char *read_number(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    const char *c = text;
    for (; isdigit((unsigned char)*c); c++) {
        const uint64_t digit = (uint64_t)(*c - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return NULL;
        }
        value = value * 10 + digit;
    }
    *out = value;
    return c == text ? NULL : c;
}

/* "bytes 100-199/500", "bytes 100-199/<star>", "bytes <star>/500" (a 416 answer). */
static void take_range(struct espl_response *response, const char *value)
{
    uint64_t start = 0;
    uint64_t end = 0;
    uint64_t total = 0;
    if (strncasecmp(value, "bytes ", 6) != 0) {
        return;
    }
    const char *c = value + 6;
    if (*c == '*') {
        c++;
    } else {
        c = read_number(c, &start);
        c = c != NULL && *c == '-' ? read_number(c + 1, &end) : NULL;
        if (c == NULL || end < start) {
            return;
        }
        response->has_range = true;
        response->range_start = start;
    }
    if (*c == '/' && c[1] != '*' && read_number(c + 1, &total) != NULL) {
        response->range_total = total;
    }
}

/* Weak validators ("W/...") promise equal meaning, not equal bytes: no use for ranges. */
static void take_etag(struct espl_response *response, const char *value)
{
    const size_t len = strlen(value);
    if (len >= 2 && value[0] == '"' && value[len - 1] == '"' && len < sizeof response->validator) {
        (void)snprintf(response->validator, sizeof response->validator, "%s", value);
        response->validator_is_etag = true;
    }
}

static void take_modified(struct espl_response *response, const char *value)
{
    if (!response->validator_is_etag && strlen(value) < sizeof response->validator) {
        (void)snprintf(response->validator, sizeof response->validator, "%s", value);
    }
}

static void take_encoding(struct espl_response *response, const char *value)
{
    response->encoded = strcasecmp(value, "identity") != 0;
}

static void take_linked_etag(struct espl_response *response, const char *value)
{
    char hash[ESPL_SHA256_HEX];
    const bool quoted = value[0] == '"';
    if (strlen(value) == ESPL_SHA256_HEX - 1 + (quoted ? 2 : 0)) {
        (void)snprintf(hash, sizeof hash, "%s", value + (quoted ? 1 : 0));
        if (espl_sha256_is_hex(hash)) {
            (void)snprintf(response->linked_sha256, sizeof response->linked_sha256, "%s", hash);
        }
    }
}

static void take_linked_size(struct espl_response *response, const char *value)
{
    uint64_t size = 0;
    const char *const end = read_number(value, &size);
    if (end != NULL && *end == '\0') {
        response->linked_size = size;
    }
}

static void take_commit(struct espl_response *response, const char *value)
{
    const size_t len = strlen(value);
    if (len > 0 && len < sizeof response->commit && strspn(value, "0123456789abcdef") == len) {
        (void)snprintf(response->commit, sizeof response->commit, "%s", value);
    }
}

/* What is kept is sent back (If-Range) or printed: a line end inside must not get that far. */
static bool has_control(const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)line[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            return true;
        }
    }
    return false;
}

void espl_response_line(struct espl_response *response, const char *line, size_t len)
{
    static const struct {
        const char *name;
        void (*take)(struct espl_response *response, const char *value);
    } fields[] = {{"etag", take_etag},
                  {"last-modified", take_modified},
                  {"content-range", take_range},
                  {"content-encoding", take_encoding},
                  {"x-linked-etag", take_linked_etag},
                  {"x-linked-size", take_linked_size},
                  {"x-repo-commit", take_commit}};
    char text[1024];
    while (len > 0 && isspace((unsigned char)line[len - 1])) {
        len--;
    }
    if (len == 0 || len >= sizeof text || has_control(line, len)) {
        return;
    }
    memcpy(text, line, len);
    text[len] = '\0';
    if (strncmp(text, "HTTP/", 5) == 0) {
        *response = (struct espl_response){.validator = ""};
        return;
    }
    const size_t name_len = strcspn(text, ":");
    const char *value = text + name_len + (text[name_len] == ':' ? 1 : 0);
    value += strspn(value, " \t");
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (strlen(fields[i].name) == name_len &&
            strncasecmp(fields[i].name, text, name_len) == 0) {
            fields[i].take(response, value);
        }
    }
}

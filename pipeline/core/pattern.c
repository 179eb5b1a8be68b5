#include "core/pattern.h"

#include <stddef.h>
#include <string.h>

/* Shell-style match of the whole text. Only the last star is ever retried, so the time is at most
 * the product of both lengths. */
static bool match_whole(const char *pattern, const char *text)
{
    const char *star = NULL;
    const char *retry = NULL;
    while (*text != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            retry = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star != NULL) {
            pattern = star + 1;
            text = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*') {
        pattern++;
    }
    return *pattern == '\0';
}

bool espl_pattern_match(const char *pattern, const char *name)
{
    for (const char *tail = name; tail != NULL;) {
        if (match_whole(pattern, tail)) {
            return true;
        }
        const char *dot = strchr(tail, '.');
        tail = dot != NULL ? dot + 1 : NULL;
    }
    return false;
}

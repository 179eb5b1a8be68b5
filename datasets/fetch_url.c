/* Rules about addresses. */
#include "datasets/fetch_url.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Length of "scheme://"; 0 when the address does not begin with one. */
static size_t scheme_length(const char *url)
{
    const size_t letters = strspn(url, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789+-.");
    return letters > 0 && strncmp(url + letters, "://", 3) == 0 ? letters + 3 : 0;
}

/* Length of "scheme://host:port". */
static size_t origin_length(const char *url)
{
    const size_t scheme = scheme_length(url);
    return scheme + strcspn(url + scheme, "/?#");
}

/* http is for a mirror or a test server on this machine. */
static bool is_loopback(const char *url)
{
    static const char *const hosts[] = {"127.0.0.1", "localhost", "[::1]"};
    const char *const host = url + strlen("http://");
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        const size_t len = strlen(hosts[i]);
        if (strncasecmp(host, hosts[i], len) == 0 && strchr(":/?#", host[len]) != NULL) {
            return true;
        }
    }
    return false;
}

enum espl_status espl_fetch_check_url(const char *url, struct espl_error *err)
{
    char shown[512];
    const size_t origin = origin_length(url);
    (void)espl_fetch_shown_url(url, shown);
    for (const char *c = url; *c != '\0'; c++) {
        if ((unsigned char)*c <= 0x20 || *c == 0x7f || *c == '\\') {
            return espl_fail(err, ESPL_E_USAGE,
                             "the address '%.200s' has a character that "
                             "addresses do not have",
                             shown);
        }
    }
    if (memchr(url, '@', origin) != NULL) {
        return espl_fail(err, ESPL_E_USAGE, "an address must not hold a user name or password");
    }
    if (strncasecmp(url, "https://", 8) == 0 && origin > 8) {
        return ESPL_OK;
    }
    if (strncasecmp(url, "http://", 7) == 0 && is_loopback(url)) {
        return ESPL_OK;
    }
    return espl_fail(err, ESPL_E_USAGE, "the address '%.200s' is not https", shown);
}

const char *espl_fetch_shown_url(const char *url, char out[512])
{
    const size_t scheme = scheme_length(url);
    const size_t origin = origin_length(url);
    const char *const at = memchr(url, '@', origin);
    const size_t user = at != NULL ? (size_t)(at - url) + 1 : scheme;
    const size_t shown = strcspn(url, "?#");
    if (shown < user) {
        (void)snprintf(out, 512, "(an address without a host)");
        return out;
    }
    (void)snprintf(out, 512, "%.*s%.*s", (int)(scheme < 16 ? scheme : 16), url,
                   (int)(shown - user < 400 ? shown - user : 400), url + user);
    return out;
}

bool espl_fetch_same_origin(const char *a, const char *b)
{
    const size_t len = origin_length(a);
    return len == origin_length(b) && strncasecmp(a, b, len) == 0;
}

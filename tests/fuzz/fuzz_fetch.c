/* What espalier-fetch hears: header lines of a server ('h'), a request ('q'), an address ('u'). The
 * first byte chooses. */
#include "datasets/fetch/fetch_request.h"
#include "datasets/fetch/response.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

static void fuzz_header(const char *text, size_t len)
{
    struct espl_response response = {.range_total = 0};
    while (len > 0) {
        const char *const newline = memchr(text, '\n', len);
        const size_t line = newline != NULL ? (size_t)(newline - text) + 1 : len;
        espl_response_line(&response, text, line);
        text += line;
        len -= line;
    }
    require(memchr(response.validator, '\0', sizeof response.validator) != NULL);
    require(strpbrk(response.validator, "\r\n") == NULL); /* it is sent back in a header */
    require(response.linked_sha256[0] == '\0' || espl_sha256_is_hex(response.linked_sha256));
    require(response.commit[0] == '\0' || espl_cache_name_is_safe(response.commit));
}

static void check_request(const struct espl_fetch_request *request)
{
    require(request->file_count > 0 && request->parallel > 0);
    for (size_t i = 0; i < request->file_count; i++) {
        const struct espl_fetch_file *const file = &request->files[i];
        require(espl_cache_name_is_safe(file->name) && file->key != NULL && file->url_count > 0);
        for (size_t j = 0; j < file->url_count; j++) {
            require(espl_fetch_check_url(file->urls[j], NULL) == ESPL_OK);
        }
        for (size_t j = 0; j < file->member_count; j++) {
            require(espl_cache_name_is_safe(file->members[j].name));
        }
    }
}

static void fuzz_request(const char *text, size_t len)
{
    struct espl_error err;
    struct espl_fetch_request request = {.files = NULL};
    struct espl_arena *const arena = espl_arena_create((size_t)1 << 24);
    require(arena != NULL);
    if (espl_fetch_request_parse(text, len, arena, &request, &err) == ESPL_OK) {
        check_request(&request);
    }
    espl_arena_destroy(arena);
}

static void fuzz_url(const char *text, size_t len)
{
    char shown[512];
    struct espl_error err;
    char *const url = strndup(text, len);
    require(url != NULL);
    (void)espl_fetch_shown_url(url, shown);
    require(strchr(shown, '?') == NULL);
    if (espl_fetch_check_url(url, &err) == ESPL_OK) {
        require(strncasecmp(url, "http", 4) == 0 && espl_fetch_same_origin(url, url));
    }
    free(url);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    char *const text = malloc(size); /* an exact copy, so that a read behind the end is seen */
    require(text != NULL);
    memcpy(text, data + 1, size - 1);
    if (data[0] == 'h') {
        fuzz_header(text, size - 1);
    } else if (data[0] == 'q') {
        fuzz_request(text, size - 1);
    } else {
        fuzz_url(text, size - 1);
    }
    free(text);
    return 0;
}

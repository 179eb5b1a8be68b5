/* What the server sends: header lines, content, the whole file. */
#include "datasets/fetch/transfer.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

size_t espl_transfer_header(char *line, size_t size, size_t count, void *user)
{
    struct espl_transfer *const transfer = user;
    espl_response_line(&transfer->response, line, size * count);
    return size * count;
}

void espl_transfer_take_hub(struct espl_transfer *transfer)
{
    const struct espl_response *const response = &transfer->response;
    const char *const hub = transfer->session->request->hub;
    if (!transfer->file->hub || hub == NULL || !espl_fetch_same_origin(transfer->url, hub)) {
        return; /* where the hub redirects to cannot say what is right */
    }
    if (response->commit[0] != '\0') {
        (void)snprintf(transfer->result.commit, sizeof transfer->result.commit, "%s",
                       response->commit);
    }
    if (response->linked_sha256[0] != '\0' && transfer->expected[0] == '\0') {
        (void)snprintf(transfer->expected, sizeof transfer->expected, "%s",
                       response->linked_sha256);
    }
    if (response->linked_size != 0 && transfer->expected_size == 0) {
        transfer->expected_size = response->linked_size;
    }
}

static bool fail_size(struct espl_transfer *transfer, uint64_t found)
{
    char shown[512];
    if (transfer->expected_size != 0) {
        (void)espl_fail(&transfer->error, ESPL_E_CORRUPT,
                        "'%s' has %llu bytes, expected %llu (from %s)", transfer->file->name,
                        (unsigned long long)found, (unsigned long long)transfer->expected_size,
                        espl_fetch_shown_url(transfer->url, shown));
    } else {
        (void)espl_fail(&transfer->error, ESPL_E_CORRUPT,
                        "'%s' has more than the %llu bytes that its entry allows (from %s)",
                        transfer->file->name, (unsigned long long)transfer->file->max_bytes,
                        espl_fetch_shown_url(transfer->url, shown));
    }
    return false;
}

/* Room for the rest? Better known now than after an hour. */
static bool check_space(struct espl_transfer *transfer, uint64_t total)
{
    uint64_t available = 0;
    const uint64_t rest = total > transfer->partial.size ? total - transfer->partial.size : 0;
    if (espl_fs_free_bytes(transfer->partial.path, &available, &transfer->error) != ESPL_OK) {
        return false;
    }
    if (rest > available) {
        (void)espl_fail(&transfer->error, ESPL_E_NOSPACE,
                        "not enough disk space for '%s': needs %llu more bytes, %llu are free",
                        transfer->file->name, (unsigned long long)rest,
                        (unsigned long long)available);
        (void)espl_hint(&transfer->error,
                        "free space, or put the cache elsewhere with ESPALIER_CACHE or --cache");
        return false;
    }
    return true;
}

static bool ends_with(const char *text, const char *ending)
{
    const size_t len = strlen(text);
    const size_t tail = strlen(ending);
    return len > tail && strcasecmp(text + len - tail, ending) == 0;
}

/* Only "identity" is asked for. A server that compresses all the same sends other bytes than the
 * file's; where no hash would show it they must not pass for it. Some call a *.gz file encoded
 * because it is one: that is no lie about its bytes. */
static bool check_encoding(struct espl_transfer *transfer)
{
    static const char *const endings[] = {".gz", ".tgz", ".z", ".bz2", ".xz", ".zst", ".br"};
    const char *const name = transfer->file->name;
    bool fine = !transfer->response.encoded || transfer->expected[0] != '\0';
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        fine = fine || ends_with(name, endings[i]);
    }
    return fine ||
           espl_fail(&transfer->error, ESPL_E_CORRUPT,
                     "the server sent '%s' compressed, which was not asked for", name) == ESPL_OK;
}

/* Size of the whole file as this answer tells it; 0 = not told. */
static uint64_t told_size(const struct espl_transfer *transfer, long http_code)
{
    curl_off_t length = -1;
    if (http_code == 206) {
        return transfer->response.range_total;
    }
    if (curl_easy_getinfo(transfer->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length) !=
        CURLE_OK) {
        return 0;
    }
    return length > 0 ? (uint64_t)length : 0;
}

/* Does this part go on where the partial file ends, in the same version of the file? A server that
 * does not know If-Range sends a part of what it has now; where no hash would show it, only the
 * validator can. */
static bool check_part(struct espl_transfer *transfer)
{
    const struct espl_response *const response = &transfer->response;
    struct espl_partial *const partial = &transfer->partial;
    const bool other_part = !response->has_range || response->range_start != partial->size;
    const bool other_version = transfer->expected[0] == '\0' && partial->validator[0] != '\0' &&
                               response->validator[0] != '\0' &&
                               strcmp(partial->validator, response->validator) != 0;
    if (!other_part && !other_version) {
        return true;
    }
    if (partial->size > 0 && !transfer->restarted) { /* once, try from nothing */
        transfer->restarted = true;
        transfer->result.resumed_from = 0;
        transfer->start_over = espl_partial_restart(partial, "", &transfer->error) == ESPL_OK;
        return false;
    }
    (void)espl_fail(&transfer->error, ESPL_E_CORRUPT,
                    other_part ? "the server sent another part of '%s' than was asked for"
                               : "'%s' changes on the server while it is fetched",
                    transfer->file->name);
    return false;
}

bool espl_transfer_begin_body(struct espl_transfer *transfer, long http_code)
{
    transfer->body_begun = true;
    espl_transfer_take_hub(transfer);
    const uint64_t total = told_size(transfer, http_code);
    const uint64_t limit = transfer->file->max_bytes;
    transfer->total = total;
    if (total != 0 &&
        ((transfer->expected_size != 0 && total != transfer->expected_size) || total > limit)) {
        return fail_size(transfer, total);
    }
    if (!check_encoding(transfer) || (http_code == 206 && !check_part(transfer))) {
        return false;
    }
    if (http_code == 200) {
        transfer->result.resumed_from = 0;
        transfer->started_at = 0;
        if (espl_partial_restart(&transfer->partial, transfer->response.validator,
                                 &transfer->error) != ESPL_OK) {
            return false;
        }
    }
    return check_space(transfer, total != 0 ? total : transfer->expected_size);
}

size_t espl_transfer_body(char *bytes, size_t size, size_t count, void *user)
{
    struct espl_transfer *const transfer = user;
    const size_t len = size * count;
    long http_code = 0;
    (void)curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &http_code);
    if (http_code != 200 && http_code != 206) {
        return len; /* the text of an error page is nobody's business */
    }
    if (!transfer->body_begun && !espl_transfer_begin_body(transfer, http_code)) {
        transfer->body_failed = true;
        return 0;
    }
    const uint64_t limit =
        transfer->expected_size != 0 ? transfer->expected_size : transfer->file->max_bytes;
    if (len > limit || transfer->partial.size > limit - len) {
        transfer->body_failed = true;
        return fail_size(transfer, transfer->partial.size + len) ? len : 0;
    }
    if (espl_partial_append(&transfer->partial, bytes, len, &transfer->error) != ESPL_OK) {
        transfer->body_failed = true;
        return 0;
    }
    return len;
}

/* A whole with a wrong hash. What an earlier attempt left may be to blame: once, try from nothing.
 */
static void fail_hash(struct espl_transfer *transfer, const char *found)
{
    char shown[512];
    if (transfer->started_at > 0 && !transfer->restarted) {
        transfer->restarted = true;
        transfer->state = espl_partial_restart(&transfer->partial, "", &transfer->error) == ESPL_OK
                              ? ESPL_TRANSFER_READY
                              : ESPL_TRANSFER_FAILED;
        return;
    }
    espl_partial_discard(&transfer->partial);
    (void)espl_fail(&transfer->error, ESPL_E_CORRUPT, "'%s' has sha256 %s, expected %s (from %s)",
                    transfer->file->name, found, transfer->expected,
                    espl_fetch_shown_url(transfer->url, shown));
    if (transfer->expected_recorded) {
        (void)espl_hint(&transfer->error, "it has changed since it was fetched first; --update "
                                          "takes the new one");
    }
    transfer->state = ESPL_TRANSFER_FAILED;
}

void espl_transfer_complete(struct espl_transfer *transfer)
{
    const struct espl_cache *const cache = &transfer->session->request->cache;
    struct espl_cache_record record = {.size = transfer->partial.size};
    espl_partial_hash(&transfer->partial, record.sha256);
    if (transfer->expected[0] != '\0' && strcmp(record.sha256, transfer->expected) != 0) {
        fail_hash(transfer, record.sha256);
        return;
    }
    (void)snprintf(record.commit, sizeof record.commit, "%s", transfer->result.commit);
    transfer->result.size = record.size;
    transfer->result.source = ESPL_FETCH_NETWORK;
    transfer->result.check = transfer->file->sha256 != NULL ? ESPL_FETCH_GIVEN
                             : transfer->expected[0] != '\0' && !transfer->expected_recorded
                                 ? ESPL_FETCH_HUB
                                 : ESPL_FETCH_FIRST;
    record.hub_checked = transfer->result.check == ESPL_FETCH_HUB;
    (void)snprintf(transfer->result.sha256, sizeof transfer->result.sha256, "%s", record.sha256);
    const enum espl_status status =
        espl_partial_publish(&transfer->partial, cache, record.sha256, &transfer->error);
    const bool ok =
        status == ESPL_OK &&
        espl_cache_write_record(cache, transfer->file->key, &record, &transfer->error) == ESPL_OK;
    transfer->state = ok ? ESPL_TRANSFER_DONE : ESPL_TRANSFER_FAILED;
}

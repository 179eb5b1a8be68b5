/* The life of a transfer up to the request: cache, lock, curl handle. */
#include "datasets/fetch/transfer.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { CONNECT_SECONDS = 30, BUFFER_BYTES = 512 << 10 };

/* Is the record of this file no longer the answer? */
static bool must_ask_again(const struct espl_transfer *transfer)
{
    return transfer->session->request->update && transfer->file->mutable;
}

/* Without a published hash, what was there when the file was fetched first is what must be there.
 */
static void take_record(struct espl_transfer *transfer)
{
    const struct espl_fetch_file *const file = transfer->file;
    struct espl_cache_record record;
    if (espl_sha256_bytes(file->key, strlen(file->key), transfer->id, &transfer->error) !=
        ESPL_OK) {
        transfer->state = ESPL_TRANSFER_FAILED;
    } else if (!must_ask_again(transfer) &&
               espl_cache_read_record(&transfer->session->request->cache, file->key, &record,
                                      NULL) == ESPL_OK &&
               !record.absent) {
        (void)snprintf(transfer->expected, sizeof transfer->expected, "%s", record.sha256);
        transfer->expected_recorded = true;
    }
}

void espl_transfer_init(struct espl_transfer *transfer, const struct espl_fetch_session *session,
                        const struct espl_fetch_file *file)
{
    memset(transfer, 0, sizeof *transfer);
    transfer->session = session;
    transfer->file = file;
    transfer->partial.fd = -1;
    transfer->expected_size = file->size;
    if (file->sha256 != NULL) {
        (void)snprintf(transfer->expected, sizeof transfer->expected, "%s", file->sha256);
        (void)snprintf(transfer->id, sizeof transfer->id, "%s", file->sha256);
    } else {
        take_record(transfer);
    }
    (void)snprintf(transfer->url, sizeof transfer->url, "%s", file->urls[0]);
}

/* Is a file with a published hash there, of the size that is known? One that was damaged since must
 * not be taken for whole, and a set described with its size. */
static bool has_whole_blob(const struct espl_transfer *transfer,
                           const struct espl_cache_record *record, bool recorded, uint64_t *size)
{
    const struct espl_fetch_file *const file = transfer->file;
    if (!espl_cache_has_blob(&transfer->session->request->cache, file->sha256, size)) {
        return false;
    }
    const bool by_record = recorded && strcmp(record->sha256, file->sha256) == 0;
    return (!by_record || *size == record->size) && (file->size == 0 || *size == file->size);
}

/* In the cache already? Files with a known hash by it, others by the record of their address. */
static bool find_in_cache(struct espl_transfer *transfer, enum espl_fetch_source source)
{
    const struct espl_fetch_request *const request = transfer->session->request;
    const struct espl_fetch_file *const file = transfer->file;
    struct espl_cache_record record = {.size = 0};
    const bool recorded =
        espl_cache_read_record(&request->cache, file->key, &record, NULL) == ESPL_OK;
    bool found = recorded && record.present;
    if (recorded && record.absent && file->optional && !file->mutable) {
        transfer->absent = true;
        transfer->state = ESPL_TRANSFER_DONE;
        return true;
    }
    if (file->sha256 != NULL) {
        uint64_t size = 0;
        found = has_whole_blob(transfer, &record, recorded, &size);
        record.size = size;
        (void)snprintf(record.sha256, sizeof record.sha256, "%s", file->sha256);
    } else if (source == ESPL_FETCH_CACHE && must_ask_again(transfer)) {
        return false;
    }
    if (!found) {
        return false;
    }
    transfer->result.size = record.size;
    transfer->result.source = source;
    transfer->result.check = file->sha256 != NULL ? ESPL_FETCH_GIVEN
                             : record.hub_checked ? ESPL_FETCH_HUB
                                                  : ESPL_FETCH_FIRST;
    (void)snprintf(transfer->result.sha256, sizeof transfer->result.sha256, "%s", record.sha256);
    (void)snprintf(transfer->result.commit, sizeof transfer->result.commit, "%s",
                   recorded ? record.commit : "");
    transfer->state = ESPL_TRANSFER_DONE;
    return true;
}

/* The same content can come by another way, out of an archive for example, while an interrupted
 * download of it is left: nobody would go on with that. Somebody at work on it holds the lock. */
static void drop_leftover(struct espl_transfer *transfer)
{
    const struct espl_cache *const cache = &transfer->session->request->cache;
    struct espl_partial *const left = &transfer->partial;
    char lock_path[ESPL_PATH_MAX];
    struct stat info;
    bool taken = false;
    if (espl_cache_partial_path(cache, transfer->id, "", left->path, NULL) != ESPL_OK ||
        espl_cache_partial_path(cache, transfer->id, ".json", left->meta_path, NULL) != ESPL_OK ||
        espl_cache_partial_path(cache, transfer->id, ".lock", lock_path, NULL) != ESPL_OK ||
        (lstat(left->path, &info) != 0 && lstat(left->meta_path, &info) != 0)) {
        return;
    }
    if (espl_lock_try(&transfer->lock, lock_path, &taken, NULL, NULL) == ESPL_OK && taken) {
        espl_partial_discard(left);
        espl_lock_release(&transfer->lock);
    }
}

static void fail_offline(struct espl_transfer *transfer)
{
    (void)espl_fail(&transfer->error, ESPL_E_NOTFOUND,
                    "'%s' is not in the cache, and --offline forbids to fetch it",
                    transfer->file->name);
    (void)espl_hint(&transfer->error, "the cache is '%s'", transfer->session->request->cache.root);
    transfer->state = ESPL_TRANSFER_FAILED;
}

static void poll_waiting(struct espl_transfer *transfer)
{
    const struct espl_cache *const cache = &transfer->session->request->cache;
    char path[ESPL_PATH_MAX];
    bool taken = false;
    /* wake_time tells whether somebody else held the lock before: then the file is theirs. */
    const bool waited = transfer->wake_time > 0;
    if (find_in_cache(transfer, waited ? ESPL_FETCH_PEER : ESPL_FETCH_CACHE)) {
        drop_leftover(transfer);
        return;
    }
    if (transfer->session->request->offline) {
        if (transfer->file->optional) {
            transfer->absent = true;
            transfer->state = ESPL_TRANSFER_DONE;
        } else {
            fail_offline(transfer);
        }
        return;
    }
    enum espl_status status =
        espl_cache_partial_path(cache, transfer->id, ".lock", path, &transfer->error);
    if (status == ESPL_OK) {
        status = espl_lock_try(&transfer->lock, path, &taken, NULL, &transfer->error);
    }
    if (status != ESPL_OK) {
        transfer->state = ESPL_TRANSFER_FAILED;
    } else if (!taken) {
        transfer->wake_time = 1;
    } else if (find_in_cache(transfer, waited ? ESPL_FETCH_PEER : ESPL_FETCH_CACHE)) {
        espl_lock_release(&transfer->lock); /* it came between the first look and the lock */
    } else if (espl_partial_open(&transfer->partial, cache, transfer->id, &transfer->error) !=
               ESPL_OK) {
        transfer->state = ESPL_TRANSFER_FAILED;
    } else {
        transfer->result.resumed_from = transfer->partial.size;
        transfer->state = ESPL_TRANSFER_READY;
    }
}

void espl_transfer_poll(struct espl_transfer *transfer, double now)
{
    if (transfer->state == ESPL_TRANSFER_WAITING) {
        poll_waiting(transfer);
    } else if (transfer->state == ESPL_TRANSFER_PAUSED && now >= transfer->wake_time) {
        transfer->state = ESPL_TRANSFER_READY;
    }
}

/* A partial file can be continued when the server can say that it still is the same one, or when
 * the whole can be checked afterwards. */
static bool can_resume(const struct espl_transfer *transfer)
{
    return transfer->partial.size > 0 &&
           (transfer->partial.validator[0] != '\0' || transfer->expected[0] != '\0');
}

static bool add_header(struct espl_transfer *transfer, const char *line)
{
    struct curl_slist *const longer = curl_slist_append(transfer->headers, line);
    if (longer == NULL) {
        return false;
    }
    transfer->headers = longer;
    return true;
}

/* Range with If-Range: the rest if the file is unchanged, else all of it in one answer. The token
 * goes to the hub alone, never to where it redirects. */
static bool set_headers(struct espl_transfer *transfer)
{
    const struct espl_fetch_session *const session = transfer->session;
    char line[4200];
    bool ok = add_header(transfer, "Accept-Encoding: identity");
    if (can_resume(transfer)) {
        (void)snprintf(line, sizeof line, "Range: bytes=%llu-",
                       (unsigned long long)transfer->partial.size);
        ok = ok && add_header(transfer, line);
        if (transfer->partial.validator[0] != '\0') {
            (void)snprintf(line, sizeof line, "If-Range: %s", transfer->partial.validator);
            ok = ok && add_header(transfer, line);
        }
    }
    if (session->token[0] != '\0' && transfer->file->hub && session->request->hub != NULL &&
        espl_fetch_same_origin(transfer->url, session->request->hub)) {
        (void)snprintf(line, sizeof line, "Authorization: Bearer %s", session->token);
        ok = ok && add_header(transfer, line);
        explicit_bzero(line, sizeof line);
    }
    return ok;
}

/* The address decides the only scheme that may be spoken. */
static CURLcode set_protocol(CURL *easy, const char *url)
{
    const bool tls = strncmp(url, "https", 5) == 0 || strncmp(url, "HTTPS", 5) == 0;
#if LIBCURL_VERSION_NUM >= 0x075500
    return curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, tls ? "https" : "http");
#else
    return curl_easy_setopt(easy, CURLOPT_PROTOCOLS,
                            (long)(tls ? CURLPROTO_HTTPS : CURLPROTO_HTTP));
#endif
}

static bool set_options(struct espl_transfer *transfer)
{
    const struct espl_fetch_request *const request = transfer->session->request;
    CURL *const easy = transfer->easy;
    CURLcode code = set_protocol(easy, transfer->url);
    const struct {
        CURLoption option;
        long value;
    } numbers[] = {
        {CURLOPT_FOLLOWLOCATION, 0}, /* followed by us, with our rules */
        {CURLOPT_NOSIGNAL, 1},
        {CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1},
        {CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS},
        {CURLOPT_LOW_SPEED_LIMIT, 1},
        {CURLOPT_LOW_SPEED_TIME, (long)request->stall_seconds},
        {CURLOPT_BUFFERSIZE, BUFFER_BYTES},
        {CURLOPT_DISALLOW_USERNAME_IN_URL, 1},
        {CURLOPT_SSL_VERIFYPEER, 1},
        {CURLOPT_SSL_VERIFYHOST, 2},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && code == CURLE_OK; i++) {
        code = curl_easy_setopt(easy, numbers[i].option, numbers[i].value);
    }
    const struct {
        CURLoption option;
        const void *value;
    } texts[] = {
        {CURLOPT_URL, transfer->url},
        {CURLOPT_USERAGENT, "espalier"},
        {CURLOPT_CAINFO, request->ca_file},
        {CURLOPT_PROXY, request->proxy},
        {CURLOPT_HTTPHEADER, transfer->headers},
        {CURLOPT_ERRORBUFFER, transfer->curl_text},
        {CURLOPT_PRIVATE, transfer},
        {CURLOPT_HEADERDATA, transfer},
        {CURLOPT_WRITEDATA, transfer},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && code == CURLE_OK; i++) {
        code = texts[i].value != NULL ? curl_easy_setopt(easy, texts[i].option, texts[i].value)
                                      : CURLE_OK;
    }
    return code == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, espl_transfer_header) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, espl_transfer_body) == CURLE_OK;
}

static void drop_handle(struct espl_transfer *transfer, CURLM *multi)
{
    if (transfer->easy != NULL) {
        (void)curl_multi_remove_handle(multi, transfer->easy); /* not in it at worst */
        curl_easy_cleanup(transfer->easy);
        transfer->easy = NULL;
    }
    curl_slist_free_all(transfer->headers);
    transfer->headers = NULL;
}

void espl_transfer_start(struct espl_transfer *transfer, CURLM *multi)
{
    transfer->response = (struct espl_response){.validator = ""};
    transfer->total = 0;
    transfer->body_begun = false;
    transfer->body_failed = false;
    transfer->start_over = false;
    transfer->curl_text[0] = '\0';
    transfer->started_at = transfer->partial.size;
    transfer->easy = curl_easy_init();
    if (transfer->easy != NULL && set_headers(transfer) && set_options(transfer) &&
        curl_multi_add_handle(multi, transfer->easy) == CURLM_OK) {
        transfer->state = ESPL_TRANSFER_RUNNING;
        return;
    }
    drop_handle(transfer, multi);
    (void)espl_fail(&transfer->error, ESPL_E_NOMEM, "cannot start the transfer of '%s'",
                    transfer->file->name);
    transfer->state = ESPL_TRANSFER_FAILED;
}

void espl_transfer_finish(struct espl_transfer *transfer, CURLM *multi, CURLcode code, double now)
{
    espl_transfer_judge(transfer, code, now);
    drop_handle(transfer, multi);
    if (transfer->state == ESPL_TRANSFER_DONE || transfer->state == ESPL_TRANSFER_FAILED) {
        espl_partial_close(&transfer->partial);
        espl_lock_release(&transfer->lock);
    }
}

void espl_transfer_close(struct espl_transfer *transfer, CURLM *multi)
{
    drop_handle(transfer, multi);
    espl_partial_close(&transfer->partial);
    espl_lock_release(&transfer->lock);
}

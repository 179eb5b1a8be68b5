/* What the end of a request means: done, follow, again later, another address, or failed. */
#include "datasets/fetch/transfer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MAX_REDIRECTS = 5 };

/* Pauses double up to a minute; a server may ask for more, but not for more than this. */
static const double longest_pause = 60;
static const double longest_retry_after = 600;

/* Goes on with the next address, or fails with what `error` holds. A partial file belongs to the
 * content, not to the address, when the hash is known; otherwise it starts anew. */
static void next_address(struct espl_transfer *transfer)
{
    const struct espl_fetch_file *const file = transfer->file;
    if (transfer->url_index + 1 >= file->url_count) {
        transfer->state = ESPL_TRANSFER_FAILED;
        return;
    }
    transfer->url_index++;
    transfer->redirects = 0;
    transfer->attempts = 0;
    (void)snprintf(transfer->url, sizeof transfer->url, "%s", file->urls[transfer->url_index]);
    (void)espl_fetch_event_retry(file->name, &transfer->error, 0); /* the loop sees a lost reader */
    if (transfer->partial.fd < 0 &&
        espl_partial_open(&transfer->partial, &transfer->session->request->cache, transfer->id,
                          &transfer->error) != ESPL_OK) {
        transfer->state = ESPL_TRANSFER_FAILED;
        return;
    }
    if (file->sha256 == NULL &&
        espl_partial_restart(&transfer->partial, "", &transfer->error) != ESPL_OK) {
        transfer->state = ESPL_TRANSFER_FAILED;
        return;
    }
    transfer->partial.validator[0] = '\0'; /* of another server */
    transfer->state = ESPL_TRANSFER_READY;
}

/* error holds a failure that may pass. asked: what the server wants us to wait, < 0 = nothing. */
static void retry_later(struct espl_transfer *transfer, double asked, double now)
{
    const struct espl_fetch_request *const request = transfer->session->request;
    if (transfer->partial.size > transfer->farthest) {
        transfer->farthest = transfer->partial.size;
        transfer->attempts = 0; /* it went on: patience starts anew */
    }
    transfer->attempts++;
    if (transfer->attempts > request->retries || asked > longest_retry_after) {
        (void)espl_context(&transfer->error, "while fetching '%s', attempt %u of %u",
                           transfer->file->name, transfer->attempts, request->retries + 1);
        next_address(transfer);
        return;
    }
    const double own = request->retry_seconds * ldexp(1, (int)transfer->attempts - 1);
    double pause = own < longest_pause ? own : longest_pause;
    if (asked > pause) {
        pause = asked;
    }
    /* The first address again: a redirect may have been to a server that is gone. */
    transfer->redirects = 0;
    (void)snprintf(transfer->url, sizeof transfer->url, "%s",
                   transfer->file->urls[transfer->url_index]);
    (void)espl_fetch_event_retry(transfer->file->name, &transfer->error, pause);
    transfer->wake_time = now + pause;
    transfer->state = ESPL_TRANSFER_PAUSED;
}

static void follow(struct espl_transfer *transfer)
{
    char shown[512];
    char shown_target[512];
    char *target = NULL;
    (void)curl_easy_getinfo(transfer->easy, CURLINFO_REDIRECT_URL, &target);
    (void)espl_fetch_shown_url(transfer->url, shown);
    if (target == NULL || strlen(target) >= sizeof transfer->url) {
        (void)espl_fail(&transfer->error, ESPL_E_CORRUPT, "%s redirects to nowhere", shown);
        next_address(transfer);
        return;
    }
    const size_t scheme = strcspn(transfer->url, ":");
    const bool same_scheme =
        strcspn(target, ":") == scheme && strncasecmp(target, transfer->url, scheme) == 0;
    if (!same_scheme || espl_fetch_check_url(target, &transfer->error) != ESPL_OK) {
        (void)espl_fail(&transfer->error, ESPL_E_CORRUPT,
                        same_scheme ? "%s redirects to %s: http is for this machine alone"
                                    : "%s redirects to %s: only the same scheme is followed",
                        shown, espl_fetch_shown_url(target, shown_target));
        next_address(transfer);
        return;
    }
    if (++transfer->redirects > MAX_REDIRECTS) {
        (void)espl_fail(&transfer->error, ESPL_E_CORRUPT, "%s: more than %d redirects",
                        transfer->file->name, (int)MAX_REDIRECTS);
        next_address(transfer);
        return;
    }
    espl_transfer_take_hub(transfer); /* it counts, whoever delivers */
    (void)snprintf(transfer->url, sizeof transfer->url, "%s", target);
    transfer->state = ESPL_TRANSFER_READY;
}

static void fail_code(struct espl_transfer *transfer, long http_code)
{
    char shown[512];
    (void)espl_fetch_shown_url(transfer->url, shown);
    if (http_code == 404 || http_code == 410) {
        if (transfer->file->optional && transfer->url_index + 1 >= transfer->file->url_count) {
            const struct espl_cache_record nothing = {.absent = true};
            espl_partial_discard(&transfer->partial);
            transfer->absent = true;
            transfer->state =
                espl_cache_write_record(&transfer->session->request->cache, transfer->file->key,
                                        &nothing, &transfer->error) == ESPL_OK
                    ? ESPL_TRANSFER_DONE
                    : ESPL_TRANSFER_FAILED;
            return;
        }
        (void)espl_fail(&transfer->error, ESPL_E_NOTFOUND, "'%s' is not at %s (HTTP %ld)",
                        transfer->file->name, shown, http_code);
    } else if (http_code == 401 || http_code == 403) {
        (void)espl_fail(&transfer->error, ESPL_E_NOTFOUND, "%s refuses '%s' (HTTP %ld)", shown,
                        transfer->file->name, http_code);
        (void)espl_hint(&transfer->error,
                        transfer->session->token[0] != '\0'
                            ? "the token has no access: ask for it on the page of the repository"
                            : "it may need a token: HF_TOKEN, or --token-file FILE");
    } else {
        (void)espl_fail(&transfer->error, ESPL_E_IO, "%s answered '%s' with HTTP %ld", shown,
                        transfer->file->name, http_code);
    }
    next_address(transfer);
}

/* Range Not Satisfiable: all is there already, or what is there is of another version. */
static void beyond_end(struct espl_transfer *transfer)
{
    if (transfer->partial.size > 0 && transfer->expected[0] != '\0' &&
        transfer->partial.size == transfer->response.range_total) {
        espl_transfer_complete(transfer);
        return;
    }
    if (transfer->partial.size == 0 || transfer->restarted) {
        fail_code(transfer, 416);
        return;
    }
    transfer->restarted = true;
    transfer->result.resumed_from = 0;
    transfer->state = espl_partial_restart(&transfer->partial, "", &transfer->error) == ESPL_OK
                          ? ESPL_TRANSFER_READY
                          : ESPL_TRANSFER_FAILED;
}

static bool is_passing_code(long http_code)
{
    static const long codes[] = {408, 425, 429, 500, 502, 503, 504};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        if (codes[i] == http_code) {
            return true;
        }
    }
    return false;
}

static void judge_answer(struct espl_transfer *transfer, double now)
{
    long http_code = 0;
    curl_off_t asked = 0;
    char shown[512];
    (void)curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &http_code);
    if (http_code == 200 || http_code == 206) {
        if (!transfer->body_begun && !espl_transfer_begin_body(transfer, http_code)) {
            transfer->state = transfer->start_over ? ESPL_TRANSFER_READY : ESPL_TRANSFER_FAILED;
            return;
        }
        const uint64_t expected = transfer->total != 0 ? transfer->total : transfer->expected_size;
        if (expected != 0 && transfer->partial.size < expected) {
            (void)espl_fail(&transfer->error, ESPL_E_IO, "'%s' ended after %llu of %llu bytes",
                            transfer->file->name, (unsigned long long)transfer->partial.size,
                            (unsigned long long)expected);
            retry_later(transfer, -1, now);
            return;
        }
        espl_transfer_complete(transfer);
        if (transfer->state == ESPL_TRANSFER_FAILED && transfer->error.code == ESPL_E_CORRUPT) {
            next_address(transfer);
        }
    } else if (http_code >= 301 && http_code <= 308 && http_code != 304) {
        follow(transfer);
    } else if (http_code == 416) {
        beyond_end(transfer);
    } else if (is_passing_code(http_code)) {
        (void)curl_easy_getinfo(transfer->easy, CURLINFO_RETRY_AFTER, &asked);
        (void)espl_fail(&transfer->error, ESPL_E_IO, "%s answered '%s' with HTTP %ld",
                        espl_fetch_shown_url(transfer->url, shown), transfer->file->name,
                        http_code);
        if ((double)asked > longest_retry_after) {
            (void)espl_hint(&transfer->error, "it asks to come back in %lld s: try again then",
                            (long long)asked);
        }
        retry_later(transfer, (double)asked, now);
    } else {
        fail_code(transfer, http_code);
    }
}

/* Failures below HTTP: may the same request work in a moment? */
static bool is_passing_failure(CURLcode code)
{
    static const CURLcode codes[] = {CURLE_COULDNT_RESOLVE_PROXY,
                                     CURLE_COULDNT_RESOLVE_HOST,
                                     CURLE_COULDNT_CONNECT,
                                     CURLE_PARTIAL_FILE,
                                     CURLE_OPERATION_TIMEDOUT,
                                     CURLE_GOT_NOTHING,
                                     CURLE_SEND_ERROR,
                                     CURLE_RECV_ERROR,
                                     CURLE_SSL_CONNECT_ERROR,
                                     CURLE_WEIRD_SERVER_REPLY,
                                     CURLE_HTTP2,
                                     CURLE_HTTP2_STREAM};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        if (codes[i] == code) {
            return true;
        }
    }
    return false;
}

void espl_transfer_judge(struct espl_transfer *transfer, CURLcode code, double now)
{
    char shown[512];
    if (code == CURLE_OK) {
        judge_answer(transfer, now);
        return;
    }
    if (transfer->start_over) {
        transfer->state = ESPL_TRANSFER_READY;
        return;
    }
    if (transfer->body_failed) { /* our own reason, in error */
        if (transfer->error.code == ESPL_E_CORRUPT) {
            next_address(transfer);
        } else {
            transfer->state = ESPL_TRANSFER_FAILED;
        }
        return;
    }
    (void)espl_fail(&transfer->error, ESPL_E_IO, "cannot fetch %s: %s",
                    espl_fetch_shown_url(transfer->url, shown),
                    transfer->curl_text[0] != '\0' ? transfer->curl_text
                                                   : curl_easy_strerror(code));
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
        (void)espl_hint(&transfer->error, "for a private authority give its certificate with "
                                          "--ca-file FILE or SSL_CERT_FILE");
    }
    if (is_passing_failure(code)) {
        retry_later(transfer, -1, now);
    } else {
        next_address(transfer);
    }
}

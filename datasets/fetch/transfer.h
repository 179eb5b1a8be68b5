/* One file on its way into the cache: a state machine that fetch_loop.c drives.
 *
 *   WAITING -- not in the cache, and nobody else fetches it --> READY -- a slot is free --> RUNNING
 *   RUNNING -- redirect --> READY;  -- failure that may pass --> PAUSED -- time is up --> READY
 *   RUNNING -- whole and checked --> DONE;  -- failure that stays --> next address, or FAILED */
#ifndef ESPL_FETCH_TRANSFER_H
#define ESPL_FETCH_TRANSFER_H

#include "core/error.h"
#include "core/lock.h"
#include "datasets/fetch/fetch_event.h"
#include "datasets/fetch/fetch_request.h"
#include "datasets/fetch/partial.h"
#include "datasets/fetch/response.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>

enum espl_transfer_state {
    ESPL_TRANSFER_WAITING,
    ESPL_TRANSFER_READY,
    ESPL_TRANSFER_RUNNING,
    ESPL_TRANSFER_PAUSED,
    ESPL_TRANSFER_DONE,
    ESPL_TRANSFER_FAILED
};

/** What all transfers of a request share. */
struct espl_fetch_session {
    const struct espl_fetch_request *request;
    const char *token; /* "" = none */
};

struct espl_transfer {
    const struct espl_fetch_session *session;
    const struct espl_fetch_file *file;
    enum espl_transfer_state state;
    struct espl_error error;
    struct espl_lock lock;
    struct espl_partial partial;
    struct espl_fetch_result result;
    bool absent;                    /* DONE without a file */
    char id[ESPL_SHA256_HEX];       /* of the partial file */
    char expected[ESPL_SHA256_HEX]; /* "" = not known */
    uint64_t expected_size;         /* 0 = not known */
    bool expected_recorded;         /* expected is what the first fetch found */
    size_t url_index;
    char url[4096]; /* the address in use: one of the file's, or where it redirected to */
    unsigned redirects;
    unsigned attempts; /* failures in a row that brought nothing new */
    uint64_t farthest; /* most bytes that an attempt had when it failed */
    bool restarted;    /* a bad whole was thrown away once */
    double wake_time;
    /* the request under way */
    CURL *easy;
    struct curl_slist *headers;
    struct espl_response response;
    uint64_t started_at; /* size of the partial file when it began */
    uint64_t total;      /* size of the file as this answer tells it; 0 = not told */
    bool body_begun;
    bool body_failed; /* error holds why, unless */
    bool start_over;  /* the answer does not go with what is there, which was dropped: ask again */
    char curl_text[CURL_ERROR_SIZE];
};

void espl_transfer_init(struct espl_transfer *transfer, const struct espl_fetch_session *session,
                        const struct espl_fetch_file *file);
/** WAITING: looks into the cache and tries the lock. PAUSED: becomes READY when time is up. */
void espl_transfer_poll(struct espl_transfer *transfer, double now);
/** READY -> RUNNING: sends the request. */
void espl_transfer_start(struct espl_transfer *transfer, CURLM *multi);
/** RUNNING: the request ended with `code`. */
void espl_transfer_finish(struct espl_transfer *transfer, CURLM *multi, CURLcode code, double now);
/** Lets go of everything; a partial file stays for the next time. */
void espl_transfer_close(struct espl_transfer *transfer, CURLM *multi);

/* transfer_outcome.c: what the end of a request means. */
void espl_transfer_judge(struct espl_transfer *transfer, CURLcode code, double now);
/* transfer_body.c: the answer's content on its way to the partial file. */
size_t espl_transfer_header(char *line, size_t size, size_t count, void *user);
size_t espl_transfer_body(char *bytes, size_t size, size_t count, void *user);
/** Keeps what the hub's header says about hash, size and commit: as good as the registry's word. */
void espl_transfer_take_hub(struct espl_transfer *transfer);
/** Decides what the answer's content is, before its first byte. False: error or start_over is set.
 */
bool espl_transfer_begin_body(struct espl_transfer *transfer, long http_code);
/** Whole file: check, publish, record. */
void espl_transfer_complete(struct espl_transfer *transfer);

#endif

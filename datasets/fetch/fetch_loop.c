#include "datasets/fetch/fetch_loop.h"

#include "core/log.h"
#include "datasets/fetch/transfer.h"
#include "datasets/fetch/unpack.h"

#include <signal.h>
#include <stdlib.h>

static const double report_seconds = 0.2;
enum { POLL_MS = 50 };

struct loop {
    const struct espl_fetch_session *session;
    struct espl_transfer *transfers;
    bool *reported;
    size_t count;
    CURLM *multi;
    double last_report;
    bool deaf; /* nobody reads our events */
};

static struct espl_transfer *transfer_of(CURL *easy)
{
    char *user = NULL;
    (void)curl_easy_getinfo(easy, CURLINFO_PRIVATE, &user);
    return (struct espl_transfer *)(void *)user;
}

static void start_ready(struct loop *loop, double now)
{
    size_t running = 0;
    for (size_t i = 0; i < loop->count; i++) {
        espl_transfer_poll(&loop->transfers[i], now);
        running += loop->transfers[i].state == ESPL_TRANSFER_RUNNING ? 1 : 0;
    }
    for (size_t i = 0; i < loop->count && running < loop->session->request->parallel; i++) {
        if (loop->transfers[i].state == ESPL_TRANSFER_READY) {
            espl_transfer_start(&loop->transfers[i], loop->multi);
            running++;
        }
    }
}

static void finish_ended(struct loop *loop)
{
    int left = 0;
    CURLMsg *message = NULL;
    while ((message = curl_multi_info_read(loop->multi, &left)) != NULL) {
        if (message->msg == CURLMSG_DONE) {
            espl_transfer_finish(transfer_of(message->easy_handle), loop->multi,
                                 message->data.result, espl_clock_monotonic());
        }
    }
}

static void report_progress(struct loop *loop, double now)
{
    uint64_t done = 0;
    uint64_t total = 0;
    unsigned waiting = 0;
    if (now - loop->last_report < report_seconds) {
        return;
    }
    loop->last_report = now;
    for (size_t i = 0; i < loop->count; i++) {
        const struct espl_transfer *const transfer = &loop->transfers[i];
        const uint64_t size = transfer->state == ESPL_TRANSFER_DONE ? transfer->result.size
                              : transfer->total != 0                ? transfer->total
                                                                    : transfer->expected_size;
        done += transfer->state == ESPL_TRANSFER_DONE ? size : transfer->partial.size;
        total += size;
        waiting += transfer->state == ESPL_TRANSFER_WAITING ? 1 : 0;
    }
    loop->deaf = loop->deaf || !espl_fetch_event_progress(done, total, waiting);
}

/* Tells of files that are done; those that are archives are unpacked first. */
static enum espl_status report_done(struct loop *loop, bool *all_done, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    *all_done = true;
    for (size_t i = 0; i < loop->count && status == ESPL_OK; i++) {
        const struct espl_transfer *const transfer = &loop->transfers[i];
        if (transfer->state == ESPL_TRANSFER_FAILED) {
            *err = transfer->error;
            return err->code;
        }
        if (transfer->state != ESPL_TRANSFER_DONE) {
            *all_done = false;
        } else if (!loop->reported[i]) {
            loop->reported[i] = true;
            const bool heard = transfer->absent
                                   ? espl_fetch_event_absent(transfer->file->name)
                                   : espl_fetch_event_file(transfer->file->name,
                                                           transfer->file->key, &transfer->result);
            loop->deaf = loop->deaf || !heard;
            if (transfer->file->member_count > 0 && !transfer->absent) {
                status = espl_fetch_unpack(&loop->session->request->cache, transfer->file,
                                           &transfer->result, err);
            }
        }
    }
    return status;
}

static enum espl_status drive(struct loop *loop, const volatile int *stop, struct espl_error *err)
{
    for (;;) {
        int running = 0;
        bool all_done = false;
        const double now = espl_clock_monotonic();
        start_ready(loop, now);
        if (curl_multi_perform(loop->multi, &running) != CURLM_OK) {
            return espl_fail(err, ESPL_E_INTERNAL, "the transfer library failed");
        }
        finish_ended(loop);
        const enum espl_status status = report_done(loop, &all_done, err);
        if (status != ESPL_OK || all_done) {
            return status;
        }
        report_progress(loop, now);
        if (*stop != 0 || loop->deaf) {
            return espl_fail(err, *stop == SIGTERM ? ESPL_E_TERMINATED : ESPL_E_CANCELLED,
                             "the fetch was stopped; the same command continues it");
        }
        if (curl_multi_poll(loop->multi, NULL, 0, POLL_MS, NULL) != CURLM_OK) {
            return espl_fail(err, ESPL_E_INTERNAL, "the transfer library failed");
        }
    }
}

enum espl_status espl_fetch_run(const struct espl_fetch_request *request, const char *token,
                                const volatile int *stop, struct espl_error *err)
{
    const struct espl_fetch_session session = {.request = request, .token = token};
    struct loop loop = {.session = &session, .count = request->file_count};
    enum espl_status status = ESPL_OK;
    espl_cache_sweep(&request->cache);
    loop.multi = curl_multi_init();
    loop.transfers = calloc(loop.count, sizeof *loop.transfers);
    loop.reported = calloc(loop.count, sizeof *loop.reported);
    if (loop.multi == NULL || loop.transfers == NULL || loop.reported == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for %zu transfers", loop.count);
        loop.count = 0;
    }
    for (size_t i = 0; i < loop.count && loop.transfers != NULL; i++) {
        espl_transfer_init(&loop.transfers[i], &session, &request->files[i]);
    }
    if (status == ESPL_OK) {
        status = drive(&loop, stop, err);
    }
    for (size_t i = 0; i < loop.count && loop.transfers != NULL; i++) {
        espl_transfer_close(&loop.transfers[i], loop.multi);
    }
    free(loop.reported);
    free(loop.transfers);
    (void)curl_multi_cleanup(loop.multi); /* all its handles are gone */
    return status;
}

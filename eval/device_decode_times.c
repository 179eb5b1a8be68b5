/* Where the time of a decode step goes. */
#include "core/order.h"
#include "espalier/cuda_graph.h"
#include "espalier/cuda_memory.h"
#include "eval/device_decode_internal.h"

#include <stdlib.h>

/* What a frozen step overwrites. */
struct saved {
    int32_t *next, *history;
    size_t next_bytes, history_bytes;
};

static enum espl_status save(const struct espl_device_decoder *decoder, struct saved *saved,
                             struct espl_error *err)
{
    const size_t sequences = decoder->options.sequences;
    saved->next_bytes = sequences * sizeof(int32_t);
    saved->history_bytes = sequences * (decoder->options.tokens + 1) * sizeof(int32_t);
    saved->next = malloc(saved->next_bytes);
    saved->history = malloc(saved->history_bytes);
    if (saved->next == NULL || saved->history == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a decoder's tokens");
    }
    enum espl_status status =
        espl_cuda_download(saved->next, decoder->next, saved->next_bytes, err);
    return status == ESPL_OK
               ? espl_cuda_download(saved->history, decoder->history, saved->history_bytes, err)
               : status;
}

static enum espl_status restore(const struct espl_device_decoder *decoder, struct saved *saved,
                                enum espl_status status, struct espl_error *err)
{
    if (status == ESPL_OK) {
        status = espl_cuda_upload(decoder->next, saved->next, saved->next_bytes, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_upload(decoder->history, saved->history, saved->history_bytes, err);
    }
    free(saved->next);
    free(saved->history);
    return status;
}

static enum espl_status put_frozen(void *self, void *stream, struct espl_error *err)
{
    (void)stream; /* the decoder's */
    return espl_device_put_pass(self, err);
}

/* Median seconds of a graph of some pieces of a step, after a warm-up. */
static enum espl_status time_pieces(struct espl_device_decoder *decoder, unsigned pieces,
                                    size_t repeats, double *seconds, double *median,
                                    struct espl_error *err)
{
    struct espl_device_pass pass = {
        .decoder = decoder, .step = true, .frozen = true, .choose = true, .pieces = pieces};
    struct espl_cuda_graph *graph = NULL;
    enum espl_status status =
        espl_cuda_graph_create(put_frozen, &pass, decoder->stream, &graph, err);
    if (status == ESPL_OK) {
        status = espl_cuda_graph_time(graph, decoder->stream, 2, seconds, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_graph_time(graph, decoder->stream, repeats, seconds, err);
    }
    if (status == ESPL_OK) {
        qsort(seconds, repeats, sizeof *seconds, espl_compare_doubles);
        *median = seconds[repeats / 2];
    }
    espl_cuda_graph_destroy(graph);
    return status;
}

/* Inputs of all linears share one place, where only the last one's is found; as the input of
 * another its codes would stand where scales are looked for. Of these bytes every form makes
 * numbers of ordinary size: FP32 0.0115, FP16 1.06, codes -4, 3 and 60. The other pieces read what
 * the whole step left. */
static enum espl_status fill_input(const struct espl_device_decoder *decoder,
                                   struct espl_error *err)
{
    enum { ORDINARY = 0x3C };
    const enum espl_status status =
        espl_cuda_fill(decoder->input, ORDINARY, decoder->input_bytes, err);
    return status == ESPL_OK ? espl_cuda_synchronize(err) : status;
}

enum espl_status espl_device_time_step(struct espl_device_decoder *decoder, size_t repeats,
                                       struct espl_device_step_times *times, struct espl_error *err)
{
    const struct {
        unsigned pieces;
        double *median;
    } graphs[] = {{ESPL_DEVICE_ALL, &times->step},
                  {ESPL_DEVICE_ATTENTION, &times->attention},
                  {ESPL_DEVICE_NORMS, &times->norms},
                  {ESPL_DEVICE_HEAD, &times->head},
                  {ESPL_DEVICE_PRODUCTS, &times->products}};
    struct saved saved = {0};
    const size_t count = repeats > 2 ? repeats : 2;
    double *seconds = calloc(count, sizeof *seconds);
    if (decoder->made == 0 || decoder->position >= decoder->options.tokens) {
        free(seconds);
        return espl_fail(err, ESPL_E_INTERNAL, "a step is timed after a prompt, with room for it");
    }
    enum espl_status status = seconds != NULL
                                  ? save(decoder, &saved, err)
                                  : espl_fail(err, ESPL_E_NOMEM, "out of memory for times");
    for (size_t i = 0; status == ESPL_OK && i < sizeof graphs / sizeof graphs[0]; i++) {
        if (graphs[i].pieces == ESPL_DEVICE_PRODUCTS) {
            status = fill_input(decoder, err);
        }
        if (status == ESPL_OK) {
            status = time_pieces(decoder, graphs[i].pieces, count, seconds, graphs[i].median, err);
        }
    }
    if (status == ESPL_OK) {
        status = espl_device_wait(decoder, err);
    }
    if (status == ESPL_OK) {
        times->gaps = times->step - times->products - times->attention - times->norms - times->head;
    }
    free(seconds);
    return restore(decoder, &saved, status, err);
}

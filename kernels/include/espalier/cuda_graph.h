/* Streams and CUDA graphs for callers in C: work that is put into a stream once and replayed. In a
 * build without CUDA: UNSUPPORTED. */
#ifndef ESPALIER_CUDA_GRAPH_H
#define ESPALIER_CUDA_GRAPH_H

#include "core/error.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** *stream <- a cudaStream_t that does not wait for the default one. */
enum espl_status espl_cuda_stream_create(void **stream, struct espl_error *err);
/** NULL is allowed. */
void espl_cuda_stream_destroy(void *stream);
enum espl_status espl_cuda_stream_wait(void *stream, struct espl_error *err);

struct espl_cuda_graph;

/** *out <- what put() puts into the stream, ready for replays; nothing runs yet. Errors: those of
 *  put(), NOMEM, MACHINE. */
enum espl_status espl_cuda_graph_create(enum espl_status (*put)(void *self, void *stream,
                                                                struct espl_error *err),
                                        void *self, void *stream, struct espl_cuda_graph **out,
                                        struct espl_error *err);
/** NULL is allowed. */
void espl_cuda_graph_destroy(struct espl_cuda_graph *graph);
/** Puts one replay into the stream. */
enum espl_status espl_cuda_graph_replay(const struct espl_cuda_graph *graph, void *stream,
                                        struct espl_error *err);
/** `count` replays one after the other, without gaps between them; seconds (count) <- time of
 *  each. Waits for the last. Errors: NOMEM, MACHINE. */
enum espl_status espl_cuda_graph_time(const struct espl_cuda_graph *graph, void *stream,
                                      size_t count, double *seconds, struct espl_error *err);

#ifdef __cplusplus
}
#endif

#endif

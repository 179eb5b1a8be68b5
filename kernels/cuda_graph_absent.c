/* Streams and CUDA graphs in a build without CUDA: every call says so. With CUDA: kernels/cuda. */
#include "espalier/cuda_graph.h"
#include "kernels/cuda_absent.h"

#ifndef ESPL_WITH_CUDA

enum espl_status espl_cuda_stream_create(void **stream, struct espl_error *err)
{
    (void)stream;
    return espl_cuda_fail_absent(err);
}

void espl_cuda_stream_destroy(void *stream)
{
    (void)stream;
}

enum espl_status espl_cuda_stream_wait(void *stream, struct espl_error *err)
{
    (void)stream;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_graph_create(enum espl_status (*put)(void *self, void *stream,
                                                                struct espl_error *err),
                                        void *self, void *stream, struct espl_cuda_graph **out,
                                        struct espl_error *err)
{
    (void)put;
    (void)self;
    (void)stream;
    (void)out;
    return espl_cuda_fail_absent(err);
}

void espl_cuda_graph_destroy(struct espl_cuda_graph *graph)
{
    (void)graph;
}

enum espl_status espl_cuda_graph_replay(const struct espl_cuda_graph *graph, void *stream,
                                        struct espl_error *err)
{
    (void)graph;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_graph_time(const struct espl_cuda_graph *graph, void *stream,
                                      size_t count, double *seconds, struct espl_error *err)
{
    (void)graph;
    (void)stream;
    (void)count;
    (void)seconds;
    return espl_cuda_fail_absent(err);
}

#endif

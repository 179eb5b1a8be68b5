/* Streams and CUDA graphs in a build without CUDA: every call says so. With CUDA: kernels/cuda. */
#include "espalier/cuda_graph.h"

#ifndef ESPL_WITH_CUDA

static enum espl_status fail_absent(struct espl_error *err)
{
    espl_fail(err, ESPL_E_UNSUPPORTED, "this program was built without CUDA");
    return espl_hint(err, "build with -DWITH_CUDA=ON on a machine that has nvcc");
}

enum espl_status espl_cuda_stream_create(void **stream, struct espl_error *err)
{
    (void)stream;
    return fail_absent(err);
}

void espl_cuda_stream_destroy(void *stream)
{
    (void)stream;
}

enum espl_status espl_cuda_stream_wait(void *stream, struct espl_error *err)
{
    (void)stream;
    return fail_absent(err);
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
    return fail_absent(err);
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
    return fail_absent(err);
}

enum espl_status espl_cuda_graph_time(const struct espl_cuda_graph *graph, void *stream,
                                      size_t count, double *seconds, struct espl_error *err)
{
    (void)graph;
    (void)stream;
    (void)count;
    (void)seconds;
    return fail_absent(err);
}

enum espl_status espl_cuda_free_bytes(uint64_t *bytes, struct espl_error *err)
{
    (void)bytes;
    return fail_absent(err);
}
#endif

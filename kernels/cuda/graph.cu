/* Streams and graphs for callers in C. */
#include "espalier/cuda_graph.h"
#include "kernels/cuda/cuda_support.cuh"

#include <stdlib.h>

struct espl_cuda_graph {
    cudaGraphExec_t exec;
};

extern "C" enum espl_status espl_cuda_stream_create(void **stream, struct espl_error *err)
{
    cudaStream_t made = NULL;
    const enum espl_status status = espl_cuda_check(
        cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cannot make a stream", err);
    *stream = made;
    return status;
}

extern "C" void espl_cuda_stream_destroy(void *stream)
{
    if (stream != NULL) {
        (void)cudaStreamDestroy(static_cast<cudaStream_t>(stream));
    }
}

extern "C" enum espl_status espl_cuda_stream_wait(void *stream, struct espl_error *err)
{
    return espl_cuda_check(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)),
                           "work on the device failed", err);
}

extern "C" enum espl_status
espl_cuda_graph_create(enum espl_status (*put)(void *self, void *stream, struct espl_error *err),
                       void *self, void *stream, struct espl_cuda_graph **out,
                       struct espl_error *err)
{
    cudaGraph_t graph = NULL;
    cudaStream_t at = static_cast<cudaStream_t>(stream);
    struct espl_cuda_graph *made =
        static_cast<struct espl_cuda_graph *>(calloc(1, sizeof(struct espl_cuda_graph)));
    if (made == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a CUDA graph");
    }
    enum espl_status status =
        espl_cuda_check(cudaStreamBeginCapture(at, cudaStreamCaptureModeThreadLocal),
                        "cannot capture a CUDA graph", err);
    if (status == ESPL_OK) {
        status = put(self, stream, err);
        const cudaError_t error = cudaStreamEndCapture(at, &graph);
        if (status == ESPL_OK) {
            status = espl_cuda_check(error, "cannot capture a CUDA graph", err);
        }
    }
    if (status == ESPL_OK) {
        status = espl_cuda_check(cudaGraphInstantiate(&made->exec, graph, 0),
                                 "cannot make a CUDA graph ready", err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_check(cudaGraphUpload(made->exec, at),
                                 "cannot put a CUDA graph on the device", err);
    }
    if (graph != NULL) {
        (void)cudaGraphDestroy(graph);
    }
    if (status != ESPL_OK) {
        espl_cuda_graph_destroy(made);
        return status;
    }
    *out = made;
    return ESPL_OK;
}

extern "C" void espl_cuda_graph_destroy(struct espl_cuda_graph *graph)
{
    if (graph != NULL && graph->exec != NULL) {
        (void)cudaGraphExecDestroy(graph->exec);
    }
    free(graph);
}

extern "C" enum espl_status espl_cuda_graph_replay(const struct espl_cuda_graph *graph,
                                                   void *stream, struct espl_error *err)
{
    return espl_cuda_check(cudaGraphLaunch(graph->exec, static_cast<cudaStream_t>(stream)),
                           "cannot launch a CUDA graph", err);
}

namespace
{

enum espl_status replay_all(const struct espl_cuda_graph *graph, cudaStream_t stream, size_t count,
                            cudaEvent_t *events, double *seconds, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i <= count; i++) {
        status = espl_cuda_check(cudaEventRecord(events[i], stream), "cannot record an event", err);
        if (status == ESPL_OK && i < count) {
            status = espl_cuda_graph_replay(graph, stream, err);
        }
    }
    if (status == ESPL_OK) {
        status = espl_cuda_stream_wait(stream, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        float milliseconds = 0.0F;
        status = espl_cuda_check(cudaEventElapsedTime(&milliseconds, events[i], events[i + 1]),
                                 "cannot read a timer", err);
        seconds[i] = milliseconds * 1.0e-3;
    }
    return status;
}

} // namespace

extern "C" enum espl_status espl_cuda_graph_time(const struct espl_cuda_graph *graph, void *stream,
                                                 size_t count, double *seconds,
                                                 struct espl_error *err)
{
    cudaEvent_t *events = static_cast<cudaEvent_t *>(calloc(count + 1, sizeof(cudaEvent_t)));
    enum espl_status status =
        events != NULL ? ESPL_OK : espl_fail(err, ESPL_E_NOMEM, "out of memory for events");
    for (size_t i = 0; status == ESPL_OK && i <= count; i++) {
        status = espl_cuda_check(cudaEventCreate(&events[i]), "cannot prepare timing", err);
    }
    if (status == ESPL_OK) {
        status = replay_all(graph, static_cast<cudaStream_t>(stream), count, events, seconds, err);
    }
    for (size_t i = 0; events != NULL && i <= count; i++) {
        if (events[i] != NULL) {
            (void)cudaEventDestroy(events[i]);
        }
    }
    free(events);
    return status;
}

/* Timing with CUDA events, around plain launches or replays of a graph. */
#include "espalier/cuda_memory.h"
#include "espalier/cuda_timing.h"
#include "kernels/cuda/cuda_support.cuh"

#include <stdlib.h>

namespace
{

struct timer {
    cudaStream_t stream;
    cudaEvent_t begin;
    cudaEvent_t end;
    cudaGraphExec_t graph; /* NULL: launched one by one */
};

void timer_close(struct timer *timer)
{
    if (timer->graph != NULL) {
        (void)cudaGraphExecDestroy(timer->graph);
    }
    if (timer->begin != NULL) {
        (void)cudaEventDestroy(timer->begin);
    }
    if (timer->end != NULL) {
        (void)cudaEventDestroy(timer->end);
    }
    if (timer->stream != NULL) {
        (void)cudaStreamDestroy(timer->stream);
    }
}

enum espl_status timer_open(struct timer *timer, struct espl_error *err)
{
    cudaError_t error = cudaStreamCreateWithFlags(&timer->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) {
        error = cudaEventCreate(&timer->begin);
    }
    if (error == cudaSuccess) {
        error = cudaEventCreate(&timer->end);
    }
    return espl_cuda_check(error, "cannot prepare timing", err);
}

enum espl_status launch_all(const struct espl_cuda_subject *subject,
                            const struct espl_cuda_timing_options *options, cudaStream_t stream,
                            struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < options->launches; i++) {
        status =
            subject->launch(subject->self, options->warm ? 0 : i, options->overlap, stream, err);
    }
    return status;
}

enum espl_status capture(const struct espl_cuda_subject *subject,
                         const struct espl_cuda_timing_options *options, struct timer *timer,
                         struct espl_error *err)
{
    cudaGraph_t graph = NULL;
    enum espl_status status =
        espl_cuda_check(cudaStreamBeginCapture(timer->stream, cudaStreamCaptureModeThreadLocal),
                        "cannot capture a CUDA graph", err);
    if (status != ESPL_OK) {
        return status;
    }
    status = launch_all(subject, options, timer->stream, err);
    const cudaError_t error = cudaStreamEndCapture(timer->stream, &graph);
    if (status == ESPL_OK) {
        status = espl_cuda_check(error, "cannot capture a CUDA graph", err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_check(cudaGraphInstantiate(&timer->graph, graph, 0),
                                 "cannot make a CUDA graph ready", err);
    }
    if (graph != NULL) {
        (void)cudaGraphDestroy(graph);
    }
    return status;
}

/* All launches once; *seconds of one. */
enum espl_status time_once(const struct espl_cuda_subject *subject,
                           const struct espl_cuda_timing_options *options, struct timer *timer,
                           double *seconds, struct espl_error *err)
{
    float milliseconds = 0.0F;
    enum espl_status status = espl_cuda_check(cudaEventRecord(timer->begin, timer->stream),
                                              "cannot record an event", err);
    if (status == ESPL_OK) {
        status = timer->graph != NULL
                     ? espl_cuda_check(cudaGraphLaunch(timer->graph, timer->stream),
                                       "cannot launch a CUDA graph", err)
                     : launch_all(subject, options, timer->stream, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_check(cudaEventRecord(timer->end, timer->stream),
                                 "cannot record an event", err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_check(cudaEventSynchronize(timer->end), "a timed launch failed", err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_check(cudaEventElapsedTime(&milliseconds, timer->begin, timer->end),
                                 "cannot read a timer", err);
    }
    *seconds = milliseconds * 1.0e-3 / static_cast<double>(options->launches);
    return status;
}

int compare_doubles(const void *a, const void *b)
{
    const double left = *static_cast<const double *>(a);
    const double right = *static_cast<const double *>(b);
    return (left > right) - (left < right);
}

} // namespace

extern "C" enum espl_status espl_cuda_time_launches(const struct espl_cuda_subject *subject,
                                                    const struct espl_cuda_timing_options *options,
                                                    struct espl_cuda_time *time,
                                                    struct espl_error *err)
{
    double seconds[ESPL_CUDA_MAX_REPEATS];
    double ignored = 0.0;
    struct timer timer = {};
    const size_t repeats =
        options->repeats < ESPL_CUDA_MAX_REPEATS ? options->repeats : ESPL_CUDA_MAX_REPEATS;
    enum espl_status status = timer_open(&timer, err);
    if (status == ESPL_OK && options->graph) {
        status = capture(subject, options, &timer, err);
    }
    if (status == ESPL_OK) {
        status = time_once(subject, options, &timer, &ignored, err); /* warm-up */
    }
    for (size_t i = 0; status == ESPL_OK && i < repeats; i++) {
        status = time_once(subject, options, &timer, &seconds[i], err);
    }
    if (status == ESPL_OK) {
        qsort(seconds, repeats, sizeof seconds[0], compare_doubles);
        time->median = seconds[repeats / 2];
        time->p95 = seconds[repeats * 95 / 100];
    }
    timer_close(&timer);
    return status;
}

namespace
{

struct copy_subject {
    void *to;
    const void *from;
    size_t bytes;
};

enum espl_status launch_copy(void *self, size_t, bool, void *stream, struct espl_error *err)
{
    const struct copy_subject *copy = static_cast<const struct copy_subject *>(self);
    return espl_cuda_check(cudaMemcpyAsync(copy->to, copy->from, copy->bytes,
                                           cudaMemcpyDeviceToDevice,
                                           static_cast<cudaStream_t>(stream)),
                           "cannot copy device memory", err);
}

} // namespace

extern "C" enum espl_status espl_cuda_copy_bandwidth(size_t bytes, double *bytes_a_second,
                                                     struct espl_error *err)
{
    void *memory = NULL;
    struct espl_cuda_time time;
    const struct espl_cuda_timing_options options = {false, false, true, 4, 7};
    enum espl_status status = espl_cuda_alloc(2 * bytes, &memory, err);
    if (status == ESPL_OK) {
        status = espl_cuda_fill(memory, 1, 2 * bytes, err);
    }
    if (status == ESPL_OK) {
        struct copy_subject copy = {memory, static_cast<uint8_t *>(memory) + bytes, bytes};
        const struct espl_cuda_subject subject = {&copy, launch_copy};
        status = espl_cuda_time_launches(&subject, &options, &time, err);
    }
    if (status == ESPL_OK) {
        *bytes_a_second = 2.0 * static_cast<double>(bytes) / time.median;
    }
    espl_cuda_free(memory);
    return status;
}

extern "C" enum espl_status espl_cuda_cache_bytes(size_t *bytes, struct espl_error *err)
{
    int value = 0;
    const enum espl_status status = espl_cuda_attribute(cudaDevAttrL2CacheSize, &value, err);
    *bytes = static_cast<size_t>(value);
    return status;
}

/* Timing of short launches on a CUDA device, with cold or warm caches, launched one by one or as a
 * CUDA graph. In a build without CUDA: UNSUPPORTED. */
#ifndef ESPALIER_CUDA_TIMING_H
#define ESPALIER_CUDA_TIMING_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What is timed. launch() puts one launch into the stream (a cudaStream_t); `copy` counts up from
 * 0 so that every launch can read other memory than those before it. */
struct espl_cuda_subject {
    void *self;
    enum espl_status (*launch)(void *self, size_t copy, bool overlap, void *stream,
                               struct espl_error *err);
};

struct espl_cuda_timing_options {
    bool graph;      /* one CUDA graph of all launches; otherwise launched one by one */
    bool overlap;    /* passed on to launch() */
    bool warm;       /* copy is always 0 */
    size_t launches; /* timed together */
    size_t repeats;  /* of that */
};

/** Seconds of one launch: of the repeats' means over their launches, the median and the 95th
 * percentile. */
struct espl_cuda_time {
    double median;
    double p95;
};

enum { ESPL_CUDA_MAX_REPEATS = 256 };

/** Runs `launches` once without timing, then times. Errors: those of launch(), UNSUPPORTED,
 * MACHINE.
 */
enum espl_status espl_cuda_time_launches(const struct espl_cuda_subject *subject,
                                         const struct espl_cuda_timing_options *options,
                                         struct espl_cuda_time *time, struct espl_error *err);
/** Bytes a second, read plus written, of a copy of `bytes` within device memory. */
enum espl_status espl_cuda_copy_bandwidth(size_t bytes, double *bytes_a_second,
                                          struct espl_error *err);
/** Bytes of the second-level cache. */
enum espl_status espl_cuda_cache_bytes(size_t *bytes, struct espl_error *err);

#ifdef __cplusplus
}
#endif

#endif

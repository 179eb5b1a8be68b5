/* Operands on the device and libraries at run time, as the baselines of this folder need them. */
#ifndef ESPL_BENCH_SPMM_BASELINE_H
#define ESPL_BENCH_SPMM_BASELINE_H

#include "espalier/cuda_timing.h"
#include "kernels/bench/spmm_peer.h"

#include <stdbool.h>

enum { ESPL_BASELINE_MAX_COPIES = 1024 };

/** Copies of an array in device memory. */
struct espl_baseline_copies {
    void *data[ESPL_BASELINE_MAX_COPIES];
    size_t count;
    size_t bytes; /* of one */
};

/** What every baseline here has; the first member of its own struct. */
struct espl_baseline {
    void *library;
    void *handle; /* of the library; NULL before it has started */
    int (*destroy_handle)(void *handle);
    struct espl_spmm_peer_problem problem; /* .codes only while the baseline is prepared */
    struct espl_baseline_copies weights;   /* CSR: the values */
    void *x;
    void *y;
    void *work;
};

/** create() of a baseline: *out <- a struct of `bytes` with the problem set that prepare() has
 *  filled. When it fails, destroy() gets what there is. */
int espl_baseline_create(size_t bytes, const struct espl_spmm_peer_problem *problem,
                         int (*prepare)(void *self, char *why), void (*destroy)(void *self),
                         void **out, char *why);
/** destroy() of a baseline: everything of struct espl_baseline, and self. */
void espl_baseline_destroy(void *self);
/** x and y of the problem as IEEE halves. */
int espl_baseline_half_operands(struct espl_baseline *base, char *why);

/** A prepared baseline, for timing. */
struct espl_baseline_subject {
    const struct espl_spmm_peer *peer;
    void *self;
};
/** launch() of struct espl_cuda_subject; self: a struct espl_baseline_subject. Baselines cannot
 *  overlap. */
enum espl_status espl_baseline_launch(void *self, size_t copy, bool overlap, void *stream,
                                      struct espl_error *err);
/** *which <- the fastest algorithm of 0 to count - 1; peer->launch() uses number *which. */
int espl_baseline_pick(const struct espl_baseline_subject *subject,
                       const struct espl_cuda_timing_options *options, int count, int *which,
                       char *why);

/** Fills *copies from host memory: as many as make cold_bytes, 1 to ESPL_BASELINE_MAX_COPIES. */
int espl_baseline_copies_create(const void *host, size_t bytes, size_t cold_bytes,
                                struct espl_baseline_copies *copies, char *why);
void espl_baseline_copies_free(struct espl_baseline_copies *copies);
/** *device <- bytes of device memory with the content of host, or not initialised (host NULL). */
int espl_baseline_upload(const void *host, size_t bytes, void **device, char *why);
/** IEEE half words of codes -8 to 7; free() them. NULL: out of memory. */
uint16_t *espl_baseline_halves(const int8_t *codes, size_t count);
/** Activations for timing: count codes -8 to 7, always the same ones. NULL: out of memory. */
int8_t *espl_baseline_activations(size_t count);

/** The first of `names` (NULL after the last) that can be loaded; NULL, and why, when none can. */
void *espl_baseline_library(const char *const *names, char *why);
/** *function <- a symbol; false, and why, when it is missing. function: pointer to a function
 *  pointer. */
bool espl_baseline_symbol(void *library, const char *name, void *function, char *why);
int espl_baseline_fail(char *why, const char *what, int code);

#endif

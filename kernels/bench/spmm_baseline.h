/* Operands on the device and libraries at run time, as the baselines of this folder need them. */
#ifndef ESPL_BENCH_SPMM_BASELINE_H
#define ESPL_BENCH_SPMM_BASELINE_H

#include "kernels/bench/spmm_peer.h"

#include <stdbool.h>

enum { ESPL_BASELINE_MAX_COPIES = 64 };

/** Copies of an array in device memory. */
struct espl_baseline_copies {
    void *data[ESPL_BASELINE_MAX_COPIES];
    size_t count;
    size_t bytes; /* of one */
};

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

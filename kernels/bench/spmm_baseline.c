/* What baselines share: operands on the device, libraries at run time, the choice of an algorithm.
 */
#include "kernels/bench/spmm_baseline.h"

#include "espalier/cuda_memory.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int espl_baseline_fail(char *why, const char *what, int code)
{
    (void)snprintf(why, ESPL_SPMM_PEER_TEXT, "%s (status %d)", what, code);
    return 1;
}

int espl_baseline_upload(const void *host, size_t bytes, void **device, char *why)
{
    struct espl_error err;
    enum espl_status status = espl_cuda_alloc(bytes, device, &err);
    if (status == ESPL_OK && host != NULL) {
        status = espl_cuda_upload(*device, host, bytes, &err);
    }
    if (status != ESPL_OK) {
        (void)snprintf(why, ESPL_SPMM_PEER_TEXT, "%.*s", ESPL_SPMM_PEER_TEXT - 1, err.message);
    }
    return status == ESPL_OK ? 0 : 1;
}

int espl_baseline_copies_create(const void *host, size_t bytes, size_t cold_bytes,
                                struct espl_baseline_copies *copies, char *why)
{
    size_t count = cold_bytes / bytes + (cold_bytes % bytes != 0 ? 1 : 0);
    count = count == 0 ? 1 : count;
    count = count < ESPL_BASELINE_MAX_COPIES ? count : ESPL_BASELINE_MAX_COPIES;
    copies->bytes = bytes;
    for (size_t i = 0; i < count; i++) {
        if (espl_baseline_upload(host, bytes, &copies->data[i], why) != 0) {
            return 1;
        }
        copies->count = i + 1;
    }
    return 0;
}

void espl_baseline_copies_free(struct espl_baseline_copies *copies)
{
    for (size_t i = 0; i < ESPL_BASELINE_MAX_COPIES; i++) {
        espl_cuda_free(copies->data[i]);
        copies->data[i] = NULL;
    }
}

int espl_baseline_create(size_t bytes, const struct espl_spmm_peer_problem *problem,
                         int (*prepare)(void *self, char *why), void (*destroy)(void *self),
                         void **out, char *why)
{
    struct espl_baseline *base = calloc(1, bytes);
    if (base == NULL) {
        return espl_baseline_fail(why, "out of memory for a baseline", 0);
    }
    base->problem = *problem;
    if (prepare(base, why) != 0) {
        destroy(base);
        return 1;
    }
    base->problem.codes = NULL; /* borrowed for the time of this call */
    *out = base;
    return 0;
}

void espl_baseline_destroy(void *self)
{
    struct espl_baseline *base = self;
    if (base->handle != NULL) {
        (void)base->destroy_handle(base->handle);
    }
    espl_baseline_copies_free(&base->weights);
    espl_cuda_free(base->x);
    espl_cuda_free(base->y);
    espl_cuda_free(base->work);
    if (base->library != NULL) {
        (void)dlclose(base->library);
    }
    free(base);
}

int espl_baseline_half_operands(struct espl_baseline *base, char *why)
{
    const struct espl_spmm_peer_problem *p = &base->problem;
    int8_t *codes = espl_baseline_activations(p->tokens * p->cols);
    uint16_t *x = codes != NULL ? espl_baseline_halves(codes, p->tokens * p->cols) : NULL;
    int failed = x == NULL
                     ? espl_baseline_fail(why, "out of memory for activations", 0)
                     : espl_baseline_upload(x, p->tokens * p->cols * sizeof *x, &base->x, why);
    if (failed == 0) {
        failed = espl_baseline_upload(NULL, p->tokens * p->rows * sizeof *x, &base->y, why);
    }
    free(codes);
    free(x);
    return failed;
}

enum espl_status espl_baseline_launch(void *self, size_t copy, bool overlap, void *stream,
                                      struct espl_error *err)
{
    const struct espl_baseline_subject *subject = self;
    (void)overlap;
    const int code = subject->peer->launch(subject->self, copy, stream);
    return code == 0 ? ESPL_OK
                     : espl_fail(err, ESPL_E_MACHINE, "baseline '%s' failed with status %d",
                                 subject->peer->name, code);
}

int espl_baseline_pick(const struct espl_baseline_subject *subject,
                       const struct espl_cuda_timing_options *options, int count, int *which,
                       char *why)
{
    struct espl_baseline_subject own = *subject;
    const struct espl_cuda_subject timed = {&own, espl_baseline_launch};
    double best = 0.0;
    int chosen = -1;
    for (int i = 0; i < count; i++) {
        struct espl_cuda_time time;
        struct espl_error err;
        *which = i;
        if (espl_cuda_time_launches(&timed, options, &time, &err) == ESPL_OK &&
            (chosen < 0 || time.median < best)) {
            best = time.median;
            chosen = i;
        }
    }
    *which = chosen;
    return chosen >= 0 ? 0 : espl_baseline_fail(why, "no algorithm of the library runs", 0);
}

uint16_t *espl_baseline_halves(const int8_t *codes, size_t count)
{
    /* -8 to 7 as IEEE half */
    static const uint16_t half[16] = {0xC800, 0xC700, 0xC600, 0xC500, 0xC400, 0xC200,
                                      0xC000, 0xBC00, 0x0000, 0x3C00, 0x4000, 0x4200,
                                      0x4400, 0x4500, 0x4600, 0x4700};
    uint16_t *halves = malloc(count * sizeof *halves);
    if (halves == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        halves[i] = half[(codes[i] + 8) & 15];
    }
    return halves;
}

int8_t *espl_baseline_activations(size_t count)
{
    int8_t *codes = malloc(count);
    uint32_t state = 1;
    if (codes == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u; /* Numerical Recipes' generator */
        codes[i] = (int8_t)((int)(state >> 28) - 8);
    }
    return codes;
}

void *espl_baseline_library(const char *const *names, char *why)
{
    for (size_t i = 0; names[i] != NULL; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library != NULL) {
            return library;
        }
    }
    (void)snprintf(why, ESPL_SPMM_PEER_TEXT, "%s is not on this machine", names[0]);
    return NULL;
}

bool espl_baseline_symbol(void *library, const char *name, void *function, char *why)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        (void)snprintf(why, ESPL_SPMM_PEER_TEXT, "the library has no %s", name);
        return false;
    }
    memcpy(function, &symbol, sizeof symbol); /* C has no cast from object to function pointers */
    return true;
}

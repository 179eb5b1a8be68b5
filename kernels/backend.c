/* The table of backends: opening by name, thread budget, work space. */
#include "core/checked.h"
#include "espalier/kernels.h"
#include "kernels/backend_internal.h"

#include <cblas.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static const struct backend_entry {
    const char *name;
    const struct espl_ops *ops;
} backends[] = {
    {"ref", &espl_ref_ops},
    {"cpu", &espl_cpu_ops},
    {"auto", &espl_cpu_ops},
};

void espl_blas_make_single_threaded(void)
{
    openblas_set_num_threads(1);
    omp_set_num_threads(1);
}

/* What OpenMP would use: OMP_NUM_THREADS (its first number), else the processors this process may
 * run on. OpenMP itself cannot be asked, because its default is set to 1 for OpenBLAS's sake. */
static unsigned default_threads(void)
{
    const char *text = getenv("OMP_NUM_THREADS");
    const unsigned long wanted = text != NULL ? strtoul(text, NULL, 10) : 0;
    if (wanted > 0) {
        return wanted < ESPL_BACKEND_MAX_THREADS ? (unsigned)wanted : ESPL_BACKEND_MAX_THREADS;
    }
    const int processors = omp_get_num_procs();
    return processors > 0 ? (unsigned)processors : 1;
}

static unsigned thread_budget(unsigned asked)
{
    const unsigned threads = asked != 0 ? asked : default_threads();
    return threads < ESPL_BACKEND_MAX_THREADS ? threads : ESPL_BACKEND_MAX_THREADS;
}

/* OpenBLAS 0.3.21 asks for its work space at the first product and tries for ever when it is
 * refused: so the room is tried out before. Nothing is kept and no page is touched. */
static bool has_room_for_blas(unsigned threads)
{
    const size_t bytes = (size_t)threads << 27; /* its BUFFER_SIZE on 64-bit machines */
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
        return false;
    }
    (void)munmap(room, bytes); /* it was just mapped: cannot fail */
    return true;
}

enum espl_status espl_backend_open(const char *name, unsigned threads, struct espl_backend **out,
                                   struct espl_error *err)
{
    const struct espl_ops *ops = NULL;
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        if (strcmp(backends[i].name, name) == 0) {
            ops = backends[i].ops;
        }
    }
    if (ops == NULL) {
        espl_fail(err, ESPL_E_UNSUPPORTED, "this build has no kernel backend '%s'", name);
        return espl_hint(err, "backends of this build: ref, cpu, auto");
    }
    struct espl_backend *backend = calloc(1, sizeof *backend);
    if (backend == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory while opening backend '%s'", name);
    }
    backend->ops = ops;
    backend->threads = 1;
    if (ops == &espl_cpu_ops) {
        backend->threads = thread_budget(threads);
        /* A serial build has no locks: two callers at a time get wrong results. */
        backend->blas_threads = openblas_get_parallel() == 0 ? 1 : backend->threads;
        espl_blas_make_single_threaded();
        if (!has_room_for_blas(backend->blas_threads)) {
            free(backend);
            espl_fail(err, ESPL_E_NOMEM,
                      "no memory for the work space of OpenBLAS (128 MiB a thread)");
            return espl_hint(err, "raise the limit on address space (ulimit -v), or set "
                                  "OMP_NUM_THREADS to use fewer threads");
        }
    }
    *out = backend;
    return ESPL_OK;
}

void espl_backend_close(struct espl_backend *backend)
{
    if (backend == NULL) {
        return;
    }
    free(backend->rope.inv_freq);
    free(backend->rope.values);
    free(backend->scratch);
    free(backend);
}

const struct espl_ops *espl_backend_ops(const struct espl_backend *backend)
{
    return backend->ops;
}

unsigned espl_backend_threads(const struct espl_backend *backend)
{
    return backend->threads;
}

double espl_backend_seconds(const struct espl_backend *backend)
{
    struct timespec time = {0, 0};
    /* Several threads wait for each other: only the wall tells. */
    (void)clock_gettime(backend->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void *espl_backend_scratch(struct espl_backend *backend, size_t bytes)
{
    enum { ALIGNMENT = 64 };
    if (bytes <= backend->scratch_bytes && backend->scratch != NULL) {
        return backend->scratch;
    }
    size_t rounded = 0;
    if (!espl_add_size(bytes, ALIGNMENT, &rounded)) {
        return NULL;
    }
    rounded -= rounded % ALIGNMENT;
    void *fresh = aligned_alloc(ALIGNMENT, rounded);
    if (fresh == NULL) {
        return NULL;
    }
    free(backend->scratch);
    backend->scratch = fresh;
    backend->scratch_bytes = rounded;
    return fresh;
}

enum espl_status espl_backend_scratch_array(struct espl_backend *backend, size_t count,
                                            size_t item_bytes, void **out, struct espl_error *err)
{
    size_t bytes = 0;
    void *data = NULL;
    if (espl_mul_size(count, item_bytes, &bytes)) {
        data = espl_backend_scratch(backend, bytes);
    }
    if (data == NULL) {
        return espl_fail(err, ESPL_E_NOMEM,
                         "out of memory for the work space of a kernel (%zu items of %zu bytes)",
                         count, item_bytes);
    }
    *out = data;
    return ESPL_OK;
}

enum espl_status espl_nm_mask_check(const struct espl_matrix_shape *shape, size_t n, size_t m,
                                    bool keep_tail, struct espl_error *err)
{
    enum { LARGEST_WINDOW = 64 };
    if (n == 0 || n > m || m > LARGEST_WINDOW) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "cannot keep %zu of %zu columns", n, m);
    }
    if (shape->cols % m != 0 && !keep_tail) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "%zu columns are not a multiple of %zu",
                         shape->cols, m);
    }
    return ESPL_OK;
}

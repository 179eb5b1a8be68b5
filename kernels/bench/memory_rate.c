/* How fast this machine reads its memory: what a product of few columns cannot beat. */
#include "kernels/bench/cases.h"

#include <omp.h>
#include <stdlib.h>

/* A cache line a step, so that memory and not the adder is what is measured. */
static uint64_t sum_words(const uint64_t *words, size_t count, unsigned threads)
{
    uint64_t total = 0;
#pragma omp parallel for num_threads(threads) reduction(+ : total) schedule(static)
    for (size_t i = 0; i < count / 8; i++) {
        const uint64_t *line = words + 8 * i;
        total +=
            (line[0] + line[1]) + (line[2] + line[3]) + (line[4] + line[5]) + (line[6] + line[7]);
    }
    return total;
}

enum espl_status espl_memory_read_rate(unsigned threads, size_t bytes, unsigned repeats,
                                       double *rate, struct espl_error *err)
{
    const size_t count = bytes / sizeof(uint64_t) / 8 * 8;
    uint64_t *words = count > 0 ? malloc(count * sizeof *words) : NULL;
    if (words == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu bytes to read", bytes);
    }
    uint64_t expected = 0;
    for (size_t i = 0; i < count; i++) {
        words[i] = i;
        expected += i;
    }
    double best = 0.0;
    enum espl_status status = ESPL_OK;
    for (unsigned r = 0; r <= repeats && status == ESPL_OK; r++) {
        const double start = omp_get_wtime();
        const uint64_t sum = sum_words(words, count, threads);
        const double seconds = omp_get_wtime() - start;
        best = r == 0 || seconds < best ? seconds : best;
        if (sum != expected) { /* and the compiler cannot leave the reading out */
            status = espl_fail(err, ESPL_E_INTERNAL, "memory did not hold what was written");
        }
    }
    free(words);
    *rate = (double)(count * sizeof *words) / best;
    return status;
}

/* A lookup table of measured costs of linear layers: seconds (or joules) per shape, N:M level and
 * kernel. Pure arrays; stages read and write it.
 *
 * Raw measurements need not be monotone: a kernel for 3:8 may be slower than the one for 4:8. But
 * weights that keep 3 of 8 also fit a kernel for 4 of 8, so the cost of level N is the least over
 * all kernels at all levels >= N: the monotone envelope. A search on raw costs could sparsify for
 * ever without getting faster. */
#ifndef ESPL_SEARCH_LATENCY_TABLE_H
#define ESPL_SEARCH_LATENCY_TABLE_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ESPL_LATENCY_MAX_M = 16,      /* largest window */
    ESPL_LATENCY_MAX_KERNELS = 16 /* kernels of one table */
};

/** A product y (tokens, out) = x (tokens, in) W^T, all images of a batch together. */
struct espl_latency_shape {
    size_t tokens, in, out;
};

/** Level n (1..m) stands at index n - 1. Entries that were not measured are NaN. */
struct espl_latency_table {
    size_t shape_count, kernel_count;
    unsigned m;
    struct espl_latency_shape *shapes; /* (shape_count) */
    double *raw;                       /* (shape_count, m, kernel_count): medians */
    double *spread;         /* as raw: half the distance of the 10th and 90th percentile */
    double *envelope;       /* (shape_count, m), after espl_latency_table_close() */
    uint8_t *chosen_kernel; /* (shape_count, m): the kernel that the envelope runs on */
    uint8_t *chosen_level;  /* (shape_count, m): ... and the level (n) it runs at, >= n */
};

/** All entries not measured. 1 <= m <= ESPL_LATENCY_MAX_M. Errors: NOMEM, KIND for sizes out of
 * range. Free with espl_latency_table_free(), also after a failure. */
enum espl_status espl_latency_table_create(size_t shape_count, unsigned m, size_t kernel_count,
                                           struct espl_latency_table *table,
                                           struct espl_error *err);
void espl_latency_table_free(struct espl_latency_table *table);

/** Index of an entry in raw and spread. n: 1..m. */
static inline size_t espl_latency_index(const struct espl_latency_table *table, size_t shape,
                                        unsigned n, size_t kernel)
{
    return (shape * table->m + (n - 1)) * table->kernel_count + kernel;
}

/** Position of a shape; shape_count when the table has none like it. */
size_t espl_latency_find(const struct espl_latency_table *table,
                         const struct espl_latency_shape *shape);
/** Computes envelope, chosen_kernel and chosen_level. Of equal costs the sparser level and the
 * lower kernel win. Errors: KIND when a shape has no measurement at level m (the dense layer always
 * must run); NUMERIC for a measurement that is negative, zero or infinite. */
enum espl_status espl_latency_table_close(struct espl_latency_table *table, struct espl_error *err);
/** Cost of level n of a shape after espl_latency_table_close(). */
static inline double espl_latency_cost(const struct espl_latency_table *table, size_t shape,
                                       unsigned n)
{
    return table->envelope[shape * table->m + (n - 1)];
}

/** Sorts values (count >= 1) and gives the median and half the distance between the 10th and the
 * 90th percentile (nearest rank). */
void espl_latency_summarise(double *values, size_t count, double *median, double *spread);

#endif

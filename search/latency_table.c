#include "search/latency_table.h"

#include "core/checked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum espl_status espl_latency_table_create(size_t shape_count, unsigned m, size_t kernel_count,
                                           struct espl_latency_table *table, struct espl_error *err)
{
    size_t cells = 0;
    size_t entries = 0;
    memset(table, 0, sizeof *table);
    if (m < 1 || m > ESPL_LATENCY_MAX_M || kernel_count < 1 ||
        kernel_count > ESPL_LATENCY_MAX_KERNELS || shape_count < 1) {
        return espl_fail(err, ESPL_E_KIND,
                         "a latency table needs shapes, 1 to %d kernels and M from 1 to %d, got "
                         "%zu shapes, %zu kernels, M = %u",
                         (int)ESPL_LATENCY_MAX_KERNELS, (int)ESPL_LATENCY_MAX_M, shape_count,
                         kernel_count, m);
    }
    if (!espl_mul_size(shape_count, m, &cells) || !espl_mul_size(cells, kernel_count, &entries) ||
        entries > SIZE_MAX / sizeof(double)) {
        return espl_fail(err, ESPL_E_NOMEM, "a latency table of %zu shapes does not fit in memory",
                         shape_count);
    }
    table->shape_count = shape_count;
    table->kernel_count = kernel_count;
    table->m = m;
    table->shapes = calloc(shape_count, sizeof *table->shapes);
    table->raw = malloc(entries * sizeof *table->raw);
    table->spread = malloc(entries * sizeof *table->spread);
    table->envelope = malloc(cells * sizeof *table->envelope);
    table->chosen_kernel = calloc(cells, sizeof *table->chosen_kernel);
    table->chosen_level = calloc(cells, sizeof *table->chosen_level);
    if (table->shapes == NULL || table->raw == NULL || table->spread == NULL ||
        table->envelope == NULL || table->chosen_kernel == NULL || table->chosen_level == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a latency table of %zu shapes",
                         shape_count);
    }
    for (size_t i = 0; i < entries; i++) {
        table->raw[i] = (double)NAN;
        table->spread[i] = (double)NAN;
    }
    for (size_t i = 0; i < cells; i++) {
        table->envelope[i] = (double)NAN;
    }
    return ESPL_OK;
}

void espl_latency_table_free(struct espl_latency_table *table)
{
    free(table->shapes);
    free(table->raw);
    free(table->spread);
    free(table->envelope);
    free(table->chosen_kernel);
    free(table->chosen_level);
    memset(table, 0, sizeof *table);
}

size_t espl_latency_find(const struct espl_latency_table *table,
                         const struct espl_latency_shape *shape)
{
    size_t i = 0;
    while (i < table->shape_count &&
           (table->shapes[i].tokens != shape->tokens || table->shapes[i].in != shape->in ||
            table->shapes[i].out != shape->out)) {
        i++;
    }
    return i;
}

/* Fastest kernel measured at exactly level n; false when there is none. */
static enum espl_status fastest_at(const struct espl_latency_table *table, size_t shape, unsigned n,
                                   double *cost, uint8_t *kernel, bool *found,
                                   struct espl_error *err)
{
    *found = false;
    for (size_t k = 0; k < table->kernel_count; k++) {
        const double value = table->raw[espl_latency_index(table, shape, n, k)];
        if (isnan(value)) {
            continue;
        }
        if (!(value > 0.0) || isinf(value)) {
            return espl_fail(err, ESPL_E_NUMERIC,
                             "latency table: shape %zu at %u:%u holds %g, expected a positive cost",
                             shape, n, table->m, value);
        }
        if (!*found || value < *cost) {
            *found = true;
            *cost = value;
            *kernel = (uint8_t)k;
        }
    }
    return ESPL_OK;
}

enum espl_status espl_latency_table_close(struct espl_latency_table *table, struct espl_error *err)
{
    for (size_t shape = 0; shape < table->shape_count; shape++) {
        double best = INFINITY;
        uint8_t kernel = 0;
        uint8_t level = 0;
        for (unsigned n = table->m; n >= 1; n--) {
            double cost = 0.0;
            uint8_t fastest = 0;
            bool found = false;
            const enum espl_status status =
                fastest_at(table, shape, n, &cost, &fastest, &found, err);
            if (status != ESPL_OK) {
                return status;
            }
            if (n == table->m && !found) {
                const struct espl_latency_shape *s = &table->shapes[shape];
                return espl_fail(err, ESPL_E_KIND,
                                 "latency table: the dense layer of %zu x %zu at %zu tokens was "
                                 "not measured",
                                 s->out, s->in, s->tokens);
            }
            if (found && cost <= best) {
                best = cost;
                kernel = fastest;
                level = (uint8_t)n;
            }
            table->envelope[shape * table->m + (n - 1)] = best;
            table->chosen_kernel[shape * table->m + (n - 1)] = kernel;
            table->chosen_level[shape * table->m + (n - 1)] = level;
        }
    }
    return ESPL_OK;
}

static int compare_reals(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

void espl_latency_summarise(double *values, size_t count, double *median, double *spread)
{
    qsort(values, count, sizeof *values, compare_reals);
    const size_t low = (count - 1) / 10;
    const size_t high = count - 1 - low;
    *median =
        count % 2 == 1 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
    *spread = 0.5 * (values[high] - values[low]);
}

#include "kernels/bench/spmm_results.h"

#include <math.h>

const char *const espl_spmm_mode_names[ESPL_SPMM_MODES] = {"graph", "eager", "warm", "eager_warm",
                                                           "overlap"};

double espl_spmm_seconds(const struct espl_spmm_case *item, size_t result)
{
    const struct espl_spmm_result *r = &item->results[result];
    return r->measured && r->times[item->usual].median > 0.0 ? r->times[item->usual].median
                                                             : (double)NAN;
}

static bool counts(const struct espl_spmm_case *item, size_t result)
{
    return item->results[result].ours && item->results[result].lossless &&
           isfinite(espl_spmm_seconds(item, result));
}

void espl_spmm_choose(struct espl_spmm_case *item)
{
    bool any = false;
    item->chosen = 0;
    item->best = 0;
    for (size_t i = 0; i < item->count; i++) {
        if (!counts(item, i)) {
            continue;
        }
        if (!any || item->results[i].expected < item->results[item->chosen].expected) {
            item->chosen = i;
        }
        if (!any || espl_spmm_seconds(item, i) < espl_spmm_seconds(item, item->best)) {
            item->best = i;
        }
        any = true;
    }
}

double espl_spmm_operand_bytes(const struct espl_spmm_case *item)
{
    return (double)item->tokens *
           (0.5 * (double)item->cols + (double)sizeof(int32_t) * (double)item->rows);
}

double espl_spmm_floor_seconds(const struct espl_spmm_case *item, double bytes_a_second)
{
    double least = (double)NAN;
    for (size_t i = 0; i < item->count; i++) {
        const double bytes = (double)item->results[i].bytes;
        if (counts(item, i) && !(least <= bytes)) {
            least = bytes;
        }
    }
    return (least + espl_spmm_operand_bytes(item)) / bytes_a_second;
}

double espl_spmm_swept_seconds(const struct espl_spmm_case *item)
{
    double least = (double)NAN;
    for (size_t i = 0; i < item->count; i++) {
        const struct espl_spmm_sweep *sweep = &item->results[i].sweep;
        if (counts(item, i) && sweep->tried > 0 && !(least <= sweep->seconds)) {
            least = sweep->seconds;
        }
    }
    return least;
}

static double operations(const struct espl_spmm_case *item)
{
    return 2.0 * (double)item->rows * (double)item->cols * (double)item->tokens;
}

double espl_spmm_intensity(const struct espl_spmm_case *item, size_t result)
{
    return operations(item) / ((double)item->results[result].bytes + espl_spmm_operand_bytes(item));
}

double espl_spmm_rate(const struct espl_spmm_case *item, size_t result)
{
    return operations(item) / espl_spmm_seconds(item, result);
}

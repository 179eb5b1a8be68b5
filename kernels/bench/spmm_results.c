#include "kernels/bench/spmm_results.h"

#include <math.h>
#include <string.h>

const char *const espl_spmm_mode_names[ESPL_SPMM_MODES] = {"graph", "eager", "warm", "eager_warm",
                                                           "overlap"};
const char *const espl_spmm_kind_names[] = {"codes", "layer", "quantiser"};

double espl_spmm_seconds(const struct espl_spmm_case *item, size_t result)
{
    const struct espl_spmm_result *r = &item->results[result];
    return r->measured && r->times[item->usual].median > 0.0 ? r->times[item->usual].median
                                                             : (double)NAN;
}

static bool counts(const struct espl_spmm_case *item, enum espl_spmm_kind kind, size_t result)
{
    return item->results[result].ours && item->results[result].lossless &&
           item->results[result].kind == kind && isfinite(espl_spmm_seconds(item, result));
}

/* The least expected time of a kind; item->count: there is none. */
static size_t least_expected(const struct espl_spmm_case *item, enum espl_spmm_kind kind)
{
    size_t least = item->count;
    for (size_t i = 0; i < item->count; i++) {
        if (counts(item, kind, i) &&
            (least == item->count || item->results[i].expected < item->results[least].expected)) {
            least = i;
        }
    }
    return least;
}

void espl_spmm_choose(struct espl_spmm_case *item)
{
    const size_t chosen = least_expected(item, ESPL_SPMM_CODES);
    item->chosen = chosen < item->count ? chosen : 0;
    item->best = item->chosen;
    for (size_t i = 0; i < item->count; i++) {
        if (counts(item, ESPL_SPMM_CODES, i) &&
            espl_spmm_seconds(item, i) < espl_spmm_seconds(item, item->best)) {
            item->best = i;
        }
    }
    item->chosen_layer = least_expected(item, ESPL_SPMM_LAYER);
}

size_t espl_spmm_find(const struct espl_spmm_case *item, const char *name)
{
    size_t at = 0;
    while (at < item->count && strcmp(item->results[at].name, name) != 0) {
        at++;
    }
    return at;
}

size_t espl_spmm_plain_of(const struct espl_spmm_case *item, size_t layer)
{
    char plain[ESPL_SPMM_NAME];
    memcpy(plain, item->results[layer].name, sizeof plain);
    char *suffix = strstr(plain, ESPL_SPMM_LAYER_SUFFIX);
    if (suffix == NULL) {
        return item->count;
    }
    *suffix = '\0';
    return espl_spmm_find(item, plain);
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
        if (counts(item, ESPL_SPMM_CODES, i) && !(least <= bytes)) {
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
        if (counts(item, ESPL_SPMM_CODES, i) && sweep->tried > 0 && !(least <= sweep->seconds)) {
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

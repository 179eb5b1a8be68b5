#include "cli/bench_settings.h"

#include "cli/options.h"
#include "core/units.h"

#include <stdlib.h>
#include <string.h>

enum espl_status espl_bench_texts_of(const struct espl_cli *cli, const char *option, size_t most,
                                     const char ***texts, size_t *count, struct espl_error *err)
{
    enum espl_status status = espl_args_collect(cli->args, option, texts, count, err);
    if (status == ESPL_OK && *count > most) {
        status = espl_fail(err, ESPL_E_USAGE, "--%s is given %zu times, expected at most %zu",
                           option, *count, most);
    }
    return status;
}

static bool parse_size(const char *text, size_t most_side, struct espl_bench_size *size)
{
    char rows[24];
    int64_t sides[2];
    const char *cross = strchr(text, 'x');
    if (cross == NULL || (size_t)(cross - text) >= sizeof rows) {
        return false;
    }
    memcpy(rows, text, (size_t)(cross - text));
    rows[cross - text] = '\0';
    if (!espl_parse_int(rows, &sides[0]) || !espl_parse_int(cross + 1, &sides[1]) || sides[0] < 1 ||
        sides[1] < 1 || (uint64_t)sides[0] > most_side || (uint64_t)sides[1] > most_side) {
        return false;
    }
    *size = (struct espl_bench_size){(size_t)sides[0], (size_t)sides[1]};
    return true;
}

enum espl_status espl_bench_shapes_of(const struct espl_cli *cli,
                                      const struct espl_bench_size *usual, size_t usual_count,
                                      size_t most_side, struct espl_bench_size *sizes,
                                      size_t *count, struct espl_error *err)
{
    const char **texts = NULL;
    enum espl_status status =
        espl_bench_texts_of(cli, "shape", ESPL_BENCH_MOST_SETTINGS, &texts, count, err);
    for (size_t i = 0; status == ESPL_OK && i < *count; i++) {
        if (!parse_size(texts[i], most_side, &sizes[i])) {
            espl_fail(err, ESPL_E_USAGE, "--shape must be ROWSxCOLS, got '%s'", texts[i]);
            status = espl_hint(err, "for example --shape=28672x8192; each at most %zu", most_side);
        }
    }
    if (status == ESPL_OK && *count == 0) {
        memcpy(sizes, usual, usual_count * sizeof *sizes);
        *count = usual_count;
    }
    free(texts);
    return status;
}

enum espl_status espl_bench_shares_of(const struct espl_cli *cli, const double *usual,
                                      size_t usual_count, double *shares, size_t *count,
                                      struct espl_error *err)
{
    const char **texts = NULL;
    enum espl_status status =
        espl_bench_texts_of(cli, "sparsity", ESPL_BENCH_MOST_SETTINGS, &texts, count, err);
    for (size_t i = 0; status == ESPL_OK && i < *count; i++) {
        if (!espl_parse_real(texts[i], &shares[i]) || shares[i] < 0.0 || shares[i] > 1.0) {
            status =
                espl_fail(err, ESPL_E_USAGE, "--sparsity must be from 0 to 1, got '%s'", texts[i]);
        }
    }
    if (status == ESPL_OK && *count == 0) {
        memcpy(shares, usual, usual_count * sizeof *shares);
        *count = usual_count;
    }
    free(texts);
    return status;
}

enum espl_status espl_bench_counts_of(const struct espl_cli *cli, const char *option,
                                      const size_t *usual, size_t usual_count, size_t highest,
                                      size_t *counts, size_t *count, struct espl_error *err)
{
    const char **texts = NULL;
    enum espl_status status =
        espl_bench_texts_of(cli, option, ESPL_BENCH_MOST_SETTINGS, &texts, count, err);
    for (size_t i = 0; status == ESPL_OK && i < *count; i++) {
        int64_t value = 0;
        if (!espl_parse_int(texts[i], &value) || value < 1 || (uint64_t)value > highest) {
            status = espl_fail(err, ESPL_E_USAGE, "--%s must be an integer from 1 to %zu, got '%s'",
                               option, highest, texts[i]);
        }
        counts[i] = (size_t)value;
    }
    if (status == ESPL_OK && *count == 0) {
        memcpy(counts, usual, usual_count * sizeof *counts);
        *count = usual_count;
    }
    free(texts);
    return status;
}

unsigned espl_bench_bits(const struct espl_cli *cli)
{
    return (unsigned)(espl_args_value(cli->args, "bits", "4")[0] - '0');
}

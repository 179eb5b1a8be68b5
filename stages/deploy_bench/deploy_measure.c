#include "stages/deploy_bench/deploy_measure.h"

enum espl_status espl_deploy_check_bits(unsigned bits, bool cpu, bool dense_only,
                                        struct espl_error *err)
{
    const bool sparse = bits == 2 || bits == 4 || (cpu && bits == 8) || (!cpu && bits == 3);
    if (!cpu && bits > 4) {
        espl_fail(err, ESPL_E_UNSUPPORTED, "the CUDA kernels take codes of 2, 3 or 4 bits, not %u",
                  bits);
        return espl_hint(err, "quantise with weight_bits: 4, or measure the CPU");
    }
    if (!sparse && !dense_only) {
        espl_fail(err, ESPL_E_UNSUPPORTED, "IE-BME holds codes of 2, 4 or 8 bits, not %u", bits);
        return espl_hint(err, "measure the form dense alone");
    }
    return ESPL_OK;
}

/* The bench calls back with cases; callers want to know the matrix, too. */
struct in_hand {
    const struct espl_deploy_bench *bench;
    const struct espl_bench_matrix *matrix;
};

static enum espl_status take_case(const struct espl_spmm_case *item, void *self,
                                  struct espl_error *err)
{
    const struct in_hand *now = self;
    return now->bench->done(item, now->matrix, now->bench->self, err);
}

static enum espl_status measure_matrix(const struct espl_deploy_bench *bench,
                                       struct espl_model *model,
                                       const struct espl_deploy_matrix *matrix,
                                       struct espl_error *err)
{
    struct in_hand now = {bench, &matrix->note};
    struct espl_deploy_layer layer;
    const bool with_layer = bench->cuda != NULL && bench->cuda->atom;
    enum espl_status status = espl_deploy_read(model, matrix, with_layer, &layer, err);
    if (status == ESPL_OK && bench->cuda != NULL) {
        status = espl_spmm_bench_matrix(bench->cuda, bench->ceiling, &layer.weights, bench->tokens,
                                        bench->token_count, take_case, &now, err);
    } else if (status == ESPL_OK) {
        status = espl_spmm_cpu_matrix(bench->cpu, bench->ceiling, &layer.weights, bench->tokens,
                                      bench->token_count, take_case, &now, err);
    }
    if (status != ESPL_OK) {
        espl_context(err, "measuring '%s'", matrix->note.module);
    }
    espl_deploy_layer_free(&layer);
    return status;
}

enum espl_status espl_deploy_measure(const struct espl_deploy_bench *bench,
                                     struct espl_model *model,
                                     const struct espl_deploy_matrices *matrices,
                                     struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < matrices->count; i++) {
        status = measure_matrix(bench, model, &matrices->items[i], err);
    }
    return status;
}

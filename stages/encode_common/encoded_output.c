#include "stages/encode_common/encoded_output.h"

#include "model/quantised.h"
#include "stages/encode_common/unit_counts.h"

static enum espl_status finish_layer(struct espl_stage_ctx *ctx, uint64_t layer,
                                     const char *const *names, uint64_t *totals, size_t count,
                                     struct espl_error *err)
{
    struct espl_artifact *unit = NULL;
    enum espl_status status = espl_ctx_unit_open(ctx, layer, &unit, err);
    if (status == ESPL_OK) {
        status = espl_artifact_copy_datasets(espl_ctx_output(ctx, "model"), unit, err);
    }
    if (status == ESPL_OK) {
        status = espl_unit_counts_add(unit, names, totals, count, err);
    }
    espl_artifact_close(unit);
    return status;
}

enum espl_status espl_encoded_blocks(struct espl_stage_ctx *ctx, const struct espl_model *model,
                                     espl_encoded_block_fn block, void *user,
                                     struct espl_error *err)
{
    const uint64_t layers = espl_model_get_config(model)->layers;
    enum espl_status status = ESPL_OK;
    for (uint64_t layer = 0; layer < layers && status == ESPL_OK; layer++) {
        espl_ctx_progress(ctx, layer, layers, "layer");
        if (!espl_ctx_unit_done(ctx, layer)) {
            status = block(user, layer, err);
        }
    }
    if (status == ESPL_OK) {
        espl_ctx_progress(ctx, layers, layers, "layer");
    }
    return status;
}

enum espl_status espl_encoded_assemble(struct espl_stage_ctx *ctx, struct espl_model *model,
                                       const char *const *names, uint64_t *totals, size_t count,
                                       struct espl_error *err)
{
    const uint64_t layers = espl_model_get_config(model)->layers;
    enum espl_status status = ESPL_OK;
    for (uint64_t layer = 0; layer < layers && status == ESPL_OK; layer++) {
        status = finish_layer(ctx, layer, names, totals, count, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        if (spec->layer < 0) {
            status = espl_model_copy_tensor(espl_ctx_output(ctx, "model"), model, spec, err);
        }
    }
    return status;
}

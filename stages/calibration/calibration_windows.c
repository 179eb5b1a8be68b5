#include "stages/calibration/chains.h"
#include "stages/wanda_prune/wanda_setup.h"

enum { IDS_LIMIT = 1 << 30 };

enum espl_status espl_calibration_windows_read(struct espl_stage_ctx *ctx,
                                               const struct espl_model_config *config,
                                               struct espl_calibration_windows *windows,
                                               struct espl_error *err)
{
    struct espl_artifact *tokens = espl_ctx_input(ctx, "tokens");
    const struct espl_tensor_info *ids = espl_artifact_find(tokens, "/tokens/ids");
    json_t *description = json_loads(espl_artifact_description(tokens), 0, NULL);
    struct espl_wanda_windows info = espl_wanda_windows_from_json(description);
    void *data = NULL;
    size_t bytes = 0;
    json_decref(description);
    if (ids == NULL || ids->dtype != ESPL_DTYPE_I32 || ids->rank < 1 || ids->rank > 2) {
        return espl_fail(err, ESPL_E_KIND, "input 'tokens' has no int32 token ids");
    }
    /* The data decide; the description is what plan had to go by. */
    info.windows = ids->rank == 2 ? ids->shape[0] : 0;
    info.tokens = ids->rank == 2 ? ids->shape[1] : ids->shape[0];
    enum espl_status status = espl_wanda_check_windows(config, &info, err);
    if (status == ESPL_OK) {
        status = espl_artifact_read(tokens, ids->path, IDS_LIMIT, &data, &bytes, err);
    }
    windows->ids = data;
    windows->count = info.windows;
    windows->tokens = (size_t)info.tokens;
    return status;
}

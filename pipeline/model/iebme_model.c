/* Writing encoded models: the description, and what is not quantised. */
#include "core/checked.h"
#include "model/model_internal.h"

#include <stdlib.h>

enum espl_status espl_model_begin_encoded(struct espl_artifact *output,
                                          const struct espl_model *base, const json_t *encoding,
                                          const json_t *quantisation, struct espl_error *err)
{
    json_t *own = json_loads(espl_artifact_description(base->chain[0]), 0, NULL);
    const json_t *scheme =
        quantisation != NULL ? quantisation : json_object_get(own, "quantisation");
    json_t *members = json_pack("{s:O, s:O*, s:O*}", "encoding", (json_t *)encoding, "quantisation",
                                (json_t *)scheme, "pruning", json_object_get(own, "pruning"));
    const enum espl_status status = espl_model_describe_over(output, base, members, err);
    json_decref(members);
    json_decref(own);
    return status;
}

enum espl_status espl_model_copy_tensor(struct espl_artifact *output, struct espl_model *model,
                                        const struct espl_tensor_spec *spec, struct espl_error *err)
{
    const enum espl_dtype dtype = espl_model_dtype(model, spec);
    const struct espl_tensor_info info =
        espl_tensor_info_make(spec->path, dtype, spec->rank, spec->shape);
    const size_t width = (size_t)(spec->rank == 2 ? spec->shape[1] : 1) * espl_dtype_size(dtype);
    const uint64_t step = width >= ESPL_MODEL_PIECE_BYTES ? 1 : ESPL_MODEL_PIECE_BYTES / width;
    void *piece = malloc((size_t)step * width);
    if (piece == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a piece of '%s'", spec->name);
    }
    enum espl_status status = espl_artifact_create_rows(output, &info, err);
    for (uint64_t row = 0; status == ESPL_OK && row < spec->shape[0]; row += step) {
        const uint64_t left = spec->shape[0] - row;
        const uint64_t rows = left < step ? left : step;
        status = espl_model_read_raw(model, spec, row, rows, piece, (size_t)rows * width, err);
        if (status == ESPL_OK) {
            status = espl_artifact_append_rows(output, spec->path, rows, piece, err);
        }
    }
    free(piece);
    return status;
}

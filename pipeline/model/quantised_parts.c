#include "model/quantised_parts.h"

#include "core/codes.h"
#include "model/iebme_linear.h"
#include "model/model_internal.h"
#include "model/nm_linear.h"

#include <stdio.h>
#include <string.h>

void espl_quant_part_path(const struct espl_tensor_spec *weight, const char *part,
                          char out[ESPL_TENSOR_PATH])
{
    const char *slash = strrchr(weight->path, '/');
    (void)snprintf(out, ESPL_TENSOR_PATH, "%.*s/%s", (int)(slash - weight->path), weight->path,
                   part);
}

void espl_quant_order_path(int64_t layer, enum espl_quant_site site, char out[ESPL_TENSOR_PATH])
{
    (void)snprintf(out, ESPL_TENSOR_PATH, "/layers/%03lld/%s", (long long)layer,
                   espl_quant_order_name(site));
}

bool espl_quant_is_stored(const struct espl_artifact *artifact,
                          const struct espl_tensor_spec *weight)
{
    char path[ESPL_TENSOR_PATH];
    if (weight->is_bias || !espl_role_is_block_linear(weight->role)) {
        return false;
    }
    espl_quant_part_path(weight, "codes", path);
    return espl_artifact_find(artifact, path) != NULL || espl_iebme_is_stored(artifact, weight) ||
           espl_nm_is_stored(artifact, weight);
}

struct espl_tensor_info espl_quant_plain_info(const char *path, enum espl_dtype dtype,
                                              uint64_t rows, uint64_t cols)
{
    const uint64_t shape[2] = {rows, cols};
    return espl_tensor_info_make(path, dtype, cols > 0 ? 2 : 1, shape);
}

struct espl_tensor_info espl_quant_codes_info(const struct espl_tensor_spec *weight,
                                              const struct espl_quant_linear *linear)
{
    char path[ESPL_TENSOR_PATH];
    const uint64_t shape[2] = {linear->out, espl_codes_stride(linear->normal, linear->weight_bits)};
    espl_quant_part_path(weight, "codes", path);
    struct espl_tensor_info info = espl_tensor_info_make(path, ESPL_DTYPE_U8, 2, shape);
    (void)snprintf(info.packing, sizeof info.packing, "int%u-lsb0", linear->weight_bits);
    info.logical_shape[0] = linear->out;
    info.logical_shape[1] = linear->normal;
    return info;
}

enum espl_status espl_quant_read_part(struct espl_artifact *artifact,
                                      const struct espl_tensor_info *expected, void **data,
                                      struct espl_error *err)
{
    const struct espl_tensor_info *info = espl_artifact_find(artifact, expected->path);
    size_t bytes = 0;
    if (info == NULL) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' has no dataset '%s'",
                         espl_artifact_path(artifact), expected->path);
    }
    bool same = info->dtype == expected->dtype && info->rank == expected->rank &&
                strcmp(info->packing, expected->packing) == 0;
    for (unsigned i = 0; same && i < info->rank; i++) {
        same = info->shape[i] == expected->shape[i] &&
               info->logical_shape[i] == expected->logical_shape[i];
    }
    if (!same) {
        return espl_fail(err, ESPL_E_CORRUPT, "dataset '%s' of '%s' does not fit its layer",
                         expected->path, espl_artifact_path(artifact));
    }
    const enum espl_status status =
        espl_artifact_read(artifact, expected->path, (size_t)info->bytes, data, &bytes, err);
    return status != ESPL_OK || *data != NULL
               ? status
               : espl_fail(err, ESPL_E_CORRUPT, "dataset '%s' of '%s' is empty", expected->path,
                           espl_artifact_path(artifact));
}

/* Datasets of linears whose codes are packed N:M. */
#include "model/nm_linear.h"

#include "model/quantised_parts.h"

#include <stdlib.h>

enum { FACTS = 3 }; /* N, M, V */

bool espl_nm_is_stored(const struct espl_artifact *artifact, const struct espl_tensor_spec *weight)
{
    char path[ESPL_TENSOR_PATH];
    espl_quant_part_path(weight, "nm", path);
    return !weight->is_bias && espl_artifact_find(artifact, path) != NULL;
}

static struct espl_tensor_info bytes_info(const struct espl_tensor_spec *weight, const char *part,
                                          uint64_t bytes)
{
    char path[ESPL_TENSOR_PATH];
    espl_quant_part_path(weight, part, path);
    return espl_quant_plain_info(path, ESPL_DTYPE_U8, bytes, 0);
}

enum espl_status espl_nm_codes_write(struct espl_artifact *artifact,
                                     const struct espl_tensor_spec *weight,
                                     const struct espl_nm_matrix *matrix, struct espl_error *err)
{
    const struct espl_nm_layout *layout = &matrix->layout;
    const uint8_t facts[FACTS] = {(uint8_t)layout->n, (uint8_t)layout->m, (uint8_t)layout->v};
    const struct espl_tensor_info nm = bytes_info(weight, "nm", FACTS);
    const struct espl_tensor_info values = bytes_info(weight, "values", matrix->value_bytes);
    const struct espl_tensor_info patterns = bytes_info(weight, "patterns", matrix->pattern_bytes);
    enum espl_status status = espl_artifact_write(artifact, &nm, facts, err);
    if (status == ESPL_OK) {
        status = espl_artifact_write(artifact, &values, matrix->values, err);
    }
    if (status == ESPL_OK && matrix->pattern_bytes > 0) {
        status = espl_artifact_write(artifact, &patterns, matrix->patterns, err);
    }
    return status;
}

static enum espl_status read_layout(struct espl_artifact *artifact,
                                    const struct espl_tensor_spec *weight,
                                    struct espl_nm_layout *layout, struct espl_error *err)
{
    const struct espl_tensor_info info = bytes_info(weight, "nm", FACTS);
    void *data = NULL;
    const enum espl_status status = espl_quant_read_part(artifact, &info, &data, err);
    if (status == ESPL_OK) {
        const uint8_t *facts = data;
        *layout = (struct espl_nm_layout){.rows = (size_t)weight->shape[0],
                                          .cols = (size_t)weight->shape[1],
                                          .n = facts[0],
                                          .m = facts[1],
                                          .v = facts[2]};
    }
    free(data);
    return status;
}

enum espl_status espl_nm_codes_read(struct espl_artifact *artifact,
                                    const struct espl_tensor_spec *weight,
                                    struct espl_nm_matrix *matrix, struct espl_error *err)
{
    struct espl_nm_sizes sizes;
    void *data = NULL;
    *matrix = (struct espl_nm_matrix){.values = NULL};
    enum espl_status status = read_layout(artifact, weight, &matrix->layout, err);
    if (status == ESPL_OK) {
        status = espl_nm_sizes_of(&matrix->layout, &sizes, err);
    }
    if (status == ESPL_OK) {
        const struct espl_tensor_info values = bytes_info(weight, "values", sizes.value_bytes);
        status = espl_quant_read_part(artifact, &values, &data, err);
        matrix->values = data;
        matrix->value_bytes = sizes.value_bytes;
    }
    if (status == ESPL_OK && sizes.pattern_bytes > 0) {
        const struct espl_tensor_info patterns =
            bytes_info(weight, "patterns", sizes.pattern_bytes);
        data = NULL;
        status = espl_quant_read_part(artifact, &patterns, &data, err);
        matrix->patterns = data;
        matrix->pattern_bytes = sizes.pattern_bytes;
    }
    if (status == ESPL_OK) {
        status = espl_nm_check(matrix, err);
    }
    return status == ESPL_OK
               ? status
               : espl_context(err, "reading the packed codes of '%s'", weight->module);
}

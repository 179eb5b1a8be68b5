#include "eval/packed_linear.h"

#include "espalier/nm_pack.h"

#include <string.h>

enum espl_status espl_packed_multiply(struct espl_backend *backend,
                                      const struct espl_quant_linear *linear,
                                      const struct espl_quant_activations *codes, size_t tokens,
                                      int32_t *sums, float *y, struct espl_error *err)
{
    const struct espl_nm_epilogue plain = {.output = ESPL_NM_INT32};
    const enum espl_status status = espl_backend_ops(backend)->spmm_nm_int8(
        backend, linear->nm, codes->codes, tokens, &plain, sums, err);
    for (size_t i = 0; status == ESPL_OK && i < tokens * linear->out; i++) {
        const size_t row = i % linear->out;
        int32_t sum;
        memcpy(&sum, &sums[i], sizeof sum); /* before y, which may lie there, is written */
        float value = (float)sum * (linear->scales[row] * codes->scales[i / linear->out]);
        if (linear->bias != NULL) {
            value += linear->bias[row];
        }
        y[i] = value;
    }
    return status;
}

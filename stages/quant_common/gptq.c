#include "stages/quant_common/gptq.h"

#include "stages/quant_common/column_loop.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 128 };

enum espl_status espl_gptq(const struct espl_gptq_task *task, struct espl_quantised *out,
                           double *loss, struct espl_error *err)
{
    struct espl_column_loop loop = {
        .shape = task->shape,
        .factor = task->factor,
        .quantiser = &task->quantiser,
        .quantised = out,
        .choice = ESPL_COLUMN_GIVEN,
        .removed = task->removed,
        .block = BLOCK,
        .loop_columns = out->normal,
        .threads = task->threads,
    };
    enum espl_status status =
        espl_column_loop_weights(&task->shape, task->w, task->mask, task->factor, &loop.w, err);
    if (status != ESPL_OK) {
        return status;
    }
    loop.mask = espl_column_loop_full_mask(&task->shape);
    if (loop.mask == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for a mask");
        goto cleanup;
    }
    if (task->mask != NULL) {
        memcpy(loop.mask, task->mask, task->shape.rows * espl_mask_stride(task->shape.cols));
    }
    status = espl_column_loop_run(&loop, err);
    if (status == ESPL_OK && loss != NULL) {
        *loss = loop.loss;
    }

cleanup:
    free(loop.w);
    free(loop.mask);
    return status;
}

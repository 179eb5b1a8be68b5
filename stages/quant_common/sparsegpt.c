#include "stages/quant_common/sparsegpt.h"

#include "stages/quant_common/column_loop.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 128, LARGEST_WINDOW = 64 };

static enum espl_status check_windows(const struct espl_sparsegpt_task *task,
                                      struct espl_error *err)
{
    if (task->keep == 0 || task->keep > task->window || task->window > LARGEST_WINDOW) {
        return espl_fail(err, ESPL_E_JOB, "cannot keep %zu of %zu columns", task->keep,
                         task->window);
    }
    if (task->shape.cols % task->window != 0 && !task->keep_tail) {
        return espl_fail(err, ESPL_E_JOB, "%zu columns are not a multiple of %zu", task->shape.cols,
                         task->window);
    }
    if (task->quantiser != NULL && BLOCK % task->window != 0) {
        espl_fail(err, ESPL_E_JOB, "windows of %zu columns cannot be pruned and quantised at once",
                  task->window);
        return espl_hint(err, "the window must divide %d, or prune first and quantise then", BLOCK);
    }
    if (task->quantiser != NULL && task->quantiser->outliers > 0 &&
        (task->shape.cols - task->quantiser->outliers) % task->window != 0) {
        return espl_fail(err, ESPL_E_JOB, "%zu outlier columns cut a window of %zu columns in two",
                         task->quantiser->outliers, task->window);
    }
    return ESPL_OK;
}

/* The groups of a block must all be in it. */
static enum espl_status check_align(const struct espl_sparsegpt_task *task, struct espl_error *err)
{
    const char *fault = espl_align_fault(&task->align, &task->shape);
    if (fault != NULL) {
        espl_fail(err, ESPL_E_JOB, "align %ux%u does not fit %zu x %zu weights",
                  (unsigned)task->align.grid.rows, (unsigned)task->align.grid.cols,
                  task->shape.rows, task->shape.cols);
        return espl_hint(err, "%s", fault);
    }
    if (BLOCK % task->align.grid.cols != 0) {
        espl_fail(err, ESPL_E_JOB, "groups of %u columns cannot be chosen in blocks of %d",
                  (unsigned)task->align.grid.cols, BLOCK);
        return espl_hint(err, "the columns of a group must divide %d", BLOCK);
    }
    return task->quantiser != NULL && task->quantiser->outliers > 0
               ? espl_fail(err, ESPL_E_JOB, "outlier columns and groups exclude each other")
               : ESPL_OK;
}

static enum espl_status check_task(const struct espl_sparsegpt_task *task, struct espl_error *err)
{
    if (task->window != 0) {
        return check_windows(task, err);
    }
    if (!(task->sparsity >= 0.0 && task->sparsity < 1.0)) {
        return espl_fail(err, ESPL_E_JOB, "a sparsity of %g is not in [0, 1)", task->sparsity);
    }
    return espl_align_is_on(&task->align) ? check_align(task, err) : ESPL_OK;
}

enum espl_status espl_sparsegpt(const struct espl_sparsegpt_task *task, uint8_t *mask,
                                float *pruned, struct espl_quantised *quantised, double *loss,
                                struct espl_error *err)
{
    const bool windows = task->window != 0;
    struct espl_column_loop loop = {
        .shape = task->shape,
        .factor = task->factor,
        .quantiser = task->quantiser,
        .quantised = quantised,
        .choice = windows ? ESPL_COLUMN_WINDOWS : ESPL_COLUMN_UNSTRUCTURED,
        .removed = ESPL_REMOVED_REMASK,
        .sparsity = task->sparsity,
        .align = task->align,
        .keep = task->keep,
        .window = task->window,
        .loop_columns = task->shape.cols,
        .threads = task->threads,
    };
    enum espl_status status = check_task(task, err);
    if (status == ESPL_OK) {
        status = espl_column_loop_weights(&task->shape, task->w, NULL, task->factor, &loop.w, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    /* Windows must not cross a block: the columns of the next one are not up to date yet. */
    loop.block = windows ? BLOCK / task->window * task->window : BLOCK;
    loop.mask = espl_column_loop_full_mask(&task->shape);
    if (loop.mask == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for a mask");
        goto cleanup;
    }
    status = espl_column_loop_run(&loop, err);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    memcpy(mask, loop.mask, task->shape.rows * espl_mask_stride(task->shape.cols));
    for (size_t i = 0; i < task->shape.rows * task->shape.cols; i++) {
        pruned[i] = (float)loop.w[i];
    }
    if (loss != NULL) {
        *loss = loop.loss;
    }

cleanup:
    free(loop.w);
    free(loop.mask);
    return status;
}

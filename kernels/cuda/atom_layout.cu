/* How the columns of a quantised layer stand in the kernels, and where the parts of its activations
 * are. */
#include "kernels/cuda/atom_args.cuh"
#include "kernels/quant_internal.h"

enum espl_status atom_layout_of(const struct espl_quant_shape *shape, struct atom_layout *layout,
                                struct espl_error *err)
{
    const enum espl_status status = espl_quant_shape_check(shape, err);
    if (status != ESPL_OK) {
        return status;
    }
    const size_t groups = espl_quant_groups(shape);
    const size_t columns = espl_quant_group_columns(shape);
    const bool coarse = groups == 1 || columns % ATOM_STEP == 0;
    const size_t step = coarse ? ATOM_STEP : ATOM_FINE_STEP;
    const size_t group = (columns + step - 1) / step * step;
    const size_t cols = groups == 1 ? columns : groups * group;
    const size_t slices = (cols + SPMM_SLICE - 1) / SPMM_SLICE;
    if (shape->activation_bits != 4 || cols > ESPL_CUDA_SPMM_MAX_COLS) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "the CUDA kernels take 4-bit activations and at most %d columns in groups "
                         "filled up to %zu, not %u bits and %zu",
                         ESPL_CUDA_SPMM_MAX_COLS, step, shape->activation_bits, cols);
    }
    layout->step = static_cast<unsigned>(step);
    layout->group = static_cast<unsigned>(group);
    layout->cols = static_cast<unsigned>(cols);
    layout->steps = static_cast<unsigned>(slices * SPMM_SLICE / step);
    layout->outlier_blocks =
        static_cast<unsigned>((shape->outliers + ATOM_BLOCK_COLS - 1) / ATOM_BLOCK_COLS);
    layout->outliers_at = static_cast<unsigned>(slices * SPMM_SLICE / 128 * SPMM_X_BLOCK);
    layout->scales_at = layout->outliers_at + layout->outlier_blocks * ATOM_X_BLOCK_BYTES;
    layout->outlier_scales_at = layout->scales_at + layout->steps * ATOM_STEP_BYTES;
    layout->tile_bytes = (layout->outlier_scales_at + ATOM_STEP_BYTES + SPMM_X_BLOCK - 1) /
                         SPMM_X_BLOCK * SPMM_X_BLOCK;
    return ESPL_OK;
}

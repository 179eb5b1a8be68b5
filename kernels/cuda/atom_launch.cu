/* The launch of a product with scales. */
#include "kernels/cuda/atom_args.cuh"
#include "kernels/cuda/cuda_support.cuh"
#include "kernels/cuda/spmm_product.cuh"

namespace
{

/* What sums of a form must be multiplied by: activations are 16 x code, weights of b bits
 * code x 2^(8 - b), but rows 0 to 7 of dense 4-bit weights are code. */
void set_factors(const struct espl_cuda_matrix *matrix, struct atom_args *args)
{
    const unsigned shift = SPMM_X_SHIFT + 8 - matrix->bits;
    const bool biased = matrix->unit == ESPL_IEBME_DENSE && matrix->bits == 4;
    args->high_factor = 1.0F / static_cast<float>(1u << shift);
    args->low_factor = biased ? 1.0F / static_cast<float>(1u << SPMM_X_SHIFT) : args->high_factor;
    args->low_inverse = 1.0F / args->low_factor;
    args->high_inverse = 1.0F / args->high_factor;
}

void set_layer(const struct espl_cuda_matrix *matrix, struct atom_args *args)
{
    const struct spmm_atom *atom = matrix->atom;
    args->spmm.data = matrix->data;
    args->spmm.index = reinterpret_cast<const uint2 *>(matrix->index);
    args->scales = reinterpret_cast<const uint4 *>(atom->memory + atom->scales_at);
    args->outliers = reinterpret_cast<const uint4 *>(atom->memory + atom->outliers_at);
    args->outlier_scales = reinterpret_cast<const float *>(atom->memory + atom->outlier_scales_at);
    args->bias =
        atom->has_bias ? reinterpret_cast<const float *>(atom->memory + atom->bias_at) : NULL;
    args->row_of =
        atom->has_row_of ? reinterpret_cast<const int32_t *>(atom->memory + atom->row_of_at) : NULL;
    args->row_units = reinterpret_cast<const float *>(atom->memory + atom->row_units_at);
    args->outlier_blocks = atom->layout.outlier_blocks;
    args->outliers_at = atom->layout.outliers_at;
    args->scales_at = atom->layout.scales_at;
    args->outlier_scales_at = atom->layout.outlier_scales_at;
    args->row_shift = atom->row_shift;
    args->scale_bytes = atom->scale_bytes;
    args->spmm.x_tile_bytes = atom->layout.tile_bytes;
    set_factors(matrix, args);
}

} // namespace

extern "C" enum espl_status espl_cuda_atom_run(const struct espl_cuda_spmm *spmm,
                                               const struct espl_cuda_matrix *weights,
                                               const struct espl_cuda_atom_operands *operands,
                                               bool overlap, void *stream, struct espl_error *err)
{
    const struct espl_cuda_matrix *matrix = weights != NULL ? weights : spmm->matrix;
    struct atom_args args = {};
    const enum espl_status status =
        spmm_operands_check(spmm, operands->x, operands->y_stride, operands->tokens, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (matrix->atom == NULL || spmm->matrix->atom == NULL) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "a matrix without scales is no layer");
    }
    args.spmm = spmm->args;
    set_layer(matrix, &args);
    args.spmm.x = operands->x;
    args.spmm.y_stride = static_cast<unsigned>(operands->y_stride);
    args.spmm.tokens = static_cast<unsigned>(operands->tokens);
    args.y = reinterpret_cast<__half *>(operands->y);
    args.floats = operands->floats;
    args.partial = reinterpret_cast<float4 *>(spmm->args.partial);
    return spmm_launch(spmm, &args, operands->tokens, overlap, stream, err);
}

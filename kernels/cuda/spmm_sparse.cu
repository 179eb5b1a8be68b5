/* y = x W^T for IE-BME weights, 1x1, 1x2, 2x1, 2x2 and mixed areas, with the INT8 matrix
 * instruction. */
#include "kernels/cuda/spmm_sparse_int8.cuh"

namespace
{

/* Each chunk in the areas that its index entry names; one table for all. One tile of tokens: code
 * for five decoders is long enough once. */
struct int8_mixed_chunks : int8_form<1> {
    static constexpr bool MIXED = true;
    using table = byte_table;

    static __device__ __forceinline__ void multiply(unsigned chunk, unsigned areas, unsigned lane,
                                                    table_place place, const activations &x,
                                                    int (&acc)[TILES][4])
    {
        plain_sums<TILES> sums = {x, acc};
        switch (areas) {
        case ESPL_IEBME_1X1:
            decode_chunk<ESPL_IEBME_1X1, table>(chunk, lane, place, sums);
            break;
        case ESPL_IEBME_1X2:
            decode_chunk<ESPL_IEBME_1X2, table>(chunk, lane, place, sums);
            break;
        case ESPL_IEBME_2X1:
            decode_chunk<ESPL_IEBME_2X1, table>(chunk, lane, place, sums);
            break;
        case ESPL_IEBME_2X2:
            decode_chunk<ESPL_IEBME_2X2, table>(chunk, lane, place, sums);
            break;
        default:
            decode_chunk<ESPL_IEBME_DENSE, table>(chunk, lane, place, sums);
            break;
        }
    }
};

} // namespace

const void *spmm_sparse_kernel(enum espl_iebme_areas unit, unsigned tiles, bool whole)
{
    return unit == ESPL_IEBME_MIXED ? own_rings<false>::of<int8_mixed_chunks>()
           : whole                  ? sparse_kernel_for<own_rings<true>, int8_chunks>(unit, tiles)
                                    : sparse_kernel_for<own_rings<false>, int8_chunks>(unit, tiles);
}

size_t spmm_sparse_shared_bytes(const spmm_args *args, unsigned tiles, unsigned warps,
                                enum espl_cuda_pipeline pipeline)
{
    const unsigned barriers = pipeline == ESPL_CUDA_PIPELINE_PRODUCER ? 2 : 1; /* of a stage */
    const size_t ring = static_cast<size_t>(args->stages) * (args->stage_bytes + 8 * barriers);
    return TABLE_BYTES + warps * ring + spmm_sums_bytes(args, tiles);
}

/* Dynamic quantisation of activations [Atom, section 4]: FP16 in the order of the model to INT4
 * groups and INT8 outliers in the order of the kernels. One kernel; a block does a group, or the
 * outliers, of one token. */
#include "kernels/cuda/quantise.cuh"

#include "espalier/cuda_memory.h"
#include "kernels/cuda/cuda_support.cuh"

namespace
{

enum { LEAST_THREADS = 32, MOST_THREADS = 512 };

struct quantise_args {
    const __half *x;
    size_t x_stride;
    struct quantise_target target;
};

struct half_row {
    const __half *x;

    __device__ __forceinline__ float operator()(unsigned column) const
    {
        return __half2float(x[column]);
    }
};

/* blockIdx.y: token, also those that fill up the last tile. */
__global__ void quantise_kernel(const __grid_constant__ quantise_args args)
{
    extern __shared__ int step_sums[];
    __shared__ float of_warp[REDUCE_MOST_WARPS];
    const unsigned token = blockIdx.y;
    const half_row row = {args.x + (size_t)token * args.x_stride};
    quantise_part(args.target, quantise_block{of_warp}, row, token, blockIdx.x, step_sums);
}

/* Of a block: enough for 4 columns a thread in whole warps. */
unsigned threads_for(size_t columns)
{
    const size_t wanted = (columns / 4 + SPMM_WARP - 1) / SPMM_WARP * SPMM_WARP;
    return static_cast<unsigned>(wanted < LEAST_THREADS  ? (size_t)LEAST_THREADS
                                 : wanted > MOST_THREADS ? (size_t)MOST_THREADS
                                                         : wanted);
}

} // namespace

size_t quantise_filled_tokens(size_t tokens)
{
    const size_t tiles = (tokens + SPMM_COLUMNS - 1) / SPMM_COLUMNS;
    return (tiles <= 2 ? tiles : (tiles + 3) / 4 * 4) * SPMM_COLUMNS;
}

enum espl_status quantise_target_of(const struct espl_quant_shape *shape, const int32_t *order,
                                    float clip, void *codes, uint64_t *nonfinite,
                                    struct quantise_target *target, struct espl_error *err)
{
    enum espl_status status = atom_layout_of(shape, &target->layout, err);
    if (status == ESPL_OK) {
        status = espl_quant_clip_check(clip, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    if (shape->tokens == 0 || quantise_filled_tokens(shape->tokens) > QUANTISE_MOST_TOKENS ||
        reinterpret_cast<uintptr_t>(codes) % ESPL_CUDA_SPMM_ALIGN != 0) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "cannot quantise %zu tokens of %zu channels",
                         shape->tokens, shape->in);
    }
    target->order = order;
    target->codes = static_cast<uint8_t *>(codes);
    target->nonfinite = reinterpret_cast<unsigned long long *>(nonfinite);
    target->in = static_cast<unsigned>(shape->in);
    target->tokens = static_cast<unsigned>(shape->tokens);
    target->groups = static_cast<unsigned>(espl_quant_groups(shape));
    target->columns = static_cast<unsigned>(espl_quant_group_columns(shape));
    target->outliers = static_cast<unsigned>(shape->outliers);
    target->clip = clip;
    const unsigned steps = (target->layout.group + target->layout.step - 1) / target->layout.step;
    const unsigned last = target->layout.steps - (target->groups - 1) * steps;
    target->team_steps = last > steps ? last : steps;
    return ESPL_OK;
}

bool quantise_is_narrow(const struct quantise_target *target)
{
    return target->columns <= QUANTISE_NARROW && target->columns % QUANTISE_LANE_COLS == 0 &&
           target->outliers <= QUANTISE_NARROW && target->outliers % QUANTISE_LANE_COLS == 0 &&
           (target->in - target->outliers) % QUANTISE_LANE_PLACES == 0;
}

extern "C" size_t espl_cuda_atom_activation_bytes(const struct espl_quant_shape *shape,
                                                  size_t tokens)
{
    struct atom_layout layout;
    struct espl_error err;
    if (atom_layout_of(shape, &layout, &err) != ESPL_OK) {
        return 0;
    }
    return quantise_filled_tokens(tokens) / SPMM_COLUMNS * layout.tile_bytes;
}

extern "C" enum espl_status
espl_cuda_quantize_activations(const struct espl_quant_shape *shape,
                               const struct espl_cuda_quantize *operands, void *stream,
                               struct espl_error *err)
{
    struct quantise_args args = {
        reinterpret_cast<const __half *>(operands->x), operands->x_stride, {}};
    const enum espl_status status =
        quantise_target_of(shape, operands->order, operands->clip, operands->codes,
                           operands->nonfinite, &args.target, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (operands->x_stride < shape->in) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "cannot quantise %zu channels in rows of %zu",
                         shape->in, operands->x_stride);
    }
    const dim3 grid(args.target.groups + (args.target.outliers > 0 ? 1 : 0),
                    static_cast<unsigned>(quantise_filled_tokens(shape->tokens)));
    quantise_kernel<<<grid, threads_for(args.target.columns), args.target.team_steps * sizeof(int),
                      static_cast<cudaStream_t>(stream)>>>(args);
    return espl_cuda_check(cudaGetLastError(), "cannot launch the quantiser of activations", err);
}

extern "C" enum espl_status espl_cuda_quantize_check(const struct espl_quant_shape *shape,
                                                     const uint64_t *nonfinite,
                                                     struct espl_error *err)
{
    uint64_t least = 0;
    const enum espl_status status = espl_cuda_download(&least, nonfinite, sizeof least, err);
    if (status != ESPL_OK || least == UINT64_MAX) {
        return status;
    }
    return espl_quant_fail_nonfinite(least / shape->in, least % shape->in, err);
}

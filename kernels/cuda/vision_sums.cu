/* What stands behind a dense product of codes by a library: its integer sums become the halves that
 * a product of cuda_nm.h with the same scales and bias stores. */
#include "espalier/cuda_vision.h"
#include "kernels/cuda/vision_device.cuh"

#include <cuda_fp16.h>
#include <limits.h>

namespace
{

enum {
    THREADS = 256,
    PIECE = 8, /* sums that are read at once */
    EACH = 4   /* pieces of a thread */
};

struct scale_args {
    struct espl_cuda_vision_sums of;
    unsigned pieces; /* of a row */
    size_t count;    /* of pieces */
};

__device__ __forceinline__ unsigned scale_pair(int2 sums, float2 scale, float2 bias, float row,
                                               bool has_bias)
{
    float v[2] = {__fmul_rn(__int2float_rn(sums.x), __fmul_rn(scale.x, row)),
                  __fmul_rn(__int2float_rn(sums.y), __fmul_rn(scale.y, row))};
    if (has_bias) {
        v[0] = __fadd_rn(v[0], bias.x);
        v[1] = __fadd_rn(v[1], bias.y);
    }
    const __half2 pair = __floats2half2_rn(v[0], v[1]);
    return *reinterpret_cast<const unsigned *>(&pair);
}

__global__ void __launch_bounds__(THREADS) scale_kernel(const scale_args args)
{
    const size_t first = static_cast<size_t>(blockIdx.x) * (THREADS * EACH) + threadIdx.x;
    const bool has_bias = args.of.bias != NULL;
    int2 sums[EACH][PIECE / 2];
    vision_wait();
#pragma unroll
    for (int e = 0; e < EACH; e++) { /* all on their way before the first is needed */
        const size_t piece = first + static_cast<size_t>(e) * THREADS;
        if (piece < args.count) {
            const int4 *from = reinterpret_cast<const int4 *>(args.of.sums) + 2 * piece;
            const int4 low = from[0];
            const int4 high = from[1];
            sums[e][0] = make_int2(low.x, low.y);
            sums[e][1] = make_int2(low.z, low.w);
            sums[e][2] = make_int2(high.x, high.y);
            sums[e][3] = make_int2(high.z, high.w);
        }
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const size_t piece = first + static_cast<size_t>(e) * THREADS;
        if (piece >= args.count) {
            return;
        }
        const unsigned column = static_cast<unsigned>(piece % args.pieces) * (PIECE / 2);
        const float row = args.of.row_scales[piece / args.pieces];
        unsigned word[PIECE / 2];
#pragma unroll
        for (int i = 0; i < PIECE / 2; i++) {
            const float2 scale =
                reinterpret_cast<const float2 *>(args.of.column_scales)[column + i];
            const float2 bias = has_bias
                                    ? reinterpret_cast<const float2 *>(args.of.bias)[column + i]
                                    : make_float2(0.0F, 0.0F);
            word[i] = scale_pair(sums[e][i], scale, bias, row, has_bias);
        }
        reinterpret_cast<uint4 *>(args.of.y)[piece] =
            make_uint4(word[0], word[1], word[2], word[3]);
    }
}

} // namespace

extern "C" enum espl_status espl_cuda_vision_scale(const struct espl_cuda_vision_sums *sums,
                                                   void *stream, struct espl_error *err)
{
    const size_t each_block = THREADS * EACH;
    if (sums->width % PIECE != 0 || sums->width < PIECE || sums->rows < 1 ||
        sums->rows > INT_MAX / (sums->width / PIECE)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "no kernel scales %zu rows of %zu sums: rows come in multiples of %d",
                         sums->rows, sums->width, static_cast<int>(PIECE));
    }
    const unsigned pieces = static_cast<unsigned>(sums->width / PIECE);
    const struct scale_args args = {*sums, pieces, sums->rows * pieces};
    const dim3 grid(static_cast<unsigned>((args.count + each_block - 1) / each_block));
    return vision_launch(scale_kernel, grid, THREADS, args, stream, "cannot launch scales of sums",
                         err);
}

/* What image models do row by row: LayerNorm, and rounding of activations to bytes with a scale a
 * row. A row is in the registers of a warp, or of a block when it is wide: it is read once. */
#include "espalier/cuda_vision.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vision_device.cuh"
#include "kernels/quant_internal.h"

#include <cuda_fp16.h>
#include <float.h>
#include <limits.h>
#include <math.h>

namespace
{

enum {
    THREADS = 128, /* of a block */
    WARP = 32,
    PIECE = ESPL_CUDA_VISION_STEP, /* values that are read at once */
    PIECES = 8,                    /* of a lane */
    WARP_WIDTH = WARP * PIECE * PIECES,
    SQUARE = 4,      /* cells that are merged */
    MANY_ROWS = 1024 /* a warp each keeps a device busy: eight of a multiprocessor */
};

constexpr float QMAX = 127.0F;

/* A lane's part of a row: pieces lane, lane + LANES, ... */
template <unsigned LANES> struct row_part {
    float v[PIECES][PIECE];
    unsigned lane;
    unsigned width;

    __device__ __forceinline__ unsigned column(int piece) const
    {
        return (piece * LANES + lane) * PIECE;
    }
    __device__ __forceinline__ bool has(int piece) const
    {
        return column(piece) < width;
    }
    __device__ __forceinline__ static float sum_of(float value)
    {
        __shared__ float of_warp[REDUCE_MOST_WARPS];
        return LANES == WARP ? warp_sum(value) : block_sum(value, of_warp);
    }
    __device__ __forceinline__ float sum() const
    {
        float total = 0.0F;
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            total += (v[p][0] + v[p][1]) + (v[p][2] + v[p][3]); /* absent pieces are 0 */
        }
        return sum_of(total);
    }
    __device__ __forceinline__ float sum_squares(float shift) const
    {
        float total = 0.0F;
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            if (has(p)) {
#pragma unroll
                for (int i = 0; i < PIECE; i++) {
                    total += (v[p][i] - shift) * (v[p][i] - shift);
                }
            }
        }
        return sum_of(total);
    }
    /* The largest magnitude; no number when there is one that is none. */
    __device__ __forceinline__ float largest() const
    {
        __shared__ float of_warp[REDUCE_MOST_WARPS];
        float most = 0.0F;
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
#pragma unroll
            for (int i = 0; i < PIECE; i++) {
                asm("max.NaN.f32 %0, %0, %1;" : "+f"(most) : "f"(fabsf(v[p][i])));
            }
        }
        most = most <= FLT_MAX ? most : INFINITY; /* maxima over lanes lose what is no number */
        most = LANES == WARP ? warp_max(most) : block_max(most, of_warp);
        return most <= FLT_MAX ? most : NAN;
    }
};

template <unsigned LANES> __device__ __forceinline__ row_part<LANES> part_of_row(unsigned width)
{
    row_part<LANES> part;
    part.lane = threadIdx.x % LANES;
    part.width = width;
    return part;
}

template <unsigned LANES>
__device__ __forceinline__ void store_codes(const row_part<LANES> &part,
                                            const struct espl_cuda_vision_codes &codes, size_t row)
{
    const float amax = part.largest();
    const float scale =
        codes.clip * (amax <= ESPL_QUANT_LEAST_AMAX ? ESPL_QUANT_LEAST_AMAX : amax) / QMAX;
    const float inverse = 1.0F / scale;
    const float most = 127.49F * scale; /* what is beyond is cut off: only with a clip below 1 */
    int8_t *to = codes.codes + row * codes.stride;
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        float v[PIECE] = {part.v[p][0], part.v[p][1], part.v[p][2], part.v[p][3]};
        if (codes.clip < 1.0F) {
#pragma unroll
            for (int i = 0; i < PIECE; i++) {
                v[i] = fminf(fmaxf(v[i], -most - scale), most);
            }
        }
        if (part.has(p)) {
            *reinterpret_cast<unsigned *>(to + part.column(p)) = vision_codes(v, scale, inverse);
        }
    }
    if (part.lane == 0) {
        codes.scales[row] = scale;
    }
}

__device__ __forceinline__ void load_halves(const uint16_t *from, float (&v)[PIECE])
{
    const uint2 words = *reinterpret_cast<const uint2 *>(from);
    const float2 low = __half22float2(*reinterpret_cast<const __half2 *>(&words.x));
    const float2 high = __half22float2(*reinterpret_cast<const __half2 *>(&words.y));
    v[0] = low.x;
    v[1] = low.y;
    v[2] = high.x;
    v[3] = high.y;
}

__device__ __forceinline__ void store_halves(uint16_t *to, const float (&v)[PIECE])
{
    const __half2 low = __floats2half2_rn(v[0], v[1]);
    const __half2 high = __floats2half2_rn(v[2], v[3]);
    *reinterpret_cast<uint2 *>(to) = make_uint2(*reinterpret_cast<const unsigned *>(&low),
                                                *reinterpret_cast<const unsigned *>(&high));
}

/* ---- norm ---- */

/* Where column `column` of a row of merged cells stands in x. */
__device__ __forceinline__ size_t merged_place(const struct espl_cuda_vision_norm &norm, size_t row,
                                               unsigned column)
{
    const unsigned side = static_cast<unsigned>(norm.side);
    const unsigned width = static_cast<unsigned>(norm.width) / SQUARE;
    const unsigned part = column / width;
    const size_t image = row / (side * side);
    const unsigned cell = static_cast<unsigned>(row % (side * side));
    const unsigned down = cell / side * 2 + part % 2;
    const unsigned across = cell % side * 2 + part / 2;
    return ((image * 2 * side + down) * 2 * side + across) * width + column % width;
}

template <unsigned LANES, bool MERGED>
__device__ __forceinline__ void load_row(row_part<LANES> &part,
                                         const struct espl_cuda_vision_norm &norm, size_t row)
{
    const size_t first = row * norm.step;
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        float4 x = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
        float add[PIECE] = {};
        float4 again = x;
        if (part.has(p)) {
            const unsigned column = part.column(p);
            const size_t place = MERGED ? merged_place(norm, row, column) : first + column;
            x = *reinterpret_cast<const float4 *>(norm.x + place);
            if (norm.add != NULL) {
                load_halves(norm.add + place, add);
            }
            if (norm.add_row != NULL) {
                const unsigned width = static_cast<unsigned>(norm.width) / SQUARE;
                again = *reinterpret_cast<const float4 *>(norm.add_row +
                                                          (MERGED ? column % width : column));
            }
        }
        part.v[p][0] = x.x + (add[0] + again.x);
        part.v[p][1] = x.y + (add[1] + again.y);
        part.v[p][2] = x.z + (add[2] + again.z);
        part.v[p][3] = x.w + (add[3] + again.w);
    }
}

__device__ __forceinline__ float4 load_term(const float *terms, unsigned column, float without)
{
    return terms != NULL ? *reinterpret_cast<const float4 *>(terms + column)
                         : make_float4(without, without, without, without);
}

template <unsigned LANES>
__device__ __forceinline__ void standardise(row_part<LANES> &part,
                                            const struct espl_cuda_vision_norm &norm, size_t row)
{
    const float count = static_cast<float>(part.width);
    const float mean = part.sum() / count;
    const float scale = 1.0F / sqrtf(part.sum_squares(mean) / count + norm.eps);
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        if (part.has(p)) {
            const unsigned column = part.column(p);
            const float4 gain = load_term(norm.gain, column, 1.0F);
            const float4 bias = load_term(norm.bias, column, 0.0F);
            if (norm.keep) {
                *reinterpret_cast<float4 *>(norm.x + row * norm.step + column) =
                    make_float4(part.v[p][0], part.v[p][1], part.v[p][2], part.v[p][3]);
            }
            part.v[p][0] = (part.v[p][0] - mean) * scale * gain.x + bias.x;
            part.v[p][1] = (part.v[p][1] - mean) * scale * gain.y + bias.y;
            part.v[p][2] = (part.v[p][2] - mean) * scale * gain.z + bias.z;
            part.v[p][3] = (part.v[p][3] - mean) * scale * gain.w + bias.w;
        }
    }
}

template <unsigned LANES, bool MERGED>
__global__ void __launch_bounds__(THREADS) norm_kernel(const struct espl_cuda_vision_norm norm)
{
    const size_t row = static_cast<size_t>(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
    if (row >= norm.rows) {
        return; /* a whole warp, or nobody */
    }
    vision_wait();
    row_part<LANES> part = part_of_row<LANES>(static_cast<unsigned>(norm.width));
    load_row<LANES, MERGED>(part, norm, row);
    standardise(part, norm, row);
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        const size_t place = row * norm.width + part.column(p);
        if (part.has(p) && norm.floats != NULL) {
            *reinterpret_cast<float4 *>(norm.floats + place) =
                make_float4(part.v[p][0], part.v[p][1], part.v[p][2], part.v[p][3]);
        }
        if (part.has(p) && norm.halves != NULL) {
            store_halves(norm.halves + place, part.v[p]);
        }
    }
    if (norm.codes.codes != NULL) {
        store_codes(part, norm.codes, row);
    }
}

/* ---- codes alone, and what follows a product without an epilogue ---- */

struct quantise_args {
    const uint16_t *x;
    size_t rows;
    unsigned width;
    bool gelu;
    struct espl_cuda_vision_codes codes;
};

template <unsigned LANES>
__global__ void __launch_bounds__(THREADS) quantise_kernel(const struct quantise_args args)
{
    const size_t row = static_cast<size_t>(blockIdx.x) * (THREADS / LANES) + threadIdx.x / LANES;
    if (row >= args.rows) {
        return;
    }
    vision_wait();
    row_part<LANES> part = part_of_row<LANES>(args.width);
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        part.v[p][0] = part.v[p][1] = part.v[p][2] = part.v[p][3] = 0.0F;
        if (part.has(p)) {
            load_halves(args.x + row * args.width + part.column(p), part.v[p]);
        }
    }
#pragma unroll
    for (int p = 0; p < PIECES; p++) { /* after all loads are on their way */
        if (args.gelu && part.has(p)) {
#pragma unroll
            for (int i = 0; i < PIECE; i++) {
                part.v[p][i] = vision_gelu(part.v[p][i]);
            }
        }
    }
    store_codes(part, args.codes, row);
}

enum espl_status check_rows(size_t rows, size_t width, struct espl_error *err)
{
    return width >= 1 && width <= ESPL_CUDA_VISION_MOST_WIDTH && width % PIECE == 0 && rows >= 1 &&
                   rows <= INT_MAX
               ? ESPL_OK
               : espl_fail(err, ESPL_E_UNSUPPORTED,
                           "rows of %zu values: the CUDA kernels of image models take multiples of "
                           "%d up to %d",
                           width, static_cast<int>(PIECE),
                           static_cast<int>(ESPL_CUDA_VISION_MOST_WIDTH));
}

/* A row is a warp's when it fits and there are enough of them, or it is so short that a block would
 * be idle for the most part. With 197 rows of 768 a block each is faster, with 1,576 a warp each.
 */
bool is_for_warps(size_t rows, size_t width)
{
    return width <= WARP_WIDTH && (rows >= MANY_ROWS || width <= THREADS * PIECE / 2);
}

dim3 blocks_of(size_t rows, bool warps)
{
    const size_t each = warps ? THREADS / WARP : 1;
    return dim3(static_cast<unsigned>((rows + each - 1) / each));
}

} // namespace

extern "C" enum espl_status espl_cuda_vision_normalise(const struct espl_cuda_vision_norm *norm,
                                                       void *stream, struct espl_error *err)
{
    struct espl_cuda_vision_norm args = *norm;
    const enum espl_status status = check_rows(norm->rows, norm->width, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (norm->side != 0 && (norm->keep || norm->step != 0 || norm->width % (SQUARE * PIECE) != 0)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "no kernel merges cells into rows of %zu values",
                         norm->width);
    }
    args.step = norm->step == 0 ? norm->width : norm->step;
    const bool warps = is_for_warps(norm->rows, norm->width);
    const auto kernel = norm->side != 0
                            ? (warps ? norm_kernel<WARP, true> : norm_kernel<THREADS, true>)
                            : (warps ? norm_kernel<WARP, false> : norm_kernel<THREADS, false>);
    return vision_launch(kernel, blocks_of(norm->rows, warps), THREADS, args, stream,
                         "cannot launch a norm", err);
}

extern "C" enum espl_status espl_cuda_vision_quantise(const uint16_t *x, size_t rows, size_t width,
                                                      bool gelu,
                                                      const struct espl_cuda_vision_codes *codes,
                                                      void *stream, struct espl_error *err)
{
    const struct quantise_args args = {x, rows, static_cast<unsigned>(width), gelu, *codes};
    const enum espl_status status = check_rows(rows, width, err);
    if (status != ESPL_OK) {
        return status;
    }
    const bool warps = is_for_warps(rows, width);
    return vision_launch(warps ? quantise_kernel<WARP> : quantise_kernel<THREADS>,
                         blocks_of(rows, warps), THREADS, args, stream, "cannot launch a quantiser",
                         err);
}

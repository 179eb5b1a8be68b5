/* Where an image model begins and ends: patches, tokens, pooling, heads; and what follows a product
 * that has no epilogue of its own. */
#include "espalier/cuda_vision.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vision_device.cuh"

#include <cuda_fp16.h>
#include <limits.h>

namespace
{

enum {
    THREADS = 256,
    WARP = 32,
    HEAD_THREADS = 128,
    HEAD_IMAGES = 8,
    PIECE = 4,
    BYTE_VALUES = 256
};

/* A value of a patch each, padding included. */
__global__ void __launch_bounds__(THREADS) cut_kernel(const struct espl_cuda_vision_patches args)
{
    vision_wait();
    const unsigned size = static_cast<unsigned>(args.size);
    const unsigned patch = static_cast<unsigned>(args.patch);
    const unsigned channels = static_cast<unsigned>(args.channels);
    const unsigned across = size / patch;
    const size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= args.images * across * across * args.stride) {
        return;
    }
    const size_t row = i / args.stride;
    const unsigned column = static_cast<unsigned>(i % args.stride);
    float value = 0.0F;
    if (column < channels * patch * patch) {
        const unsigned channel = column / (patch * patch);
        const unsigned cell = static_cast<unsigned>(row % (across * across));
        const unsigned y = cell / across * patch + column / patch % patch;
        const unsigned x = cell % across * patch + column % patch;
        const size_t image = row / (across * across);
        const uint8_t byte = args.pixels[((image * size + y) * size + x) * channels + channel];
        value = args.table[channel * BYTE_VALUES + byte];
    }
    args.patches[i] = __half_as_ushort(__float2half_rn(value));
}

/* Four values each. */
__global__ void __launch_bounds__(THREADS) join_kernel(const struct espl_cuda_vision_tokens args)
{
    vision_wait();
    const size_t pieces = args.width / PIECE;
    const size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= args.images * args.tokens * pieces) {
        return;
    }
    const size_t row = i / pieces;
    const size_t token = row % args.tokens;
    const size_t image = row / args.tokens;
    const size_t column = i % pieces * PIECE;
    const bool special = token < args.specials;
    const float *from =
        special ? args.special + token * args.width
                : args.embedded +
                      (image * (args.tokens - args.specials) + token - args.specials) * args.width;
    const float4 value = *reinterpret_cast<const float4 *>(from + column);
    const float4 position =
        *reinterpret_cast<const float4 *>(args.position + token * args.width + column);
    float4 bias = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    if (!special && args.bias != NULL) {
        bias = *reinterpret_cast<const float4 *>(args.bias + column);
    }
    *reinterpret_cast<float4 *>(args.x + row * args.width + column) =
        make_float4(value.x + bias.x + position.x, value.y + bias.y + position.y,
                    value.z + bias.z + position.z, value.w + bias.w + position.w);
}

struct pool_args {
    const float *x;
    float *pooled;
    size_t cells;
    size_t width;
};

__global__ void __launch_bounds__(THREADS) pool_kernel(const struct pool_args args)
{
    vision_wait();
    const size_t column = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (column >= args.width) {
        return;
    }
    const float *x = args.x + blockIdx.y * args.cells * args.width + column;
    float sum = 0.0F;
    for (size_t cell = 0; cell < args.cells; cell++) {
        sum += x[cell * args.width];
    }
    args.pooled[blockIdx.y * args.width + column] = sum / static_cast<float>(args.cells);
}

/* A warp does one class of eight images, so that weights are read once for these. */
__global__ void __launch_bounds__(HEAD_THREADS)
    head_kernel(const struct espl_cuda_vision_heads args)
{
    vision_wait();
    const unsigned lane = threadIdx.x % WARP;
    const size_t row = static_cast<size_t>(blockIdx.x) * (HEAD_THREADS / WARP) + threadIdx.x / WARP;
    const size_t first = static_cast<size_t>(blockIdx.y) * HEAD_IMAGES;
    if (row >= args.classes) {
        return;
    }
    float sum[HEAD_IMAGES] = {};
    float bias = 0.0F;
    for (size_t head = 0; head < args.heads; head++) {
        const float *weight = args.weight[head] + row * args.width;
        const float *x = args.x + (head * args.images + first) * args.width;
        bias += args.bias[head] != NULL ? args.bias[head][row] : 0.0F;
        for (size_t column = lane * PIECE; column < args.width; column += WARP * PIECE) {
            const float4 w = *reinterpret_cast<const float4 *>(weight + column);
#pragma unroll
            for (int i = 0; i < HEAD_IMAGES; i++) {
                if (first + i < args.images) {
                    const float4 v = *reinterpret_cast<const float4 *>(x + i * args.width + column);
                    sum[i] += (w.x * v.x + w.y * v.y) + (w.z * v.z + w.w * v.w);
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < HEAD_IMAGES; i++) {
        const float logit = (warp_sum(sum[i]) + bias) / static_cast<float>(args.heads);
        if (lane == 0 && first + i < args.images) {
            args.logits[(first + i) * args.classes + row] = logit;
        }
    }
}

struct finish_args {
    uint16_t *x;
    size_t pieces; /* of four values */
    size_t width;
    const float *bias;
    bool gelu;
};

__global__ void __launch_bounds__(THREADS) finish_kernel(const struct finish_args args)
{
    vision_wait();
    const size_t i = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= args.pieces) {
        return;
    }
    const size_t column = i * PIECE % args.width;
    uint2 *words = reinterpret_cast<uint2 *>(args.x) + i;
    uint2 old = *words;
    __half2 *halves = reinterpret_cast<__half2 *>(&old);
#pragma unroll
    for (int pair = 0; pair < PIECE / 2; pair++) {
        float2 v = __half22float2(halves[pair]);
        if (args.bias != NULL) {
            v.x += args.bias[column + 2 * pair];
            v.y += args.bias[column + 2 * pair + 1];
        }
        halves[pair] = __floats2half2_rn(args.gelu ? vision_gelu(v.x) : v.x,
                                         args.gelu ? vision_gelu(v.y) : v.y);
    }
    *words = old;
}

/* Blocks for so many threads of one kernel. */
enum espl_status count_blocks(size_t threads, unsigned *blocks, struct espl_error *err)
{
    const size_t count = (threads + THREADS - 1) / THREADS;
    if (threads == 0 || count > INT_MAX) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "%zu values are too many for one CUDA launch",
                         threads);
    }
    *blocks = static_cast<unsigned>(count);
    return ESPL_OK;
}

enum espl_status check_width(size_t width, struct espl_error *err)
{
    return width >= PIECE && width % PIECE == 0
               ? ESPL_OK
               : espl_fail(err, ESPL_E_UNSUPPORTED,
                           "rows of %zu values: the CUDA kernels of image models take multiples of "
                           "%d",
                           width, static_cast<int>(PIECE));
}

} // namespace

extern "C" enum espl_status espl_cuda_vision_cut(const struct espl_cuda_vision_patches *patches,
                                                 void *stream, struct espl_error *err)
{
    const size_t across = patches->size / patches->patch;
    unsigned blocks = 0;
    const enum espl_status status =
        count_blocks(patches->images * across * across * patches->stride, &blocks, err);
    if (status != ESPL_OK) {
        return status;
    }
    return vision_launch(cut_kernel, dim3(blocks), THREADS, *patches, stream,
                         "cannot launch the cutting of pictures", err);
}

extern "C" enum espl_status espl_cuda_vision_join(const struct espl_cuda_vision_tokens *tokens,
                                                  void *stream, struct espl_error *err)
{
    unsigned blocks = 0;
    enum espl_status status = check_width(tokens->width, err);
    if (status == ESPL_OK) {
        status =
            count_blocks(tokens->images * tokens->tokens * (tokens->width / PIECE), &blocks, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    return vision_launch(join_kernel, dim3(blocks), THREADS, *tokens, stream,
                         "cannot launch the joining of tokens", err);
}

extern "C" enum espl_status espl_cuda_vision_pool(const float *x, size_t images, size_t cells,
                                                  size_t width, float *pooled, void *stream,
                                                  struct espl_error *err)
{
    const struct pool_args args = {x, pooled, cells, width};
    unsigned blocks = 0;
    const enum espl_status status = count_blocks(width, &blocks, err);
    if (status != ESPL_OK) {
        return status;
    }
    const dim3 grid(blocks, static_cast<unsigned>(images));
    return vision_launch(pool_kernel, grid, THREADS, args, stream, "cannot launch pooling", err);
}

extern "C" enum espl_status espl_cuda_vision_classify(const struct espl_cuda_vision_heads *heads,
                                                      void *stream, struct espl_error *err)
{
    const enum espl_status status = check_width(heads->width, err);
    if (status != ESPL_OK) {
        return status;
    }
    const size_t each = HEAD_THREADS / WARP;
    const dim3 grid(static_cast<unsigned>((heads->classes + each - 1) / each),
                    static_cast<unsigned>((heads->images + HEAD_IMAGES - 1) / HEAD_IMAGES));
    return vision_launch(head_kernel, grid, HEAD_THREADS, *heads, stream, "cannot launch a head",
                         err);
}

extern "C" enum espl_status espl_cuda_vision_finish(uint16_t *x, size_t rows, size_t width,
                                                    const float *bias, bool gelu, void *stream,
                                                    struct espl_error *err)
{
    const struct finish_args args = {x, rows * width / PIECE, width, bias, gelu};
    unsigned blocks = 0;
    enum espl_status status = check_width(width, err);
    if (status == ESPL_OK) {
        status = count_blocks(args.pieces, &blocks, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    return vision_launch(finish_kernel, dim3(blocks), THREADS, args, stream,
                         "cannot launch bias and activation", err);
}

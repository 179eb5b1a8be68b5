/* Activations in the order in which the SpMM kernels read them. */
#include "espalier/cuda_spmm.h"
#include "kernels/cuda/cuda_support.cuh"
#include "kernels/cuda/spmm_args.cuh"

namespace
{

enum {
    THREADS = 256,
    GROUP_COLS = 128,
    TILE_WORDS = SPMM_X_BLOCK / 4,
    BLOCK_COLS = 32,
    LANE_COLS = 8
};

/* One word of x: 8 codes of a token. blockIdx.y: tile of 8 tokens. */
__global__ void pack_kernel(const int8_t *codes, size_t tokens, size_t cols, uint32_t *x,
                            size_t code_words, size_t tile_words)
{
    const size_t word = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned in_block = word % TILE_WORDS;
    const size_t token = (size_t)blockIdx.y * SPMM_COLUMNS + in_block / 16;
    const size_t column =
        word / TILE_WORDS * GROUP_COLS + in_block % 4 * BLOCK_COLS + in_block % 16 / 4 * LANE_COLS;
    unsigned packed = 0;
    if (word >= code_words) {
        return;
    }
    for (unsigned i = 0; token < tokens && i < LANE_COLS; i++) {
        const unsigned code =
            column + i < cols ? (unsigned)codes[token * cols + column + i] & 15u : 0;
        packed |= code << (8 * (i % 4) + (i >= 4 ? 4 : 0));
    }
    x[blockIdx.y * tile_words + word] = packed;
}

/* Sums of codes behind a tile's codes, one token a warp. */
__global__ void sum_kernel(const int8_t *codes, size_t tokens, size_t cols, uint32_t *x,
                           size_t tile_words)
{
    const unsigned lane = threadIdx.x % SPMM_WARP;
    const unsigned in_tile = threadIdx.x / SPMM_WARP;
    const size_t token = (size_t)blockIdx.x * SPMM_COLUMNS + in_tile;
    int sum = 0;
    for (size_t c = lane; token < tokens && c < cols; c += SPMM_WARP) {
        sum += codes[token * cols + c];
    }
    sum = __reduce_add_sync(0xFFFFFFFFu, sum);
    if (lane == 0) {
        x[(blockIdx.x + 1) * tile_words - TILE_WORDS + in_tile] = (uint32_t)sum;
    }
}

} // namespace

extern "C" enum espl_status espl_cuda_pack_activations(const int8_t *codes, size_t tokens,
                                                       size_t cols, uint8_t *x, void *stream,
                                                       struct espl_error *err)
{
    const size_t tile_bytes = espl_cuda_activation_bytes(SPMM_COLUMNS, cols);
    const size_t tiles = espl_cuda_activation_bytes(tokens, cols) / tile_bytes;
    const size_t most_tiles = 65535; /* of a grid's second dimension */
    if (tokens == 0 || tiles > most_tiles) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "cannot pack %zu tokens of %zu columns", tokens,
                         cols);
    }
    const dim3 grid(static_cast<unsigned>((tile_bytes / 4 + THREADS - 1) / THREADS),
                    static_cast<unsigned>(tiles));
    const size_t code_words = tile_bytes / 4 - TILE_WORDS;
    pack_kernel<<<grid, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        codes, tokens, cols, reinterpret_cast<uint32_t *>(x), code_words, tile_bytes / 4);
    sum_kernel<<<static_cast<unsigned>(tiles), SPMM_COLUMNS * SPMM_WARP, 0,
                 static_cast<cudaStream_t>(stream)>>>(
        codes, tokens, cols, reinterpret_cast<uint32_t *>(x), tile_bytes / 4);
    return espl_cuda_check(cudaGetLastError(), "cannot launch the packing of activations", err);
}

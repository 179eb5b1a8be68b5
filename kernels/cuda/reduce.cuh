/* Sums and maxima over a warp and over a block; every thread gets the result. The order of addition
 * is fixed, so equal inputs give equal bits. */
#ifndef ESPL_CUDA_REDUCE_CUH
#define ESPL_CUDA_REDUCE_CUH

constexpr unsigned REDUCE_WARP = 32;
constexpr unsigned REDUCE_MOST_WARPS = 32;

__device__ __forceinline__ float warp_sum(float value)
{
#pragma unroll
    for (unsigned offset = REDUCE_WARP / 2; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
    }
    return value;
}

__device__ __forceinline__ float warp_max(float value)
{
#pragma unroll
    for (unsigned offset = REDUCE_WARP / 2; offset > 0; offset /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, offset));
    }
    return value;
}

/** Of a one-dimensional block of whole warps; all threads must call. of_warp: shared, not used by
 *  anything else until the next barrier after the call. */
__device__ __forceinline__ float block_sum(float value, float (&of_warp)[REDUCE_MOST_WARPS])
{
    value = warp_sum(value);
    __syncthreads(); /* an earlier result in of_warp has been read */
    if (threadIdx.x % REDUCE_WARP == 0) {
        of_warp[threadIdx.x / REDUCE_WARP] = value;
    }
    __syncthreads();
    float sum = 0.0F;
    for (unsigned warp = 0; warp < blockDim.x / REDUCE_WARP; warp++) {
        sum += of_warp[warp];
    }
    return sum;
}

/** As block_sum(). */
__device__ __forceinline__ float block_max(float value, float (&of_warp)[REDUCE_MOST_WARPS])
{
    value = warp_max(value);
    __syncthreads();
    if (threadIdx.x % REDUCE_WARP == 0) {
        of_warp[threadIdx.x / REDUCE_WARP] = value;
    }
    __syncthreads();
    float most = of_warp[0];
    for (unsigned warp = 1; warp < blockDim.x / REDUCE_WARP; warp++) {
        most = fmaxf(most, of_warp[warp]);
    }
    return most;
}

#endif

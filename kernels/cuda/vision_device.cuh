/* What the kernels of image models share: GELU, rounding to bytes, launches over the end of the
 * kernel before. */
#ifndef ESPL_CUDA_VISION_DEVICE_CUH
#define ESPL_CUDA_VISION_DEVICE_CUH

#include "kernels/cuda/launch.cuh"

/** Must come before a kernel reads or writes memory: all that was launched before it has ended. The
 * one behind it may be started from then on, to do the same. */
__device__ __forceinline__ void vision_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/** x Phi(x) = (x + |x| erf(|x| / sqrt 2)) / 2, with erf to 1.5e-7 [Abramowitz and Stegun, 7.1.26].
 * A third of the instructions that the library's takes. */
__device__ __forceinline__ float vision_gelu(float x)
{
    const float half = 0.5F * x;
    float t; /* 1 / (1 + p z) */
    asm("rcp.approx.ftz.f32 %0, %1;"
        : "=f"(t)
        : "f"(fmaf(fabsf(x), 0.3275911F * 0.70710678F, 1.0F)));
    float sum = fmaf(1.061405429F, t, -1.453152027F);
    sum = fmaf(sum, t, 1.421413741F);
    sum = fmaf(sum, t, -0.284496736F);
    sum = fmaf(sum, t, 0.254829592F) * t;
    float tail; /* e^-(x^2 / 2) */
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(tail) : "f"(x * x * (-0.5F * 1.44269504F)));
    return fmaf(fabsf(half), fmaf(-sum, tail, 1.0F), half);
}

/** Four codes as they stand in memory: rint(x / scale), where the quotient is within -128..127.
 *  inverse: 1 / scale, rounded. The quotient is the one that a division rounds to: a product and
 *  one correction [Markstein 1990]. */
__device__ __forceinline__ unsigned vision_codes(const float (&x)[4], float scale, float inverse)
{
    constexpr float ROUND = 12582912.0F; /* 1.5 x 2^23: what is added to it loses its fraction */
    unsigned code[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float near = x[i] * inverse;
        const float quotient = fmaf(fmaf(-near, scale, x[i]), inverse, near);
        code[i] = __float_as_uint(__fadd_rn(quotient, ROUND));
    }
    return __byte_perm(__byte_perm(code[0], code[1], 0x0040), __byte_perm(code[2], code[3], 0x0040),
                       0x5410);
}

/** Launches a kernel that calls vision_wait() over the end of the one before it, where the device
 *  can. */
template <typename ARGS>
enum espl_status vision_launch(void (*kernel)(const ARGS), dim3 grid, unsigned threads,
                               const ARGS &args, void *stream, const char *what,
                               struct espl_error *err)
{
    bool can_overlap = false;
    const enum espl_status status = espl_cuda_can_overlap(&can_overlap, err);
    if (status != ESPL_OK) {
        return status;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    return espl_cuda_launch(reinterpret_cast<const void *>(kernel), config, &args, can_overlap,
                            stream, what, err);
}

#endif

/* gemm_w4a4 tiles for 64-bit Arm with the dot product instructions (SDOT). */
#include "kernels/cpu/quant_paths.h"

#if defined(ESPL_QUANT_NEON)
#include <arm_neon.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif

#if defined(__clang__)
#define DOTPROD __attribute__((target("dotprod")))
#else
#define DOTPROD __attribute__((target("arch=armv8.2-a+dotprod")))
#endif

enum { VECTORS = 4, COLUMNS = 16, ROWS = 4 };

bool espl_quant_neon_supported(void)
{
#if defined(__ARM_FEATURE_DOTPROD) || defined(__APPLE__)
    return true;
#elif defined(__linux__)
    enum { HWCAP_DOTPROD = 1 << 20 }; /* asimddp */
    return (getauxval(AT_HWCAP) & HWCAP_DOTPROD) != 0;
#else
    return false;
#endif
}

DOTPROD static void multiply_group(const struct espl_quant_tile *tile, size_t g)
{
    const int8_t *a = tile->a + g * tile->quads * 4;
    const int8_t *w = (const int8_t *)tile->w + g * tile->quads * COLUMNS * 4;
    int32x4_t acc[ROWS][VECTORS];
    for (size_t t = 0; t < ROWS; t++) {
        for (size_t v = 0; v < VECTORS; v++) {
            acc[t][v] = vdupq_n_s32(0);
        }
    }
    for (size_t q = 0; q < tile->quads; q++) {
        int8x16_t columns[VECTORS];
        for (size_t v = 0; v < VECTORS; v++) {
            columns[v] = vld1q_s8(w + (q * VECTORS + v) * 16);
        }
        for (size_t t = 0; t < ROWS; t++) {
            /* Rows past the end repeat the last one: their sums are dropped. */
            const size_t row = t < tile->tokens ? t : tile->tokens - 1;
            int32_t quad;
            __builtin_memcpy(&quad, a + row * tile->a_stride + q * 4, sizeof quad);
            const int8x16_t spread = vreinterpretq_s8_s32(vdupq_n_s32(quad));
            for (size_t v = 0; v < VECTORS; v++) {
                acc[t][v] = vdotq_s32(acc[t][v], columns[v], spread);
            }
        }
    }
    for (size_t t = 0; t < ROWS && t < tile->tokens; t++) {
        const float32x4_t a_scale = vdupq_n_f32(tile->a_scales[t * tile->scale_stride + g]);
        for (size_t v = 0; v < VECTORS; v++) {
            float *sums = tile->sums + t * COLUMNS + v * 4;
            const float32x4_t scale =
                vmulq_f32(vld1q_f32(tile->w_scales + g * COLUMNS + v * 4), a_scale);
            const float32x4_t term = vmulq_f32(vcvtq_f32_s32(acc[t][v]), scale);
            vst1q_f32(sums, vaddq_f32(vld1q_f32(sums), term));
        }
    }
}

DOTPROD void espl_quant_multiply_neon(const struct espl_quant_tile *tile)
{
    for (size_t g = 0; g < tile->groups; g++) {
        multiply_group(tile, g);
    }
}

#endif

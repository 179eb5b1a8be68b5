/* Row reorder for 64-bit Arm. */
#include "kernels/cpu/cpu_reorder.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { ROWS = ESPL_REORDER_ROWS, PAIR_LANES = 8, QUAD_LANES = 16 };

/* bit k of byte n = byte 8 n + k of the 16 is not 0 */
ALWAYS_INLINE uint64_t neon_test(const int8_t *codes)
{
    static const uint8_t weights[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const int8x16_t values = vld1q_s8(codes);
    const uint8x16_t bits = vandq_u8(vtstq_s8(values, values), vld1q_u8(weights));
    return (uint64_t)vaddv_u8(vget_low_u8(bits)) | (uint64_t)vaddv_u8(vget_high_u8(bits)) << 8;
}

void espl_reorder_tile_masks_neon(const int8_t *codes, size_t stride, uint64_t *masks,
                                  size_t mask_stride)
{
    for (size_t r = 0; r < ROWS; r++) {
        const int8_t *row = codes + r * stride;
        masks[r * mask_stride] = neon_test(row) | neon_test(row + 16) << 16 |
                                 neon_test(row + 32) << 32 | neon_test(row + 48) << 48;
    }
}

void espl_reorder_pair_costs_neon(const struct espl_reorder_work *work, unsigned col_areas)
{
    const size_t slices = 4 / col_areas;
    const uint8_t *planes = work->planes; /* 16 bytes a slice */
    uint16_t *costs = work->costs;
    espl_reorder_slice_16(work->masks, work->planes, col_areas, PAIR_LANES);
    for (size_t a = 0; a < ROWS; a++) {
        for (size_t b = a + 1; b < ROWS; b++, costs += PAIR_LANES) {
            uint8x16_t bits = vdupq_n_u8(0);
            for (size_t p = 0; p < slices; p++) {
                const uint8x16_t both = vorrq_u8(vld1q_u8(planes + (a * slices + p) * 16),
                                                 vld1q_u8(planes + (b * slices + p) * 16));
                bits = vaddq_u8(bits, vcntq_u8(both));
            }
            const uint16x8_t shifted = vshlq_n_u16(vpaddlq_u8(bits), 4);
            vst1q_u16(costs, vorrq_u16(shifted, vdupq_n_u16((uint16_t)b)));
        }
    }
}

ALWAYS_INLINE const struct espl_reorder_step *
neon_size(const struct espl_reorder_pair_program *program, const struct espl_reorder_work *work,
          const struct espl_reorder_step *step, const size_t ways)
{
    const uint16_t *costs = work->costs;
    uint16_t *optima = work->optima;
    const size_t half = (ways + 1) / 2;
    for (size_t state = program->size_first[half]; state < program->size_first[half + 1]; state++) {
        uint16x8_t best = vdupq_n_u16(UINT16_MAX);
#pragma GCC unroll 16
        for (size_t way = 0; way < ways; way++) {
            const uint16x8_t sum = vaddq_u16(vld1q_u16(costs + (size_t)step[way].group * 4),
                                             vld1q_u16(optima + (size_t)step[way].rest * 4));
            best = vminq_u16(best, sum);
        }
        step += ways;
        vst1q_u16(optima + state * PAIR_LANES, vandq_u16(best, vdupq_n_u16(0xFFF0)));
        /* The low 4 bits are the partner; the others are ignored. */
        vst1_u8(work->choices + state * PAIR_LANES, vmovn_u16(best));
    }
    return step;
}

void espl_reorder_pair_solve_neon(const struct espl_reorder_pair_program *program,
                                  const struct espl_reorder_work *work)
{
    const struct espl_reorder_step *step = neon_size(program, work, program->steps, 1);
    step = neon_size(program, work, step, 3);
    step = neon_size(program, work, step, 5);
    step = neon_size(program, work, step, 7);
    step = neon_size(program, work, step, 9);
    step = neon_size(program, work, step, 11);
    step = neon_size(program, work, step, 13);
    (void)neon_size(program, work, step, 15); /* the last one: nothing follows */
}

void espl_reorder_quad_costs_neon(const struct espl_reorder_work *work, unsigned col_areas)
{
    const size_t slices = 8 / col_areas;
    const size_t row = slices * QUAD_LANES;
    const uint8_t *planes = work->planes;
    uint8_t *costs = work->costs;
    espl_reorder_slice_8(work->masks, work->planes, col_areas, QUAD_LANES);
    for (size_t a = 0; a < ROWS; a++) {
        for (size_t b = a + 1; b < ROWS; b++) {
            for (size_t c = b + 1; c < ROWS; c++) {
                uint8x16_t three[8];
                for (size_t p = 0; p < slices; p++) {
                    const size_t place = p * QUAD_LANES;
                    three[p] = vorrq_u8(vorrq_u8(vld1q_u8(planes + a * row + place),
                                                 vld1q_u8(planes + b * row + place)),
                                        vld1q_u8(planes + c * row + place));
                }
                for (size_t d = c + 1; d < ROWS; d++, costs += QUAD_LANES) {
                    uint8x16_t bits = vdupq_n_u8(0);
                    for (size_t p = 0; p < slices; p++) {
                        const uint8x16_t last = vld1q_u8(planes + d * row + p * QUAD_LANES);
                        bits = vaddq_u8(bits, vcntq_u8(vorrq_u8(three[p], last)));
                    }
                    vst1q_u8(costs, bits);
                }
            }
        }
    }
}

ALWAYS_INLINE uint8x16_t neon_ways(const struct espl_reorder_step *steps, const size_t ways,
                                   const uint8_t *costs, const uint8_t *rests)
{
    uint8x16_t best = vdupq_n_u8(UINT8_MAX);
#pragma GCC unroll 5
    for (size_t way = 0; way < ways; way++) {
        const uint8x16_t sum = vaddq_u8(vld1q_u8(costs + (size_t)steps[way].group * 8),
                                        vld1q_u8(rests + (size_t)steps[way].rest * 8));
        best = vminq_u8(best, sum);
    }
    return best;
}

void espl_reorder_quad_solve_neon(const struct espl_reorder_quad_program *program,
                                  const struct espl_reorder_work *work)
{
    const uint8_t *costs = work->costs;
    uint8_t *optima_8 = work->optima;
    uint8x16_t total = vdupq_n_u8(UINT8_MAX);
    for (size_t state = 0; state < ESPL_REORDER_QUADS_8; state++) {
        vst1q_u8(optima_8 + state * QUAD_LANES,
                 neon_ways(program->steps_8 + state * ESPL_REORDER_WAYS_8, ESPL_REORDER_WAYS_8,
                           costs, costs));
    }
    for (size_t state = 0; state < ESPL_REORDER_QUADS_12; state++) {
        const uint8x16_t best = neon_ways(program->steps_12 + state * ESPL_REORDER_WAYS_12,
                                          ESPL_REORDER_WAYS_12, costs, optima_8);
        vst1q_u8(work->optima_12 + state * QUAD_LANES, best);
        total = vminq_u8(total, vqaddq_u8(vld1q_u8(costs + state * QUAD_LANES), best));
    }
    vst1q_u8(work->totals, total);
}
#endif

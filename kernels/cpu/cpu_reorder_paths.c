/* The table of row reorder paths, and the one in plain C. */
#include "kernels/cpu/cpu_reorder.h"

#include <string.h>

enum { PAIR_LANES = 8, QUAD_LANES = 16, ROWS = ESPL_REORDER_ROWS, COLS = ESPL_IEBME_TILE_COLS };

const struct espl_reorder_path espl_reorder_paths[] = {
#if defined(__x86_64__)
    {"avx512", 32, 64, espl_reorder_avx512_supported, espl_reorder_tile_masks_avx512,
     espl_reorder_pair_costs_avx512, espl_reorder_quad_costs_avx512, espl_reorder_pair_solve_avx512,
     espl_reorder_quad_solve_avx512},
    {"avx2", 16, 32, espl_reorder_avx2_supported, espl_reorder_tile_masks_avx2,
     espl_reorder_pair_costs_avx2, espl_reorder_quad_costs_avx2, espl_reorder_pair_solve_avx2,
     espl_reorder_quad_solve_avx2},
#elif defined(__aarch64__)
    {"neon", 8, 16, espl_reorder_scalar_supported, espl_reorder_tile_masks_neon,
     espl_reorder_pair_costs_neon, espl_reorder_quad_costs_neon, espl_reorder_pair_solve_neon,
     espl_reorder_quad_solve_neon},
#endif
    {"scalar", PAIR_LANES, QUAD_LANES, espl_reorder_scalar_supported,
     espl_reorder_tile_masks_scalar, espl_reorder_pair_costs_scalar, espl_reorder_quad_costs_scalar,
     espl_reorder_pair_solve_scalar, espl_reorder_quad_solve_scalar},
    {NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL},
};

bool espl_reorder_scalar_supported(void)
{
    return true;
}

void espl_reorder_tile_masks_scalar(const int8_t *codes, size_t stride, uint64_t *masks,
                                    size_t mask_stride)
{
    for (size_t r = 0; r < ROWS; r++) {
        uint64_t mask = 0;
        for (size_t j = 0; j < COLS; j++) {
            mask |= (uint64_t)(codes[r * stride + j] != 0) << j;
        }
        masks[r * mask_stride] = mask;
    }
}

/* set bits of a 16-bit word */
static uint16_t count_bits_16(uint16_t word)
{
    uint16_t bits = (uint16_t)(word - (word >> 1 & 0x5555u));
    bits = (uint16_t)((bits & 0x3333u) + (bits >> 2 & 0x3333u));
    bits = (uint16_t)((bits + (bits >> 4)) & 0x0F0Fu);
    return (uint16_t)((bits + (bits >> 8)) & 31u);
}

static uint8_t count_bits_8(uint8_t byte)
{
    uint8_t bits = (uint8_t)(byte - (byte >> 1 & 0x55u));
    bits = (uint8_t)((bits & 0x33u) + (bits >> 2 & 0x33u));
    return (uint8_t)((bits + (bits >> 4)) & 0x0Fu);
}

void espl_reorder_pair_costs_scalar(const struct espl_reorder_work *work, unsigned col_areas)
{
    const size_t slices = 4 / col_areas;
    const uint16_t *planes = work->planes;
    uint16_t *costs = work->costs;
    espl_reorder_slice_16(work->masks, work->planes, col_areas, PAIR_LANES);
    for (size_t a = 0; a < ROWS; a++) {
        for (size_t b = a + 1; b < ROWS; b++) {
            uint16_t bits[PAIR_LANES] = {0};
            for (size_t p = 0; p < slices; p++) {
                const uint16_t *left = planes + (a * slices + p) * PAIR_LANES;
                const uint16_t *right = planes + (b * slices + p) * PAIR_LANES;
                for (size_t l = 0; l < PAIR_LANES; l++) {
                    bits[l] = (uint16_t)(bits[l] + count_bits_16((uint16_t)(left[l] | right[l])));
                }
            }
            for (size_t l = 0; l < PAIR_LANES; l++) {
                *costs++ = (uint16_t)((size_t)bits[l] << 4 | b);
            }
        }
    }
}

static int16_t smaller_16(int a, int b)
{
    return (int16_t)(a < b ? a : b);
}

static uint8_t smaller_8(uint8_t a, uint8_t b)
{
    return a < b ? a : b;
}

/* One state. Loops over lanes become vectors; the smallest sum goes through memory at every step,
 * so a step takes two transitions. ways: odd. */
static void solve_state(const struct espl_reorder_step *steps, size_t ways, const int16_t *costs,
                        const int16_t *optima, int16_t *optimum, uint8_t *choices)
{
    int16_t best[PAIR_LANES];
    const int16_t *cost = costs + (size_t)steps[0].group * 4;
    const int16_t *rest = optima + (size_t)steps[0].rest * 4;
    for (size_t l = 0; l < PAIR_LANES; l++) {
        best[l] = (int16_t)(cost[l] + rest[l]);
    }
    for (size_t way = 1; way < ways; way += 2) {
        const int16_t *next_cost = costs + (size_t)steps[way + 1].group * 4;
        const int16_t *next_rest = optima + (size_t)steps[way + 1].rest * 4;
        cost = costs + (size_t)steps[way].group * 4;
        rest = optima + (size_t)steps[way].rest * 4;
#pragma omp simd
        for (size_t l = 0; l < PAIR_LANES; l++) {
            const int16_t sum = smaller_16(cost[l] + rest[l], next_cost[l] + next_rest[l]);
            best[l] = smaller_16(best[l], sum);
        }
    }
    for (size_t l = 0; l < PAIR_LANES; l++) {
        optimum[l] = (int16_t)(best[l] & ~15);
        choices[l] = (uint8_t)(best[l] & 15);
    }
}

void espl_reorder_pair_solve_scalar(const struct espl_reorder_pair_program *program,
                                    const struct espl_reorder_work *work)
{
    const struct espl_reorder_step *step = program->steps;
    int16_t *optima = work->optima;
    for (size_t half = 1; half < ESPL_REORDER_PAIR_SIZES; half++) {
        const size_t ways = 2 * half - 1;
        for (size_t state = program->size_first[half]; state < program->size_first[half + 1];
             state++, step += ways) {
            solve_state(step, ways, work->costs, optima, optima + state * PAIR_LANES,
                        work->choices + state * PAIR_LANES);
        }
    }
}

/* Bits of the union of one more row with three. */
static void count_quad(const uint8_t *three, const uint8_t *row, size_t slices, uint8_t *cost)
{
    uint8_t bits[QUAD_LANES] = {0};
    for (size_t p = 0; p < slices; p++) {
#pragma omp simd
        for (size_t l = 0; l < QUAD_LANES; l++) {
            const size_t place = p * QUAD_LANES + l;
            bits[l] = (uint8_t)(bits[l] + count_bits_8(three[place] | row[place]));
        }
    }
    memcpy(cost, bits, QUAD_LANES);
}

void espl_reorder_quad_costs_scalar(const struct espl_reorder_work *work, unsigned col_areas)
{
    const size_t slices = 8 / col_areas;
    const size_t row = slices * QUAD_LANES;
    const uint8_t *planes = work->planes;
    uint8_t *costs = work->costs;
    espl_reorder_slice_8(work->masks, work->planes, col_areas, QUAD_LANES);
    for (size_t a = 0; a < ROWS; a++) {
        for (size_t b = a + 1; b < ROWS; b++) {
            for (size_t c = b + 1; c < ROWS; c++) {
                uint8_t three[8 * QUAD_LANES];
                for (size_t i = 0; i < row; i++) {
                    three[i] = planes[a * row + i] | planes[b * row + i] | planes[c * row + i];
                }
                for (size_t d = c + 1; d < ROWS; d++, costs += QUAD_LANES) {
                    count_quad(three, planes + d * row, slices, costs);
                }
            }
        }
    }
}

static void best_ways(const struct espl_reorder_step *steps, size_t ways, const uint8_t *costs,
                      const uint8_t *rests, uint8_t *optimum)
{
    uint8_t best[QUAD_LANES];
    memset(best, UINT8_MAX, sizeof best);
    for (size_t way = 0; way < ways; way++) {
        const uint8_t *cost = costs + (size_t)steps[way].group * 8;
        const uint8_t *rest = rests + (size_t)steps[way].rest * 8;
#pragma omp simd
        for (size_t l = 0; l < QUAD_LANES; l++) {
            best[l] = smaller_8(best[l], (uint8_t)(cost[l] + rest[l]));
        }
    }
    memcpy(optimum, best, QUAD_LANES);
}

void espl_reorder_quad_solve_scalar(const struct espl_reorder_quad_program *program,
                                    const struct espl_reorder_work *work)
{
    const uint8_t *costs = work->costs;
    uint8_t *optima_8 = work->optima;
    for (size_t state = 0; state < ESPL_REORDER_QUADS_8; state++) {
        best_ways(program->steps_8 + state * ESPL_REORDER_WAYS_8, ESPL_REORDER_WAYS_8, costs, costs,
                  optima_8 + state * QUAD_LANES);
    }
    memset(work->totals, UINT8_MAX, QUAD_LANES);
    for (size_t state = 0; state < ESPL_REORDER_QUADS_12; state++) {
        uint8_t *optimum = work->optima_12 + state * QUAD_LANES;
        best_ways(program->steps_12 + state * ESPL_REORDER_WAYS_12, ESPL_REORDER_WAYS_12, costs,
                  optima_8, optimum);
        for (size_t l = 0; l < QUAD_LANES; l++) {
            const unsigned total = (unsigned)costs[state * QUAD_LANES + l] + optimum[l];
            work->totals[l] = total < work->totals[l] ? (uint8_t)total : work->totals[l];
        }
    }
}

/* Row reorder with 512 and with 256 bits. */
#include "kernels/cpu/cpu_reorder.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define AVX512        __attribute__((target("avx512f,avx512bw,avx512vl,avx512bitalg")))
#define AVX2          __attribute__((target("avx2")))

enum {
    ROWS = ESPL_REORDER_ROWS,
    WIDE_PAIR_LANES = 32,
    WIDE_QUAD_LANES = 64,
    PAIR_LANES = 16,
    QUAD_LANES = 32
};

/* ---- AVX-512 with byte and word popcounts (BITALG) ---- */

bool espl_reorder_avx512_supported(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bitalg");
}

AVX512 void espl_reorder_tile_masks_avx512(const int8_t *codes, size_t stride, uint64_t *masks,
                                           size_t mask_stride)
{
    for (size_t r = 0; r < ROWS; r++) {
        const __m512i row = _mm512_loadu_si512(codes + r * stride);
        masks[r * mask_stride] = _mm512_test_epi8_mask(row, row);
    }
}

AVX512 ALWAYS_INLINE void avx512_pair_costs(const struct espl_reorder_work *work,
                                            const unsigned col_areas)
{
    const size_t slices = 4 / col_areas;
    const __m512i *planes = work->planes;
    __m512i *costs = work->costs;
    espl_reorder_slice_16(work->masks, work->planes, col_areas, WIDE_PAIR_LANES);
    for (size_t a = 0; a < ROWS; a++) {
        for (size_t b = a + 1; b < ROWS; b++) {
            __m512i bits = _mm512_setzero_si512();
#pragma GCC unroll 4
            for (size_t p = 0; p < slices; p++) {
                const __m512i both =
                    _mm512_or_si512(planes[a * slices + p], planes[b * slices + p]);
                bits = _mm512_add_epi16(bits, _mm512_popcnt_epi16(both));
            }
            *costs++ = _mm512_or_si512(_mm512_slli_epi16(bits, 4), _mm512_set1_epi16((short)b));
        }
    }
}

AVX512 void espl_reorder_pair_costs_avx512(const struct espl_reorder_work *work, unsigned col_areas)
{
    switch (col_areas) {
    case 1:
        avx512_pair_costs(work, 1);
        break;
    case 2:
        avx512_pair_costs(work, 2);
        break;
    default:
        avx512_pair_costs(work, 4);
        break;
    }
}

/* All states of one size; ways: transitions of each. Returns the steps after theirs. */
AVX512 ALWAYS_INLINE const struct espl_reorder_step *
avx512_size(const struct espl_reorder_pair_program *program, const struct espl_reorder_work *work,
            const struct espl_reorder_step *step, const size_t ways)
{
    const uint64_t *costs = work->costs;
    uint64_t *optima = work->optima;
    const __m512i clean = _mm512_set1_epi16(~15);
    const size_t half = (ways + 1) / 2;
    for (size_t state = program->size_first[half]; state < program->size_first[half + 1]; state++) {
        __m512i best = _mm512_set1_epi16(INT16_MAX);
#pragma GCC unroll 16
        for (size_t way = 0; way < ways; way++) {
            const __m512i sum = _mm512_add_epi16(_mm512_load_si512(costs + step[way].group),
                                                 _mm512_load_si512(optima + step[way].rest));
            best = _mm512_min_epi16(best, sum);
        }
        step += ways;
        _mm512_store_si512(optima + state * (WIDE_PAIR_LANES / 4), _mm512_and_si512(best, clean));
        /* The low 4 bits are the partner; the others are ignored. */
        _mm256_store_si256((__m256i *)(work->choices + state * WIDE_PAIR_LANES),
                           _mm512_cvtepi16_epi8(best));
    }
    return step;
}

AVX512 void espl_reorder_pair_solve_avx512(const struct espl_reorder_pair_program *program,
                                           const struct espl_reorder_work *work)
{
    const struct espl_reorder_step *step = avx512_size(program, work, program->steps, 1);
    step = avx512_size(program, work, step, 3);
    step = avx512_size(program, work, step, 5);
    step = avx512_size(program, work, step, 7);
    step = avx512_size(program, work, step, 9);
    step = avx512_size(program, work, step, 11);
    step = avx512_size(program, work, step, 13);
    (void)avx512_size(program, work, step, 15); /* the last one: nothing follows */
}

AVX512 ALWAYS_INLINE void avx512_quad_costs(const struct espl_reorder_work *work,
                                            const unsigned col_areas)
{
    const size_t slices = 8 / col_areas;
    const __m512i *planes = work->planes;
    __m512i *costs = work->costs;
    espl_reorder_slice_8(work->masks, work->planes, col_areas, WIDE_QUAD_LANES);
    for (size_t a = 0; a < ROWS; a++) {
        for (size_t b = a + 1; b < ROWS; b++) {
            for (size_t c = b + 1; c < ROWS; c++) {
                __m512i three[8];
#pragma GCC unroll 8
                for (size_t p = 0; p < slices; p++) {
                    three[p] = _mm512_or_si512(
                        _mm512_or_si512(planes[a * slices + p], planes[b * slices + p]),
                        planes[c * slices + p]);
                }
                for (size_t d = c + 1; d < ROWS; d++) {
                    __m512i bits = _mm512_setzero_si512();
#pragma GCC unroll 8
                    for (size_t p = 0; p < slices; p++) {
                        const __m512i four = _mm512_or_si512(three[p], planes[d * slices + p]);
                        bits = _mm512_add_epi8(bits, _mm512_popcnt_epi8(four));
                    }
                    *costs++ = bits;
                }
            }
        }
    }
}

AVX512 void espl_reorder_quad_costs_avx512(const struct espl_reorder_work *work, unsigned col_areas)
{
    switch (col_areas) {
    case 1:
        avx512_quad_costs(work, 1);
        break;
    case 2:
        avx512_quad_costs(work, 2);
        break;
    default:
        avx512_quad_costs(work, 4);
        break;
    }
}

/* ways: a multiple of 5, which 35 and 165 are */
AVX512 ALWAYS_INLINE __m512i avx512_ways(const struct espl_reorder_step *steps, const size_t ways,
                                         const uint64_t *costs, const uint64_t *rests)
{
    __m512i best = _mm512_set1_epi8(-1);
#pragma GCC unroll 5
    for (size_t way = 0; way < ways; way++) {
        const __m512i sum = _mm512_add_epi8(_mm512_load_si512(costs + steps[way].group),
                                            _mm512_load_si512(rests + steps[way].rest));
        best = _mm512_min_epu8(best, sum);
    }
    return best;
}

AVX512 void espl_reorder_quad_solve_avx512(const struct espl_reorder_quad_program *program,
                                           const struct espl_reorder_work *work)
{
    const __m512i *costs = work->costs;
    __m512i *optima_8 = work->optima;
    __m512i *optima_12 = (__m512i *)work->optima_12;
    __m512i total = _mm512_set1_epi8(-1);
    for (size_t state = 0; state < ESPL_REORDER_QUADS_8; state++) {
        optima_8[state] = avx512_ways(program->steps_8 + state * ESPL_REORDER_WAYS_8,
                                      ESPL_REORDER_WAYS_8, work->costs, work->costs);
    }
    for (size_t state = 0; state < ESPL_REORDER_QUADS_12; state++) {
        optima_12[state] = avx512_ways(program->steps_12 + state * ESPL_REORDER_WAYS_12,
                                       ESPL_REORDER_WAYS_12, work->costs, work->optima);
        total = _mm512_min_epu8(total, _mm512_adds_epu8(costs[state], optima_12[state]));
    }
    _mm512_store_si512(work->totals, total);
}

/* ---- AVX2 ---- */

bool espl_reorder_avx2_supported(void)
{
    return __builtin_cpu_supports("avx2");
}

AVX2 void espl_reorder_tile_masks_avx2(const int8_t *codes, size_t stride, uint64_t *masks,
                                       size_t mask_stride)
{
    const __m256i zero = _mm256_setzero_si256();
    for (size_t r = 0; r < ROWS; r++) {
        const __m256i *row = (const __m256i *)(codes + r * stride);
        const __m256i left = _mm256_cmpeq_epi8(_mm256_loadu_si256(row), zero);
        const __m256i right = _mm256_cmpeq_epi8(_mm256_loadu_si256(row + 1), zero);
        const uint64_t low = (uint32_t)_mm256_movemask_epi8(left);
        const uint64_t high = (uint32_t)_mm256_movemask_epi8(right);
        masks[r * mask_stride] = ~(high << 32 | low);
    }
}

/* set bits of every byte, at most 8 */
AVX2 ALWAYS_INLINE __m256i avx2_count_bits(__m256i bytes)
{
    const __m256i table = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 0, 1, 1,
                                           2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i low = _mm256_and_si256(bytes, nibble);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble);
    return _mm256_add_epi8(_mm256_shuffle_epi8(table, low), _mm256_shuffle_epi8(table, high));
}

AVX2 ALWAYS_INLINE void avx2_pair_costs(const struct espl_reorder_work *work,
                                        const unsigned col_areas)
{
    const size_t slices = 4 / col_areas;
    const __m256i *planes = work->planes;
    __m256i *costs = work->costs;
    /* both bytes of a lane, times 16 */
    const __m256i sixteen = _mm256_set1_epi8(16);
    espl_reorder_slice_16(work->masks, work->planes, col_areas, PAIR_LANES);
    for (size_t a = 0; a < ROWS; a++) {
        for (size_t b = a + 1; b < ROWS; b++) {
            __m256i bits = _mm256_setzero_si256();
#pragma GCC unroll 4
            for (size_t p = 0; p < slices; p++) {
                const __m256i both =
                    _mm256_or_si256(planes[a * slices + p], planes[b * slices + p]);
                bits = _mm256_add_epi8(bits, avx2_count_bits(both));
            }
            *costs++ =
                _mm256_or_si256(_mm256_maddubs_epi16(bits, sixteen), _mm256_set1_epi16((short)b));
        }
    }
}

AVX2 void espl_reorder_pair_costs_avx2(const struct espl_reorder_work *work, unsigned col_areas)
{
    switch (col_areas) {
    case 1:
        avx2_pair_costs(work, 1);
        break;
    case 2:
        avx2_pair_costs(work, 2);
        break;
    default:
        avx2_pair_costs(work, 4);
        break;
    }
}

AVX2 ALWAYS_INLINE __m256i avx2_load(const uint64_t *words)
{
    return _mm256_load_si256((const __m256i *)words);
}

AVX2 ALWAYS_INLINE const struct espl_reorder_step *
avx2_size(const struct espl_reorder_pair_program *program, const struct espl_reorder_work *work,
          const struct espl_reorder_step *step, const size_t ways)
{
    const uint64_t *costs = work->costs;
    uint64_t *optima = work->optima;
    const __m256i clean = _mm256_set1_epi16(~15);
    const size_t half = (ways + 1) / 2;
    for (size_t state = program->size_first[half]; state < program->size_first[half + 1]; state++) {
        __m256i best = _mm256_set1_epi16(INT16_MAX);
#pragma GCC unroll 16
        for (size_t way = 0; way < ways; way++) {
            const __m256i sum = _mm256_add_epi16(avx2_load(costs + step[way].group),
                                                 avx2_load(optima + step[way].rest));
            best = _mm256_min_epi16(best, sum);
        }
        step += ways;
        _mm256_store_si256((__m256i *)(optima + state * (PAIR_LANES / 4)),
                           _mm256_and_si256(best, clean));
        const __m256i partner = _mm256_andnot_si256(clean, best);
        _mm_store_si128((__m128i *)(work->choices + state * PAIR_LANES),
                        _mm_packus_epi16(_mm256_castsi256_si128(partner),
                                         _mm256_extracti128_si256(partner, 1)));
    }
    return step;
}

AVX2 void espl_reorder_pair_solve_avx2(const struct espl_reorder_pair_program *program,
                                       const struct espl_reorder_work *work)
{
    const struct espl_reorder_step *step = avx2_size(program, work, program->steps, 1);
    step = avx2_size(program, work, step, 3);
    step = avx2_size(program, work, step, 5);
    step = avx2_size(program, work, step, 7);
    step = avx2_size(program, work, step, 9);
    step = avx2_size(program, work, step, 11);
    step = avx2_size(program, work, step, 13);
    (void)avx2_size(program, work, step, 15); /* the last one: nothing follows */
}

AVX2 ALWAYS_INLINE void avx2_quad_costs(const struct espl_reorder_work *work,
                                        const unsigned col_areas)
{
    const size_t slices = 8 / col_areas;
    const __m256i *planes = work->planes;
    __m256i *costs = work->costs;
    espl_reorder_slice_8(work->masks, work->planes, col_areas, QUAD_LANES);
    for (size_t a = 0; a < ROWS; a++) {
        for (size_t b = a + 1; b < ROWS; b++) {
            for (size_t c = b + 1; c < ROWS; c++) {
                __m256i three[8];
#pragma GCC unroll 8
                for (size_t p = 0; p < slices; p++) {
                    three[p] = _mm256_or_si256(
                        _mm256_or_si256(planes[a * slices + p], planes[b * slices + p]),
                        planes[c * slices + p]);
                }
                for (size_t d = c + 1; d < ROWS; d++) {
                    __m256i bits = _mm256_setzero_si256();
#pragma GCC unroll 8
                    for (size_t p = 0; p < slices; p++) {
                        const __m256i four = _mm256_or_si256(three[p], planes[d * slices + p]);
                        bits = _mm256_add_epi8(bits, avx2_count_bits(four));
                    }
                    *costs++ = bits;
                }
            }
        }
    }
}

AVX2 void espl_reorder_quad_costs_avx2(const struct espl_reorder_work *work, unsigned col_areas)
{
    switch (col_areas) {
    case 1:
        avx2_quad_costs(work, 1);
        break;
    case 2:
        avx2_quad_costs(work, 2);
        break;
    default:
        avx2_quad_costs(work, 4);
        break;
    }
}

AVX2 ALWAYS_INLINE __m256i avx2_ways(const struct espl_reorder_step *steps, const size_t ways,
                                     const uint64_t *costs, const uint64_t *rests)
{
    __m256i best = _mm256_set1_epi8(-1);
#pragma GCC unroll 5
    for (size_t way = 0; way < ways; way++) {
        const __m256i sum = _mm256_add_epi8(avx2_load(costs + steps[way].group),
                                            avx2_load(rests + steps[way].rest));
        best = _mm256_min_epu8(best, sum);
    }
    return best;
}

AVX2 void espl_reorder_quad_solve_avx2(const struct espl_reorder_quad_program *program,
                                       const struct espl_reorder_work *work)
{
    const __m256i *costs = work->costs;
    __m256i *optima_8 = work->optima;
    __m256i *optima_12 = (__m256i *)work->optima_12;
    __m256i total = _mm256_set1_epi8(-1);
    for (size_t state = 0; state < ESPL_REORDER_QUADS_8; state++) {
        optima_8[state] = avx2_ways(program->steps_8 + state * ESPL_REORDER_WAYS_8,
                                    ESPL_REORDER_WAYS_8, work->costs, work->costs);
    }
    for (size_t state = 0; state < ESPL_REORDER_QUADS_12; state++) {
        optima_12[state] = avx2_ways(program->steps_12 + state * ESPL_REORDER_WAYS_12,
                                     ESPL_REORDER_WAYS_12, work->costs, work->optima);
        total = _mm256_min_epu8(total, _mm256_adds_epu8(costs[state], optima_12[state]));
    }
    _mm256_store_si256((__m256i *)work->totals, total);
}
#endif

#include "kernels/cpu/quant_paths.h"

#include "core/codes.h"
#include "kernels/cpu/vectormath.h"

#include <string.h>

/* Not for AVX2: bit deposits are microcode on the first processors that have it from AMD. */
const struct espl_quant_path espl_quant_paths[] = {
#if defined(__x86_64__)
    {"avx512vnni", 64, 6, false, espl_quant_avx512_supported, espl_quant_multiply_avx512,
     espl_quant_unpack_bmi2},
    {"avxvnni", 16, 4, false, espl_quant_avxvnni_supported, espl_quant_multiply_avxvnni,
     espl_quant_unpack_bmi2},
    {"avx2", 16, 4, false, espl_quant_avx2_supported, espl_quant_multiply_avx2, espl_quant_unpack},
#elif defined(ESPL_QUANT_NEON)
    {"neondot", 16, 4, true, espl_quant_neon_supported, espl_quant_multiply_neon,
     espl_quant_unpack},
#endif
    {"scalar", 16, 4, false, espl_quant_scalar_supported, espl_quant_multiply_scalar,
     espl_quant_unpack},
    {NULL, 0, 0, false, NULL, NULL, NULL},
};

const struct espl_quant_path *espl_quant_path_best(void)
{
    const struct espl_quant_path *path = espl_quant_paths;
    while (!path->supported()) {
        path++;
    }
    return path;
}

/* Codes of 4 bits with 8 added: two's complement with the top bit turned over. */
ESPL_CPU_CLONES
static void unpack_nibbles(const uint8_t *restrict packed, size_t pairs, uint8_t *restrict codes)
{
    for (size_t i = 0; i < pairs; i++) {
        codes[2 * i] = (uint8_t)((packed[i] & 0x0Fu) ^ 8u);
        codes[2 * i + 1] = (uint8_t)((packed[i] >> 4) ^ 8u);
    }
}

void espl_quant_unpack(const uint8_t *packed, size_t cols, unsigned bits, uint8_t *codes)
{
    const size_t pairs = bits == 4 ? cols / 2 : 0;
    unpack_nibbles(packed, pairs, codes);
    espl_codes_unpack_raised(packed + pairs, cols - 2 * pairs, bits, codes + 2 * pairs);
}

bool espl_quant_scalar_supported(void)
{
    return true;
}

enum { SCALAR_COLUMNS = 16, SCALAR_BYTES = 64 };

/* One token, one group: a running sum for every byte of a quad of columns, in a form that compilers
 * turn into vectors. */
static void scalar_group(const int8_t *a, const uint8_t *w, size_t quads, int32_t start,
                         int32_t acc[SCALAR_COLUMNS])
{
    int32_t sums[SCALAR_BYTES] = {0};
    int16_t spread[SCALAR_BYTES];
    for (size_t q = 0; q < quads; q++) {
        const int16_t quad[4] = {a[q * 4], a[q * 4 + 1], a[q * 4 + 2], a[q * 4 + 3]};
        for (size_t n = 0; n < SCALAR_COLUMNS; n++) {
            memcpy(spread + 4 * n, quad, sizeof quad);
        }
        for (size_t i = 0; i < SCALAR_BYTES; i++) {
            sums[i] += spread[i] * w[q * SCALAR_BYTES + i];
        }
    }
    /* No overflow: each partial sum is the exact sum of some columns less the offset times the
     * codes of the others, at most 128 * 128 a column. */
    for (size_t n = 0; n < SCALAR_COLUMNS; n++) {
        acc[n] = start + sums[4 * n] + sums[4 * n + 1] + sums[4 * n + 2] + sums[4 * n + 3];
    }
}

void espl_quant_multiply_scalar(const struct espl_quant_tile *tile)
{
    int32_t acc[SCALAR_COLUMNS];
    for (size_t t = 0; t < tile->tokens; t++) {
        float *sums = tile->sums + t * SCALAR_COLUMNS;
        for (size_t g = 0; g < tile->groups; g++) {
            const float *w_scales = tile->w_scales + g * SCALAR_COLUMNS;
            const float a_scale = tile->a_scales[t * tile->scale_stride + g];
            scalar_group(tile->a + t * tile->a_stride + g * tile->quads * 4,
                         tile->w + g * tile->quads * SCALAR_BYTES, tile->quads,
                         tile->starts[t * tile->start_stride + g], acc);
            for (size_t n = 0; n < SCALAR_COLUMNS; n++) {
                sums[n] += (float)acc[n] * (w_scales[n] * a_scale);
            }
        }
    }
}

/* gemm_w4a4 tiles for x86-64: VNNI with 512 and with 256 bits, and AVX2. */
#include "kernels/cpu/quant_paths.h"

#include "core/codes.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define AVX512        __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define AVXVNNI       __attribute__((target("avx2,avxvnni")))
#define AVX2          __attribute__((target("avx2")))

/* Eight codes a step, as long as eight bytes can be read. */
__attribute__((target("bmi2"))) static size_t unpack_words(const uint8_t *packed, size_t words,
                                                           unsigned bits, uint8_t *codes)
{
    enum { CODES = 8 };
    const uint64_t every_byte = UINT64_C(0x0101010101010101);
    const uint64_t fields = ((UINT64_C(1) << bits) - 1) * every_byte;
    const uint64_t signs = every_byte << (bits - 1u);
    const size_t bytes = words * bits;
    size_t done = 0;
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += bits, done += CODES) {
        uint64_t word;
        memcpy(&word, packed + at, sizeof word);
        word = _pdep_u64(word, fields) ^ signs;
        memcpy(codes + done, &word, sizeof word);
    }
    return done;
}

void espl_quant_unpack_bmi2(const uint8_t *packed, size_t cols, unsigned bits, uint8_t *codes)
{
    if (bits == 4) {
        espl_quant_unpack(packed, cols, bits, codes);
        return;
    }
    const size_t done = unpack_words(packed, cols / 8, bits, codes);
    espl_codes_unpack_raised(packed + done / 8 * bits, cols - done, bits, codes + done);
}

static int load_quad(const int8_t *a)
{
    int quad;
    memcpy(&quad, a, sizeof quad);
    return quad;
}

/* ---- AVX-512 VNNI: up to 6 tokens by 64 columns, 24 accumulators ---- */

enum { WIDE_COLUMNS = 64, WIDE_ROWS = 6 };

bool espl_quant_avx512_supported(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("bmi2");
}

/* One token's sums, or one quad of all columns. Structs of registers: arrays of them end up on the
 * stack with some compilers. */
struct wide {
    __m512i v0, v1, v2, v3;
};

AVX512 ALWAYS_INLINE struct wide wide_start(int32_t value)
{
    const __m512i v = _mm512_set1_epi32(value);
    const struct wide start = {v, v, v, v};
    return start;
}

AVX512 ALWAYS_INLINE struct wide wide_load(const uint8_t *w)
{
    const struct wide columns = {_mm512_loadu_si512(w), _mm512_loadu_si512(w + 64),
                                 _mm512_loadu_si512(w + 128), _mm512_loadu_si512(w + 192)};
    return columns;
}

/* sum += dot products of the quads of columns and the quad of a token. The instruction by name:
 * from the intrinsic GCC 12 makes two register copies and a store for each. */
AVX512 ALWAYS_INLINE __m512i wide_dot(__m512i sum, __m512i columns, __m512i quad)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(columns), "v"(quad));
    return sum;
}

AVX512 ALWAYS_INLINE void wide_step(struct wide *sum, struct wide columns, const int8_t *a)
{
    const __m512i quad = _mm512_set1_epi32(load_quad(a));
    sum->v0 = wide_dot(sum->v0, columns.v0, quad);
    sum->v1 = wide_dot(sum->v1, columns.v1, quad);
    sum->v2 = wide_dot(sum->v2, columns.v2, quad);
    sum->v3 = wide_dot(sum->v3, columns.v3, quad);
}

AVX512 ALWAYS_INLINE void wide_add(__m512i sum, const float *w_scales, __m512 a_scale, float *sums)
{
    const __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(w_scales), a_scale);
    const __m512 term = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale);
    _mm512_storeu_ps(sums, _mm512_add_ps(_mm512_loadu_ps(sums), term));
}

/* Row t of the tile, group g: adds to the float sums. */
AVX512 ALWAYS_INLINE void wide_finish(const struct espl_quant_tile *tile, size_t t, size_t g,
                                      struct wide sum)
{
    const __m512 a_scale = _mm512_set1_ps(tile->a_scales[t * tile->scale_stride + g]);
    const float *w_scales = tile->w_scales + g * WIDE_COLUMNS;
    float *sums = tile->sums + t * WIDE_COLUMNS;
    wide_add(sum.v0, w_scales, a_scale, sums);
    wide_add(sum.v1, w_scales + 16, a_scale, sums + 16);
    wide_add(sum.v2, w_scales + 32, a_scale, sums + 32);
    wide_add(sum.v3, w_scales + 48, a_scale, sums + 48);
}

AVX512 static void wide_one_token(const struct espl_quant_tile *tile, size_t t)
{
    for (size_t g = 0; g < tile->groups; g++) {
        const int8_t *a = tile->a + t * tile->a_stride + g * tile->quads * 4;
        const uint8_t *w = tile->w + g * tile->quads * WIDE_COLUMNS * 4;
        struct wide sum = wide_start(tile->starts[t * tile->start_stride + g]);
        for (size_t q = 0; q < tile->quads; q++) {
            wide_step(&sum, wide_load(w + q * WIDE_COLUMNS * 4), a + q * 4);
        }
        wide_finish(tile, t, g, sum);
    }
}

AVX512 static void wide_six_tokens(const struct espl_quant_tile *tile)
{
    const size_t stride = tile->a_stride;
    for (size_t g = 0; g < tile->groups; g++) {
        const int8_t *a = tile->a + g * tile->quads * 4;
        const uint8_t *w = tile->w + g * tile->quads * WIDE_COLUMNS * 4;
        const int32_t *starts = tile->starts + g;
        struct wide sum0 = wide_start(starts[0]);
        struct wide sum1 = wide_start(starts[tile->start_stride]);
        struct wide sum2 = wide_start(starts[2 * tile->start_stride]);
        struct wide sum3 = wide_start(starts[3 * tile->start_stride]);
        struct wide sum4 = wide_start(starts[4 * tile->start_stride]);
        struct wide sum5 = wide_start(starts[5 * tile->start_stride]);
        for (size_t q = 0; q < tile->quads; q++) {
            const struct wide columns = wide_load(w + q * WIDE_COLUMNS * 4);
            wide_step(&sum0, columns, a);
            wide_step(&sum1, columns, a + stride);
            wide_step(&sum2, columns, a + 2 * stride);
            wide_step(&sum3, columns, a + 3 * stride);
            wide_step(&sum4, columns, a + 4 * stride);
            wide_step(&sum5, columns, a + 5 * stride);
            a += 4;
        }
        wide_finish(tile, 0, g, sum0);
        wide_finish(tile, 1, g, sum1);
        wide_finish(tile, 2, g, sum2);
        wide_finish(tile, 3, g, sum3);
        wide_finish(tile, 4, g, sum4);
        wide_finish(tile, 5, g, sum5);
    }
}

AVX512 void espl_quant_multiply_avx512(const struct espl_quant_tile *tile)
{
    if (tile->tokens == WIDE_ROWS) {
        wide_six_tokens(tile);
        return;
    }
    for (size_t t = 0; t < tile->tokens; t++) {
        wide_one_token(tile, t);
    }
}

/* ---- 256 bits: up to 4 tokens by 16 columns ---- */

enum { VECTORS = 2, COLUMNS = 16, HALF_ROWS = 4 };

bool espl_quant_avxvnni_supported(void)
{
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    /* Leaf 7.1 needs no operating system support beyond that of AVX2. */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
           __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 4)) != 0;
}

bool espl_quant_avx2_supported(void)
{
    return __builtin_cpu_supports("avx2");
}

/* sums += float(acc) * (w_scale * a_scale) for 8 columns */
AVX2 ALWAYS_INLINE void add_scaled(__m256i acc, const float *w_scales, float a_scale, float *sums)
{
    const __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(w_scales), _mm256_set1_ps(a_scale));
    const __m256 term = _mm256_mul_ps(_mm256_cvtepi32_ps(acc), scale);
    _mm256_storeu_ps(sums, _mm256_add_ps(_mm256_loadu_ps(sums), term));
}

/* One token's sums, or one quad of all columns. */
struct half {
    __m256i left, right;
};

AVX2 ALWAYS_INLINE struct half half_start(int32_t value)
{
    const __m256i v = _mm256_set1_epi32(value);
    const struct half start = {v, v};
    return start;
}

AVX2 ALWAYS_INLINE struct half half_load(const uint8_t *w)
{
    const struct half columns = {_mm256_loadu_si256((const __m256i *)(const void *)w),
                                 _mm256_loadu_si256((const __m256i *)(const void *)(w + 32))};
    return columns;
}

AVX2 ALWAYS_INLINE void half_finish(const struct espl_quant_tile *tile, size_t t, size_t g,
                                    struct half sum)
{
    const float a_scale = tile->a_scales[t * tile->scale_stride + g];
    const float *w_scales = tile->w_scales + g * COLUMNS;
    float *sums = tile->sums + t * COLUMNS;
    add_scaled(sum.left, w_scales, a_scale, sums);
    add_scaled(sum.right, w_scales + 8, a_scale, sums + 8);
}

AVX2 ALWAYS_INLINE void vnni_step(struct half *sum, struct half columns, __m256i quad)
{
    /* By name for the same reason as above. */
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum->left) : "x"(columns.left), "x"(quad));
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum->right) : "x"(columns.right), "x"(quad));
}

/* Two products must fit int16 (vpmaddubsw saturates): all but 8-bit by 8-bit codes do. */
AVX2 ALWAYS_INLINE void narrow_step(struct half *sum, struct half columns, __m256i quad)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i left = _mm256_madd_epi16(_mm256_maddubs_epi16(columns.left, quad), ones);
    const __m256i right = _mm256_madd_epi16(_mm256_maddubs_epi16(columns.right, quad), ones);
    sum->left = _mm256_add_epi32(sum->left, left);
    sum->right = _mm256_add_epi32(sum->right, right);
}

AVX2 ALWAYS_INLINE void half_step(bool vnni, struct half *sum, struct half columns, const int8_t *a)
{
    const __m256i quad = _mm256_set1_epi32(load_quad(a));
    if (vnni) {
        vnni_step(sum, columns, quad);
    } else {
        narrow_step(sum, columns, quad);
    }
}

/* Both 256-bit paths: `vnni` is a constant where this is inlined. */
AVX2 ALWAYS_INLINE void half_four_tokens(bool vnni, const struct espl_quant_tile *tile)
{
    const size_t stride = tile->a_stride;
    for (size_t g = 0; g < tile->groups; g++) {
        const int8_t *a = tile->a + g * tile->quads * 4;
        const uint8_t *w = tile->w + g * tile->quads * COLUMNS * 4;
        const int32_t *starts = tile->starts + g;
        struct half sum0 = half_start(starts[0]);
        struct half sum1 = half_start(starts[tile->start_stride]);
        struct half sum2 = half_start(starts[2 * tile->start_stride]);
        struct half sum3 = half_start(starts[3 * tile->start_stride]);
        for (size_t q = 0; q < tile->quads; q++) {
            const struct half columns = half_load(w + q * COLUMNS * 4);
            half_step(vnni, &sum0, columns, a);
            half_step(vnni, &sum1, columns, a + stride);
            half_step(vnni, &sum2, columns, a + 2 * stride);
            half_step(vnni, &sum3, columns, a + 3 * stride);
            a += 4;
        }
        half_finish(tile, 0, g, sum0);
        half_finish(tile, 1, g, sum1);
        half_finish(tile, 2, g, sum2);
        half_finish(tile, 3, g, sum3);
    }
}

AVX2 ALWAYS_INLINE void half_one_token(bool vnni, const struct espl_quant_tile *tile, size_t t)
{
    for (size_t g = 0; g < tile->groups; g++) {
        const int8_t *a = tile->a + t * tile->a_stride + g * tile->quads * 4;
        const uint8_t *w = tile->w + g * tile->quads * COLUMNS * 4;
        struct half sum = half_start(tile->starts[t * tile->start_stride + g]);
        for (size_t q = 0; q < tile->quads; q++) {
            half_step(vnni, &sum, half_load(w + q * COLUMNS * 4), a + q * 4);
        }
        half_finish(tile, t, g, sum);
    }
}

AVX2 ALWAYS_INLINE void half_tile(bool vnni, const struct espl_quant_tile *tile)
{
    if (tile->tokens == HALF_ROWS) {
        half_four_tokens(vnni, tile);
        return;
    }
    for (size_t t = 0; t < tile->tokens; t++) {
        half_one_token(vnni, tile, t);
    }
}

AVX2 void espl_quant_multiply_avxvnni(const struct espl_quant_tile *tile)
{
    half_tile(true, tile);
}

/* 8 columns of one quad as two vectors of two columns a lane, each column as two int32 sums. */
AVX2 ALWAYS_INLINE void add_wide(__m256i acc[2], const uint8_t *w, __m256i quad)
{
    for (size_t half = 0; half < 2; half++) {
        const __m256i columns =
            _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(w + half * 16)));
        acc[half] = _mm256_add_epi32(acc[half], _mm256_madd_epi16(columns, quad));
    }
}

/* Any codes: 16-bit products, one token at a time. */
AVX2 static void avx2_wide_token(const struct espl_quant_tile *tile, size_t t)
{
    const int32_t *starts = tile->starts + t * tile->start_stride;
    for (size_t g = 0; g < tile->groups; g++) {
        const int8_t *a = tile->a + t * tile->a_stride + g * tile->quads * 4;
        const uint8_t *w = tile->w + g * tile->quads * COLUMNS * 4;
        __m256i acc[VECTORS][2] = {{_mm256_setzero_si256(), _mm256_setzero_si256()},
                                   {_mm256_setzero_si256(), _mm256_setzero_si256()}};
        for (size_t q = 0; q < tile->quads; q++) {
            const __m256i quad = _mm256_cvtepi8_epi16(_mm_set1_epi32(load_quad(a + q * 4)));
            add_wide(acc[0], w + q * 64, quad);
            add_wide(acc[1], w + q * 64 + 32, quad);
        }
        for (size_t v = 0; v < VECTORS; v++) {
            /* hadd joins the two sums of a column and leaves columns 0 1 4 5 2 3 6 7. */
            const __m256i mixed = _mm256_hadd_epi32(acc[v][0], acc[v][1]);
            const __m256i sums = _mm256_permute4x64_epi64(mixed, 0xD8);
            add_scaled(_mm256_add_epi32(sums, _mm256_set1_epi32(starts[g])),
                       tile->w_scales + g * COLUMNS + v * 8,
                       tile->a_scales[t * tile->scale_stride + g],
                       tile->sums + t * COLUMNS + v * 8);
        }
    }
}

AVX2 void espl_quant_multiply_avx2(const struct espl_quant_tile *tile)
{
    for (size_t t = 0; tile->wide && t < tile->tokens; t++) {
        avx2_wide_token(tile, t);
    }
    if (!tile->wide) {
        half_tile(false, tile);
    }
}

#endif

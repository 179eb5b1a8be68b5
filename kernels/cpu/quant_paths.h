/* The instruction sets that gemm_w4a4 has code for. All give the same bits: inside a group the sum
 * is exact modulo 2^32 and fits int32, and the float operations after it have a fixed order.
 *
 * The dot products multiply bytes without sign by bytes with sign, because that is what the
 * instructions of x86 do. So weight codes are stored with an offset added (2^(bits-1), which makes
 * them 0..2^bits-1), and every sum starts at -offset * (sum of the token's codes in the group).
 * Paths with signed * signed instructions use offset 0. */
#ifndef ESPL_KERNELS_QUANT_PATHS_H
#define ESPL_KERNELS_QUANT_PATHS_H

#include "espalier/kernels.h"

/* Clang before 16 declares the dot products only when the whole file is compiled for them. */
#if defined(__aarch64__) && \
    (defined(__ARM_FEATURE_DOTPROD) || !defined(__clang__) || __clang_major__ >= 16)
#define ESPL_QUANT_NEON 1
#endif

/** Some tokens times one panel of output columns, over all groups. A quad is four input columns;
 *  groups are padded with zero codes of the activations to whole quads. */
struct espl_quant_tile {
    size_t tokens; /* 1..rows of the path */
    size_t groups;
    size_t quads;          /* of a group */
    const int8_t *a;       /* (tokens; a_stride), groups * quads * 4 codes used */
    size_t a_stride;       /* bytes */
    const int32_t *starts; /* (tokens; start_stride): what the sum of a group starts at */
    size_t start_stride;
    const float *a_scales; /* (tokens; scale_stride), groups used */
    size_t scale_stride;
    const uint8_t *w;      /* (groups, quads, columns of the path, 4) */
    const float *w_scales; /* (groups, columns of the path) */
    bool wide;             /* products of 8-bit by 8-bit codes: two of them do not fit int16 */
    float *sums;           /* (tokens, columns of the path): added to */
};

struct espl_quant_path {
    const char *name;
    size_t columns;      /* of a panel; a multiple of 16 */
    size_t rows;         /* most tokens of a tile */
    bool signed_weights; /* offset 0 */
    bool (*supported)(void);
    void (*multiply)(const struct espl_quant_tile *tile);
    /* As espl_codes_unpack_raised(). */
    void (*unpack)(const uint8_t *packed, size_t cols, unsigned bits, uint8_t *codes);
};

/** What this build has code for, best first; ends with .name == NULL. The last one, "scalar", runs
 *  everywhere. */
extern const struct espl_quant_path espl_quant_paths[];
/** The first path that this CPU supports. */
const struct espl_quant_path *espl_quant_path_best(void);

/** gemm_w4a4 of the cpu backend on a path of choice. */
enum espl_status
espl_cpu_gemm_w4a4_on(const struct espl_quant_path *path, struct espl_backend *backend,
                      const struct espl_quant_shape *shape, const struct espl_quant_activations *a,
                      const struct espl_quant_weights *w, float *y, struct espl_error *err);

/** spmm_iebme likewise. */
enum espl_status
espl_cpu_spmm_iebme_on(const struct espl_quant_path *path, struct espl_backend *backend,
                       const struct espl_quant_shape *shape, const struct espl_quant_activations *a,
                       const struct espl_iebme_weights *w, float *y, struct espl_error *err);

/** espl_codes_unpack_raised() with a loop of its own for 4 bits that compilers turn into vectors.
 */
void espl_quant_unpack(const uint8_t *packed, size_t cols, unsigned bits, uint8_t *codes);

bool espl_quant_scalar_supported(void);
void espl_quant_multiply_scalar(const struct espl_quant_tile *tile);
#if defined(__x86_64__)
/** The same with the bit deposit of BMI2 for the other widths. */
void espl_quant_unpack_bmi2(const uint8_t *packed, size_t cols, unsigned bits, uint8_t *codes);
bool espl_quant_avx512_supported(void);
void espl_quant_multiply_avx512(const struct espl_quant_tile *tile);
bool espl_quant_avxvnni_supported(void);
void espl_quant_multiply_avxvnni(const struct espl_quant_tile *tile);
bool espl_quant_avx2_supported(void);
void espl_quant_multiply_avx2(const struct espl_quant_tile *tile);
#elif defined(ESPL_QUANT_NEON)
bool espl_quant_neon_supported(void);
void espl_quant_multiply_neon(const struct espl_quant_tile *tile);
#endif

#endif

/* The fast row reorder: transition programs that are the same for every tile, run on many tiles at
 * once, one per SIMD lane. Paths differ in instruction set and lane count, never in results. */
#ifndef ESPL_KERNELS_CPU_REORDER_H
#define ESPL_KERNELS_CPU_REORDER_H

#include "espalier/row_reorder.h"

#include <stdbool.h>

enum {
    ESPL_REORDER_ROWS = ESPL_IEBME_TILE_ROWS,
    ESPL_REORDER_PAIRS = 120,    /* of 16 rows */
    ESPL_REORDER_QUADS = 1820,   /* groups of 4 of 16 rows */
    ESPL_REORDER_QUADS_12 = 455, /* of them with row 0 in; also states with 12 rows left */
    ESPL_REORDER_QUADS_8 = 3003, /* states with 8 rows left */
    ESPL_REORDER_WAYS_12 = 165,  /* groups with the smallest of 12 rows in */
    ESPL_REORDER_WAYS_8 = 35,
    ESPL_REORDER_PAIR_SIZES = 9 /* 0, 2, ... 16 rows left */
};

/** One transition: the cost of a group plus the optimum of what is left. Both are places in tables
 *  with one entry per group or state and one value per lane, in units of 8 bytes. */
struct espl_reorder_step {
    uint16_t group;
    uint16_t rest;
};

/** R_A = 2. States are the row sets that taking the smallest row first can leave; ascending size,
 *  so what a state needs stands before it. State 0 is the empty set. */
struct espl_reorder_pair_program {
    size_t unit; /* 8-byte units of an entry */
    size_t states;
    size_t transitions;
    size_t size_first[ESPL_REORDER_PAIR_SIZES + 1]; /* by rows left / 2: first state */
    struct espl_reorder_step *steps;                /* (transitions): by state, then by partner */
    uint16_t *next;                                 /* (states, 16): state after taking a partner */
};

/** R_A = 4. Groups are numbered lexicographically; the first 455 hold row 0, and what one of them
 *  leaves is the 12-row state with its number. */
struct espl_reorder_quad_program {
    size_t unit;
    uint16_t *sets;                     /* (1820) rows of each group */
    struct espl_reorder_step *steps_12; /* (455, 165): rest is an 8-row state */
    struct espl_reorder_step *steps_8;  /* (3003, 35): rest is a group */
};

/** Errors: NOMEM. The programs are freed by the _free functions, which accept zeroed ones. */
enum espl_status espl_reorder_pair_program_build(size_t unit,
                                                 struct espl_reorder_pair_program *program,
                                                 struct espl_error *err);
void espl_reorder_pair_program_free(struct espl_reorder_pair_program *program);
enum espl_status espl_reorder_quad_program_build(size_t unit,
                                                 struct espl_reorder_quad_program *program,
                                                 struct espl_error *err);
void espl_reorder_quad_program_free(struct espl_reorder_quad_program *program);

/** Number of the pair (a, b), a < b: by a, then by b. */
static inline size_t espl_reorder_pair_number(size_t a, size_t b)
{
    return a * (2 * ESPL_REORDER_ROWS - 1 - a) / 2 + b - a - 1;
}

/** Tables of one thread, aligned to 64 bytes. `lanes` is the path's.
 *
 *  Pairs, uint16: a cost is (mask bits << 4 | larger row). The smallest sum of a cost and a rest
 *  (whose low bits are 0) then names the optimum and the smallest partner that gives it: the
 *  canonical choice. At most 8 * 64 bits: 13 bits and the sign bit stay free.
 *  Quads, uint8: mask bits; at most 64, 128 and 192 for groups, 8-row and 12-row states. */
struct espl_reorder_work {
    int8_t *tile;       /* (16, 64): copy of a tile at an edge */
    uint64_t *masks;    /* (16, lanes) */
    void *planes;       /* (16, folded columns / lane width, lanes): slices of the folded masks */
    void *costs;        /* (120 or 1820, lanes) */
    void *optima;       /* pairs: (states, lanes), entry 0 zeroed; quads: (3003, lanes) */
    uint8_t *choices;   /* pairs: (states, lanes), the partner in the low 4 bits */
    uint8_t *optima_12; /* quads: (455, lanes) */
    uint8_t *totals;    /* quads: (lanes), 255 may mean 256 */
    uint64_t *sums;     /* stripe: costs summed over its tiles, (120 or 1820) */
    uint64_t *wide;     /* stripe: optima, (states) or (3003 + 455) */
    uint8_t *wide_choices;
};

struct espl_reorder_path {
    const char *name;
    size_t pair_lanes; /* tiles at once; a multiple of 4 */
    size_t quad_lanes; /* a multiple of 8 */
    bool (*supported)(void);
    /* Row masks of a whole tile to masks[row * mask_stride]. stride: codes from row to row. */
    void (*tile_masks)(const int8_t *codes, size_t stride, uint64_t *masks, size_t mask_stride);
    /* work->masks -> work->costs */
    void (*pair_costs)(const struct espl_reorder_work *work, unsigned col_areas);
    void (*quad_costs)(const struct espl_reorder_work *work, unsigned col_areas);
    /* work->costs -> optima, choices; optima, optima_12, totals */
    void (*pair_solve)(const struct espl_reorder_pair_program *program,
                       const struct espl_reorder_work *work);
    void (*quad_solve)(const struct espl_reorder_quad_program *program,
                       const struct espl_reorder_work *work);
};

/** What this build has code for, best first; ends with .name == NULL. The last one, "scalar", runs
 *  everywhere. */
extern const struct espl_reorder_path espl_reorder_paths[];

/** The solution of one lane as a permutation word. */
uint64_t espl_reorder_pair_recover(const struct espl_reorder_pair_program *program,
                                   const struct espl_reorder_work *work, size_t lanes, size_t lane,
                                   uint64_t *active);
uint64_t espl_reorder_quad_recover(const struct espl_reorder_quad_program *program,
                                   const struct espl_reorder_work *work, size_t lanes, size_t lane,
                                   uint64_t *active);
/** The solution for work->sums, with programs of unit 1. */
uint64_t espl_reorder_pair_solve_wide(const struct espl_reorder_pair_program *program,
                                      const struct espl_reorder_work *work, uint64_t *active);
uint64_t espl_reorder_quad_solve_wide(const struct espl_reorder_quad_program *program,
                                      const struct espl_reorder_work *work, uint64_t *active);

/** Seconds that the parts of espl_reorder_codes() and _masks() took, by the wall clock. */
struct espl_reorder_split {
    double masks;
    double costs;
    double solve;
    double recover;
};
/** Adds to *split (borrowed; NULL = no longer) in later calls; only with one thread. */
void espl_reorder_set_split(struct espl_reorder *reorder, struct espl_reorder_split *split);

/** slice p of folded masks: planes[(row * slices + p) * lanes + lane], 16 or 8 bits wide. Inlined
 *  into each path's own functions, so that it is compiled for their instruction set. */
static inline __attribute__((always_inline)) uint64_t espl_reorder_fold(uint64_t mask,
                                                                        unsigned col_areas)
{
    const uint64_t half = col_areas == 1 ? mask : mask | mask >> 32;
    return col_areas == 4 ? half | half >> 16 : half;
}

static inline __attribute__((always_inline)) void
espl_reorder_slice_16(const uint64_t *masks, uint16_t *planes, unsigned col_areas, size_t lanes)
{
    const size_t slices = 4 / col_areas;
    for (size_t r = 0; r < ESPL_REORDER_ROWS; r++) {
        for (size_t p = 0; p < slices; p++) {
            for (size_t l = 0; l < lanes; l++) {
                planes[(r * slices + p) * lanes + l] =
                    (uint16_t)(espl_reorder_fold(masks[r * lanes + l], col_areas) >> (16 * p));
            }
        }
    }
}

static inline __attribute__((always_inline)) void
espl_reorder_slice_8(const uint64_t *masks, uint8_t *planes, unsigned col_areas, size_t lanes)
{
    const size_t slices = 8 / col_areas;
    for (size_t r = 0; r < ESPL_REORDER_ROWS; r++) {
        for (size_t p = 0; p < slices; p++) {
            for (size_t l = 0; l < lanes; l++) {
                planes[(r * slices + p) * lanes + l] =
                    (uint8_t)(espl_reorder_fold(masks[r * lanes + l], col_areas) >> (8 * p));
            }
        }
    }
}

bool espl_reorder_scalar_supported(void);
void espl_reorder_tile_masks_scalar(const int8_t *codes, size_t stride, uint64_t *masks,
                                    size_t mask_stride);
void espl_reorder_pair_costs_scalar(const struct espl_reorder_work *work, unsigned col_areas);
void espl_reorder_quad_costs_scalar(const struct espl_reorder_work *work, unsigned col_areas);
void espl_reorder_pair_solve_scalar(const struct espl_reorder_pair_program *program,
                                    const struct espl_reorder_work *work);
void espl_reorder_quad_solve_scalar(const struct espl_reorder_quad_program *program,
                                    const struct espl_reorder_work *work);
#if defined(__x86_64__)
bool espl_reorder_avx2_supported(void);
void espl_reorder_tile_masks_avx2(const int8_t *codes, size_t stride, uint64_t *masks,
                                  size_t mask_stride);
void espl_reorder_pair_costs_avx2(const struct espl_reorder_work *work, unsigned col_areas);
void espl_reorder_quad_costs_avx2(const struct espl_reorder_work *work, unsigned col_areas);
void espl_reorder_pair_solve_avx2(const struct espl_reorder_pair_program *program,
                                  const struct espl_reorder_work *work);
void espl_reorder_quad_solve_avx2(const struct espl_reorder_quad_program *program,
                                  const struct espl_reorder_work *work);
bool espl_reorder_avx512_supported(void);
void espl_reorder_tile_masks_avx512(const int8_t *codes, size_t stride, uint64_t *masks,
                                    size_t mask_stride);
void espl_reorder_pair_costs_avx512(const struct espl_reorder_work *work, unsigned col_areas);
void espl_reorder_quad_costs_avx512(const struct espl_reorder_work *work, unsigned col_areas);
void espl_reorder_pair_solve_avx512(const struct espl_reorder_pair_program *program,
                                    const struct espl_reorder_work *work);
void espl_reorder_quad_solve_avx512(const struct espl_reorder_quad_program *program,
                                    const struct espl_reorder_work *work);
#elif defined(__aarch64__)
void espl_reorder_tile_masks_neon(const int8_t *codes, size_t stride, uint64_t *masks,
                                  size_t mask_stride);
void espl_reorder_pair_costs_neon(const struct espl_reorder_work *work, unsigned col_areas);
void espl_reorder_quad_costs_neon(const struct espl_reorder_work *work, unsigned col_areas);
void espl_reorder_pair_solve_neon(const struct espl_reorder_pair_program *program,
                                  const struct espl_reorder_work *work);
void espl_reorder_quad_solve_neon(const struct espl_reorder_quad_program *program,
                                  const struct espl_reorder_work *work);
#endif

#endif

/* Where everything of a packed N:M matrix lies. */
#ifndef ESPL_NM_INTERNAL_H
#define ESPL_NM_INTERNAL_H

#include "espalier/nm_pack.h"

#include <stdbool.h>

/* Names as in the format's text: a block of 128 columns is two halves of 64; lane t of a quad owns
 * 16 columns of each half, and so 32 / M windows, whose stored values form its stream. */
enum {
    ESPL_NM_SHARED_COUNT = 5, /* possible V */
    ESPL_NM_HALF = ESPL_NM_BLOCK / 2,
    ESPL_NM_QUAD = 4,
    ESPL_NM_LANE_COLS = 16, /* of a half */
    ESPL_NM_MASK_COLS = 8,  /* of a byte of a mask */
    ESPL_NM_LANE_MASKS = 2 * ESPL_NM_LANE_COLS / ESPL_NM_MASK_COLS,
    ESPL_NM_WORD = 4 /* bytes */
};

/** Possible V, the largest first. */
extern const unsigned espl_nm_shared_rows[ESPL_NM_SHARED_COUNT];

/* Where a window's values lie: block, lane of the quad and number among the lane's windows. */
struct espl_nm_place {
    size_t block;
    size_t lane;
    size_t index;
};

static inline bool espl_nm_is_dense(const struct espl_nm_layout *layout)
{
    return layout->n == layout->m;
}

static inline bool espl_nm_has_selectors(const struct espl_nm_layout *layout)
{
    return layout->v >= ESPL_NM_SHARED;
}

static inline size_t espl_nm_windows(const struct espl_nm_layout *layout,
                                     const struct espl_nm_sizes *sizes)
{
    return sizes->blocks * (ESPL_NM_BLOCK / layout->m);
}

enum espl_status espl_nm_check_layout(const struct espl_nm_layout *layout, struct espl_error *err);
struct espl_nm_place espl_nm_place_of(unsigned m, size_t window);
/** Byte of `values` that holds byte `at` of a row's stream in a block. */
size_t espl_nm_stream_at(const struct espl_nm_sizes *sizes, size_t row, size_t block, size_t lane,
                         size_t at);
/** Byte of `patterns` with byte number `byte` of a window's mask. */
size_t espl_nm_mask_at(const struct espl_nm_layout *layout, const struct espl_nm_sizes *sizes,
                       size_t group, const struct espl_nm_place *place, size_t byte);
/** Selector of byte `at` of a lane's stream: byte of `patterns`, and its shift in that. */
size_t espl_nm_selector_at(const struct espl_nm_sizes *sizes, size_t group,
                           const struct espl_nm_place *place, size_t at, unsigned *shift);
/** Selectors count from the window of 8 (M = 16: of 16) that holds the window; its place there. */
unsigned espl_nm_selector_base(unsigned m, const struct espl_nm_place *place);
/** *kept as espl_nm_kept(); false when the window does not have N ascending places. */
bool espl_nm_read_kept(const struct espl_nm_matrix *matrix, const struct espl_nm_sizes *sizes,
                       size_t group, size_t window, unsigned *kept);
/** One past the last row of a group that has room in `values`. */
size_t espl_nm_group_end(const struct espl_nm_layout *layout, const struct espl_nm_sizes *sizes,
                         size_t group);

#endif

/* The choices that a sweep tries: every sensible way to cut a product on a CUDA device. */
#ifndef ESPL_BENCH_SPMM_CHOICES_H
#define ESPL_BENCH_SPMM_CHOICES_H

#include "espalier/cuda_spmm.h"

/** What a cut depends on. */
struct espl_spmm_cut {
    size_t rows;
    size_t cols;
    bool dense; /* units of 256 columns and whole warps; sparse: slices of 512 in rings of stages */
    unsigned multiprocessors;
};

enum { ESPL_SPMM_MAX_CHOICES = 8192 };

/** Fills choices (room) and returns how many there are (those beyond room are counted, not
 *  written). Every combination of
 *  - splits of the columns, 1 to 8;
 *  - parts of the rows: as many as fill the multiprocessors once; the fewest with which the busiest
 *    block has the least possible number of stripes, one more, or two more; the fewest that do so
 * in two waves of blocks;
 *  - dense: 16 or 20 warps;
 *  - sparse: windows of 1 to 16 slices, as many whole windows of warps as fit in 16 and one window
 *    fewer, 2 to 4 stages.
 *  The kernels refuse some (shared memory, 20 warps for more than 8 tokens). */
size_t espl_spmm_choices(const struct espl_spmm_cut *cut, struct espl_cuda_spmm_choice *choices,
                         size_t room);

#endif

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
 *    block has the least possible number of stripes, one more, two more, twice or four times as
 *    many; the fewest for the least in two waves of blocks;
 *  - dense: 12, 16 or 20 warps;
 *  - sparse: windows of 1 to 16 slices; of rows of windows the fewest with which the busiest block
 *    takes the least number of rounds, one more, or two more; 2 to 4 stages.
 *  The kernels refuse some (shared memory; of the numbers of dense warps they have one or two). */
size_t espl_spmm_choices(const struct espl_spmm_cut *cut, struct espl_cuda_spmm_choice *choices,
                         size_t room);

#endif

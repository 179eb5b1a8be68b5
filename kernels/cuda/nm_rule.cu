/* Which choices there are for an N:M product, and the rule that takes one. How far the rule is from
 * the best of all is measured in docs/kernels/md-spmm.md. */
#include "kernels/cuda/nm_stay.cuh"
#include "kernels/cuda/nm_wide.cuh"
#include "kernels/formats/nm_wide.h"

namespace
{

enum { SHARED_BYTES = 48 * 1024, UNIT_BYTES = NM_WARP * 16, TILE_SHAPES = 5, MOST_SPLITS = 8 };

/* Tokens and rows in units of 16. */
const unsigned char tile_shapes[TILE_SHAPES][2] = {{1, 1}, {1, 2}, {1, 4}, {2, 2}, {2, 4}};

/* The rule: of up to five ranges of the number of 16 x 16 outputs, each with the choice that loses
 * least to the best of all. Measured on an H200 over sizes of which none is in the paper's grid:
 * rows 192, 384 and 768, columns 128 to 1024, tokens 80 to 1576 (and a few layers of DeiT). What
 * the table says in words: one block of 128 columns a warp, up to 8; the smallest tile as long as
 * there are fewer blocks of warps than multiprocessors; then wider tiles; then fewer splits. */
enum { KEPT_CLASSES = 4, DEPTH_CLASSES = 5, RANGES = 5, FITTED_MULTIPROCESSORS = 132 };
enum { WIDE_OUTPUTS = 10000 }; /* from so many units of 16 x 16 on the kernel of large products */
constexpr unsigned LAST = 0xFFFFFFFFu;

struct range {
    unsigned most; /* outputs in units of 16 x 16 */
    struct espl_cuda_nm_choice choice;
};

/* By N, and by blocks of columns: 1, 2, 3 to 4, 5 to 8, more. */
const struct range ranges[KEPT_CLASSES][DEPTH_CLASSES][RANGES] = {
    {
        /* N = 1 */
        {{193, {16, 16, 1, 2}},
         {386, {16, 16, 1, 4}},
         {773, {16, 32, 1, 2}},
         {3360, {16, 64, 1, 2}},
         {LAST, {16, 32, 1, 2}}},
        {{84, {16, 16, 2, 1}},
         {273, {16, 16, 2, 2}},
         {547, {16, 32, 2, 2}},
         {3360, {16, 64, 2, 1}},
         {LAST, {16, 64, 2, 2}}},
        {{84, {16, 16, 4, 1}},
         {193, {16, 32, 4, 1}},
         {3020, {16, 64, 4, 1}},
         {6720, {16, 64, 2, 2}},
         {LAST, {16, 64, 1, 2}}},
        {{136, {16, 16, 8, 1}},
         {273, {16, 32, 8, 1}},
         {2615, {16, 64, 4, 1}},
         {5231, {16, 64, 2, 1}},
         {LAST, {16, 64, 1, 2}}},
        {{193, {16, 32, 8, 1}}, {678, {16, 64, 8, 1}}, {LAST, {16, 64, 4, 1}}},
    },
    {
        /* N = 2 */
        {{193, {16, 16, 1, 2}},
         {1067, {16, 16, 1, 4}},
         {3360, {16, 64, 1, 2}},
         {LAST, {16, 64, 1, 1}}},
        {{84, {16, 16, 2, 1}},
         {273, {16, 16, 2, 2}},
         {547, {16, 32, 2, 2}},
         {1510, {16, 64, 2, 1}},
         {LAST, {16, 64, 2, 2}}},
        {{84, {16, 16, 4, 1}},
         {273, {16, 32, 4, 1}},
         {3020, {16, 64, 4, 1}},
         {6720, {32, 64, 2, 2}},
         {LAST, {16, 64, 1, 2}}},
        {{273, {16, 32, 8, 1}},
         {547, {16, 64, 8, 1}},
         {2615, {16, 64, 4, 1}},
         {5231, {16, 64, 2, 1}},
         {LAST, {16, 64, 1, 2}}},
        {{193, {16, 16, 8, 1}}, {678, {16, 64, 8, 1}}, {LAST, {16, 64, 4, 1}}},
    },
    {
        /* N = 4 */
        {{386, {16, 16, 1, 2}},
         {547, {16, 16, 1, 4}},
         {773, {16, 32, 1, 2}},
         {1510, {16, 16, 1, 4}},
         {LAST, {16, 64, 1, 2}}},
        {{84, {16, 16, 2, 1}},
         {273, {16, 16, 2, 2}},
         {547, {16, 32, 2, 2}},
         {3360, {16, 64, 2, 1}},
         {LAST, {16, 32, 1, 2}}},
        {{84, {16, 16, 4, 1}},
         {193, {16, 32, 4, 1}},
         {2135, {16, 64, 4, 1}},
         {6720, {16, 32, 1, 2}},
         {LAST, {32, 64, 1, 1}}},
        {{193, {16, 16, 8, 1}},
         {547, {16, 64, 8, 1}},
         {2135, {16, 64, 4, 1}},
         {3699, {16, 64, 2, 2}},
         {LAST, {32, 64, 2, 1}}},
        {{193, {16, 16, 8, 1}}, {1510, {16, 64, 8, 1}}, {LAST, {32, 64, 4, 1}}},
    },
    {
        /* dense */
        {{193, {16, 16, 1, 2}}, {386, {16, 16, 1, 4}}, {LAST, {16, 32, 1, 2}}},
        {{84, {16, 16, 2, 1}},
         {193, {16, 16, 2, 2}},
         {2135, {16, 32, 2, 2}},
         {3360, {16, 32, 2, 1}},
         {LAST, {16, 32, 1, 4}}},
        {{773, {16, 32, 4, 1}},
         {1067, {32, 64, 4, 1}},
         {1547, {16, 32, 4, 1}},
         {2135, {32, 64, 4, 1}},
         {LAST, {16, 32, 1, 4}}},
        {{136, {16, 16, 8, 1}},
         {547, {16, 32, 8, 1}},
         {1491, {16, 32, 4, 1}},
         {2615, {16, 32, 2, 2}},
         {LAST, {16, 32, 1, 2}}},
        {{386, {16, 16, 8, 1}},
         {678, {16, 32, 8, 1}},
         {1510, {16, 32, 4, 2}},
         {LAST, {16, 32, 2, 2}}},
    },
};

/* By enum nm_large. A block of the second one has a tile a group at a time. */
const struct espl_cuda_nm_choice large_choices[] = {
    {0, 0, 0, 0},
    {NM_WIDE_TOKENS, ESPL_NM_WIDE_ROWS, 1, 1},
    {NM_STAY_TOKENS, ESPL_NM_STAY_ROWS, 1, NM_STAY_GROUPS},
};

unsigned kept_class(const struct espl_cuda_nm_matrix *matrix)
{
    if (matrix->form == ESPL_CUDA_NM_DENSE) {
        return 3;
    }
    return matrix->registers <= 2 ? matrix->registers - 1 : 2;
}

unsigned depth_class(unsigned blocks)
{
    return blocks <= 2 ? blocks - 1 : blocks <= 4 ? 2 : blocks <= 8 ? 3 : 4;
}

bool is_power(unsigned value, unsigned most)
{
    return value >= 1 && value <= most && (value & (value - 1)) == 0;
}

} // namespace

const void *nm_kernel(const struct espl_cuda_nm_matrix *matrix, unsigned tokens, unsigned rows,
                      unsigned mode)
{
    switch (matrix->form) {
    case ESPL_CUDA_NM_COMPACT:
        return nm_compact_kernel(matrix->registers, tokens, rows, mode);
    case ESPL_CUDA_NM_ELEMENT:
        return nm_element_kernel(matrix->registers, tokens, rows, mode);
    default:
        return nm_dense_kernel(tokens, rows, mode);
    }
}

size_t nm_shared_bytes(const struct espl_cuda_nm_choice *choice, unsigned mode)
{
    const size_t units = static_cast<size_t>(2) * (choice->tile_tokens / NM_TOKENS) *
                         (choice->tile_rows / ESPL_NM_STRIPE);
    const size_t terms = mode == 0 ? 0 : NM_TERMS * sizeof(float);
    const bool staged = choice->splits > 1 || mode == 2;
    return choice->tiles * (terms + (staged ? units * UNIT_BYTES * choice->splits : 0));
}

struct espl_cuda_nm_choice nm_large_choice(enum nm_large large)
{
    return large_choices[large];
}

enum nm_large nm_large_of(const struct espl_cuda_nm_choice *choice)
{
    for (int large = NM_LARGE_STAY; large > NM_NOT_LARGE; large--) {
        const struct espl_cuda_nm_choice *known = &large_choices[large];
        if (choice->tile_tokens == known->tile_tokens && choice->tile_rows == known->tile_rows &&
            choice->splits == known->splits && choice->tiles == known->tiles) {
            return static_cast<enum nm_large>(large);
        }
    }
    return NM_NOT_LARGE;
}

bool nm_choice_exists(const struct espl_cuda_nm_matrix *matrix,
                      const struct espl_cuda_nm_choice *choice)
{
    switch (nm_large_of(choice)) {
    case NM_LARGE_RING:
        return nm_wide_kernel_of(matrix, 0) != NULL;
    case NM_LARGE_STAY:
        return nm_stay_kernel_of(matrix, 0) != NULL;
    default:
        break;
    }
    return is_power(choice->splits, MOST_SPLITS) && is_power(choice->tiles, 4) &&
           choice->splits * choice->tiles <= NM_MAX_WARPS && choice->tile_tokens % NM_TOKENS == 0 &&
           choice->tile_rows % ESPL_NM_STRIPE == 0 && nm_shared_bytes(choice, 2) <= SHARED_BYTES &&
           nm_kernel(matrix, choice->tile_tokens / NM_TOKENS, choice->tile_rows / ESPL_NM_STRIPE,
                     0) != NULL;
}

extern "C" size_t espl_cuda_nm_choices(const struct espl_cuda_nm_matrix *matrix,
                                       struct espl_cuda_nm_choice *choices, size_t most)
{
    size_t count = 0;
    for (unsigned shape = 0; shape < TILE_SHAPES; shape++) {
        for (unsigned splits = 1; splits <= MOST_SPLITS && splits < 2 * matrix->blocks;
             splits *= 2) {
            for (unsigned tiles = 1; tiles <= 4; tiles *= 2) {
                const struct espl_cuda_nm_choice choice = {
                    tile_shapes[shape][0] * 16u, tile_shapes[shape][1] * 16u, splits, tiles};
                if (count < most && nm_choice_exists(matrix, &choice)) {
                    choices[count++] = choice;
                }
            }
        }
    }
    for (int large = NM_LARGE_RING; large <= NM_LARGE_STAY; large++) {
        if (count < most && nm_choice_exists(matrix, &large_choices[large])) {
            choices[count++] = large_choices[large];
        }
    }
    return count;
}

enum nm_large nm_prefers_large(const struct espl_cuda_nm_matrix *matrix, size_t tokens,
                               unsigned multiprocessors)
{
    const double outputs = static_cast<double>((tokens + NM_TOKENS - 1) / NM_TOKENS) *
                           matrix->stripes * FITTED_MULTIPROCESSORS / multiprocessors;
    if (outputs < WIDE_OUTPUTS) {
        return NM_NOT_LARGE;
    }
    return nm_choice_exists(matrix, &large_choices[NM_LARGE_STAY])   ? NM_LARGE_STAY
           : nm_choice_exists(matrix, &large_choices[NM_LARGE_RING]) ? NM_LARGE_RING
                                                                     : NM_NOT_LARGE;
}

struct espl_cuda_nm_choice nm_choose(const struct espl_cuda_nm_matrix *matrix, size_t tokens,
                                     unsigned multiprocessors)
{
    const double outputs = static_cast<double>((tokens + NM_TOKENS - 1) / NM_TOKENS) *
                           matrix->stripes * FITTED_MULTIPROCESSORS / multiprocessors;
    const struct range *range = ranges[kept_class(matrix)][depth_class(matrix->blocks)];
    while (range->most != LAST && outputs > range->most) {
        range++;
    }
    struct espl_cuda_nm_choice choice = range->choice;
    if (!nm_choice_exists(matrix, &choice)) { /* not every N has the wide tiles */
        choice.tile_tokens = 32;
        choice.tile_rows = 32;
    }
    return choice;
}

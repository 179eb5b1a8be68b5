#include "kernels/bench/spmm_choices.h"

#include "core/checked.h"
#include "espalier/dense_device.h"

enum {
    STRIPE = 16,
    SLICE = 512,
    MOST_SPLITS = 8,
    MOST_WARPS = 16,
    DENSE_WARPS_LESS = 12, /* of layers with scales and 32 tokens */
    DENSE_WARPS_MORE = 20,
    LEAST_STAGES = 2,
    MOST_STAGES = 4,
    MOST_PARTS = 7
};

/* The list under construction. */
struct list {
    struct espl_cuda_spmm_choice *choices;
    size_t room;
    size_t count;
};

static void add(struct list *list, unsigned warps, unsigned splits, unsigned window,
                unsigned stages, size_t parts)
{
    if (list->count < list->room) {
        list->choices[list->count] =
            (struct espl_cuda_spmm_choice){warps, splits, window, stages, (unsigned)parts, 0, 0};
    }
    list->count++;
}

/* For each window the fewest rows of windows with which the busiest block takes its stripes in the
 * least number of rounds, one more, or two more. */
static void add_sparse(struct list *list, size_t depth, unsigned splits, size_t parts,
                       size_t stripes)
{
    const size_t slices = espl_ceil_div(depth, splits);
    const size_t busiest = espl_ceil_div(stripes, parts);
    for (unsigned window = 1; window <= MOST_WARPS && window <= slices; window++) {
        const size_t least = espl_ceil_div(busiest, MOST_WARPS / window);
        size_t before = 0;
        for (size_t rounds = least; rounds <= least + 2 && rounds <= busiest; rounds++) {
            const size_t rows = espl_ceil_div(busiest, rounds);
            for (unsigned stages = LEAST_STAGES; rows != before && stages <= MOST_STAGES;
                 stages++) {
                add(list, (unsigned)rows * window, splits, window, stages, parts);
            }
            before = rows;
        }
    }
}

static void add_parts(struct list *list, const struct espl_spmm_cut *cut, size_t depth,
                      unsigned splits, size_t parts)
{
    if (cut->dense) {
        add(list, DENSE_WARPS_LESS, splits, 1, 1, parts);
        add(list, MOST_WARPS, splits, 1, 1, parts);
        add(list, DENSE_WARPS_MORE, splits, 1, 1, parts);
    } else {
        add_sparse(list, depth, splits, parts, espl_ceil_div(cut->rows, STRIPE));
    }
}

/* In one wave of blocks: as many parts as there are multiprocessors for, and the fewest with which
 * the busiest block has the least number of stripes, one more, two more, twice or four times as
 * many; in two waves: the fewest for the least number. */
static size_t parts_of(const struct espl_spmm_cut *cut, unsigned splits, size_t parts[MOST_PARTS])
{
    const size_t stripes = espl_ceil_div(cut->rows, STRIPE);
    const size_t room = cut->multiprocessors / splits > 0 ? cut->multiprocessors / splits : 1;
    const size_t full = room < stripes ? room : stripes;
    const size_t least = espl_ceil_div(stripes, room);
    const size_t two_waves = espl_ceil_div(stripes, 2 * room);
    const size_t found[MOST_PARTS] = {full,
                                      espl_ceil_div(stripes, least),
                                      espl_ceil_div(stripes, least + 1),
                                      espl_ceil_div(stripes, least + 2),
                                      espl_ceil_div(stripes, 2 * least),
                                      espl_ceil_div(stripes, 4 * least),
                                      espl_ceil_div(stripes, two_waves)};
    size_t count = 0;
    for (size_t i = 0; i < MOST_PARTS; i++) {
        size_t same = 0;
        while (same < count && parts[same] != found[i]) {
            same++;
        }
        if (same == count) {
            parts[count++] = found[i];
        }
    }
    return count;
}

size_t espl_spmm_choices(const struct espl_spmm_cut *cut, struct espl_cuda_spmm_choice *choices,
                         size_t room)
{
    struct list list = {choices, room, 0};
    const size_t depth = espl_ceil_div(cut->cols, cut->dense ? ESPL_DENSE_UNIT_COLS : SLICE);
    for (unsigned splits = 1; splits <= MOST_SPLITS && splits <= depth; splits++) {
        size_t parts[MOST_PARTS];
        const size_t part_count = parts_of(cut, splits, parts);
        for (size_t i = 0; i < part_count; i++) {
            add_parts(&list, cut, depth, splits, parts[i]);
        }
    }
    return list.count;
}

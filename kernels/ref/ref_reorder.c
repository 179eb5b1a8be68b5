/* The row reorder as written down: algorithm 1 of the UnionSparse paper, a table entry for every
 * subset of rows. */
#include "espalier/row_reorder.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 16, UNREACHED = 0 };

struct problem {
    const uint64_t *masks;
    size_t tiles;
    size_t rows;
    unsigned row_areas;
    unsigned col_areas;
    size_t groups;
    uint16_t *sets;    /* (groups) row sets of row_areas rows, lexicographic */
    uint64_t *costs;   /* (groups) */
    size_t *starts;    /* (rows + 1) first group whose smallest row is r */
    uint64_t *optimum; /* (2^rows) F(S) + 1; 0 where S cannot be partitioned */
};

static uint64_t fold(uint64_t mask, unsigned col_areas)
{
    const unsigned width = 64 / col_areas;
    uint64_t folded = 0;
    for (unsigned c = 0; c < col_areas; c++) {
        folded |= mask >> (c * width);
    }
    return width == 64 ? folded : folded & ((UINT64_C(1) << width) - 1);
}

static unsigned count_bits(uint64_t bits)
{
    unsigned count = 0;
    for (; bits != 0; bits &= bits - 1) {
        count++;
    }
    return count;
}

static unsigned lowest_row(unsigned set)
{
    unsigned row = 0;
    while ((set >> row & 1u) == 0) {
        row++;
    }
    return row;
}

/* equation 4, summed over tiles */
static uint64_t group_cost(const struct problem *problem, unsigned set)
{
    uint64_t cost = 0;
    for (size_t t = 0; t < problem->tiles; t++) {
        uint64_t together = 0;
        for (size_t r = 0; r < problem->rows; r++) {
            together |= (set >> r & 1u) != 0 ? problem->masks[t * problem->rows + r] : 0;
        }
        cost += count_bits(fold(together, problem->col_areas));
    }
    return cost;
}

/* Appends all ways to complete `set` with `missing` rows from `next` on: lexicographic order. */
static void list_groups(struct problem *problem, unsigned set, size_t next, unsigned missing)
{
    if (missing == 0) {
        problem->sets[problem->groups++] = (uint16_t)set;
        return;
    }
    for (size_t r = next; r < problem->rows; r++) {
        list_groups(problem, set | 1u << r, r + 1, missing - 1);
    }
}

static size_t count_groups(size_t rows, unsigned row_areas)
{
    size_t count = 1;
    for (unsigned i = 0; i < row_areas; i++) {
        count = count * (rows - i) / (i + 1);
    }
    return count;
}

static void build_groups(struct problem *problem)
{
    list_groups(problem, 0, 0, problem->row_areas);
    size_t g = 0;
    for (size_t r = 0; r <= problem->rows; r++) {
        while (g < problem->groups && lowest_row(problem->sets[g]) < r) {
            g++;
        }
        problem->starts[r] = g;
    }
    for (g = 0; g < problem->groups; g++) {
        problem->costs[g] = group_cost(problem, problem->sets[g]);
    }
}

/* equation 5: the first group that gives F(S), or problem->groups when S cannot be partitioned */
static size_t best_group(const struct problem *problem, unsigned set, uint64_t *optimum)
{
    const unsigned first = lowest_row(set);
    size_t best = problem->groups;
    *optimum = UINT64_MAX;
    for (size_t g = problem->starts[first]; g < problem->starts[first + 1]; g++) {
        const unsigned group = problem->sets[g];
        if ((group & ~set) != 0 || problem->optimum[set ^ group] == UNREACHED) {
            continue;
        }
        const uint64_t cost = problem->costs[g] + problem->optimum[set ^ group];
        if (cost < *optimum) {
            *optimum = cost;
            best = g;
        }
    }
    return best;
}

static void solve(struct problem *problem, uint8_t *order, uint64_t *active)
{
    const unsigned all = (1u << problem->rows) - 1u;
    problem->optimum[0] = 1;
    for (unsigned set = 1; set <= all; set++) {
        uint64_t optimum = 0;
        if (best_group(problem, set, &optimum) != problem->groups) {
            problem->optimum[set] = optimum;
        }
    }
    *active = problem->optimum[all] - 1;
    const size_t group_count = problem->rows / problem->row_areas;
    unsigned left = all;
    for (size_t g = 0; g < group_count; g++) {
        uint64_t optimum = 0;
        unsigned group = problem->sets[best_group(problem, left, &optimum)];
        left ^= group;
        for (size_t p = 0; p < problem->row_areas; p++) {
            order[p * group_count + g] = (uint8_t)lowest_row(group);
            group &= group - 1u;
        }
    }
}

enum espl_status espl_reorder_reference(const uint64_t *masks, size_t tiles, size_t rows,
                                        unsigned row_areas, unsigned col_areas, uint8_t *order,
                                        uint64_t *active, struct espl_error *err)
{
    if (rows == 0 || rows > MOST_ROWS || row_areas == 0 || rows % row_areas != 0) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "cannot group %zu rows by %u", rows, row_areas);
    }
    if (col_areas != 1 && col_areas != 2 && col_areas != 4) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "cannot fold 64 columns into %u areas",
                         col_areas);
    }
    struct problem problem = {masks, tiles, rows, row_areas, col_areas, 0, NULL, NULL, NULL, NULL};
    const size_t groups = count_groups(rows, row_areas);
    enum espl_status status = ESPL_OK;
    problem.sets = calloc(groups, sizeof *problem.sets);
    problem.costs = calloc(groups, sizeof *problem.costs);
    problem.starts = calloc(rows + 1, sizeof *problem.starts);
    problem.optimum = calloc((size_t)1 << rows, sizeof *problem.optimum);
    if (problem.sets == NULL || problem.costs == NULL || problem.starts == NULL ||
        problem.optimum == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for the subsets of %zu rows", rows);
        goto cleanup;
    }
    build_groups(&problem);
    solve(&problem, order, active);
cleanup:
    free(problem.optimum);
    free(problem.starts);
    free(problem.costs);
    free(problem.sets);
    return status;
}

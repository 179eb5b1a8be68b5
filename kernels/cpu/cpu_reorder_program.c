/* Which row sets can be left when the smallest row is always taken first, and how each is made from
 * smaller ones; and walking back from the last state to the rows. */
#include "kernels/cpu/cpu_reorder.h"

#include <stdlib.h>
#include <string.h>

enum { SETS = 65536, ALL_ROWS = 0xFFFF, ROWS = ESPL_REORDER_ROWS };

static unsigned lowest_row(unsigned set)
{
    return (unsigned)__builtin_ctz(set);
}

static unsigned count_rows(unsigned set)
{
    unsigned count = 0;
    for (; set != 0; set &= set - 1u) {
        count++;
    }
    return count;
}

/* ---- pairs ---- */

/* Marks what can be left, largest sets first: a set is left by larger numbers only. */
static void mark_pair_states(uint8_t *reached)
{
    reached[ALL_ROWS] = 1;
    for (unsigned set = ALL_ROWS; set != 0; set--) {
        if (!reached[set]) {
            continue;
        }
        const unsigned others = set & (set - 1u);
        for (unsigned rest = others; rest != 0; rest &= rest - 1u) {
            reached[others ^ (rest & (0u - rest))] = 1;
        }
    }
}

static void number_pair_states(const uint8_t *reached, uint16_t *numbers, uint16_t *sets,
                               struct espl_reorder_pair_program *program)
{
    for (unsigned half = 0; half < ESPL_REORDER_PAIR_SIZES; half++) {
        program->size_first[half] = program->states;
        for (unsigned set = 0; set < SETS; set++) {
            if (reached[set] && count_rows(set) == 2 * half) {
                sets[program->states] = (uint16_t)set;
                numbers[set] = (uint16_t)program->states++;
            }
        }
        const size_t ways = half == 0 ? 0 : 2 * half - 1;
        program->transitions += ways * (program->states - program->size_first[half]);
    }
    program->size_first[ESPL_REORDER_PAIR_SIZES] = program->states;
}

static void fill_pair_steps(const uint16_t *numbers, const uint16_t *sets,
                            struct espl_reorder_pair_program *program)
{
    struct espl_reorder_step *step = program->steps;
    for (size_t state = 1; state < program->states; state++) {
        const unsigned first = lowest_row(sets[state]);
        const unsigned others = sets[state] & (sets[state] - 1u);
        for (unsigned rest = others; rest != 0; rest &= rest - 1u) {
            const unsigned partner = lowest_row(rest);
            const uint16_t next = numbers[others ^ 1u << partner];
            program->next[state * ROWS + partner] = next;
            step->group = (uint16_t)(espl_reorder_pair_number(first, partner) * program->unit);
            step->rest = (uint16_t)(next * program->unit);
            step++;
        }
    }
}

enum espl_status espl_reorder_pair_program_build(size_t unit,
                                                 struct espl_reorder_pair_program *program,
                                                 struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    uint8_t *reached = calloc(SETS, sizeof *reached);
    uint16_t *numbers = calloc(SETS, sizeof *numbers);
    uint16_t *sets = calloc(SETS, sizeof *sets);
    memset(program, 0, sizeof *program);
    program->unit = unit;
    if (reached == NULL || numbers == NULL || sets == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for the row sets of a tile");
        goto cleanup;
    }
    mark_pair_states(reached);
    number_pair_states(reached, numbers, sets, program);
    program->steps = calloc(program->transitions, sizeof *program->steps);
    program->next = calloc(program->states * ROWS, sizeof *program->next);
    if (program->steps == NULL || program->next == NULL) {
        espl_reorder_pair_program_free(program);
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for the transitions of a tile");
        goto cleanup;
    }
    fill_pair_steps(numbers, sets, program);
cleanup:
    free(sets);
    free(numbers);
    free(reached);
    return status;
}

void espl_reorder_pair_program_free(struct espl_reorder_pair_program *program)
{
    free(program->next);
    free(program->steps);
    program->next = NULL;
    program->steps = NULL;
}

/* Follows the choices from all rows down; groups come out in ascending order. */
static uint64_t walk_pairs(const struct espl_reorder_pair_program *program, const uint8_t *choices,
                           size_t lanes, size_t lane)
{
    size_t state = program->states - 1;
    unsigned left = ALL_ROWS;
    uint64_t order = 0;
    for (unsigned g = 0; g < ROWS / 2; g++) {
        const unsigned first = lowest_row(left);
        const unsigned partner = choices[state * lanes + lane] & 15u;
        order |= (uint64_t)first << (4 * g) | (uint64_t)partner << (4 * g + 2 * ROWS);
        left ^= 1u << first | 1u << partner;
        state = program->next[state * ROWS + partner];
    }
    return order;
}

uint64_t espl_reorder_pair_recover(const struct espl_reorder_pair_program *program,
                                   const struct espl_reorder_work *work, size_t lanes, size_t lane,
                                   uint64_t *active)
{
    const uint16_t *optima = work->optima;
    *active = optima[(program->states - 1) * lanes + lane] >> 4;
    return walk_pairs(program, work->choices, lanes, lane);
}

uint64_t espl_reorder_pair_solve_wide(const struct espl_reorder_pair_program *program,
                                      const struct espl_reorder_work *work, uint64_t *active)
{
    const struct espl_reorder_step *step = program->steps;
    uint64_t costs[ESPL_REORDER_PAIRS];
    for (size_t a = 0; a < ROWS; a++) {
        for (size_t b = a + 1; b < ROWS; b++) {
            const size_t pair = espl_reorder_pair_number(a, b);
            costs[pair] = work->sums[pair] << 4 | b;
        }
    }
    work->wide[0] = 0;
    for (size_t half = 1; half < ESPL_REORDER_PAIR_SIZES; half++) {
        for (size_t state = program->size_first[half]; state < program->size_first[half + 1];
             state++) {
            uint64_t best = UINT64_MAX;
            for (size_t way = 0; way < 2 * half - 1; way++, step++) {
                const uint64_t cost = costs[step->group] + work->wide[step->rest];
                best = cost < best ? cost : best;
            }
            work->wide[state] = best & ~UINT64_C(15);
            work->wide_choices[state] = (uint8_t)(best & 15u);
        }
    }
    *active = work->wide[program->states - 1] >> 4;
    return walk_pairs(program, work->wide_choices, 1, 0);
}

/* ---- groups of four ---- */

static void list_quads(uint16_t *sets, uint16_t *numbers)
{
    size_t count = 0;
    for (unsigned a = 0; a < ROWS; a++) {
        for (unsigned b = a + 1; b < ROWS; b++) {
            for (unsigned c = b + 1; c < ROWS; c++) {
                for (unsigned d = c + 1; d < ROWS; d++) {
                    const unsigned set = 1u << a | 1u << b | 1u << c | 1u << d;
                    numbers[set] = (uint16_t)count;
                    sets[count++] = (uint16_t)set;
                }
            }
        }
    }
}

/* The groups with the smallest row of `set` in, lexicographic: steps without rests. Returns how
 * many; what each leaves goes to `lefts`. */
static size_t list_ways(unsigned set, const uint16_t *numbers, size_t unit,
                        struct espl_reorder_step *steps, uint16_t *lefts)
{
    const unsigned others = set & (set - 1u);
    size_t count = 0;
    for (unsigned b = others; b != 0; b &= b - 1u) {
        for (unsigned c = b & (b - 1u); c != 0; c &= c - 1u) {
            for (unsigned d = c & (c - 1u); d != 0; d &= d - 1u) {
                const unsigned group = (set ^ others) | 1u << lowest_row(b) | 1u << lowest_row(c) |
                                       1u << lowest_row(d);
                lefts[count] = (uint16_t)(set ^ group);
                steps[count++].group = (uint16_t)(numbers[group] * unit);
            }
        }
    }
    return count;
}

/* numbers: of sets with 4 rows on entry; those of states with 8 rows are added. */
static void fill_quad_steps(struct espl_reorder_quad_program *program, uint16_t *numbers)
{
    uint16_t lefts[ESPL_REORDER_WAYS_12];
    uint8_t *known = (uint8_t *)(numbers + SETS);
    size_t states_8 = 0;
    for (size_t g = 0; g < ESPL_REORDER_QUADS_12; g++) {
        struct espl_reorder_step *steps = program->steps_12 + g * ESPL_REORDER_WAYS_12;
        const unsigned left = ALL_ROWS ^ program->sets[g];
        const size_t ways = list_ways(left, numbers, program->unit, steps, lefts);
        for (size_t way = 0; way < ways; way++) {
            if (!known[lefts[way]]) {
                known[lefts[way]] = 1;
                numbers[lefts[way]] = (uint16_t)states_8++;
            }
            steps[way].rest = (uint16_t)(numbers[lefts[way]] * program->unit);
        }
    }
    for (unsigned set = 0; set < SETS; set++) {
        if (!known[set]) {
            continue;
        }
        struct espl_reorder_step *steps = program->steps_8 + numbers[set] * ESPL_REORDER_WAYS_8;
        const size_t ways = list_ways(set, numbers, program->unit, steps, lefts);
        for (size_t way = 0; way < ways; way++) {
            steps[way].rest = (uint16_t)(numbers[lefts[way]] * program->unit);
        }
    }
}

enum espl_status espl_reorder_quad_program_build(size_t unit,
                                                 struct espl_reorder_quad_program *program,
                                                 struct espl_error *err)
{
    uint16_t *numbers = calloc(SETS, sizeof *numbers + sizeof(uint8_t));
    memset(program, 0, sizeof *program);
    program->unit = unit;
    program->sets = calloc(ESPL_REORDER_QUADS, sizeof *program->sets);
    program->steps_12 =
        calloc(ESPL_REORDER_QUADS_12 * ESPL_REORDER_WAYS_12, sizeof *program->steps_12);
    program->steps_8 = calloc(ESPL_REORDER_QUADS_8 * ESPL_REORDER_WAYS_8, sizeof *program->steps_8);
    if (numbers == NULL || program->sets == NULL || program->steps_12 == NULL ||
        program->steps_8 == NULL) {
        free(numbers);
        espl_reorder_quad_program_free(program);
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the transitions of a tile");
    }
    list_quads(program->sets, numbers);
    fill_quad_steps(program, numbers);
    free(numbers);
    return ESPL_OK;
}

void espl_reorder_quad_program_free(struct espl_reorder_quad_program *program)
{
    free(program->steps_8);
    free(program->steps_12);
    free(program->sets);
    program->steps_8 = NULL;
    program->steps_12 = NULL;
    program->sets = NULL;
}

static uint64_t order_of_quads(const struct espl_reorder_quad_program *program,
                               const size_t groups[4])
{
    uint64_t order = 0;
    for (unsigned g = 0; g < 4; g++) {
        unsigned set = program->sets[groups[g]];
        for (unsigned p = 0; p < 4; p++) {
            order |= (uint64_t)lowest_row(set) << (4 * (4 * p + g));
            set &= set - 1u;
        }
    }
    return order;
}

/* The number of the first of `ways` steps whose costs add up to `optimum`, which one of them does.
 */
static size_t first_way(const struct espl_reorder_step *steps, const uint8_t *costs,
                        const uint8_t *rests, size_t lane, unsigned optimum)
{
    size_t way = 0;
    while (costs[(size_t)steps[way].group * 8 + lane] + rests[(size_t)steps[way].rest * 8 + lane] !=
           (int)optimum) {
        way++;
    }
    return way;
}

uint64_t espl_reorder_quad_recover(const struct espl_reorder_quad_program *program,
                                   const struct espl_reorder_work *work, size_t lanes, size_t lane,
                                   uint64_t *active)
{
    const uint8_t *costs = work->costs;
    const uint8_t *optima_8 = work->optima;
    size_t groups[4] = {0, 0, 0, 0};
    *active = work->totals[lane];
    while (groups[0] < ESPL_REORDER_QUADS_12 &&
           (unsigned)costs[groups[0] * lanes + lane] + work->optima_12[groups[0] * lanes + lane] !=
               *active) {
        groups[0]++;
    }
    if (groups[0] == ESPL_REORDER_QUADS_12) { /* a full tile: every partition costs 256 */
        *active = 256;
        groups[0] = 0;
    }
    const struct espl_reorder_step *step = program->steps_12 + groups[0] * ESPL_REORDER_WAYS_12;
    step += first_way(step, costs, optima_8, lane, work->optima_12[groups[0] * lanes + lane]);
    groups[1] = step->group / program->unit;
    const size_t state_8 = step->rest / program->unit;
    step = program->steps_8 + state_8 * ESPL_REORDER_WAYS_8;
    step += first_way(step, costs, costs, lane, optima_8[state_8 * lanes + lane]);
    groups[2] = step->group / program->unit;
    groups[3] = step->rest / program->unit;
    return order_of_quads(program, groups);
}

/* The first cheapest of `ways` steps. */
static size_t best_way(const struct espl_reorder_step *steps, size_t ways, const uint64_t *costs,
                       const uint64_t *rests, uint64_t *optimum)
{
    size_t best = 0;
    *optimum = UINT64_MAX;
    for (size_t way = 0; way < ways; way++) {
        const uint64_t cost = costs[steps[way].group] + rests[steps[way].rest];
        if (cost < *optimum) {
            *optimum = cost;
            best = way;
        }
    }
    return best;
}

uint64_t espl_reorder_quad_solve_wide(const struct espl_reorder_quad_program *program,
                                      const struct espl_reorder_work *work, uint64_t *active)
{
    const uint64_t *costs = work->sums;
    uint64_t *optima_8 = work->wide;
    uint64_t best_12 = 0;
    size_t groups[4] = {0, 0, 0, 0};
    for (size_t state = 0; state < ESPL_REORDER_QUADS_8; state++) {
        (void)best_way(program->steps_8 + state * ESPL_REORDER_WAYS_8, ESPL_REORDER_WAYS_8, costs,
                       costs, &optima_8[state]);
    }
    *active = UINT64_MAX;
    for (size_t g = 0; g < ESPL_REORDER_QUADS_12; g++) {
        uint64_t optimum = 0;
        const size_t way = best_way(program->steps_12 + g * ESPL_REORDER_WAYS_12,
                                    ESPL_REORDER_WAYS_12, costs, optima_8, &optimum);
        if (costs[g] + optimum < *active) {
            *active = costs[g] + optimum;
            groups[0] = g;
            best_12 = way;
        }
    }
    const struct espl_reorder_step *step =
        program->steps_12 + groups[0] * ESPL_REORDER_WAYS_12 + best_12;
    uint64_t optimum = 0;
    groups[1] = step->group;
    step = program->steps_8 + step->rest * ESPL_REORDER_WAYS_8;
    step += best_way(step, ESPL_REORDER_WAYS_8, costs, costs, &optimum);
    groups[2] = step->group;
    groups[3] = step->rest;
    return order_of_quads(program, groups);
}

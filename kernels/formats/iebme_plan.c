/* Counting bytes and choosing areas. */
#include "core/checked.h"
#include "kernels/formats/iebme_internal.h"

#include <string.h>

/* Larger Q first, then the smaller code: the first of equals wins. */
static const enum espl_iebme_areas by_preference[ESPL_IEBME_UNIFORM_CHOICES] = {
    ESPL_IEBME_DENSE, ESPL_IEBME_4X4, ESPL_IEBME_2X4, ESPL_IEBME_4X2, ESPL_IEBME_1X4,
    ESPL_IEBME_2X2,   ESPL_IEBME_4X1, ESPL_IEBME_1X2, ESPL_IEBME_2X1, ESPL_IEBME_1X1,
};

/* Active positions of every choice of areas. */
static void count_ones(const uint64_t rows[ESPL_IEBME_TILE_ROWS],
                       unsigned ones[ESPL_IEBME_UNIFORM_CHOICES])
{
    uint64_t folded[ESPL_IEBME_TILE_ROWS];
    memset(ones, 0, ESPL_IEBME_UNIFORM_CHOICES * sizeof *ones);
    memcpy(folded, rows, sizeof folded);
    unsigned height = ESPL_IEBME_TILE_ROWS;
    for (unsigned r = 0; r < 3; r++) { /* R_A = 1, 2, 4 */
        for (unsigned i = 0; i < height; i++) {
            const uint64_t row = folded[i];
            const uint64_t half = (row | row >> 32) & UINT64_C(0xFFFFFFFF);
            const uint64_t quarter = (half | half >> 16) & UINT64_C(0xFFFF);
            ones[3 * r] += (unsigned)__builtin_popcountll(row);
            ones[3 * r + 1] += (unsigned)__builtin_popcountll(half);
            ones[3 * r + 2] += (unsigned)__builtin_popcountll(quarter);
        }
        height /= 2;
        for (unsigned i = 0; i < height; i++) {
            folded[i] |= folded[i + height];
        }
    }
    ones[ESPL_IEBME_DENSE] = 1;
}

static unsigned tile_values(enum espl_iebme_areas areas, unsigned ones)
{
    return espl_iebme_grids[areas].areas * ones;
}

static enum espl_iebme_areas best_of(const unsigned ones[ESPL_IEBME_UNIFORM_CHOICES], unsigned bits)
{
    enum espl_iebme_areas best = by_preference[0];
    unsigned best_bits = 0;
    for (size_t i = 0; i < ESPL_IEBME_UNIFORM_CHOICES; i++) {
        const enum espl_iebme_areas areas = by_preference[i];
        const unsigned tile_bits =
            64 * espl_iebme_grids[areas].words + bits * tile_values(areas, ones[areas]);
        if (i == 0 || tile_bits < best_bits) {
            best = areas;
            best_bits = tile_bits;
        }
    }
    return best;
}

enum espl_iebme_areas espl_iebme_best_areas(const uint64_t rows[ESPL_IEBME_TILE_ROWS],
                                            unsigned bits)
{
    unsigned ones[ESPL_IEBME_UNIFORM_CHOICES];
    count_ones(rows, ones);
    return best_of(ones, bits);
}

/* What the walk over the tiles finds, for every choice and, last, for mixed tiles. */
struct totals {
    uint64_t words[ESPL_IEBME_CHOICES];
    uint64_t values[ESPL_IEBME_CHOICES];
    uint64_t ones[ESPL_IEBME_CHOICES];
    uint64_t nonzeros;
    uint64_t tile_choice[ESPL_IEBME_UNIFORM_CHOICES];
};

static void add_tile(struct totals *totals, const uint64_t rows[ESPL_IEBME_TILE_ROWS],
                     unsigned bits)
{
    unsigned ones[ESPL_IEBME_UNIFORM_CHOICES];
    count_ones(rows, ones);
    for (unsigned a = 0; a < ESPL_IEBME_UNIFORM_CHOICES; a++) {
        totals->words[a] += espl_iebme_grids[a].words;
        totals->values[a] += tile_values((enum espl_iebme_areas)a, ones[a]);
        totals->ones[a] += ones[a];
    }
    const enum espl_iebme_areas best = best_of(ones, bits);
    totals->words[ESPL_IEBME_MIXED] += espl_iebme_grids[best].words;
    totals->values[ESPL_IEBME_MIXED] += tile_values(best, ones[best]);
    totals->ones[ESPL_IEBME_MIXED] += ones[best];
    totals->nonzeros += ones[ESPL_IEBME_1X1];
    totals->tile_choice[best]++;
}

/* Not 0 when a code of the tile does not fit. */
static unsigned misfits(const int8_t tile[ESPL_IEBME_TILE_VALUES], unsigned bits)
{
    const unsigned half = 1u << (bits - 1u);
    unsigned found = 0;
    for (size_t i = 0; i < ESPL_IEBME_TILE_VALUES; i++) {
        found |= (uint8_t)((unsigned)(uint8_t)tile[i] + half) & (0xFFu << bits);
    }
    return found;
}

static enum espl_status fail_misfit(const int8_t *codes, const struct espl_iebme_layout *layout,
                                    size_t first_row, struct espl_error *err)
{
    const int limit = 1 << (layout->bits - 1u);
    for (size_t row = first_row; row < layout->rows; row++) {
        for (size_t col = 0; col < layout->cols; col++) {
            const int8_t code = codes[row * layout->cols + col];
            if (code < -limit || code >= limit) {
                return espl_fail(err, ESPL_E_CORRUPT,
                                 "code %d at row %zu, column %zu does not fit %u bits", code, row,
                                 col, layout->bits);
            }
        }
    }
    return espl_fail(err, ESPL_E_INTERNAL, "codes changed while they were read");
}

static enum espl_status walk(const int8_t *codes, const struct espl_iebme_layout *layout,
                             const uint64_t *orders, struct totals *totals, struct espl_error *err)
{
    int8_t tile[ESPL_IEBME_TILE_VALUES];
    uint64_t rows[ESPL_IEBME_TILE_ROWS];
    const size_t tile_cols = espl_iebme_tile_cols(layout);
    for (size_t stripe = 0; stripe < espl_iebme_stripes(layout); stripe++) {
        for (size_t t = 0; t < tile_cols; t++) {
            const uint64_t order =
                espl_iebme_tile_order(layout, orders, stripe, stripe * tile_cols + t);
            espl_iebme_load_tile(codes, layout, stripe, t, order, tile);
            if (misfits(tile, layout->bits) != 0) {
                return fail_misfit(codes, layout, stripe * ESPL_IEBME_TILE_ROWS, err);
            }
            espl_iebme_row_masks(tile, rows);
            add_tile(totals, rows, layout->bits);
        }
    }
    return ESPL_OK;
}

static uint64_t value_bytes(uint64_t values, unsigned bits)
{
    return (values * bits + 7) / 8;
}

/* Bytes of a choice; UINT64_MAX when its offsets do not fit 32 bits. */
static uint64_t choice_bytes(const struct espl_iebme_plan *plan, const struct totals *totals,
                             enum espl_iebme_areas areas)
{
    const bool dense = areas == ESPL_IEBME_DENSE;
    if (!dense && totals->values[areas] > UINT32_MAX) {
        return UINT64_MAX;
    }
    return 8 * totals->words[areas] + value_bytes(totals->values[areas], plan->layout.bits) +
           (dense ? 0 : sizeof(uint32_t) * (uint64_t)plan->tiles) +
           (areas == ESPL_IEBME_MIXED ? plan->tiles : 0) + 8 * (uint64_t)plan->order_count;
}

static enum espl_iebme_areas choose(const struct espl_iebme_plan *plan, enum espl_iebme_areas asked)
{
    if ((unsigned)asked <= ESPL_IEBME_MIXED) {
        return asked;
    }
    enum espl_iebme_areas best = by_preference[0];
    for (size_t i = 1; i < ESPL_IEBME_UNIFORM_CHOICES; i++) {
        if (plan->choice_bytes[by_preference[i]] < plan->choice_bytes[best]) {
            best = by_preference[i];
        }
    }
    if (asked == ESPL_IEBME_AUTO &&
        plan->choice_bytes[ESPL_IEBME_MIXED] < plan->choice_bytes[best]) {
        best = ESPL_IEBME_MIXED;
    }
    return best;
}

static void settle(struct espl_iebme_plan *plan, const struct totals *totals,
                   enum espl_iebme_areas areas)
{
    plan->layout.areas = areas;
    plan->mask_words = (size_t)totals->words[areas];
    plan->values = totals->values[areas];
    plan->mask_ones = totals->ones[areas];
    plan->value_bytes = (size_t)value_bytes(plan->values, plan->layout.bits);
    plan->offset_count = areas == ESPL_IEBME_DENSE ? 0 : plan->tiles;
    plan->tag_count = areas == ESPL_IEBME_MIXED ? plan->tiles : 0;
    plan->nonzeros = totals->nonzeros;
    plan->bytes = plan->choice_bytes[areas];
    memcpy(plan->tile_choice, totals->tile_choice, sizeof plan->tile_choice);
}

enum espl_status espl_iebme_plan(const int8_t *codes, const struct espl_iebme_layout *layout,
                                 const uint64_t *orders, struct espl_iebme_plan *plan,
                                 struct espl_error *err)
{
    struct espl_iebme_plan made = {.layout = *layout};
    struct totals totals = {.nonzeros = 0};
    const bool automatic =
        layout->areas == ESPL_IEBME_AUTO || layout->areas == ESPL_IEBME_AUTO_MATRIX;
    made.layout.areas = automatic ? ESPL_IEBME_MIXED : layout->areas;
    enum espl_status status = espl_iebme_layout_check(&made.layout, err);
    if (status == ESPL_OK) {
        status = espl_iebme_count_tiles(layout, &made.tiles, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    made.stripes = espl_iebme_stripes(layout);
    made.tile_cols = espl_iebme_tile_cols(layout);
    made.order_count = espl_iebme_order_count(layout, made.tiles);
    for (size_t i = 0; i < made.order_count; i++) {
        if (!espl_iebme_order_valid(orders[i])) {
            return espl_fail(err, ESPL_E_CORRUPT, "row order %zu is not a permutation of 16 rows",
                             i);
        }
    }
    status = walk(codes, layout, orders, &totals, err);
    if (status != ESPL_OK) {
        return status;
    }
    for (unsigned a = 0; a < ESPL_IEBME_CHOICES; a++) {
        made.choice_bytes[a] = choice_bytes(&made, &totals, (enum espl_iebme_areas)a);
    }
    const enum espl_iebme_areas areas = choose(&made, layout->areas);
    if (made.choice_bytes[areas] == UINT64_MAX) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "%llu stored values with areas %s are more than 32-bit offsets can count",
                         (unsigned long long)totals.values[areas], espl_iebme_areas_name(areas));
    }
    settle(&made, &totals, areas);
    *plan = made;
    return ESPL_OK;
}

/* Row reorder: the reference against brute force over all partitions, every path against the
 * reference, and what a permutation must be. */
#include "core/rng.h"
#include "espalier/row_reorder.h"
#include "kernels/cpu/cpu_reorder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 16, COLS = 64, SOME_TILES = 35, MASK_KINDS = 9 };

static const unsigned area_counts[] = {1, 2, 4};

static const char *const mask_kinds[MASK_KINDS] = {
    "10 %", "50 %", "90 %", "empty", "full", "equal rows", "complements", "columns", "few rows"};

static uint64_t random_mask(struct espl_rng *rng, double density)
{
    uint64_t mask = 0;
    for (unsigned j = 0; j < COLS; j++) {
        mask |= (uint64_t)(espl_rng_unit(rng) < density) << j;
    }
    return mask;
}

/* One tile of a kind; structured kinds have many partitions of the same cost. */
static void make_tile(struct espl_rng *rng, unsigned kind, uint64_t masks[ROWS])
{
    static const double densities[] = {0.1, 0.5, 0.9};
    const uint64_t shared = random_mask(rng, 0.5);
    for (unsigned r = 0; r < ROWS; r++) {
        switch (kind) {
        case 0:
        case 1:
        case 2:
            masks[r] = random_mask(rng, densities[kind]);
            break;
        case 3:
            masks[r] = 0;
            break;
        case 4:
            masks[r] = UINT64_MAX;
            break;
        case 5:
            masks[r] = shared;
            break;
        case 6:
            masks[r] = espl_rng_below(rng, 2) == 0 ? shared : ~shared;
            break;
        case 7: /* columns that are dense in all rows, as outlier channels make them */
            masks[r] = shared | random_mask(rng, 0.1);
            break;
        default: /* the lower edge of a matrix */
            masks[r] = r < 5 ? random_mask(rng, 0.5) : 0;
            break;
        }
    }
}

static uint64_t *make_tiles(const char *stream, size_t count, unsigned kind)
{
    uint64_t *masks = malloc(count * ROWS * sizeof *masks);
    struct espl_rng rng = espl_rng_stream(7, stream, kind);
    assert_non_null(masks);
    for (size_t t = 0; t < count; t++) {
        make_tile(&rng, kind, masks + t * ROWS);
    }
    return masks;
}

static struct espl_reorder *open_reorder(unsigned row_areas, unsigned col_areas,
                                         enum espl_iebme_scope scope, unsigned threads,
                                         const char *path)
{
    const struct espl_reorder_options options = {row_areas, col_areas, scope, threads, path};
    struct espl_reorder *reorder = NULL;
    struct espl_error err;
    if (espl_reorder_create(&options, &reorder, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return reorder;
}

static uint64_t reference_order(const uint64_t *masks, size_t tiles, unsigned row_areas,
                                unsigned col_areas, uint64_t *active)
{
    struct espl_error err;
    uint8_t order[ROWS];
    if (espl_reorder_reference(masks, tiles, ROWS, row_areas, col_areas, order, active, &err) !=
        ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return espl_iebme_order_pack(order);
}

static void assert_permutation(uint64_t order)
{
    unsigned seen = 0;
    for (unsigned r = 0; r < ROWS; r++) {
        seen |= 1u << (order >> (4 * r) & 15u);
    }
    assert_int_equal(seen, 0xFFFF);
}

/* ---- brute force: independent of both solvers, and of the folding code ---- */

struct brute {
    const uint64_t *masks;
    size_t tiles;
    size_t rows;
    unsigned row_areas;
    unsigned col_areas;
    uint8_t order[ROWS]; /* being built: encoded row -> row */
    uint64_t best;
    uint8_t best_order[ROWS];
};

/* Cost as the encoder sees it: mask bit (i, j) is the OR over all areas. */
static uint64_t encoded_ones(const struct brute *brute, const uint8_t *order)
{
    const size_t height = brute->rows / brute->row_areas;
    const size_t width = COLS / brute->col_areas;
    uint64_t ones = 0;
    for (size_t t = 0; t < brute->tiles; t++) {
        const uint64_t *masks = brute->masks + t * brute->rows;
        for (size_t i = 0; i < height; i++) {
            for (size_t j = 0; j < width; j++) {
                bool one = false;
                for (size_t a = 0; a < brute->row_areas; a++) {
                    for (size_t c = 0; c < brute->col_areas; c++) {
                        one |= (masks[order[a * height + i]] >> (c * width + j) & 1u) != 0;
                    }
                }
                ones += one;
            }
        }
    }
    return ones;
}

/* Fills place (group, member) with every row that keeps members and first members ascending; visits
 * partitions in lexicographic order, so the first best one is the canonical one. */
static void try_places(struct brute *brute, size_t place, unsigned used)
{
    const size_t groups = brute->rows / brute->row_areas;
    const size_t group = place / brute->row_areas;
    const size_t member = place % brute->row_areas;
    if (place == brute->rows) {
        const uint64_t ones = encoded_ones(brute, brute->order);
        if (ones < brute->best) {
            brute->best = ones;
            memcpy(brute->best_order, brute->order, sizeof brute->order);
        }
        return;
    }
    size_t first = 0;
    if (member > 0) {
        first = (size_t)brute->order[(member - 1) * groups + group] + 1;
    } else if (group > 0) {
        first = (size_t)brute->order[group - 1] + 1;
    }
    for (size_t r = first; r < brute->rows; r++) {
        if ((used >> r & 1u) == 0) {
            brute->order[member * groups + group] = (uint8_t)r;
            try_places(brute, place + 1, used | 1u << r);
        }
    }
}

static void check_reference(const uint64_t *masks, size_t tiles, size_t rows, unsigned row_areas,
                            unsigned col_areas)
{
    struct brute brute = {.masks = masks,
                          .tiles = tiles,
                          .rows = rows,
                          .row_areas = row_areas,
                          .col_areas = col_areas,
                          .best = UINT64_MAX};
    struct espl_error err;
    uint8_t order[ROWS] = {0};
    uint64_t active = 0;
    try_places(&brute, 0, 0);
    assert_int_equal(
        espl_reorder_reference(masks, tiles, rows, row_areas, col_areas, order, &active, &err),
        ESPL_OK);
    assert_int_equal(active, brute.best);
    assert_memory_equal(order, brute.best_order, rows);
}

static void test_reference__equals_brute_force(void **state)
{
    static const unsigned shapes[][2] = {{1, 1}, {2, 2}, {4, 2}, {6, 2}, {8, 2},
                                         {4, 4}, {8, 4}, {6, 3}, {9, 3}, {5, 5}};
    (void)state;
    for (unsigned kind = 0; kind < MASK_KINDS; kind++) {
        uint64_t *masks = make_tiles("brute", 12, kind);
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            for (size_t c = 0; c < 3; c++) {
                check_reference(masks, 1, shapes[s][0], shapes[s][1], area_counts[c]);
                check_reference(masks, 7, shapes[s][0], shapes[s][1], area_counts[c]);
            }
        }
        free(masks);
    }
}

static void test_reference__hand_worked(void **state)
{
    /* Rows 0 and 2 are alike, 1 and 3 are alike: {0,2} {1,3}, 3 + 2 bits. Folded once (columns 0
     * and 32 meet) rows 0 and 2 lose a bit. */
    const uint64_t masks[4] = {UINT64_C(0x100000003), 0x30, UINT64_C(0x100000003), 0x30};
    struct espl_error err;
    uint8_t order[4] = {9, 9, 9, 9};
    uint64_t active = 0;
    (void)state;
    assert_int_equal(espl_reorder_reference(masks, 1, 4, 2, 1, order, &active, &err), ESPL_OK);
    assert_int_equal(active, 5);
    assert_memory_equal(order, ((const uint8_t[]){0, 1, 2, 3}), 4);
    assert_int_equal(espl_reorder_reference(masks, 1, 4, 2, 2, order, &active, &err), ESPL_OK);
    assert_int_equal(active, 4);
    /* Rows 0 and 1 alike, 2 and 3 alike: first members 0 and 2, then second members 1 and 3. */
    const uint64_t others[4] = {1, 1, 2, 2};
    assert_int_equal(espl_reorder_reference(others, 1, 4, 2, 1, order, &active, &err), ESPL_OK);
    assert_int_equal(active, 2);
    assert_memory_equal(order, ((const uint8_t[]){0, 2, 1, 3}), 4);
}

static void test_reference__refusals(void **state)
{
    const uint64_t masks[17] = {0};
    struct espl_error err;
    uint8_t order[17];
    uint64_t active = 0;
    (void)state;
    assert_int_equal(espl_reorder_reference(masks, 1, 17, 1, 1, order, &active, &err),
                     ESPL_E_UNSUPPORTED);
    assert_int_equal(espl_reorder_reference(masks, 1, 0, 1, 1, order, &active, &err),
                     ESPL_E_UNSUPPORTED);
    assert_int_equal(espl_reorder_reference(masks, 1, 7, 2, 1, order, &active, &err),
                     ESPL_E_UNSUPPORTED);
    assert_string_equal(err.message, "cannot group 7 rows by 2");
    assert_int_equal(espl_reorder_reference(masks, 1, 8, 2, 3, order, &active, &err),
                     ESPL_E_UNSUPPORTED);
    assert_string_equal(err.message, "cannot fold 64 columns into 3 areas");
}

/* ---- the fast paths ---- */

struct expected {
    uint64_t order;
    uint64_t active;
};

/* All paths against the reference: tiles of one kind, one geometry. */
static void check_tiles(const uint64_t *masks, size_t tiles, unsigned row_areas, unsigned col_areas,
                        const char *kind)
{
    struct expected *expected = calloc(tiles, sizeof *expected);
    uint64_t *orders = calloc(tiles, sizeof *orders);
    uint64_t *active = calloc(tiles, sizeof *active);
    const char *path = NULL;
    assert_true(expected != NULL && orders != NULL && active != NULL);
    for (size_t t = 0; t < tiles; t++) {
        const uint64_t *tile = masks + t * ROWS;
        expected[t].order = reference_order(tile, 1, row_areas, col_areas, &expected[t].active);
        assert_permutation(expected[t].order);
        assert_int_equal(espl_reorder_active(tile, expected[t].order, row_areas, col_areas),
                         expected[t].active);
        assert_true(expected[t].active <=
                    espl_reorder_active(tile, ESPL_IEBME_ORDER_IDENTITY, row_areas, col_areas));
    }
    for (size_t i = 0; (path = espl_reorder_path_name(i)) != NULL; i++) {
        struct espl_reorder *reorder =
            open_reorder(row_areas, col_areas, ESPL_IEBME_SCOPE_TILE, 1, path);
        espl_reorder_masks(reorder, masks, 1, tiles, orders, active);
        for (size_t t = 0; t < tiles; t++) {
            if (orders[t] != expected[t].order || active[t] != expected[t].active) {
                fail_msg("%s, %ux%u, %s, tile %zu: order %016llx active %llu, expected %016llx "
                         "active %llu",
                         path, row_areas, col_areas, kind, t, (unsigned long long)orders[t],
                         (unsigned long long)active[t], (unsigned long long)expected[t].order,
                         (unsigned long long)expected[t].active);
            }
        }
        espl_reorder_destroy(reorder);
    }
    free(active);
    free(orders);
    free(expected);
}

static void test_tiles__paths_equal_reference(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < MASK_KINDS; kind++) {
        uint64_t *masks = make_tiles("tiles", SOME_TILES, kind);
        for (size_t c = 0; c < 3; c++) {
            check_tiles(masks, SOME_TILES, 1, area_counts[c], mask_kinds[kind]);
            check_tiles(masks, SOME_TILES, 2, area_counts[c], mask_kinds[kind]);
            check_tiles(masks, 5, 4, area_counts[c], mask_kinds[kind]);
        }
        free(masks);
    }
}

/* The geometry of the paper, and enough groups of four to fill every lane of every path. */
static void test_tiles__thousand_tiles(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < 3; kind++) {
        uint64_t *masks = make_tiles("thousand", 400, kind);
        check_tiles(masks, 400, 2, 2, mask_kinds[kind]);
        check_tiles(masks, kind == 1 ? 70 : 2, 4, 1, mask_kinds[kind]);
        free(masks);
    }
}

/* One short of all 256 positions: sums of bytes that differ only above 255. */
static void test_tiles__nearly_full(void **state)
{
    uint64_t masks[5 * ROWS];
    (void)state;
    for (size_t i = 0; i < 5 * ROWS; i++) {
        masks[i] = UINT64_MAX;
    }
    for (size_t r = 0; r < 4; r++) {
        masks[ROWS + 5 + r] ^= 8;     /* four rows lack one column: a group of 63 */
        masks[2 * ROWS + 5 + r] ^= 8; /* five do */
        masks[3 * ROWS + r * 5] = 0;  /* an empty group */
    }
    masks[2 * ROWS + 15] ^= 8;
    masks[4 * ROWS + 3] = 0; /* one empty row helps nobody */
    check_tiles(masks, 5, 4, 1, "nearly full");
    check_tiles(masks, 5, 2, 1, "nearly full");
}

static void test_stripes__paths_equal_reference(void **state)
{
    static const size_t widths[] = {1, 3, 17, 33, 70};
    const char *path = NULL;
    (void)state;
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++) {
        for (unsigned kind = 0; kind < MASK_KINDS; kind++) {
            uint64_t *masks = make_tiles("stripe", 3 * widths[w], kind);
            for (unsigned row_areas = 1; row_areas <= 4; row_areas *= 2) {
                const size_t stripes = row_areas == 4 ? 1 : 3;
                const unsigned col_areas = area_counts[(w + kind) % 3];
                struct expected expected[3];
                for (size_t s = 0; s < stripes; s++) {
                    expected[s].order = reference_order(masks + s * widths[w] * ROWS, widths[w],
                                                        row_areas, col_areas, &expected[s].active);
                }
                for (size_t i = 0; (path = espl_reorder_path_name(i)) != NULL; i++) {
                    struct espl_reorder *reorder =
                        open_reorder(row_areas, col_areas, ESPL_IEBME_SCOPE_STRIPE, 2, path);
                    uint64_t orders[3];
                    uint64_t active[3];
                    espl_reorder_masks(reorder, masks, stripes, widths[w], orders, active);
                    for (size_t s = 0; s < stripes; s++) {
                        assert_int_equal(orders[s], expected[s].order);
                        assert_int_equal(active[s], expected[s].active);
                    }
                    espl_reorder_destroy(reorder);
                }
            }
            free(masks);
        }
    }
}

static int8_t *make_codes(size_t rows, size_t cols, double density)
{
    int8_t *codes = malloc(rows * cols);
    struct espl_rng rng = espl_rng_stream(7, "codes", rows * 1000 + cols);
    assert_non_null(codes);
    for (size_t i = 0; i < rows * cols; i++) {
        const int8_t code = (int8_t)((int)espl_rng_below(&rng, 255) - 127);
        codes[i] = espl_rng_unit(&rng) < density ? code : 0;
    }
    return codes;
}

static uint64_t *plain_masks(const int8_t *codes, size_t rows, size_t cols)
{
    const size_t tile_cols = (cols + COLS - 1) / COLS;
    const size_t stripes = (rows + ROWS - 1) / ROWS;
    uint64_t *masks = calloc(stripes * tile_cols * ROWS, sizeof *masks);
    assert_non_null(masks);
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < cols; c++) {
            const size_t tile = r / ROWS * tile_cols + c / COLS;
            masks[tile * ROWS + r % ROWS] |= (uint64_t)(codes[r * cols + c] != 0) << (c % COLS);
        }
    }
    return masks;
}

/* Codes and their masks give the same, for all paths and for 1 to 3 threads. */
static void check_codes(size_t rows, size_t cols, unsigned row_areas, enum espl_iebme_scope scope)
{
    const size_t tile_cols = (cols + COLS - 1) / COLS;
    const size_t stripes = (rows + ROWS - 1) / ROWS;
    const size_t count = scope == ESPL_IEBME_SCOPE_TILE ? stripes * tile_cols : stripes;
    int8_t *codes = make_codes(rows, cols, 0.5);
    uint64_t *masks = plain_masks(codes, rows, cols);
    uint64_t *expected = calloc(2 * count, sizeof *expected);
    uint64_t *got = calloc(2 * count, sizeof *got);
    const char *path = NULL;
    assert_true(expected != NULL && got != NULL);
    struct espl_reorder *plain = open_reorder(row_areas, 2, scope, 1, "scalar");
    espl_reorder_masks(plain, masks, stripes, tile_cols, expected, expected + count);
    espl_reorder_destroy(plain);
    for (size_t i = 0; (path = espl_reorder_path_name(i)) != NULL; i++) {
        for (unsigned threads = 1; threads <= 3; threads++) {
            struct espl_reorder *reorder = open_reorder(row_areas, 2, scope, threads, path);
            memset(got, 0, 2 * count * sizeof *got);
            espl_reorder_codes(reorder, codes, rows, cols, got, got + count);
            assert_memory_equal(got, expected, 2 * count * sizeof *got);
            memset(got, 0, count * sizeof *got);
            espl_reorder_codes(reorder, codes, rows, cols, got, NULL);
            assert_memory_equal(got, expected, count * sizeof *got);
            espl_reorder_destroy(reorder);
        }
    }
    free(got);
    free(expected);
    free(masks);
    free(codes);
}

static void test_codes__tails_and_threads(void **state)
{
    static const size_t shapes[][2] = {{1, 1},   {16, 64}, {15, 63},   {17, 65},
                                       {48, 64}, {5, 700}, {131, 257}, {160, 640}};
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (unsigned row_areas = 1; row_areas <= 4; row_areas *= 2) {
            check_codes(shapes[s][0], shapes[s][1], row_areas, ESPL_IEBME_SCOPE_TILE);
            check_codes(shapes[s][0], shapes[s][1], row_areas, ESPL_IEBME_SCOPE_STRIPE);
        }
    }
}

/* What the encoder counts for the permuted matrix is what the reorder promises. */
static void test_codes__encoder_agrees(void **state)
{
    enum { HEIGHT = 70, WIDTH = 300, STRIPES = 5, TILE_COLS = 5 };
    static const enum espl_iebme_scope scopes[] = {ESPL_IEBME_SCOPE_TILE, ESPL_IEBME_SCOPE_STRIPE};
    int8_t *codes = make_codes(HEIGHT, WIDTH, 0.4);
    (void)state;
    for (size_t g = 0; g < 9; g++) {
        for (size_t s = 0; s < 2; s++) {
            struct espl_iebme_layout layout = {HEIGHT, WIDTH, 8, ESPL_IEBME_1X1, scopes[s]};
            struct espl_iebme_plan plan;
            struct espl_error err;
            uint64_t orders[STRIPES * TILE_COLS];
            uint64_t active[STRIPES * TILE_COLS] = {0};
            uint64_t total = 0;
            assert_true(
                espl_iebme_areas_from_grid(area_counts[g / 3], area_counts[g % 3], &layout.areas));
            struct espl_reorder *reorder =
                open_reorder(area_counts[g / 3], area_counts[g % 3], scopes[s], 1, NULL);
            espl_reorder_codes(reorder, codes, HEIGHT, WIDTH, orders, active);
            espl_reorder_destroy(reorder);
            for (size_t i = 0; i < sizeof active / sizeof active[0]; i++) {
                total += active[i];
            }
            assert_int_equal(espl_iebme_plan(codes, &layout, orders, &plan, &err), ESPL_OK);
            assert_int_equal(plan.mask_ones, total);
        }
    }
    free(codes);
}

static void test_program__counts(void **state)
{
    struct espl_reorder_pair_program program;
    struct espl_error err;
    (void)state;
    assert_int_equal(espl_reorder_pair_program_build(1, &program, &err), ESPL_OK);
    assert_int_equal(program.states, 1597); /* the empty set included */
    assert_int_equal(program.transitions, 10226);
    espl_reorder_pair_program_free(&program);
}

static void assert_refused(struct espl_reorder_options options, const char *message)
{
    struct espl_reorder *reorder = NULL;
    struct espl_error err;
    assert_int_equal(espl_reorder_create(&options, &reorder, &err), ESPL_E_UNSUPPORTED);
    assert_string_equal(err.message, message);
    assert_null(reorder);
}

static void test_create__refusals(void **state)
{
    (void)state;
    assert_refused((struct espl_reorder_options){3, 2, ESPL_IEBME_SCOPE_TILE, 1, NULL},
                   "cannot reorder rows for 3 x 2 areas");
    assert_refused((struct espl_reorder_options){16, 64, ESPL_IEBME_SCOPE_TILE, 1, NULL},
                   "cannot reorder rows for 16 x 64 areas");
    assert_refused((struct espl_reorder_options){2, 2, ESPL_IEBME_SCOPE_NONE, 1, NULL},
                   "cannot reorder rows with scope 0");
    assert_refused((struct espl_reorder_options){2, 2, ESPL_IEBME_SCOPE_TILE, 0, NULL},
                   "cannot reorder rows with 0 threads");
    assert_refused((struct espl_reorder_options){2, 2, ESPL_IEBME_SCOPE_TILE, 1, "mmx"},
                   "no row reorder path 'mmx' on this machine");
    espl_reorder_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference__equals_brute_force),
        cmocka_unit_test(test_reference__hand_worked),
        cmocka_unit_test(test_reference__refusals),
        cmocka_unit_test(test_program__counts),
        cmocka_unit_test(test_tiles__paths_equal_reference),
        cmocka_unit_test(test_tiles__thousand_tiles),
        cmocka_unit_test(test_tiles__nearly_full),
        cmocka_unit_test(test_stripes__paths_equal_reference),
        cmocka_unit_test(test_codes__tails_and_threads),
        cmocka_unit_test(test_codes__encoder_agrees),
        cmocka_unit_test(test_create__refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

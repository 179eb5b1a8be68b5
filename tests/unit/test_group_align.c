/* Groups that share a mask bit: a slow oracle that asks of any two weights whether they belong
 * together, and the IE-BME encoder, for which aligned masks must be free of stored zeros. */
#include "core/rng.h"
#include "espalier/iebme.h"
#include "stages/prune_common/group_align.h"
#include "support/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

static struct espl_backend *backend;

static int open_backend(void **state)
{
    (void)state;
    return espl_backend_open("cpu", 1, &backend, NULL) == ESPL_OK ? 0 : -1;
}

static int close_backend(void **state)
{
    (void)state;
    espl_backend_close(backend);
    return 0;
}

static const struct espl_align grids[] = {
    {{2, 1}, ESPL_ALIGN_AREAS, 0}, {{1, 2}, ESPL_ALIGN_AREAS, 0}, {{2, 2}, ESPL_ALIGN_AREAS, 0},
    {{1, 4}, ESPL_ALIGN_AREAS, 0}, {{4, 4}, ESPL_ALIGN_AREAS, 0}, {{1, 4}, ESPL_ALIGN_BLOCK, 0},
    {{4, 1}, ESPL_ALIGN_BLOCK, 0}, {{2, 8}, ESPL_ALIGN_BLOCK, 0},
};
enum { GRIDS = sizeof grids / sizeof grids[0], ROWS = 32, COLS = 128, COUNT = ROWS * COLS };
static const struct espl_matrix_shape shape = {ROWS, COLS};

/* ---- the oracle ---- */

/* Which row of groups, and which group of it: by the words of the header, not by its indices. */
static void group_of(const struct espl_align *align, size_t row, size_t col, size_t *line,
                     size_t *place)
{
    const size_t r = align->grid.rows;
    const size_t c = align->grid.cols;
    if (align->form == ESPL_ALIGN_BLOCK) {
        *line = row / r;
        *place = col / c;
        return;
    }
    *line = row / 16 * (16 / r) + row % 16 % (16 / r);
    *place = col / 64 * (64 / c) + col % 64 % (64 / c);
}

static bool oracle_bit(const uint8_t *mask, size_t row, size_t col)
{
    return (mask[row * espl_mask_stride(COLS) + col / 8] >> (col % 8) & 1) != 0;
}

/* Keeps of every row of groups all but the `remove` smallest sums, the lower place first. */
static void oracle_mask(const struct espl_align *align, const float *score, double sparsity,
                        bool kept[COUNT])
{
    const size_t places = COLS / align->grid.cols;
    const size_t lines = ROWS / align->grid.rows;
    const size_t remove = (size_t)((double)places * sparsity);
    for (size_t line = 0; line < lines; line++) {
        double sums[COLS] = {0.0};
        bool gone[COLS] = {false};
        for (size_t i = 0; i < COUNT; i++) {
            size_t l = 0;
            size_t p = 0;
            group_of(align, i / COLS, i % COLS, &l, &p);
            sums[p] += l == line ? (double)score[i] : 0.0;
        }
        for (size_t n = 0; n < remove; n++) {
            size_t least = places;
            for (size_t p = 0; p < places; p++) {
                if (!gone[p] && (least == places || (float)sums[p] < (float)sums[least])) {
                    least = p;
                }
            }
            gone[least] = true;
        }
        for (size_t i = 0; i < COUNT; i++) {
            size_t l = 0;
            size_t p = 0;
            group_of(align, i / COLS, i % COLS, &l, &p);
            kept[i] = l == line ? !gone[p] : kept[i];
        }
    }
}

static void draw_scores(struct espl_rng *rng, float *score, bool ties)
{
    for (size_t i = 0; i < COUNT; i++) {
        score[i] = ties ? (float)espl_rng_below(rng, 3) : (float)espl_rng_unit(rng);
    }
}

static void compare(const struct espl_align *align, const uint8_t *mask, const bool kept[COUNT])
{
    for (size_t i = 0; i < COUNT; i++) {
        if (oracle_bit(mask, i / COLS, i % COLS) != kept[i]) {
            fail_msg("align %ux%u form %d: row %zu, column %zu", (unsigned)align->grid.rows,
                     (unsigned)align->grid.cols, align->form, i / COLS, i % COLS);
        }
    }
}

/* ---- choice by summed scores ---- */

static void test_row_mask__equals_the_oracle(void **state)
{
    (void)state;
    static const double sparsities[] = {0.0, 0.3, 0.5, 0.7, 0.99};
    static float score[COUNT];
    static bool kept[COUNT];
    uint8_t mask[ROWS * COLS / 8];
    struct espl_rng rng = espl_rng_stream(1, "group-align", 0);
    for (size_t g = 0; g < GRIDS; g++) {
        for (size_t s = 0; s < 5; s++) {
            draw_scores(&rng, score, s % 2 == 1);
            oracle_mask(&grids[g], score, sparsities[s], kept);
            assert_int_equal(
                espl_align_row_mask(backend, &grids[g], &shape, score, sparsities[s], mask, NULL),
                ESPL_OK);
            compare(&grids[g], mask, kept);
        }
    }
}

static void test_row_mask__off_is_the_plain_row_mask(void **state)
{
    (void)state;
    static const struct espl_align off[] = {{{0, 0}, 0, 0}, {{1, 1}, 0, 0}};
    static float score[COUNT];
    uint8_t mask[ROWS * COLS / 8];
    uint8_t plain[ROWS * COLS / 8];
    struct espl_rng rng = espl_rng_stream(2, "group-align", 0);
    draw_scores(&rng, score, false);
    assert_int_equal(
        espl_backend_ops(backend)->row_mask(backend, &shape, score, COLS / 2, plain, NULL),
        ESPL_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_false(espl_align_is_on(&off[i]));
        assert_int_equal(espl_align_row_mask(backend, &off[i], &shape, score, 0.5, mask, NULL),
                         ESPL_OK);
        assert_memory_equal(mask, plain, sizeof mask);
    }
}

/* Worked by hand: 2 x 1 blocks of a 4 x 3 matrix, one of three groups goes. Sums: 5 7 9, 6 2 4. */
static void test_row_mask__by_hand(void **state)
{
    (void)state;
    static const float score[12] = {1, 6, 2, 4, 1, 7, 3, 0, 4, 3, 2, 0};
    static const uint8_t expected[4] = {6, 6, 5, 5};
    const struct espl_align align = {{2, 1}, ESPL_ALIGN_BLOCK, 0};
    const struct espl_matrix_shape small = {4, 3};
    uint8_t mask[4];
    assert_int_equal(espl_align_row_mask(backend, &align, &small, score, 0.34, mask, NULL),
                     ESPL_OK);
    assert_memory_equal(mask, expected, sizeof mask);
}

static void test_pool__sum_and_largest(void **state)
{
    (void)state;
    static double pooled[2][COUNT];
    static float score[COUNT];
    struct espl_rng rng = espl_rng_stream(5, "group-align", 0);
    draw_scores(&rng, score, false);
    for (size_t g = 0; g < GRIDS; g++) {
        for (size_t i = 0; i < COUNT; i++) {
            pooled[0][i] = pooled[1][i] = (double)score[i];
        }
        espl_align_pool(&grids[g], &shape, false, pooled[0]);
        espl_align_pool(&grids[g], &shape, true, pooled[1]);
        for (size_t i = 0; i < COUNT; i += 97) {
            size_t place[2];
            double sum = 0.0;
            double largest = 0.0;
            group_of(&grids[g], i / COLS, i % COLS, &place[0], &place[1]);
            for (size_t other = 0; other < COUNT; other++) {
                size_t others[2];
                group_of(&grids[g], other / COLS, other % COLS, &others[0], &others[1]);
                if (memcmp(place, others, sizeof place) == 0) {
                    sum += (double)score[other];
                    largest = (double)score[other] > largest ? (double)score[other] : largest;
                }
            }
            assert_true(pooled[0][i] == sum); /* both add in order of rows, then columns */
            assert_true(pooled[1][i] == largest);
        }
    }
}

/* ---- against the encoder ---- */

static struct espl_iebme_plan plan_mask(const uint8_t *mask, const struct espl_align *align)
{
    int8_t codes[COUNT];
    struct espl_iebme_plan plan;
    struct espl_iebme_layout layout = {ROWS, COLS, 4, ESPL_IEBME_1X1, ESPL_IEBME_SCOPE_NONE};
    assert_true(espl_iebme_areas_from_grid(align->grid.rows, align->grid.cols, &layout.areas));
    for (size_t i = 0; i < COUNT; i++) {
        codes[i] = oracle_bit(mask, i / COLS, i % COLS) ? 1 : 0;
    }
    assert_int_equal(espl_iebme_plan(codes, &layout, NULL, &plan, NULL), ESPL_OK);
    return plan;
}

static void test_areas__encoded_without_stored_zeros(void **state)
{
    (void)state;
    static float score[COUNT];
    uint8_t mask[ROWS * COLS / 8];
    struct espl_rng rng = espl_rng_stream(3, "group-align", 0);
    for (size_t g = 0; g < GRIDS && grids[g].form == ESPL_ALIGN_AREAS; g++) {
        draw_scores(&rng, score, false);
        assert_int_equal(espl_align_row_mask(backend, &grids[g], &shape, score, 0.5, mask, NULL),
                         ESPL_OK);
        const struct espl_iebme_plan plan = plan_mask(mask, &grids[g]);
        assert_int_equal(plan.nonzeros, COUNT / 2);
        assert_int_equal(plan.values, plan.nonzeros);
    }
}

static void test_fill__keeps_what_the_union_stores(void **state)
{
    (void)state;
    static float score[COUNT];
    uint8_t mask[ROWS * COLS / 8];
    uint8_t filled[ROWS * COLS / 8];
    struct espl_rng rng = espl_rng_stream(4, "group-align", 0);
    for (size_t g = 0; g < GRIDS && grids[g].form == ESPL_ALIGN_AREAS; g++) {
        struct espl_align align = grids[g];
        align.fill = ESPL_ALIGN_FILL_UNION;
        draw_scores(&rng, score, false);
        assert_int_equal(
            espl_backend_ops(backend)->row_mask(backend, &shape, score, COLS * 7 / 10, mask, NULL),
            ESPL_OK);
        assert_int_equal(espl_align_row_mask(backend, &align, &shape, score, 0.7, filled, NULL),
                         ESPL_OK);
        const struct espl_iebme_plan before = plan_mask(mask, &align);
        const struct espl_iebme_plan after = plan_mask(filled, &align);
        /* the same bytes, all of them weights now; nothing that was kept is lost */
        assert_int_equal(after.bytes, before.bytes);
        assert_int_equal(after.nonzeros, before.values);
        assert_true(after.nonzeros > before.nonzeros);
        for (size_t i = 0; i < sizeof mask; i++) {
            assert_int_equal(mask[i] & ~filled[i], 0);
        }
    }
}

/* ---- what does not fit ---- */

static void test_fault__says_what_must_hold(void **state)
{
    (void)state;
    static const struct {
        struct espl_align align;
        struct espl_matrix_shape shape;
        const char *fault;
    } cases[] = {
        {{{2, 1}, ESPL_ALIGN_AREAS, 0}, {24, 100}, "rows must be a multiple of 16"},
        {{{1, 2}, ESPL_ALIGN_AREAS, 0}, {24, 100}, "columns must be a multiple of 64"},
        {{{1, 3}, ESPL_ALIGN_AREAS, 0}, {32, 64}, "areas are 1, 2 or 4 a side"},
        {{{8, 1}, ESPL_ALIGN_AREAS, 0}, {32, 64}, "areas are 1, 2 or 4 a side"},
        {{{3, 1}, ESPL_ALIGN_BLOCK, 0}, {32, 64}, "rows must be a multiple of the block's"},
        {{{1, 5}, ESPL_ALIGN_BLOCK, 0}, {32, 64}, "columns must be a multiple of the block's"},
        {{{2, 1}, ESPL_ALIGN_AREAS, 0}, {32, 100}, NULL}, /* one side alone must fit */
        {{{1, 2}, ESPL_ALIGN_AREAS, 0}, {7, 128}, NULL},
        {{{4, 5}, ESPL_ALIGN_BLOCK, 0}, {8, 15}, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *fault = espl_align_fault(&cases[i].align, &cases[i].shape);
        if (cases[i].fault == NULL) {
            assert_null(fault);
        } else {
            assert_string_equal(fault, cases[i].fault);
        }
    }
}

static void test_row_span__pieces_do_not_tear_groups(void **state)
{
    (void)state;
    static const size_t expected[GRIDS] = {16, 1, 16, 1, 16, 1, 4, 2};
    for (size_t g = 0; g < GRIDS; g++) {
        assert_int_equal(espl_align_row_span(&grids[g]), expected[g]);
    }
}

static void test_row_count__truncates_the_double_product(void **state)
{
    (void)state;
    assert_int_equal(espl_prune_row_count(7, 0.5), 3);
    assert_int_equal(espl_prune_row_count(100, 0.29), 28); /* 100 * 0.29 = 28.999999999999996 */
}

/* Sums of rows 0 and 1: 5 1 4 3 | 2 2 9 2; row 2 stands alone: 1 2 3 4 | 4 3 2 1. Of equal ones the
 * lower column goes: of the second window of rows 0 and 1 the last 2 stays. */
static void test_nm_mask__shared_by_hand(void **state)
{
    (void)state;
    static const struct espl_matrix_shape three = {3, 8};
    static const struct espl_nm_choice choice = {.pattern = {2, 4}, .vector = 2};
    static const float score[] = {
        0, 1, 4, 0, 1, 1, 9, 0, /* */
        5, 0, 0, 3, 1, 1, 0, 2, /* */
        1, 2, 3, 4, 4, 3, 2, 1, /* */
    };
    uint8_t mask[3] = {0xff, 0xff, 0xff};
    assert_int_equal(espl_align_nm_mask(backend, &choice, &three, score, mask, NULL), ESPL_OK);
    assert_int_equal(mask[0], 0xc5);
    assert_int_equal(mask[1], 0xc5);
    assert_int_equal(mask[2], 0x3c);
}

/* A row of the oracle: its window's columns with a smaller sum, or an equal one further left. */
static void test_nm_mask__equals_the_oracle(void **state)
{
    (void)state;
    enum { WIDE = 43 };
    static const size_t vectors[] = {1, 2, 5, 8, ROWS, 1000};
    static const struct espl_matrix_shape odd = {ROWS, WIDE};
    struct espl_rng rng = espl_rng_stream(5, "nm", 0);
    float score[ROWS * WIDE];
    uint8_t mask[ROWS * 6];
    for (size_t i = 0; i < ROWS * WIDE; i++) {
        score[i] = (float)espl_rng_below(&rng, 4); /* many ties */
    }
    for (size_t v = 0; v < sizeof vectors / sizeof vectors[0]; v++) {
        const struct espl_nm_choice choice = {
            .pattern = {3, 8}, .keep_tail = true, .vector = vectors[v]};
        memset(mask, 0x5a, sizeof mask);
        assert_int_equal(espl_align_nm_mask(backend, &choice, &odd, score, mask, NULL), ESPL_OK);
        for (size_t row = 0; row < ROWS; row++) {
            const size_t first = row / vectors[v] * vectors[v];
            float sums[WIDE] = {0};
            for (size_t r = first; r < first + vectors[v] && r < ROWS; r++) {
                for (size_t col = 0; col < WIDE; col++) {
                    sums[col] += score[r * WIDE + col];
                }
            }
            for (size_t col = 0; col < WIDE; col++) {
                const size_t window = col / 8 * 8;
                size_t before = 0;
                for (size_t c = window; c < window + 8 && c < WIDE; c++) {
                    before += sums[c] < sums[col] || (sums[c] == sums[col] && c < col);
                }
                assert_int_equal(mask[row * 6 + col / 8] >> (col % 8) & 1,
                                 window + 8 > WIDE || before >= 5);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_row_mask__equals_the_oracle),
        cmocka_unit_test(test_row_mask__off_is_the_plain_row_mask),
        cmocka_unit_test(test_row_mask__by_hand),
        cmocka_unit_test(test_pool__sum_and_largest),
        cmocka_unit_test(test_areas__encoded_without_stored_zeros),
        cmocka_unit_test(test_fill__keeps_what_the_union_stores),
        cmocka_unit_test(test_fault__says_what_must_hold),
        cmocka_unit_test(test_row_span__pieces_do_not_tear_groups),
        cmocka_unit_test(test_nm_mask__shared_by_hand),
        cmocka_unit_test(test_nm_mask__equals_the_oracle),
        cmocka_unit_test(test_row_count__truncates_the_double_product),
    };
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}

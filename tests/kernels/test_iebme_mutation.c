/* 100,000 damaged matrices: each is refused, or decodes, within its arrays, to codes that the
 * encoder turns into the same bytes. The arrays are exact copies, so the address sanitizer sees
 * every step outside. */
#include "kernels/iebme_fixture.h"
#include "support/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

static void *copy_of(const void *data, size_t bytes)
{
    void *copy = malloc(bytes != 0 ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    return copy;
}

static struct espl_iebme_matrix copy_matrix(const struct espl_iebme_matrix *from)
{
    struct espl_iebme_matrix to = *from;
    to.masks = copy_of(from->masks, from->mask_words * sizeof *from->masks);
    to.offsets = copy_of(from->offsets, from->offset_count * sizeof *from->offsets);
    to.values = copy_of(from->values, from->value_bytes);
    to.tags = copy_of(from->tags, from->tag_count);
    to.orders = copy_of(from->orders, from->order_count * sizeof *from->orders);
    return to;
}

static void flip_bit(struct espl_rng *rng, void *data, size_t bytes)
{
    if (bytes > 0) {
        ((uint8_t *)data)[espl_rng_below(rng, bytes)] ^= (uint8_t)(1u << espl_rng_below(rng, 8));
    }
}

/* Shrinks the array too, so that a reader that trusts the old size steps outside. */
static void change_count(struct espl_rng *rng, void **data, size_t *count, size_t item)
{
    const size_t fewer = (size_t)espl_rng_below(rng, *count + 1);
    void *copy = copy_of(*data, fewer * item);
    free(*data);
    *data = copy;
    *count = fewer;
}

static void change_layout(struct espl_rng *rng, struct espl_iebme_layout *layout)
{
    static const size_t sizes[] = {0, 1, 15, 16, 17, 63, 64, 65, 1000, SIZE_MAX / 16, SIZE_MAX};
    const size_t size = sizes[espl_rng_below(rng, sizeof sizes / sizeof sizes[0])];
    switch (espl_rng_below(rng, 5)) {
    case 0:
        layout->rows = size;
        break;
    case 1:
        layout->cols = size;
        break;
    case 2:
        layout->bits = (unsigned)espl_rng_below(rng, 10);
        break;
    case 3:
        layout->areas = (enum espl_iebme_areas)espl_rng_below(rng, 14);
        break;
    default:
        layout->scope = (enum espl_iebme_scope)espl_rng_below(rng, 4);
        break;
    }
}

static void mutate(struct espl_rng *rng, struct espl_iebme_matrix *matrix)
{
    const unsigned changes = 1 + (unsigned)espl_rng_below(rng, 3);
    for (unsigned n = 0; n < changes; n++) {
        switch (espl_rng_below(rng, 9)) {
        case 0:
            flip_bit(rng, matrix->masks, matrix->mask_words * sizeof *matrix->masks);
            break;
        case 1:
            flip_bit(rng, matrix->offsets, matrix->offset_count * sizeof *matrix->offsets);
            break;
        case 2:
            flip_bit(rng, matrix->values, matrix->value_bytes);
            break;
        case 3:
            flip_bit(rng, matrix->tags, matrix->tag_count);
            break;
        case 4:
            flip_bit(rng, matrix->orders, matrix->order_count * sizeof *matrix->orders);
            break;
        case 5:
            change_layout(rng, &matrix->layout);
            break;
        case 6:
            change_count(rng, (void **)&matrix->masks, &matrix->mask_words, sizeof *matrix->masks);
            break;
        case 7:
            change_count(rng, (void **)&matrix->values, &matrix->value_bytes, 1);
            break;
        default:
            change_count(rng, (void **)&matrix->offsets, &matrix->offset_count,
                         sizeof *matrix->offsets);
            break;
        }
    }
}

/* A matrix that passed is what the encoder makes of its codes. */
static void check_accepted(const struct espl_iebme_matrix *matrix)
{
    struct espl_iebme_plan plan;
    struct espl_iebme_matrix again;
    int8_t *codes = malloc(matrix->layout.rows * matrix->layout.cols);
    assert_non_null(codes);
    assert_int_equal(espl_iebme_decode(matrix, codes, NULL), ESPL_OK);
    if (matrix->layout.areas != ESPL_IEBME_MIXED) { /* tags need not be the best there */
        fixture_encode(codes, &matrix->layout, matrix->orders, &plan, &again);
        assert_int_equal(again.mask_words, matrix->mask_words);
        assert_int_equal(again.value_bytes, matrix->value_bytes);
        assert_memory_equal(again.masks, matrix->masks, matrix->mask_words * sizeof *again.masks);
        assert_memory_equal(again.values, matrix->values, matrix->value_bytes);
        espl_iebme_matrix_free(&again);
    }
    free(codes);
}

static void test_mutations__refused_or_harmless(void **state)
{
    (void)state;
    enum { SEEDS = 500, MUTATIONS_EACH = 200 };
    static const unsigned widths[3] = {2, 4, 8};
    struct espl_rng rng = espl_rng_stream(4, "iebme-mutations", 0);
    unsigned refused = 0;
    unsigned accepted = 0;
    for (unsigned n = 0; n < SEEDS; n++) {
        struct espl_iebme_plan plan;
        struct espl_iebme_matrix good;
        const struct espl_iebme_layout layout = {
            1 + (size_t)espl_rng_below(&rng, 34), 1 + (size_t)espl_rng_below(&rng, 140),
            widths[n % 3], (enum espl_iebme_areas)(n % (ESPL_IEBME_MIXED + 1)),
            (enum espl_iebme_scope)espl_rng_below(&rng, 3)};
        int8_t *codes =
            fixture_codes(&rng, layout.rows, layout.cols, layout.bits, espl_rng_unit(&rng));
        uint64_t *orders = fixture_orders(&rng, &layout);
        fixture_encode(codes, &layout, orders, &plan, &good);
        for (unsigned m = 0; m < MUTATIONS_EACH; m++) {
            struct espl_error err;
            struct espl_iebme_matrix bad = copy_matrix(&good);
            mutate(&rng, &bad);
            if (espl_iebme_validate(&bad, &err) == ESPL_OK) {
                check_accepted(&bad);
                accepted++;
            } else {
                assert_true(err.code == ESPL_E_CORRUPT || err.code == ESPL_E_UNSUPPORTED);
                refused++;
            }
            espl_iebme_matrix_free(&bad);
        }
        espl_iebme_matrix_free(&good);
        free(orders);
        free(codes);
    }
    print_message("%u refused, %u accepted and the encoder's own\n", refused, accepted);
    assert_true(refused > 50000);
    assert_true(accepted > 1000); /* a changed value is another matrix, not a damaged one */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutations__refused_or_harmless)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "kernels/iebme_fixture.h"
#include "support/cmocka_all.h"

#include <stdlib.h>

void fixture_fill_codes(struct espl_rng *rng, int8_t *codes, size_t count, unsigned bits,
                        double sparsity)
{
    const int half = 1 << (bits - 1u);
    for (size_t i = 0; i < count; i++) {
        codes[i] = 0;
        if (espl_rng_unit(rng) >= sparsity) {
            const int code = (int)espl_rng_below(rng, (uint64_t)(2 * half - 1)) - half;
            codes[i] = (int8_t)(code >= 0 ? code + 1 : code);
        }
    }
}

int8_t *fixture_codes(struct espl_rng *rng, size_t rows, size_t cols, unsigned bits,
                      double sparsity)
{
    int8_t *codes = malloc(rows * cols);
    assert_non_null(codes);
    fixture_fill_codes(rng, codes, rows * cols, bits, sparsity);
    return codes;
}

int8_t *fixture_patchwork(struct espl_rng *rng, size_t rows, size_t cols)
{
    int8_t *codes = fixture_codes(rng, rows, cols, 4, 0.0);
    const uint64_t key = espl_rng_below(rng, UINT64_MAX);
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < cols; c++) {
            const size_t kind = (r / 16 + c / 512) % 5;
            const bool row_pairs = kind == 2 || kind == 3; /* rows g and g + 8 alike */
            const bool column_pairs = kind == 1 || kind == 3;
            const size_t row = row_pairs ? r / 16 * 16 + r % 8 : r;
            const size_t column = column_pairs ? c / 64 * 64 + c % 32 : c;
            struct espl_rng coin = espl_rng_stream(key, "patchwork", row * cols + column);
            if (kind != 4 && espl_rng_unit(&coin) < 0.5) {
                codes[r * cols + c] = 0;
            }
        }
    }
    return codes;
}

uint64_t fixture_order(struct espl_rng *rng)
{
    uint8_t rows[ESPL_IEBME_TILE_ROWS];
    for (size_t i = 0; i < ESPL_IEBME_TILE_ROWS; i++) {
        const size_t j = (size_t)espl_rng_below(rng, i + 1);
        rows[i] = rows[j];
        rows[j] = (uint8_t)i;
    }
    return espl_iebme_order_pack(rows);
}

uint64_t *fixture_orders(struct espl_rng *rng, const struct espl_iebme_layout *layout)
{
    const size_t stripes = espl_iebme_stripes(layout);
    size_t count = stripes;
    if (layout->scope == ESPL_IEBME_SCOPE_NONE) {
        return NULL;
    }
    if (layout->scope == ESPL_IEBME_SCOPE_TILE) {
        count *= espl_iebme_tile_cols(layout);
    }
    uint64_t *orders = calloc(count, sizeof *orders);
    assert_non_null(orders);
    for (size_t i = 0; i < count; i++) {
        orders[i] = fixture_order(rng);
    }
    return orders;
}

void fixture_encode(const int8_t *codes, const struct espl_iebme_layout *layout,
                    const uint64_t *orders, struct espl_iebme_plan *plan,
                    struct espl_iebme_matrix *matrix)
{
    struct espl_error err;
    if (espl_iebme_plan(codes, layout, orders, plan, &err) != ESPL_OK ||
        espl_iebme_encode(codes, orders, plan, matrix, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
}

#include "kernels/nm_fixture.h"

#include "support/cmocka_all.h"

#include <stdbool.h>
#include <stdlib.h>

/* n different places of m, by reservoir: bit p = kept. */
static unsigned random_places(struct espl_rng *rng, unsigned n, unsigned m)
{
    unsigned kept = 0;
    unsigned wanted = n;
    for (unsigned p = 0; p < m; p++) {
        if (espl_rng_below(rng, m - p) < wanted) {
            kept |= 1u << p;
            wanted--;
        }
    }
    return kept;
}

static int8_t random_weight(struct espl_rng *rng, enum nm_fixture_fill fill)
{
    const uint64_t word = espl_rng_below(rng, 3 * 255);
    if (fill == NM_EXTREME) {
        return word % 2 == 0 ? INT8_MIN : INT8_MAX;
    }
    if (fill == NM_SPARSE && word < 255) {
        return 0;
    }
    const int value = (int)(word % 255) - 128; /* -128 to 126 */
    return (int8_t)(value >= 0 ? value + 1 : value);
}

int8_t *nm_fixture_codes(struct espl_rng *rng, const struct espl_nm_layout *layout,
                         enum nm_fixture_fill fill)
{
    const size_t cols = layout->cols;
    int8_t *codes = calloc(layout->rows, cols);
    assert_non_null(codes);
    for (size_t first = 0; first < layout->rows; first += layout->v) {
        for (size_t start = 0; start < cols; start += layout->m) {
            const unsigned kept = random_places(rng, layout->n, layout->m);
            const bool empty = fill == NM_SPARSE && espl_rng_below(rng, 4) == 0;
            for (size_t row = first; row < first + layout->v && row < layout->rows; row++) {
                for (unsigned p = 0; p < layout->m && start + p < cols; p++) {
                    if ((kept >> p & 1u) != 0 && !empty) {
                        codes[row * cols + start + p] = random_weight(rng, fill);
                    }
                }
            }
        }
    }
    return codes;
}

int8_t *nm_fixture_bytes(struct espl_rng *rng, size_t count, enum nm_fixture_fill fill)
{
    int8_t *bytes = malloc(count);
    assert_non_null(bytes);
    for (size_t i = 0; i < count; i++) {
        const int value = (int)espl_rng_below(rng, 256) - 128;
        bytes[i] = (int8_t)(fill != NM_EXTREME ? value : value < 0 ? INT8_MIN : INT8_MAX);
    }
    return bytes;
}

void nm_fixture_encode(const int8_t *codes, const struct espl_nm_layout *layout,
                       struct espl_nm_matrix *matrix)
{
    struct espl_error err;
    if (espl_nm_encode(codes, layout, matrix, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
}

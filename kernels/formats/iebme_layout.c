/* Names, grids and permutations of IE-BME, and which layouts exist. */
#include "core/checked.h"
#include "kernels/formats/iebme_internal.h"

#include <string.h>

const struct espl_iebme_grid espl_iebme_grids[ESPL_IEBME_UNIFORM_CHOICES] = {
    [ESPL_IEBME_1X1] = {1, 1, 1, 16}, [ESPL_IEBME_1X2] = {1, 2, 2, 8},
    [ESPL_IEBME_1X4] = {1, 4, 4, 4},  [ESPL_IEBME_2X1] = {2, 1, 2, 8},
    [ESPL_IEBME_2X2] = {2, 2, 4, 4},  [ESPL_IEBME_2X4] = {2, 4, 8, 2},
    [ESPL_IEBME_4X1] = {4, 1, 4, 4},  [ESPL_IEBME_4X2] = {4, 2, 8, 2},
    [ESPL_IEBME_4X4] = {4, 4, 16, 1}, [ESPL_IEBME_DENSE] = {16, 64, 1024, 0},
};

static const char *const area_names[] = {
    [ESPL_IEBME_1X1] = "1x1",     [ESPL_IEBME_1X2] = "1x2",
    [ESPL_IEBME_1X4] = "1x4",     [ESPL_IEBME_2X1] = "2x1",
    [ESPL_IEBME_2X2] = "2x2",     [ESPL_IEBME_2X4] = "2x4",
    [ESPL_IEBME_4X1] = "4x1",     [ESPL_IEBME_4X2] = "4x2",
    [ESPL_IEBME_4X4] = "4x4",     [ESPL_IEBME_DENSE] = "dense",
    [ESPL_IEBME_MIXED] = "mixed", [ESPL_IEBME_AUTO_MATRIX] = "auto-matrix",
    [ESPL_IEBME_AUTO] = "auto",
};
enum { AREA_NAMES = sizeof area_names / sizeof area_names[0] };

const char *espl_iebme_areas_name(enum espl_iebme_areas areas)
{
    return (size_t)areas < AREA_NAMES ? area_names[areas] : NULL;
}

bool espl_iebme_areas_parse(const char *name, enum espl_iebme_areas *areas)
{
    for (size_t i = 0; i < AREA_NAMES; i++) {
        if (strcmp(area_names[i], name) == 0) {
            *areas = (enum espl_iebme_areas)i;
            return true;
        }
    }
    return false;
}

void espl_iebme_areas_grid(enum espl_iebme_areas areas, unsigned *rows, unsigned *cols)
{
    *rows = espl_iebme_grids[areas].area_rows;
    *cols = espl_iebme_grids[areas].area_cols;
}

bool espl_iebme_areas_from_grid(unsigned rows, unsigned cols, enum espl_iebme_areas *areas)
{
    for (size_t i = 0; i < ESPL_IEBME_UNIFORM_CHOICES; i++) {
        if (espl_iebme_grids[i].area_rows == rows && espl_iebme_grids[i].area_cols == cols) {
            *areas = (enum espl_iebme_areas)i;
            return true;
        }
    }
    return false;
}

uint64_t espl_iebme_order_pack(const uint8_t rows[ESPL_IEBME_TILE_ROWS])
{
    uint64_t order = 0;
    for (unsigned r = 0; r < ESPL_IEBME_TILE_ROWS; r++) {
        order |= (uint64_t)(rows[r] & 15u) << (4 * r);
    }
    return order;
}

void espl_iebme_order_unpack(uint64_t order, uint8_t rows[ESPL_IEBME_TILE_ROWS])
{
    for (unsigned r = 0; r < ESPL_IEBME_TILE_ROWS; r++) {
        rows[r] = (uint8_t)(order >> (4 * r) & 15u);
    }
}

bool espl_iebme_order_valid(uint64_t order)
{
    unsigned seen = 0;
    for (unsigned r = 0; r < ESPL_IEBME_TILE_ROWS; r++) {
        seen |= 1u << (order >> (4 * r) & 15u);
    }
    return seen == 0xFFFFu;
}

uint64_t espl_iebme_tile_order(const struct espl_iebme_layout *layout, const uint64_t *orders,
                               size_t stripe, size_t tile)
{
    switch (layout->scope) {
    case ESPL_IEBME_SCOPE_STRIPE:
        return orders[stripe];
    case ESPL_IEBME_SCOPE_TILE:
        return orders[tile];
    case ESPL_IEBME_SCOPE_NONE:
    default:
        return ESPL_IEBME_ORDER_IDENTITY;
    }
}

size_t espl_iebme_order_count(const struct espl_iebme_layout *layout, size_t tiles)
{
    if (layout->scope == ESPL_IEBME_SCOPE_STRIPE) {
        return espl_iebme_stripes(layout);
    }
    return layout->scope == ESPL_IEBME_SCOPE_TILE ? tiles : 0;
}

enum espl_status espl_iebme_layout_check(const struct espl_iebme_layout *layout,
                                         struct espl_error *err)
{
    if (layout->rows == 0 || layout->cols == 0) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "a matrix of %zu x %zu has nothing to encode",
                         layout->rows, layout->cols);
    }
    if (layout->bits != 2 && layout->bits != 4 && layout->bits != 8) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "IE-BME holds codes of 2, 4 or 8 bits, not of %u",
                         layout->bits);
    }
    if ((unsigned)layout->areas > ESPL_IEBME_MIXED) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "IE-BME has no areas with code %u",
                         (unsigned)layout->areas);
    }
    if ((unsigned)layout->scope > ESPL_IEBME_SCOPE_TILE) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "IE-BME has no permutation scope with code %u",
                         (unsigned)layout->scope);
    }
    return ESPL_OK;
}

enum espl_status espl_iebme_count_tiles(const struct espl_iebme_layout *layout, size_t *tiles,
                                        struct espl_error *err)
{
    size_t bits = 0;
    if (!espl_mul_size(espl_iebme_stripes(layout), espl_iebme_tile_cols(layout), tiles) ||
        !espl_mul_size(*tiles, (size_t)ESPL_IEBME_TILE_VALUES * 16, &bits)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "a matrix of %zu x %zu is too large",
                         layout->rows, layout->cols);
    }
    return ESPL_OK;
}

enum espl_iebme_areas espl_iebme_tile_areas(const struct espl_iebme_matrix *matrix, size_t tile)
{
    return matrix->layout.areas == ESPL_IEBME_MIXED ? (enum espl_iebme_areas)matrix->tags[tile]
                                                    : matrix->layout.areas;
}

/* Every format behind one interface: what the encoder takes, and what the closed form expects. */
#include "espalier/formats.h"

#include <math.h>
#include <string.h>

const struct espl_format espl_formats[] = {
    {"dense", true, ESPL_IEBME_DENSE, ESPL_PEER_DENSE},
    {"iebme-1x1", false, ESPL_IEBME_1X1, ESPL_PEER_DENSE},
    {"iebme-1x2", false, ESPL_IEBME_1X2, ESPL_PEER_DENSE},
    {"iebme-2x1", false, ESPL_IEBME_2X1, ESPL_PEER_DENSE},
    {"iebme-2x2", false, ESPL_IEBME_2X2, ESPL_PEER_DENSE},
    {"iebme-4x4", false, ESPL_IEBME_4X4, ESPL_PEER_DENSE},
    {"iebme-auto", false, ESPL_IEBME_AUTO, ESPL_PEER_DENSE},
    {"tca-bme", true, ESPL_IEBME_DENSE, ESPL_PEER_TCA_BME},
    {"tiled-csl", true, ESPL_IEBME_DENSE, ESPL_PEER_TILED_CSL},
    {"tiled-csl-half", true, ESPL_IEBME_DENSE, ESPL_PEER_TILED_CSL_HALF},
    {"csr16", true, ESPL_IEBME_DENSE, ESPL_PEER_CSR16},
    {"csr32", true, ESPL_IEBME_DENSE, ESPL_PEER_CSR32},
    {NULL, false, ESPL_IEBME_DENSE, ESPL_PEER_DENSE},
};

const struct espl_format *espl_format_find(const char *name)
{
    for (const struct espl_format *format = espl_formats; format->name != NULL; format++) {
        if (strcmp(format->name, name) == 0) {
            return format;
        }
    }
    return NULL;
}

unsigned espl_format_value_bits(const struct espl_format *format, unsigned bits)
{
    return format->is_peer && format->peer == ESPL_PEER_TILED_CSL_HALF ? 16u : bits;
}

/* Everything but the values themselves. Tiled-CSL's half entries hold value and place in one. */
static uint64_t peer_metadata(enum espl_peer_format format,
                              const size_t section_bytes[ESPL_PEER_SECTIONS])
{
    uint64_t metadata = format == ESPL_PEER_TILED_CSL_HALF ? section_bytes[0] / 2 : 0;
    for (size_t i = 1; i < ESPL_PEER_SECTIONS; i++) {
        metadata += section_bytes[i];
    }
    return metadata;
}

uint64_t espl_format_nonzeros(const int8_t *codes, size_t count)
{
    uint64_t nonzeros = 0;
    for (size_t i = 0; i < count; i++) {
        nonzeros += codes[i] != 0 ? 1 : 0;
    }
    return nonzeros;
}

enum espl_status espl_format_measure(const struct espl_format *format, const int8_t *codes,
                                     size_t rows, size_t cols, unsigned bits,
                                     enum espl_iebme_scope scope, const uint64_t *orders,
                                     struct espl_traffic *traffic, struct espl_error *err)
{
    if (!format->is_peer) {
        const struct espl_iebme_layout layout = {rows, cols, bits, format->areas, scope};
        struct espl_iebme_plan plan;
        const enum espl_status status = espl_iebme_plan(codes, &layout, orders, &plan, err);
        if (status == ESPL_OK) {
            *traffic = espl_traffic_of_iebme(&plan);
        }
        return status;
    }
    size_t section_bytes[ESPL_PEER_SECTIONS];
    uint64_t bytes = 0;
    const enum espl_status status =
        espl_peer_plan(format->peer, codes, rows, cols, bits, section_bytes, &bytes, err);
    if (status == ESPL_OK) {
        *traffic = espl_traffic_of_bytes(rows, cols, espl_format_value_bits(format, bits),
                                         espl_format_nonzeros(codes, rows * cols), (double)bytes,
                                         (double)peer_metadata(format->peer, section_bytes));
    }
    return status;
}

/* ---- closed forms ---- */

struct expectation {
    double bits;     /* a weight, in all */
    double metadata; /* of these */
};

static struct expectation expect_areas(enum espl_iebme_areas areas, unsigned bits, double sparsity)
{
    unsigned rows = 0;
    unsigned cols = 0;
    espl_iebme_areas_grid(areas, &rows, &cols);
    const unsigned count = rows * cols;
    const double offsets = 32.0 / ESPL_IEBME_TILE_VALUES;
    const struct expectation expected = {espl_iebme_expected_bits(count, bits, sparsity),
                                         areas == ESPL_IEBME_DENSE ? 0.0 : 1.0 / count + offsets};
    return expected;
}

static struct expectation expect_smallest(unsigned bits, double sparsity)
{
    struct expectation best = expect_areas(ESPL_IEBME_DENSE, bits, sparsity);
    for (unsigned areas = 0; areas < ESPL_IEBME_DENSE; areas++) {
        const struct expectation other = expect_areas((enum espl_iebme_areas)areas, bits, sparsity);
        best = other.bits < best.bits ? other : best;
    }
    return best;
}

/* The places of the peers' closed forms (size_forms.c), without the values. */
static struct expectation expect_peer(enum espl_peer_format format, unsigned bits, double sparsity,
                                      size_t cols)
{
    const double kept = 1.0 - sparsity;
    const double csl_tile = 128.0 * 64.0;
    const double csl_fill = 1.5;
    struct expectation expected = {espl_peer_expected_bits(format, bits, sparsity, cols), 0.0};
    switch (format) {
    case ESPL_PEER_TCA_BME:
        expected.metadata = 1.0 + 5.0 * 32.0 / (64.0 * 64.0);
        break;
    case ESPL_PEER_CSR16:
        expected.metadata = 16.0 * kept + 32.0 / (double)cols;
        break;
    case ESPL_PEER_CSR32:
        expected.metadata = 32.0 * kept + 32.0 / (double)cols;
        break;
    case ESPL_PEER_TILED_CSL_HALF:
    case ESPL_PEER_TILED_CSL:
        expected.metadata = 16.0 * kept + (32.0 + csl_fill * 16.0) / csl_tile;
        break;
    case ESPL_PEER_DENSE:
        break;
    }
    return expected;
}

struct espl_traffic espl_format_expected(const struct espl_format *format, size_t rows, size_t cols,
                                         unsigned bits, double sparsity)
{
    const double weights = (double)rows * (double)cols;
    struct expectation expected;
    if (format->is_peer) {
        expected = expect_peer(format->peer, bits, sparsity, cols);
    } else if (format->areas == ESPL_IEBME_AUTO) {
        expected = expect_smallest(bits, sparsity);
    } else {
        expected = expect_areas(format->areas, bits, sparsity);
    }
    return espl_traffic_of_bytes(rows, cols, espl_format_value_bits(format, bits),
                                 (uint64_t)llround(weights * (1.0 - sparsity)),
                                 weights * expected.bits / 8.0, weights * expected.metadata / 8.0);
}

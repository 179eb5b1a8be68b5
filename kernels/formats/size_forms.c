/* Sizes in closed form. A mask is random: every weight is 0 with probability s, independently. */
#include "espalier/formats.h"

#include <math.h>

double espl_iebme_expected_bits_bare(unsigned areas, unsigned bits, double sparsity)
{
    if (areas == ESPL_IEBME_TILE_VALUES) {
        return bits;
    }
    return 1.0 / areas + bits * (1.0 - pow(sparsity, areas));
}

double espl_iebme_expected_bits(unsigned areas, unsigned bits, double sparsity)
{
    const double offsets = areas == ESPL_IEBME_TILE_VALUES ? 0.0 : 32.0 / ESPL_IEBME_TILE_VALUES;
    return espl_iebme_expected_bits_bare(areas, bits, sparsity) + offsets;
}

double espl_iebme_break_even(unsigned areas, unsigned bits)
{
    return pow(1.0 / ((double)bits * areas), 1.0 / areas);
}

double espl_peer_expected_bits(enum espl_peer_format format, unsigned bits, double sparsity,
                               size_t cols)
{
    const double kept = 1.0 - sparsity;
    const double tca_tile = 64.0 * 64.0;
    const double csl_tile = 128.0 * 64.0;
    const double csl_fill = 1.5; /* entries to a multiple of four, on average */
    switch (format) {
    case ESPL_PEER_TCA_BME:
        /* five offsets and on average half of 16 bytes of fill a global tile */
        return 1.0 + bits * kept + (5.0 * 32.0 + (128.0 - bits) / 2.0) / tca_tile;
    case ESPL_PEER_CSR16:
        return (16.0 + bits) * kept + 32.0 / (double)cols;
    case ESPL_PEER_CSR32:
        return (32.0 + bits) * kept + 32.0 / (double)cols;
    case ESPL_PEER_TILED_CSL_HALF:
        return 32.0 * kept + (32.0 + csl_fill * 32.0) / csl_tile;
    case ESPL_PEER_TILED_CSL:
        return (16.0 + bits) * kept + (32.0 + csl_fill * (16.0 + bits)) / csl_tile;
    case ESPL_PEER_DENSE:
    default:
        return bits;
    }
}

double espl_sparse_entropy_bits(unsigned bits, double sparsity)
{
    const double kept = 1.0 - sparsity;
    double entropy = 0.0;
    if (sparsity > 0.0 && sparsity < 1.0) {
        entropy = -sparsity * log2(sparsity) - kept * log2(kept);
    }
    return entropy + bits * kept;
}

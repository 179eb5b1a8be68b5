#include "stages/iebme_encode/encode_linear.h"

#include "stages/encode_common/coded_linear.h"
#include "stages/encode_common/unit_counts.h"

#include <stdlib.h>
#include <string.h>

const char *const espl_encode_names[] = {
    [ESPL_ENCODE_WEIGHTS] = "weights",
    [ESPL_ENCODE_NONZEROS] = "nonzero_codes",
    [ESPL_ENCODE_BYTES] = "encoded_bytes",
    [ESPL_ENCODE_PAYLOAD] = "payload_bytes",
    [ESPL_ENCODE_PADDING] = "padding_bytes",
    [ESPL_ENCODE_METADATA] = "metadata_bytes",
    [ESPL_ENCODE_SCALES] = "scale_bytes",
    [ESPL_ENCODE_DENSE] = "dense_bytes",
    [ESPL_ENCODE_TCA_BME] = "tca_bme_bytes",
    [ESPL_ENCODE_CSR16] = "csr16_bytes",
    [ESPL_ENCODE_CSR32] = "csr32_bytes",
    [ESPL_ENCODE_TILED_CSL] = "tiled_csl_bytes",
    [ESPL_ENCODE_LINEARS] = "linears",
    [ESPL_ENCODE_REORDERED] = "linears_reordered",
    [ESPL_ENCODE_AREAS + ESPL_IEBME_1X1] = "linears_1x1",
    [ESPL_ENCODE_AREAS + ESPL_IEBME_1X2] = "linears_1x2",
    [ESPL_ENCODE_AREAS + ESPL_IEBME_1X4] = "linears_1x4",
    [ESPL_ENCODE_AREAS + ESPL_IEBME_2X1] = "linears_2x1",
    [ESPL_ENCODE_AREAS + ESPL_IEBME_2X2] = "linears_2x2",
    [ESPL_ENCODE_AREAS + ESPL_IEBME_2X4] = "linears_2x4",
    [ESPL_ENCODE_AREAS + ESPL_IEBME_4X1] = "linears_4x1",
    [ESPL_ENCODE_AREAS + ESPL_IEBME_4X2] = "linears_4x2",
    [ESPL_ENCODE_AREAS + ESPL_IEBME_4X4] = "linears_4x4",
    [ESPL_ENCODE_AREAS + ESPL_IEBME_DENSE] = "linears_dense",
    [ESPL_ENCODE_AREAS + ESPL_IEBME_MIXED] = "linears_mixed",
};

static const struct {
    enum espl_encode_count count;
    enum espl_peer_format format;
} peers[] = {
    {ESPL_ENCODE_DENSE, ESPL_PEER_DENSE},         {ESPL_ENCODE_TCA_BME, ESPL_PEER_TCA_BME},
    {ESPL_ENCODE_CSR16, ESPL_PEER_CSR16},         {ESPL_ENCODE_CSR32, ESPL_PEER_CSR32},
    {ESPL_ENCODE_TILED_CSL, ESPL_PEER_TILED_CSL},
};

struct espl_traffic espl_encode_traffic(const uint64_t counts[ESPL_ENCODE_COUNTS], size_t rows,
                                        size_t cols, unsigned bits)
{
    const double bytes = (double)(counts[ESPL_ENCODE_BYTES] - counts[ESPL_ENCODE_SCALES]);
    return espl_traffic_of_bytes(rows, cols, bits, counts[ESPL_ENCODE_NONZEROS], bytes,
                                 (double)counts[ESPL_ENCODE_METADATA]);
}

/* A format that cannot index the matrix has no bytes: that is no reason to encode nothing. */
static enum espl_status count_peers(const struct espl_quant_linear *linear, const int8_t *codes,
                                    uint64_t counts[ESPL_ENCODE_COUNTS], struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < sizeof peers / sizeof peers[0] && status == ESPL_OK; i++) {
        size_t sections[ESPL_PEER_SECTIONS];
        uint64_t bytes = 0;
        status = espl_peer_plan(peers[i].format, codes, linear->out, linear->normal,
                                linear->weight_bits, sections, &bytes, err);
        counts[peers[i].count] = bytes + counts[ESPL_ENCODE_SCALES];
        if (status == ESPL_E_UNSUPPORTED) {
            counts[peers[i].count] = ESPL_UNIT_COUNT_NONE;
            espl_error_clear(err);
            status = ESPL_OK;
        }
    }
    return status;
}

static void count_encoded(const struct espl_iebme_plan *plan, uint64_t counts[ESPL_ENCODE_COUNTS])
{
    const struct espl_traffic traffic = espl_traffic_of_iebme(plan);
    counts[ESPL_ENCODE_NONZEROS] = plan->nonzeros;
    counts[ESPL_ENCODE_BYTES] = plan->bytes + counts[ESPL_ENCODE_SCALES];
    counts[ESPL_ENCODE_PAYLOAD] = (uint64_t)traffic.payload_bytes;
    counts[ESPL_ENCODE_METADATA] = (uint64_t)traffic.metadata_bytes;
    counts[ESPL_ENCODE_PADDING] =
        plan->bytes - counts[ESPL_ENCODE_PAYLOAD] - counts[ESPL_ENCODE_METADATA];
    counts[ESPL_ENCODE_LINEARS] = 1;
    counts[ESPL_ENCODE_REORDERED] = plan->order_count > 0 ? 1 : 0;
    counts[ESPL_ENCODE_AREAS + (size_t)plan->layout.areas] = 1;
}

/* Rows as they are, or in the order given: the smaller one, rows as they are when equal. */
static enum espl_status choose(const struct espl_quant_linear *linear, const int8_t *codes,
                               enum espl_iebme_areas areas, const struct espl_encode_order *order,
                               struct espl_iebme_plan *plan, struct espl_error *err)
{
    struct espl_iebme_layout layout = {linear->out, linear->normal, linear->weight_bits, areas,
                                       ESPL_IEBME_SCOPE_NONE};
    struct espl_iebme_plan ordered;
    enum espl_status status = espl_iebme_plan(codes, &layout, NULL, plan, err);
    if (status != ESPL_OK || order->scope == ESPL_IEBME_SCOPE_NONE) {
        return status;
    }
    layout.scope = order->scope;
    status = espl_iebme_plan(codes, &layout, order->words, &ordered, err);
    if (status == ESPL_OK && ordered.bytes < plan->bytes) {
        *plan = ordered;
    }
    return status;
}

enum espl_status espl_encode_linear(struct espl_quant_linear *linear, enum espl_iebme_areas areas,
                                    const struct espl_encode_order *order,
                                    uint64_t counts[ESPL_ENCODE_COUNTS], struct espl_error *err)
{
    struct espl_iebme_plan plan;
    struct espl_iebme_matrix *matrix = calloc(1, sizeof *matrix);
    int8_t *codes = NULL;
    memset(counts, 0, ESPL_ENCODE_COUNTS * sizeof *counts);
    counts[ESPL_ENCODE_WEIGHTS] = (uint64_t)linear->out * linear->in;
    counts[ESPL_ENCODE_SCALES] = espl_quant_linear_side_bytes(linear);
    enum espl_status status = matrix == NULL
                                  ? espl_fail(err, ESPL_E_NOMEM, "no memory for a matrix")
                                  : espl_coded_unpack(linear, &codes, err);
    if (status == ESPL_OK) {
        status = choose(linear, codes, areas, order, &plan, err);
    }
    if (status == ESPL_OK) {
        status = count_peers(linear, codes, counts, err);
    }
    if (status == ESPL_OK) {
        count_encoded(&plan, counts);
        status = espl_iebme_encode(codes, plan.order_count > 0 ? order->words : NULL, &plan, matrix,
                                   err);
    }
    free(codes);
    if (status != ESPL_OK) {
        free(matrix);
        return status;
    }
    free(linear->codes);
    linear->codes = NULL;
    linear->encoded = matrix;
    return ESPL_OK;
}

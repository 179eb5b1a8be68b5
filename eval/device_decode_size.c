/* Device memory of a decoder, from sizes alone. */
#include "core/checked.h"
#include "eval/device_decode_internal.h"

/* CUDA gives large arrays whole pages of their own. */
static uint64_t paged(uint64_t bytes)
{
    const uint64_t page = (uint64_t)2 << 20;
    return bytes >= page / 2 ? espl_ceil_div(bytes, page) * page : bytes;
}

/* Inputs and outputs of the linears at a site. */
static void site_sizes(const struct espl_model_config *config, enum espl_quant_site site,
                       uint64_t *in, uint64_t *out)
{
    struct espl_forward_widths widths;
    espl_forward_get_widths(config, &widths);
    const uint64_t inner = espl_forward_is_gated(config) ? 2 * widths.ffn : widths.ffn;
    *in = site == ESPL_QUANT_ATTENTION_OUT ? widths.query
          : site == ESPL_QUANT_MLP_MID     ? widths.ffn
                                           : widths.hidden;
    *out = site == ESPL_QUANT_ATTENTION_IN ? widths.query + 2 * widths.value
           : site == ESPL_QUANT_MLP_IN     ? inner
                                           : widths.hidden;
}

/* Codes as the kernels read them: docs/kernels/spmm.md. Padding to the longest lane costs 0.3 bits
 * a weight. */
static uint64_t code_bytes(const struct espl_quant_scheme *scheme, uint64_t in, uint64_t out,
                           bool sparse, double sparsity)
{
    enum { STRIPE = 16, UNIT_COLS = 256, VECTOR = 16, STEP = 128, FINE_STEP = 32, BLOCK = 32 };
    const struct espl_quant_width *width = espl_quant_scheme_width(scheme, (size_t)in);
    const uint64_t outliers = width != NULL ? width->outliers : 0;
    const uint64_t group = width != NULL && width->group_size != 0 ? width->group_size : STEP;
    const uint64_t stripes = espl_ceil_div(out, STRIPE);
    const uint64_t cols = espl_ceil_div(in - outliers, 2 * UNIT_COLS) * 2 * UNIT_COLS;
    const uint64_t step = group % STEP == 0 ? STEP : FINE_STEP;
    const uint64_t scales = stripes * (cols / step) * (STRIPE / scheme->rows_per_scale) * 4;
    const uint64_t dense = stripes * STRIPE * cols * scheme->weight_bits / 8;
    const uint64_t side = stripes * espl_ceil_div(outliers, BLOCK) * STRIPE * BLOCK +
                          stripes * STRIPE * 3 * sizeof(float);
    if (!sparse) {
        return paged(dense) + paged(scales + side);
    }
    const double bits = 1.0 + (1.0 - sparsity) * scheme->weight_bits + 0.31;
    const uint64_t data = (uint64_t)((double)(stripes * STRIPE * cols) * bits / 8.0);
    return paged(data + scales) + paged(side);
}

static uint64_t block_bytes(const struct espl_model_config *config,
                            const struct espl_quant_scheme *scheme,
                            const struct espl_device_weights_options *weights, double sparsity)
{
    const bool encoded = weights->form == ESPL_DEVICE_ENCODED;
    const bool sparse =
        encoded && sparsity > 0.0 && !weights->automatic && weights->areas != ESPL_IEBME_DENSE;
    uint64_t bytes = 0;
    for (int site = 0; site < ESPL_QUANT_SITES; site++) {
        uint64_t in = 0;
        uint64_t out = 0;
        site_sizes(config, (enum espl_quant_site)site, &in, &out);
        bytes += weights->form == ESPL_DEVICE_DENSE_FP16 ? paged(2 * in * out)
                 : weights->form == ESPL_DEVICE_DENSE_INT8
                     ? paged(in * out)
                     : code_bytes(scheme, in, out, sparse, sparsity);
    }
    return bytes;
}

static uint64_t cache_bytes(const struct espl_model_config *config, bool codes,
                            const struct espl_device_decoder_options *options)
{
    const uint64_t heads = (uint64_t)options->sequences * config->kv_heads * options->tokens;
    const uint64_t of_head =
        codes ? config->head_dim / 2 + 2 * sizeof(float) : config->head_dim * sizeof(uint16_t);
    return config->layers * paged(2 * heads * of_head);
}

static uint64_t work_bytes(const struct espl_model_config *config,
                           const struct espl_device_weights_options *weights,
                           const struct espl_device_decoder_options *options)
{
    enum { LIBRARY = 32 << 20 }; /* work space of cuBLAS, and again of cuBLASLt */
    enum { CODE = 64 << 20 };    /* kernels and constants that come with the first launches */
    const uint64_t rows = (uint64_t)options->sequences * options->prompt;
    const uint64_t head_rows = espl_device_head_rows(options);
    uint64_t values = 3 * config->hidden + config->heads * config->head_dim;
    for (int site = 0; site < ESPL_QUANT_SITES; site++) {
        uint64_t in = 0;
        uint64_t out = 0;
        site_sizes(config, (enum espl_quant_site)site, &in, &out);
        values += site == ESPL_QUANT_ATTENTION_IN || site == ESPL_QUANT_MLP_IN ? out : 0;
    }
    const uint64_t libraries = weights->form == ESPL_DEVICE_DENSE_INT8 ? 2 : 1;
    return rows * values * sizeof(float) + rows * config->ffn * sizeof(uint16_t) +
           paged(2 * head_rows * config->vocab * sizeof(float)) + libraries * LIBRARY + CODE;
}

void espl_device_plan_bytes(const struct espl_model_config *config,
                            const struct espl_quant_scheme *scheme,
                            const struct espl_device_weights_options *weights, double sparsity,
                            const struct espl_device_decoder_options *options,
                            struct espl_device_bytes *bytes)
{
    const bool coded = espl_device_form_has_codes(weights->form);
    const uint64_t table = paged(config->vocab * config->hidden * sizeof(uint16_t));
    const uint64_t learned =
        config->rope.type == ESPL_ROPE_NONE ? config->max_positions * config->hidden * 2 : 0;
    bytes->weights = config->layers * block_bytes(config, scheme, weights, sparsity);
    bytes->outside = (config->tied_embeddings ? 1 : 2) * table + paged(learned);
    bytes->cache = cache_bytes(config, coded && scheme->kv_bits != ESPL_QUANT_FLOAT_BITS, options);
    bytes->work = work_bytes(config, weights, options);
}

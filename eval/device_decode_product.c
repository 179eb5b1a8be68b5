/* Products of a decoder's linears for one number of tokens. */
#include "espalier/cuda_timing.h"
#include "eval/device_decode_internal.h"

#include <stdlib.h>

/* ---- INT8: one product for each shape, the fastest of cuBLASLt's algorithms ---- */

/* A product being timed over the weights of all blocks in turn, so with cold caches. */
struct trial {
    const struct espl_device_decoder *decoder;
    const struct espl_device_product *product;
    enum espl_quant_site site;
    float *results;
};

static enum espl_status launch_trial(void *self, size_t copy, bool overlap, void *stream,
                                     struct espl_error *err)
{
    const struct trial *trial = self;
    const struct espl_device_weights *weights = trial->decoder->weights;
    const struct espl_device_linear *linear =
        &weights->blocks[copy % weights->block_count].linears[trial->site];
    (void)overlap;
    return espl_cuda_blaslt_run(trial->product->bytes, trial->product->algorithm, linear->dense,
                                trial->decoder->input, trial->results, stream, err);
}

static float *results_of(const struct espl_device_decoder *decoder, enum espl_quant_site site)
{
    return site == ESPL_QUANT_ATTENTION_IN ? decoder->qkv
           : site == ESPL_QUANT_MLP_IN     ? decoder->inner
                                           : decoder->branch;
}

static enum espl_status pick_algorithm(struct espl_device_decoder *decoder, size_t tokens,
                                       enum espl_quant_site site,
                                       struct espl_device_product *product, struct espl_error *err)
{
    const size_t blocks = decoder->weights->block_count;
    const bool few = tokens <= ESPL_DEVICE_PIECE; /* bound by weights: all blocks' in turn */
    const struct espl_cuda_timing_options options = {
        .graph = true, .launches = few && blocks > 4 ? blocks : 4, .repeats = 3};
    const size_t count = espl_cuda_blaslt_algorithms(product->bytes);
    struct trial trial = {decoder, product, site, results_of(decoder, site)};
    const struct espl_cuda_subject subject = {&trial, launch_trial};
    double best_seconds = 0.0;
    size_t best = count;
    enum espl_status status = ESPL_OK;
    for (size_t a = 0; a < count; a++) {
        struct espl_cuda_time time;
        product->algorithm = a;
        status = espl_cuda_time_launches(&subject, &options, &time, err);
        if (status == ESPL_OK && (best == count || time.median < best_seconds)) {
            best = a;
            best_seconds = time.median;
        }
    }
    product->algorithm = best;
    return best < count ? ESPL_OK : status;
}

static enum espl_status create_bytes(struct espl_device_decoder *decoder, size_t tokens,
                                     struct espl_device_products *products, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (int site = 0; status == ESPL_OK && site < ESPL_QUANT_SITES; site++) {
        const struct espl_device_linear *linear = &decoder->weights->blocks[0].linears[site];
        struct espl_device_product *product = &products->blocks[0][site];
        status = espl_cuda_blaslt_product_create(decoder->blaslt, ESPL_CUDA_BLASLT_SUMS, tokens,
                                                 linear->in, linear->out, &product->bytes, err);
        if (status == ESPL_OK) {
            status = pick_algorithm(decoder, tokens, (enum espl_quant_site)site, product, err);
        }
    }
    return status;
}

/* ---- codes ---- */

static enum espl_status create_spmm(const struct espl_device_weights *weights, size_t tokens,
                                    struct espl_device_products *products, struct espl_error *err)
{
    const size_t most = tokens < ESPL_DEVICE_PIECE ? tokens : ESPL_DEVICE_PIECE;
    enum espl_status status = ESPL_OK;
    for (size_t b = 0; status == ESPL_OK && b < weights->block_count; b++) {
        if (weights->blocks[b].like != b) {
            continue;
        }
        for (int site = 0; status == ESPL_OK && site < ESPL_QUANT_SITES; site++) {
            const struct espl_device_linear *linear = &weights->blocks[b].linears[site];
            for (size_t i = 0; status == ESPL_OK && i < linear->matrix_count; i++) {
                status = espl_cuda_spmm_create(linear->matrices[i], most, NULL,
                                               &products->blocks[b][site].spmm[i], err);
            }
        }
    }
    return status;
}

enum espl_status espl_device_products_create(struct espl_device_decoder *decoder, size_t tokens,
                                             struct espl_device_products *products,
                                             struct espl_error *err)
{
    const struct espl_device_weights *weights = decoder->weights;
    products->tokens = tokens;
    products->blocks = calloc(weights->block_count, sizeof *products->blocks);
    if (products->blocks == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a model's products");
    }
    return espl_device_form_has_codes(weights->form) ? create_spmm(weights, tokens, products, err)
           : weights->form == ESPL_DEVICE_DENSE_INT8 ? create_bytes(decoder, tokens, products, err)
                                                     : ESPL_OK;
}

void espl_device_products_free(const struct espl_device_weights *weights,
                               struct espl_device_products *products)
{
    for (size_t b = 0; products->blocks != NULL && b < weights->block_count; b++) {
        for (int site = 0; site < ESPL_QUANT_SITES; site++) {
            for (size_t i = 0; i < ESPL_DEVICE_MOST_PARTS; i++) {
                espl_cuda_spmm_destroy(products->blocks[b][site].spmm[i]);
            }
            espl_cuda_blaslt_product_destroy(products->blocks[b][site].bytes);
        }
    }
    free(products->blocks);
    products->blocks = NULL;
}

/* Pieces of ESPL_DEVICE_PIECE tokens: whole tiles of 8 of the input. */
static enum espl_status multiply_codes(const struct espl_device_decoder *decoder,
                                       const struct espl_device_product *product,
                                       const struct espl_device_linear *linear, size_t tokens,
                                       float *results, struct espl_error *err)
{
    const size_t tile = espl_cuda_atom_activation_bytes(&linear->shape, 8);
    enum espl_status status = ESPL_OK;
    for (size_t first = 0; status == ESPL_OK && first < tokens; first += ESPL_DEVICE_PIECE) {
        const size_t left = tokens - first;
        for (size_t i = 0; status == ESPL_OK && i < linear->matrix_count; i++) {
            const struct espl_cuda_atom_operands operands = {
                .x = (const uint8_t *)decoder->input + first / 8 * tile,
                .y_stride = linear->out,
                .tokens = left < ESPL_DEVICE_PIECE ? left : ESPL_DEVICE_PIECE,
                .floats = results + first * linear->out + linear->first_row[i],
            };
            status = espl_cuda_atom_run(product->spmm[i], linear->matrices[i], &operands,
                                        decoder->options.overlap, decoder->stream, err);
        }
    }
    return status;
}

enum espl_status espl_device_multiply(struct espl_device_decoder *decoder,
                                      const struct espl_device_products *products, size_t block,
                                      enum espl_quant_site site, float *results,
                                      struct espl_error *err)
{
    const struct espl_device_weights *weights = decoder->weights;
    const struct espl_device_linear *linear = &weights->blocks[block].linears[site];
    if (espl_device_form_has_codes(weights->form)) {
        return multiply_codes(decoder, &products->blocks[weights->blocks[block].like][site], linear,
                              products->tokens, results, err);
    }
    if (weights->form == ESPL_DEVICE_DENSE_INT8) {
        const struct espl_device_product *product = &products->blocks[0][site];
        return espl_cuda_blaslt_run(product->bytes, product->algorithm, linear->dense,
                                    decoder->input, results, decoder->stream, err);
    }
    const struct espl_cuda_blas_product product = {
        .x = decoder->input,
        .w = linear->dense,
        .y = results,
        .tokens = products->tokens,
        .in = linear->in,
        .out = linear->out,
        .x_stride = linear->in,
        .w_stride = linear->in,
        .y_stride = linear->out,
        .batch = 1,
        .scale = 1.0F,
        .float_result = true,
    };
    return espl_cuda_blas_run(decoder->blas, &product, decoder->stream, err);
}

struct espl_cuda_results espl_device_results(const struct espl_device_decoder *decoder,
                                             size_t block, enum espl_quant_site site,
                                             const float *results)
{
    const struct espl_device_linear *linear = &decoder->weights->blocks[block].linears[site];
    return (struct espl_cuda_results){
        .values = results,
        .stride = linear->out,
        .bias = linear->bias,
        .row_scales = linear->row_scales,
        .token_scales = decoder->input_scales + (size_t)site * decoder->rows,
        .token_step = 1,
    };
}

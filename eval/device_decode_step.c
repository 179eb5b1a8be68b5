/* One pass through a model on the device: a token of every sequence, or whole prompts. */
#include "espalier/cuda_graph.h"
#include "espalier/cuda_memory.h"
#include "eval/device_decode_internal.h"

#include <math.h>

/* A pass on its way through the blocks. */
struct walk {
    const struct espl_device_pass *pass;
    struct espl_device_decoder *decoder;
    const struct espl_device_products *products;
    size_t row_tokens;
    size_t rows;
    int now; /* which of decoder->hidden is the residual stream */
};

static bool wants(const struct walk *walk, enum espl_device_piece piece)
{
    return (walk->pass->pieces & (unsigned)piece) != 0;
}

/* What the linears of a site read. */
static struct espl_cuda_input input_of(const struct espl_device_decoder *decoder, size_t block,
                                       enum espl_quant_site site)
{
    const struct espl_device_weights *weights = decoder->weights;
    const struct espl_device_linear *linear = &weights->blocks[block].linears[site];
    const bool codes = linear->matrix_count > 0;
    return (struct espl_cuda_input){
        .form = codes                        ? ESPL_CUDA_INPUT_ATOM
                : linear->row_scales != NULL ? ESPL_CUDA_INPUT_BYTES
                                             : ESPL_CUDA_INPUT_HALF,
        .values = decoder->input,
        .scales = decoder->input_scales + (size_t)site * decoder->rows,
        .shape = &linear->shape,
        .order = linear->order,
        .clip = weights->activation_clip,
        .nonfinite = decoder->nonfinite + site,
    };
}

static enum espl_status put_embedding(const struct walk *walk, struct espl_error *err)
{
    const struct espl_device_decoder *decoder = walk->decoder;
    const struct espl_device_weights *weights = decoder->weights;
    const struct espl_cuda_embed embed = {
        .sequences = decoder->options.sequences,
        .row_tokens = walk->row_tokens,
        .width = weights->widths.hidden,
        .table = weights->embedding,
        .positions = weights->positions,
        .ids = walk->pass->step ? decoder->next : decoder->prompt,
        .starts = decoder->starts,
        .hidden = decoder->hidden[0],
    };
    return espl_cuda_embed(&embed, decoder->options.overlap, decoder->stream, err);
}

/* The residual stream with what the last branch left, normed for the linears of a site. */
static enum espl_status put_norm(struct walk *walk, size_t block, enum espl_quant_site site,
                                 const struct espl_cuda_results *branch, struct espl_error *err)
{
    struct espl_device_decoder *decoder = walk->decoder;
    const struct espl_device_weights *weights = decoder->weights;
    const struct espl_device_block *of = &weights->blocks[block];
    const bool attention = site == ESPL_QUANT_ATTENTION_IN;
    const struct espl_cuda_input input = input_of(decoder, block, site);
    const struct espl_cuda_norm norm = {
        .tokens = walk->rows,
        .width = weights->widths.hidden,
        .residual = decoder->hidden[walk->now],
        .stride = weights->widths.hidden,
        .branch = branch,
        .sum = branch != NULL ? decoder->hidden[1 - walk->now] : NULL,
        .gain = attention ? of->attention_gain : of->mlp_gain,
        .bias = attention ? of->attention_bias : of->mlp_bias,
        .eps = (float)weights->config.norm_eps,
        .rms = weights->config.norm == ESPL_NORM_RMS,
    };
    walk->now = branch != NULL ? 1 - walk->now : walk->now;
    return wants(walk, ESPL_DEVICE_NORMS)
               ? espl_cuda_norm_input(&norm, &input, decoder->options.overlap, decoder->stream, err)
               : ESPL_OK;
}

static enum espl_status put_products(const struct walk *walk, size_t block,
                                     enum espl_quant_site site, float *results,
                                     struct espl_error *err)
{
    return wants(walk, ESPL_DEVICE_PRODUCTS)
               ? espl_device_multiply(walk->decoder, walk->products, block, site, results, err)
               : ESPL_OK;
}

static enum espl_status put_activation(const struct walk *walk, size_t block,
                                       enum espl_quant_site site,
                                       enum espl_cuda_activation_kind kind,
                                       const struct espl_cuda_results *x, struct espl_error *err)
{
    const struct espl_device_decoder *decoder = walk->decoder;
    const struct espl_cuda_input input = input_of(decoder, block, site);
    const struct espl_cuda_activation activation = {
        .kind = kind,
        .tokens = walk->rows,
        .width = decoder->weights->blocks[block].linears[site].in,
        .x = *x,
    };
    return wants(walk, ESPL_DEVICE_NORMS)
               ? espl_cuda_activation_input(&activation, &input, decoder->options.overlap,
                                            decoder->stream, err)
               : ESPL_OK;
}

static enum espl_status put_attention(const struct walk *walk, size_t block, struct espl_error *err)
{
    const struct espl_device_decoder *decoder = walk->decoder;
    const struct espl_model_config *config = &decoder->weights->config;
    const struct espl_cuda_attention attention = {
        .sequences = decoder->options.sequences,
        .row_tokens = walk->row_tokens,
        .heads = (size_t)config->heads,
        .kv_heads = (size_t)config->kv_heads,
        .head_dim = (size_t)config->head_dim,
        .scale = (float)(1.0 / sqrt((double)config->head_dim)),
        .qkv = espl_device_results(decoder, block, ESPL_QUANT_ATTENTION_IN, decoder->qkv),
        .starts = decoder->starts,
        .rotation = decoder->rotation,
        .cache = decoder->caches[block],
        .out = decoder->context,
        .parts = decoder->parts,
    };
    return wants(walk, ESPL_DEVICE_ATTENTION)
               ? espl_cuda_attend(&attention, decoder->options.overlap, decoder->stream, err)
               : ESPL_OK;
}

static enum espl_cuda_activation_kind activation_kind(const struct espl_model_config *config)
{
    return config->activation == ESPL_ACT_SILU   ? ESPL_CUDA_SILU_MUL
           : config->activation == ESPL_ACT_GELU ? ESPL_CUDA_GELU
                                                 : ESPL_CUDA_RELU;
}

static enum espl_status put_block(struct walk *walk, size_t block, struct espl_error *err)
{
    struct espl_device_decoder *decoder = walk->decoder;
    const struct espl_cuda_results context = {.values = decoder->context,
                                              .stride = decoder->weights->widths.query};
    const struct espl_cuda_results inner =
        espl_device_results(decoder, block, ESPL_QUANT_MLP_IN, decoder->inner);
    const struct espl_cuda_results attended =
        espl_device_results(decoder, block, ESPL_QUANT_ATTENTION_OUT, decoder->branch);
    struct espl_cuda_results before = {0};
    if (block > 0) {
        before = espl_device_results(decoder, block - 1, ESPL_QUANT_MLP_MID, decoder->branch);
    }
    enum espl_status status =
        put_norm(walk, block, ESPL_QUANT_ATTENTION_IN, block > 0 ? &before : NULL, err);
    if (status == ESPL_OK) {
        status = put_products(walk, block, ESPL_QUANT_ATTENTION_IN, decoder->qkv, err);
    }
    if (status == ESPL_OK) {
        status = put_attention(walk, block, err);
    }
    if (status == ESPL_OK) {
        status = put_activation(walk, block, ESPL_QUANT_ATTENTION_OUT, ESPL_CUDA_IDENTITY, &context,
                                err);
    }
    if (status == ESPL_OK) {
        status = put_products(walk, block, ESPL_QUANT_ATTENTION_OUT, decoder->branch, err);
    }
    if (status == ESPL_OK) {
        status = put_norm(walk, block, ESPL_QUANT_MLP_IN, &attended, err);
    }
    if (status == ESPL_OK) {
        status = put_products(walk, block, ESPL_QUANT_MLP_IN, decoder->inner, err);
    }
    if (status == ESPL_OK) {
        status = put_activation(walk, block, ESPL_QUANT_MLP_MID,
                                activation_kind(&decoder->weights->config), &inner, err);
    }
    if (status == ESPL_OK) {
        status = put_products(walk, block, ESPL_QUANT_MLP_MID, decoder->branch, err);
    }
    return status;
}

/* Codes leave the residual stream in FP32, and the head multiplies what they made of it twice in
 * FP16, the value and what rounding left of it; baselines round once. */
static bool head_is_split(const struct espl_device_weights *weights)
{
    return espl_device_form_has_codes(weights->form);
}

/* Logits of `rows` rows of the last block's results that lie `step` rows apart. */
static enum espl_status put_head(const struct walk *walk, size_t first, size_t step, size_t rows,
                                 struct espl_error *err)
{
    struct espl_device_decoder *decoder = walk->decoder;
    const struct espl_device_weights *weights = decoder->weights;
    const size_t hidden = weights->widths.hidden;
    const size_t vocabulary = (size_t)weights->config.vocab;
    const bool split = head_is_split(weights);
    struct espl_cuda_results branch =
        espl_device_results(decoder, weights->block_count - 1, ESPL_QUANT_MLP_MID, decoder->branch);
    const struct espl_cuda_input input = {
        .form = split ? ESPL_CUDA_INPUT_SPLIT : ESPL_CUDA_INPUT_HALF, .values = decoder->input};
    branch.values = (const float *)branch.values + first * branch.stride; /* FP32 and INT32 */
    branch.stride *= step;
    branch.token_scales += first;
    branch.token_step = step;
    const struct espl_cuda_norm norm = {
        .tokens = rows,
        .width = hidden,
        .residual = decoder->hidden[walk->now] + first * hidden,
        .stride = step * hidden,
        .branch = &branch,
        .sum = decoder->hidden[1 - walk->now],
        .gain = weights->final_gain,
        .bias = weights->final_bias,
        .eps = (float)weights->config.norm_eps,
        .rms = weights->config.norm == ESPL_NORM_RMS,
    };
    const struct espl_cuda_blas_product product = {
        .x = decoder->input,
        .w = weights->head,
        .y = decoder->logits,
        .tokens = split ? 2 * rows : rows,
        .in = hidden,
        .out = vocabulary,
        .x_stride = hidden,
        .w_stride = hidden,
        .y_stride = vocabulary,
        .batch = 1,
        .scale = 1.0F,
        .float_result = true,
    };
    enum espl_status status = ESPL_OK;
    if (wants(walk, ESPL_DEVICE_NORMS)) {
        status =
            espl_cuda_norm_input(&norm, &input, decoder->options.overlap, decoder->stream, err);
    }
    if (status == ESPL_OK && wants(walk, ESPL_DEVICE_HEAD)) {
        status = espl_cuda_blas_run(decoder->blas, &product, decoder->stream, err);
    }
    return status;
}

/* choose: the next tokens; else logits are only added up. */
static enum espl_status put_choice(const struct walk *walk, size_t rows, bool choose,
                                   struct espl_error *err)
{
    const struct espl_device_decoder *decoder = walk->decoder;
    const struct espl_cuda_greedy greedy = {
        .sequences = rows,
        .vocabulary = (size_t)decoder->weights->config.vocab,
        .logits = decoder->logits,
        .split = head_is_split(decoder->weights),
        .best = decoder->best,
        .arrived = decoder->arrived,
        .next = choose ? decoder->next : NULL,
        .starts = decoder->starts,
        .advance = walk->pass->frozen ? 0 : walk->row_tokens,
        .history = decoder->history,
        .max_tokens = decoder->options.tokens + 1,
        .nonfinite = decoder->bad_logit,
    };
    return wants(walk, ESPL_DEVICE_HEAD)
               ? espl_cuda_greedy(&greedy, decoder->options.overlap, decoder->stream, err)
               : ESPL_OK;
}

static struct walk begin(const struct espl_device_pass *pass)
{
    struct espl_device_decoder *decoder = pass->decoder;
    const size_t row_tokens = pass->step ? 1 : decoder->options.prompt;
    return (struct walk){
        .pass = pass,
        .decoder = decoder,
        .products = pass->step ? &decoder->of_step : &decoder->of_prompt,
        .row_tokens = row_tokens,
        .rows = decoder->options.sequences * row_tokens,
    };
}

enum espl_status espl_device_put_pass(const struct espl_device_pass *pass, struct espl_error *err)
{
    const size_t sequences = pass->decoder->options.sequences;
    struct walk walk = begin(pass);
    enum espl_status status = ESPL_OK;
    if (wants(&walk, ESPL_DEVICE_NORMS)) {
        status = put_embedding(&walk, err);
    }
    for (size_t b = 0; status == ESPL_OK && b < pass->decoder->weights->block_count; b++) {
        status = put_block(&walk, b, err);
    }
    if (status == ESPL_OK && pass->choose) {
        status = put_head(&walk, walk.row_tokens - 1, walk.row_tokens, sequences, err);
    }
    if (status == ESPL_OK && pass->choose) {
        status = put_choice(&walk, sequences, true, err);
    }
    return status;
}

enum espl_status espl_device_put_logits(const struct espl_device_pass *pass, size_t first,
                                        size_t rows, struct espl_error *err)
{
    struct walk walk = begin(pass);
    walk.now = 1; /* after an odd number of branches: two a block, and none before the first */
    enum espl_status status = put_head(&walk, first, 1, rows, err);
    return status == ESPL_OK ? put_choice(&walk, rows, false, err) : status;
}

enum espl_status espl_device_wait(struct espl_device_decoder *decoder, struct espl_error *err)
{
    unsigned bad = 0;
    enum espl_status status = espl_cuda_stream_wait(decoder->stream, err);
    for (int site = 0; status == ESPL_OK && site < ESPL_QUANT_SITES; site++) {
        const struct espl_device_linear *linear = &decoder->weights->blocks[0].linears[site];
        status = espl_cuda_quantize_check(&linear->shape, decoder->nonfinite + site, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_download(&bad, decoder->bad_logit, sizeof bad, err);
    }
    return status == ESPL_OK && bad != 0
               ? espl_fail(err, ESPL_E_NUMERIC, "a logit is not a finite number")
               : status;
}

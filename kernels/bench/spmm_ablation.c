#include "kernels/bench/spmm_ablation.h"

#include "core/checked.h"
#include "espalier/row_reorder.h"
#include "kernels/bench/spmm_time.h"
#include "kernels/bench/spmm_weights.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 5, STRIPE = ESPL_IEBME_TILE_ROWS, LEAST_STAGES = 2, MOST_STAGES = 4 };

/* ---- rows in order ---- */

static void permute(const int8_t *codes, size_t rows, size_t cols, const uint64_t *orders,
                    size_t stripes, int8_t *ordered)
{
    for (size_t stripe = 0; stripe < stripes; stripe++) {
        uint8_t order[STRIPE];
        espl_iebme_order_unpack(orders[stripe], order);
        for (size_t r = 0; r < STRIPE; r++) {
            const size_t from = stripe * STRIPE + order[r];
            if (from < rows) {
                memcpy(ordered + (stripe * STRIPE + r) * cols, codes + from * cols, cols);
            }
        }
    }
}

enum espl_status espl_spmm_order_rows(const int8_t *codes, size_t rows, size_t cols,
                                      unsigned row_areas, unsigned col_areas, int8_t **ordered,
                                      struct espl_error *err)
{
    const size_t stripes = espl_ceil_div(rows, STRIPE);
    const struct espl_reorder_options options = {.row_areas = row_areas,
                                                 .col_areas = col_areas,
                                                 .scope = ESPL_IEBME_SCOPE_STRIPE,
                                                 .threads = (unsigned)omp_get_num_procs()};
    struct espl_reorder *reorder = NULL;
    uint64_t *orders = calloc(stripes, sizeof *orders);
    int8_t *made = calloc(stripes * STRIPE, cols);
    enum espl_status status = orders != NULL && made != NULL
                                  ? espl_reorder_create(&options, &reorder, err)
                                  : espl_fail(err, ESPL_E_NOMEM, "out of memory for a row order");
    if (status == ESPL_OK) {
        espl_reorder_codes(reorder, codes, rows, cols, orders, NULL);
        permute(codes, rows, cols, orders, stripes, made);
        *ordered = made;
        made = NULL;
    }
    espl_reorder_destroy(reorder);
    free(orders);
    free(made);
    return status;
}

/* ---- timing ---- */

static enum espl_status time_variant(const struct espl_spmm_bench_options *options,
                                     const struct espl_spmm_form *form,
                                     const struct espl_spmm_operands *operands, size_t rows,
                                     size_t tokens, struct espl_spmm_variant *variant,
                                     struct espl_error *err)
{
    const struct espl_cuda_spmm_choice wanted = {
        .stages = variant->stages,
        .instruction = options->instruction,
        .pipeline = variant->producer ? ESPL_CUDA_PIPELINE_PRODUCER : ESPL_CUDA_PIPELINE_OWN};
    struct espl_spmm_product product = {
        .form = form, .operands = operands, .rows = rows, .tokens = tokens};
    const struct espl_cuda_timing_options timing = {
        .graph = true,
        .launches = form->count > options->launches ? form->count : options->launches,
        .repeats = options->repeats};
    const struct espl_cuda_subject subject = {&product, espl_spmm_launch};
    variant->bytes = espl_cuda_matrix_bytes(form->copies[0]);
    enum espl_status status =
        espl_cuda_spmm_create(form->copies[0], tokens, &wanted, &product.spmm, err);
    if (status == ESPL_E_UNSUPPORTED) { /* no room for the stages, or no producer warps here */
        (void)snprintf(variant->why, sizeof variant->why, "%.*s", (int)sizeof variant->why - 1,
                       err->message);
        espl_error_clear(err);
        return ESPL_OK;
    }
    if (status == ESPL_OK) {
        status = espl_cuda_time_launches(&subject, &timing, &variant->time, err);
    }
    variant->measured = status == ESPL_OK;
    espl_cuda_spmm_destroy(product.spmm);
    return status;
}

/* Adds and times a way to multiply by a form of the weights, with all numbers of stages. */
static enum espl_status time_stages(const struct espl_spmm_bench_options *options,
                                    const struct espl_spmm_form *form,
                                    const struct espl_spmm_operands *operands, size_t rows,
                                    const struct espl_spmm_variant *way,
                                    struct espl_spmm_ablation *out, struct espl_error *err)
{
    const unsigned first = form->sparse ? LEAST_STAGES : 0;
    const unsigned last = form->sparse ? MOST_STAGES : 0;
    enum espl_status status = ESPL_OK;
    for (unsigned stages = first; status == ESPL_OK && stages <= last; stages++) {
        struct espl_spmm_variant *variant = &out->variants[out->count++];
        *variant = *way;
        variant->stages = stages;
        status = time_variant(options, form, operands, rows, out->tokens, variant, err);
    }
    return status;
}

/* A form of the weights; also with a producer warp, unless rows are in order. */
static enum espl_status ablate_form(const struct espl_spmm_bench_options *options,
                                    const struct espl_spmm_weights *weights, const char *name,
                                    bool reordered, size_t cold_bytes,
                                    const struct espl_spmm_operands *operands,
                                    struct espl_spmm_ablation *out, struct espl_error *err)
{
    struct espl_spmm_form *form = calloc(1, sizeof *form);
    enum espl_status status = form != NULL
                                  ? espl_spmm_form_make(form, name, false, weights, cold_bytes, err)
                                  : espl_fail(err, ESPL_E_NOMEM, "out of memory for a bench");
    struct espl_spmm_variant way = {.form = name, .reordered = reordered};
    if (status == ESPL_OK) {
        status = time_stages(options, form, operands, weights->rows, &way, out, err);
    }
    if (status == ESPL_OK && form->sparse && !reordered) {
        way.producer = true;
        status = time_stages(options, form, operands, weights->rows, &way, out, err);
    }
    if (form != NULL) {
        espl_spmm_form_free(form);
    }
    free(form);
    return status;
}

static enum espl_status ablate_reordered(const struct espl_spmm_bench_options *options,
                                         const struct espl_spmm_weights *weights, const char *name,
                                         unsigned col_areas, size_t cold_bytes,
                                         const struct espl_spmm_operands *operands,
                                         struct espl_spmm_ablation *out, struct espl_error *err)
{
    int8_t *ordered = NULL;
    struct espl_spmm_weights own = *weights;
    enum espl_status status = espl_spmm_order_rows(weights->codes, weights->rows, weights->cols, 2,
                                                   col_areas, &ordered, err);
    own.rows = espl_ceil_div(weights->rows, STRIPE) * STRIPE;
    own.codes = ordered;
    if (status == ESPL_OK) {
        status = ablate_form(options, &own, name, true, cold_bytes, operands, out, err);
    }
    free(ordered);
    return status;
}

static enum espl_status ablate_all(const struct espl_spmm_bench_options *options,
                                   const struct espl_spmm_weights *weights, size_t cold_bytes,
                                   const struct espl_spmm_operands *operands,
                                   struct espl_spmm_ablation *out, struct espl_error *err)
{
    static const char *const forms[] = {"dense", "1x1", "1x2", "2x1", "2x2"};
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < sizeof forms / sizeof forms[0]; i++) {
        status = ablate_form(options, weights, forms[i], false, cold_bytes, operands, out, err);
    }
    if (status == ESPL_OK) {
        status = ablate_reordered(options, weights, "2x1", 1, cold_bytes, operands, out, err);
    }
    return status == ESPL_OK
               ? ablate_reordered(options, weights, "2x2", 2, cold_bytes, operands, out, err)
               : status;
}

enum espl_status espl_spmm_ablate(const struct espl_spmm_bench_options *options,
                                  const struct espl_spmm_ceiling *ceiling, size_t rows, size_t cols,
                                  size_t tokens, double sparsity, struct espl_spmm_ablation *out,
                                  struct espl_error *err)
{
    struct espl_spmm_operands operands = {.x = NULL};
    int8_t *codes = NULL;
    *out = (struct espl_spmm_ablation){rows, cols, tokens, sparsity, .count = 0};
    enum espl_status status =
        espl_spmm_weights_codes(rows, cols, options->bits, sparsity, SEED, &codes, err);
    const struct espl_spmm_weights weights = {rows, cols, options->bits, sparsity, codes, NULL};
    if (status == ESPL_OK) {
        status = espl_spmm_operands_make(&operands, rows + STRIPE, cols, NULL, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_pack_activations(operands.codes, tokens, cols, operands.x, NULL, err);
    }
    if (status == ESPL_OK) {
        status = ablate_all(options, &weights, ESPL_SPMM_COLD_FACTOR * ceiling->cache_bytes,
                            &operands, out, err);
    }
    espl_spmm_operands_free(&operands);
    free(codes);
    return status;
}

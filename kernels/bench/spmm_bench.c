/* The SpMM bench: makes weights in every form, and times every form and baseline. */
#include "kernels/bench/spmm_bench.h"

#include "espalier/cuda_memory.h"
#include "kernels/bench/spmm_baseline.h"
#include "kernels/bench/spmm_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_COPIES = 128,
    COLD_FACTOR = 4,
    MAX_TOKENS = 64,
    SEED = 5,
    SLOW_LAUNCHES = 3,
    SLOW_REPEATS = 3
};

enum espl_status espl_spmm_measure_ceiling(struct espl_spmm_ceiling *ceiling,
                                           struct espl_error *err)
{
    enum espl_status status =
        espl_cuda_copy_bandwidth((size_t)1 << 31, &ceiling->copy_bytes_a_second, err);
    if (status == ESPL_OK) {
        status = espl_cuda_cache_bytes(&ceiling->cache_bytes, err);
    }
    return status;
}

/* ---- timing one subject ---- */

static enum espl_status time_all(const struct espl_spmm_bench_options *options,
                                 const struct espl_cuda_subject *subject, size_t copies,
                                 bool can_overlap, bool slow, struct espl_spmm_result *result,
                                 struct espl_error *err)
{
    struct espl_cuda_timing_options timing = {
        .graph = true,
        .launches = copies > options->launches ? copies : options->launches,
        .repeats = options->repeats};
    if (slow) {
        timing.launches = copies > SLOW_LAUNCHES ? copies : SLOW_LAUNCHES;
        timing.repeats = options->repeats < SLOW_REPEATS ? options->repeats : SLOW_REPEATS;
    }
    enum espl_status status = espl_cuda_time_launches(subject, &timing, &result->graph, err);
    if (status != ESPL_OK || !options->all_modes) {
        return status;
    }
    timing.graph = false;
    status = espl_cuda_time_launches(subject, &timing, &result->eager, err);
    timing.graph = true;
    if (status == ESPL_OK) {
        timing.warm = true;
        status = espl_cuda_time_launches(subject, &timing, &result->warm, err);
        timing.warm = false;
    }
    if (status == ESPL_OK && can_overlap) {
        timing.overlap = true;
        status = espl_cuda_time_launches(subject, &timing, &result->overlap, err);
    }
    return status;
}

static void keep_reason(struct espl_spmm_result *result, struct espl_error *err)
{
    (void)snprintf(result->why, sizeof result->why, "%.*s", (int)sizeof result->why - 1,
                   err->message);
    espl_error_clear(err);
}

/* ---- our forms ---- */

/* A form of the weights on the device, in as many copies as make cold caches. */
struct form {
    const char *name;
    bool sparse;   /* depends on the sparsity */
    bool lossless; /* holds the 4-bit codes; narrower ones are rivals at the same quality at best */
    struct espl_cuda_matrix *copies[MAX_COPIES];
    size_t count;
};

static void form_free(struct form *form)
{
    for (size_t i = 0; i < form->count; i++) {
        espl_cuda_matrix_destroy(form->copies[i]);
    }
    form->count = 0;
}

static enum espl_status upload_dense(size_t rows, size_t cols, unsigned bits, const int8_t *codes,
                                     struct espl_cuda_matrix **out, struct espl_error *err)
{
    struct espl_dense_device layout = {.data = NULL};
    int8_t *own = NULL;
    enum espl_status status = ESPL_OK;
    if (bits != 4) {
        status = espl_spmm_weights_codes(rows, cols, bits, 0.0, SEED, &own, err);
    }
    if (status == ESPL_OK) {
        status = espl_spmm_weights_dense(own != NULL ? own : codes, rows, cols, bits, &layout, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_matrix_create_dense(&layout, out, err);
    }
    free(own);
    espl_dense_device_free(&layout);
    return status;
}

static enum espl_status upload_sparse(const char *name, size_t rows, size_t cols,
                                      const int8_t *codes, struct espl_cuda_matrix **out,
                                      struct espl_error *err)
{
    enum espl_iebme_areas unit = ESPL_IEBME_1X1;
    struct espl_iebme_device layout = {.data = NULL};
    if (!espl_iebme_areas_parse(name, &unit)) {
        return espl_fail(err, ESPL_E_USAGE, "there is no form '%s' of weights", name);
    }
    enum espl_status status = espl_spmm_weights_iebme(codes, rows, cols, unit, &layout, err);
    if (status == ESPL_OK) {
        status = espl_cuda_matrix_create_iebme(&layout, out, err);
    }
    espl_iebme_device_free(&layout);
    return status;
}

/* What a name means. */
static void form_name(struct form *form, const char *name, unsigned *bits)
{
    *bits = strcmp(name, "int3") == 0 ? 3 : strcmp(name, "int2") == 0 ? 2 : 4;
    form->name = name;
    form->sparse = *bits == 4 && strcmp(name, "dense") != 0;
    form->lossless = *bits == 4;
}

static enum espl_status form_make(struct form *form, const char *name, size_t rows, size_t cols,
                                  const int8_t *codes, size_t cold_bytes, struct espl_error *err)
{
    unsigned bits = 4;
    form_name(form, name, &bits);
    enum espl_status status = form->sparse
                                  ? upload_sparse(name, rows, cols, codes, &form->copies[0], err)
                                  : upload_dense(rows, cols, bits, codes, &form->copies[0], err);
    if (status != ESPL_OK) {
        return status;
    }
    const size_t bytes = (size_t)espl_cuda_matrix_bytes(form->copies[0]);
    size_t wanted = cold_bytes / bytes + 1;
    wanted = wanted < MAX_COPIES ? wanted : MAX_COPIES;
    for (form->count = 1; status == ESPL_OK && form->count < wanted;) {
        status = espl_cuda_matrix_clone(form->copies[0], &form->copies[form->count], err);
        form->count += status == ESPL_OK ? 1 : 0;
    }
    return status;
}

/* One product of a form. */
struct our_subject {
    const struct form *form;
    struct espl_cuda_spmm *spmm;
    struct espl_cuda_spmm_operands operands;
};

static enum espl_status launch_ours(void *pointer, size_t copy, bool overlap, void *stream,
                                    struct espl_error *err)
{
    const struct our_subject *self = pointer;
    return espl_cuda_spmm_run(self->spmm, self->form->copies[copy % self->form->count],
                              &self->operands, overlap, stream, err);
}

/* Activations and outputs of a shape, for the largest number of tokens. */
struct operands {
    void *codes, *x, *y;
};

static void operands_free(struct operands *operands)
{
    espl_cuda_free(operands->codes);
    espl_cuda_free(operands->x);
    espl_cuda_free(operands->y);
}

static enum espl_status operands_make(struct operands *operands, size_t rows, size_t cols,
                                      struct espl_error *err)
{
    int8_t *host = espl_baseline_activations(MAX_TOKENS * cols);
    enum espl_status status =
        host != NULL ? ESPL_OK : espl_fail(err, ESPL_E_NOMEM, "out of memory for activations");
    if (status == ESPL_OK) {
        status = espl_cuda_alloc(MAX_TOKENS * cols, &operands->codes, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_alloc(espl_cuda_activation_bytes(MAX_TOKENS, cols), &operands->x, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_alloc(MAX_TOKENS * rows * sizeof(int32_t), &operands->y, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_upload(operands->codes, host, MAX_TOKENS * cols, err);
    }
    free(host);
    return status;
}

static enum espl_status time_form(const struct espl_spmm_bench_options *options,
                                  const struct form *form, const struct operands *operands,
                                  const struct espl_spmm_case *item,
                                  struct espl_spmm_result *result, struct espl_error *err)
{
    struct our_subject self = {.form = form};
    const struct espl_cuda_subject subject = {&self, launch_ours};
    self.operands = (struct espl_cuda_spmm_operands){
        .x = operands->x, .y = operands->y, .y_stride = item->rows, .tokens = item->tokens};
    (void)snprintf(result->name, sizeof result->name, "%s", form->name);
    result->ours = true;
    result->bytes = espl_cuda_matrix_bytes(form->copies[0]);
    enum espl_status status = espl_cuda_pack_activations(operands->codes, item->tokens, item->cols,
                                                         operands->x, NULL, err);
    if (status == ESPL_OK) {
        status = espl_cuda_spmm_create(form->copies[0], item->tokens, NULL, &self.spmm, err);
    }
    if (status == ESPL_E_UNSUPPORTED) {
        keep_reason(result, err);
        return ESPL_OK;
    }
    if (status == ESPL_OK) {
        result->choice = espl_cuda_spmm_chosen(self.spmm);
        result->expected = espl_cuda_spmm_expected_seconds(self.spmm);
        status = time_all(options, &subject, form->count, true, false, result, err);
        result->measured = status == ESPL_OK;
    }
    espl_cuda_spmm_destroy(self.spmm);
    return status;
}

/* ---- baselines ---- */

static void time_peer(const struct espl_spmm_bench_options *options,
                      const struct espl_spmm_peer *peer, const int8_t *codes, size_t cold_bytes,
                      const struct espl_spmm_case *item, struct espl_spmm_result *result)
{
    struct espl_error err;
    struct espl_baseline_subject self = {.peer = peer};
    const struct espl_cuda_subject subject = {&self, espl_baseline_launch};
    const struct espl_spmm_peer_problem problem = {item->rows, item->cols, item->tokens, codes,
                                                   cold_bytes};
    (void)snprintf(result->name, sizeof result->name, "%s", peer->name);
    if (peer->create(&problem, &self.self, result->why) != 0) {
        return;
    }
    result->bytes = peer->weight_bytes(self.self);
    const size_t copies = (size_t)(cold_bytes / (result->bytes > 0 ? result->bytes : 1)) + 1;
    if (time_all(options, &subject, copies, false, peer->sparse != 0, result, &err) == ESPL_OK) {
        result->measured = true;
    } else {
        keep_reason(result, &err);
    }
    peer->destroy(self.self);
}

/* ---- a shape ---- */

/* Ours without loss: the automatic choice by expected, the best by measured time. */
static void choose(struct espl_spmm_case *item, const struct form *forms, size_t form_count)
{
    bool any = false;
    for (size_t i = 0; i < form_count; i++) {
        if (!forms[i].lossless || !item->results[i].measured) {
            continue;
        }
        if (!any || item->results[i].expected < item->results[item->chosen].expected) {
            item->chosen = i;
        }
        if (!any || item->results[i].graph.median < item->results[item->best].graph.median) {
            item->best = i;
        }
        any = true;
    }
}

/* Results of the first sparsity, for subjects that do not depend on it. */
struct shape_memory {
    struct espl_spmm_result results[MAX_TOKENS][ESPL_SPMM_MAX_RESULTS];
    bool known;
};

static enum espl_status bench_case(const struct espl_spmm_bench_options *options,
                                   const struct form *forms, const struct operands *operands,
                                   const int8_t *codes, size_t cold_bytes,
                                   const struct espl_spmm_result *known,
                                   struct espl_spmm_case *item, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < options->form_count; i++) {
        if (known != NULL && !forms[i].sparse) {
            item->results[item->count++] = known[i];
            continue;
        }
        status = time_form(options, &forms[i], operands, item, &item->results[item->count++], err);
    }
    for (size_t i = 0; status == ESPL_OK && i < options->peer_count; i++) {
        if (known != NULL && options->peers[i]->sparse == 0) {
            item->results[item->count++] = known[options->form_count + i];
            continue;
        }
        time_peer(options, options->peers[i], codes, cold_bytes, item,
                  &item->results[item->count++]);
    }
    choose(item, forms, options->form_count);
    return status;
}

static enum espl_status bench_sparsity(const struct espl_spmm_bench_options *options,
                                       const struct operands *operands, struct form *forms,
                                       struct shape_memory *memory, size_t cold_bytes, size_t rows,
                                       size_t cols, double sparsity, const size_t *tokens,
                                       size_t token_count, espl_spmm_case_fn *done, void *self,
                                       struct espl_error *err)
{
    int8_t *codes = NULL;
    enum espl_status status = espl_spmm_weights_codes(rows, cols, 4, sparsity, SEED, &codes, err);
    for (size_t i = 0; status == ESPL_OK && i < options->form_count; i++) {
        if (forms[i].count == 0) {
            status = form_make(&forms[i], options->forms[i], rows, cols, codes, cold_bytes, err);
        }
    }
    for (size_t t = 0; status == ESPL_OK && t < token_count; t++) {
        struct espl_spmm_case item = {
            .rows = rows, .cols = cols, .tokens = tokens[t], .sparsity = sparsity};
        status = bench_case(options, forms, operands, codes, cold_bytes,
                            memory->known ? memory->results[t] : NULL, &item, err);
        if (status == ESPL_OK) {
            memcpy(memory->results[t], item.results, sizeof item.results);
            status = done(&item, self, err);
        }
    }
    for (size_t i = 0; i < options->form_count; i++) {
        if (forms[i].sparse) {
            form_free(&forms[i]);
        }
    }
    memory->known = true;
    free(codes);
    return status;
}

enum espl_status espl_spmm_bench_shape(const struct espl_spmm_bench_options *options,
                                       const struct espl_spmm_ceiling *ceiling, size_t rows,
                                       size_t cols, const double *sparsities, size_t sparsity_count,
                                       const size_t *tokens, size_t token_count,
                                       espl_spmm_case_fn *done, void *self, struct espl_error *err)
{
    struct form forms[ESPL_SPMM_MAX_FORMS];
    struct operands operands = {.x = NULL};
    struct shape_memory *memory = calloc(1, sizeof *memory);
    memset(forms, 0, sizeof forms);
    if (memory == NULL || token_count > MAX_TOKENS) {
        free(memory);
        return espl_fail(err, ESPL_E_NOMEM, "no room for the results of %zu token counts",
                         token_count);
    }
    enum espl_status status = operands_make(&operands, rows, cols, err);
    for (size_t s = 0; status == ESPL_OK && s < sparsity_count; s++) {
        status =
            bench_sparsity(options, &operands, forms, memory, COLD_FACTOR * ceiling->cache_bytes,
                           rows, cols, sparsities[s], tokens, token_count, done, self, err);
    }
    for (size_t i = 0; i < options->form_count; i++) {
        form_free(&forms[i]);
    }
    operands_free(&operands);
    free(memory);
    return status;
}

/* The N:M bench: weights, operands, and timing every subject of a case. */
#include "kernels/bench/nm_bench.h"

#include "espalier/cuda_memory.h"
#include "kernels/bench/spmm_baseline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COPIES = 64, WARM_COPIES = 4, SEARCH_REPEATS = 5, WINDOW = 8 };

/* Numerical Recipes' generator: the upper bits. */
static uint32_t next_word(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

int8_t *espl_nm_bench_weights(size_t rows, size_t cols, unsigned kept, unsigned shared)
{
    int8_t *codes = calloc(rows, cols);
    uint32_t state = 7;
    for (size_t first = 0; codes != NULL && first < rows; first += shared) {
        for (size_t start = 0; start < cols; start += WINDOW) {
            unsigned left = kept;
            for (unsigned p = 0; p < WINDOW;
                 p++) { /* each place with the probability that is left */
                if (next_word(&state) % (WINDOW - p) >= left) {
                    continue;
                }
                left--;
                for (size_t row = first; row < first + shared && row < rows; row++) {
                    if (start + p < cols) {
                        const int value = (int)(next_word(&state) % 255) - 127;
                        codes[row * cols + start + p] = (int8_t)(value == 0 ? 1 : value);
                    }
                }
            }
        }
    }
    return codes;
}

/* Weights on the device in several copies. */
struct weights {
    struct espl_cuda_nm_matrix *copies[MOST_COPIES];
    size_t count;
};

static void weights_free(struct weights *weights)
{
    for (size_t i = 0; i < weights->count; i++) {
        espl_cuda_nm_matrix_destroy(weights->copies[i]);
    }
    weights->count = 0;
}

static enum espl_status make_random(const struct espl_nm_bench_options *options,
                                    const struct espl_nm_bench_case *item, unsigned kept,
                                    struct espl_cuda_nm_matrix **out, struct espl_error *err)
{
    struct espl_nm_matrix packed = {.values = NULL};
    const struct espl_nm_layout layout = {item->rows, item->cols, kept, WINDOW, options->shared};
    int8_t *codes = espl_nm_bench_weights(item->rows, item->cols, kept, options->shared);
    enum espl_status status =
        codes != NULL ? espl_nm_encode(codes, &layout, &packed, err)
                      : espl_fail(err, ESPL_E_NOMEM, "out of memory for weights of a bench");
    if (status == ESPL_OK) {
        status = espl_cuda_nm_matrix_create(&packed, out, err);
    }
    espl_nm_free(&packed);
    free(codes);
    return status;
}

/* kept 0: the packed weights of the case. */
static enum espl_status weights_make(const struct espl_nm_bench_options *options,
                                     const struct espl_nm_bench_case *item, unsigned kept,
                                     struct weights *weights, struct espl_error *err)
{
    enum espl_status status =
        kept == 0 ? espl_cuda_nm_matrix_create(item->packed, &weights->copies[0], err)
                  : make_random(options, item, kept, &weights->copies[0], err);
    weights->count = status == ESPL_OK ? 1 : 0;
    size_t wanted = WARM_COPIES;
    if (status == ESPL_OK && options->cold_bytes > 0) {
        wanted = options->cold_bytes / (size_t)espl_cuda_nm_matrix_bytes(weights->copies[0]) + 1;
    }
    while (status == ESPL_OK && weights->count < wanted && weights->count < MOST_COPIES) {
        status =
            espl_cuda_nm_matrix_clone(weights->copies[0], &weights->copies[weights->count], err);
        weights->count += status == ESPL_OK ? 1 : 0;
    }
    return status;
}

/* What all products of a case share. */
struct operands {
    void *x, *y, *scales;
    size_t x_stride;
};

static void operands_free(struct operands *operands)
{
    espl_cuda_free(operands->x);
    espl_cuda_free(operands->y);
    espl_cuda_free(operands->scales);
}

/* Scales of rows, then of tokens. */
static enum espl_status make_scales(const struct espl_nm_bench_case *item,
                                    struct operands *operands, struct espl_error *err)
{
    const size_t count = item->rows + 4 + item->tokens;
    float *scales = malloc(count * sizeof *scales);
    if (scales == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for scales of a bench");
    }
    for (size_t i = 0; i < count; i++) {
        scales[i] = 0.01F + 1e-4F * (float)(i % 100);
    }
    enum espl_status status = espl_cuda_alloc(count * sizeof *scales, &operands->scales, err);
    if (status == ESPL_OK) {
        status = espl_cuda_upload(operands->scales, scales, count * sizeof *scales, err);
    }
    free(scales);
    return status;
}

static enum espl_status operands_make(const struct espl_nm_bench_case *item,
                                      struct operands *operands, struct espl_error *err)
{
    uint32_t state = 3;
    operands->x_stride =
        (item->cols + ESPL_CUDA_NM_ALIGN - 1) / ESPL_CUDA_NM_ALIGN * ESPL_CUDA_NM_ALIGN;
    const size_t bytes = item->tokens * operands->x_stride;
    int8_t *x = malloc(bytes);
    if (x == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for activations of a bench");
    }
    for (size_t i = 0; i < bytes; i++) {
        x[i] = (int8_t)((int)(next_word(&state) & 0xFFu) - 128);
    }
    enum espl_status status = espl_cuda_alloc(bytes, &operands->x, err);
    if (status == ESPL_OK) {
        status = espl_cuda_upload(operands->x, x, bytes, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_alloc(item->tokens * item->rows * sizeof(int32_t), &operands->y, err);
    }
    if (status == ESPL_OK) {
        status = make_scales(item, operands, err);
    }
    free(x);
    return status;
}

/* One of our products, for timing. */
struct subject {
    const struct weights *weights;
    const struct espl_cuda_nm *nm;
    struct espl_cuda_nm_operands operands;
};

static enum espl_status launch_ours(void *pointer, size_t copy, bool overlap, void *stream,
                                    struct espl_error *err)
{
    const struct subject *self = pointer;
    return espl_cuda_nm_run(self->nm, self->weights->copies[copy % self->weights->count],
                            &self->operands, overlap, stream, err);
}

static struct subject subject_of(const struct espl_nm_bench_case *item,
                                 const struct operands *operands, const struct weights *weights,
                                 const struct espl_cuda_nm *nm, enum espl_nm_output output)
{
    const float *scales = operands->scales;
    const struct espl_nm_epilogue epilogue = {.output = output,
                                              .row_scales = scales,
                                              .token_scales = scales + (item->rows + 3) / 4 * 4,
                                              .multiplier = 0.01F};
    const struct subject subject = {weights,
                                    nm,
                                    {.x = operands->x,
                                     .x_stride = operands->x_stride,
                                     .y = operands->y,
                                     .y_stride = item->rows,
                                     .tokens = item->tokens,
                                     .epilogue = epilogue}};
    return subject;
}

static enum espl_status time_outputs(const struct espl_nm_bench_options *options,
                                     const struct espl_nm_bench_case *item,
                                     const struct operands *operands, const struct weights *weights,
                                     const struct espl_cuda_nm *nm,
                                     struct espl_nm_bench_result *result, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t o = 0; status == ESPL_OK && o < ESPL_NM_BENCH_OUTPUTS; o++) {
        struct espl_nm_bench_times *times = &result->outputs[o];
        struct subject self = subject_of(item, operands, weights, nm, (enum espl_nm_output)o);
        const struct espl_cuda_subject subject = {&self, launch_ours};
        struct espl_cuda_timing_options timing = {
            .graph = true, .launches = options->launches, .repeats = options->repeats};
        status = espl_cuda_time_launches(&subject, &timing, &times->graph, err);
        if (status == ESPL_OK) {
            timing.overlap = true;
            status = espl_cuda_time_launches(&subject, &timing, &times->overlap, err);
        }
        if (status == ESPL_OK && options->eager) {
            timing.graph = false;
            timing.overlap = false;
            status = espl_cuda_time_launches(&subject, &timing, &times->eager, err);
        }
    }
    return status;
}

/* Every choice, and what the rule's is beside them. */
static enum espl_status search_choices(const struct espl_nm_bench_options *options,
                                       const struct espl_nm_bench_case *item,
                                       const struct operands *operands,
                                       const struct weights *weights,
                                       struct espl_nm_bench_result *result, struct espl_error *err)
{
    struct espl_nm_bench_search *search = &result->search;
    const size_t count =
        espl_cuda_nm_choices(weights->copies[0], search->choices, ESPL_NM_BENCH_CHOICES);
    const struct espl_cuda_nm_choice *own = &result->choice;
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        const struct espl_cuda_nm_choice *c = &search->choices[i];
        struct espl_cuda_nm *nm = NULL;
        struct espl_cuda_time time = {0.0, 0.0};
        const struct espl_cuda_timing_options timing = {
            .graph = true, .launches = options->launches, .repeats = SEARCH_REPEATS};
        status = espl_cuda_nm_create(weights->copies[0], item->tokens, c, &nm, err);
        if (status == ESPL_OK) {
            struct subject self = subject_of(item, operands, weights, nm, ESPL_NM_INT32);
            const struct espl_cuda_subject subject = {&self, launch_ours};
            status = espl_cuda_time_launches(&subject, &timing, &time, err);
        }
        espl_cuda_nm_destroy(nm);
        if (status != ESPL_OK) {
            break;
        }
        const bool same_tile = c->tile_tokens == own->tile_tokens &&
                               c->tile_rows == own->tile_rows && c->tiles == own->tiles;
        search->seconds[search->count++] = time.median;
        if (i == 0 || time.median < search->best) {
            search->best = time.median;
            search->fastest = i;
        }
        if (same_tile && (search->best_split <= 0.0 || time.median < search->best_split)) {
            search->best_split = time.median;
        }
        if (same_tile && c->splits == own->splits) {
            search->chosen = time.median;
        }
    }
    return status;
}

static enum espl_status run_kept(const struct espl_nm_bench_options *options,
                                 const struct espl_nm_bench_case *item,
                                 const struct operands *operands, unsigned kept,
                                 struct espl_nm_bench_result *result, struct espl_error *err)
{
    struct weights weights = {.count = 0};
    struct espl_cuda_nm *nm = NULL;
    enum espl_status status = weights_make(options, item, kept, &weights, err);
    if (status == ESPL_OK) {
        status = espl_cuda_nm_create(weights.copies[0], item->tokens, NULL, &nm, err);
    }
    if (status == ESPL_OK) {
        const struct espl_nm_layout *own = kept == 0 ? &item->packed->layout : NULL;
        result->kept = own != NULL ? (own->n * WINDOW + own->m - 1) / own->m : kept;
        result->packed = own != NULL;
        result->form = espl_cuda_nm_matrix_form(weights.copies[0]);
        result->bytes = espl_cuda_nm_matrix_bytes(weights.copies[0]);
        result->choice = espl_cuda_nm_chosen(nm);
        status = time_outputs(options, item, operands, &weights, nm, result, err);
    }
    if (status == ESPL_OK && options->search) {
        status = search_choices(options, item, operands, &weights, result, err);
    }
    espl_cuda_nm_destroy(nm);
    weights_free(&weights);
    return status;
}

static void run_peer(const struct espl_nm_bench_options *options,
                     const struct espl_nm_bench_case *item, const int8_t *codes,
                     const struct espl_spmm_peer *peer, struct espl_nm_bench_peer *result)
{
    struct espl_error err;
    struct espl_baseline_subject self = {.peer = peer};
    const struct espl_cuda_subject subject = {&self, espl_baseline_launch};
    const size_t cold =
        options->cold_bytes > 0 ? options->cold_bytes : WARM_COPIES * item->rows * item->cols;
    const struct espl_spmm_peer_problem problem = {item->rows, item->cols, item->tokens, codes,
                                                   cold};
    struct espl_cuda_timing_options timing = {
        .graph = true, .launches = options->launches, .repeats = options->repeats};
    result->name = peer->name;
    if (peer->create(&problem, &self.self, result->why) != 0) {
        return;
    }
    enum espl_status status = espl_cuda_time_launches(&subject, &timing, &result->graph, &err);
    if (status == ESPL_OK && options->eager) {
        timing.graph = false;
        status = espl_cuda_time_launches(&subject, &timing, &result->eager, &err);
    }
    result->measured = status == ESPL_OK;
    if (status != ESPL_OK) {
        (void)snprintf(result->why, sizeof result->why, "%.*s", (int)sizeof result->why - 1,
                       err.message);
    }
    peer->destroy(self.self);
}

void espl_nm_bench_fastest(const struct espl_nm_bench_report *report, char text[ESPL_NM_BENCH_NAME])
{
    double best = 0.0;
    text[0] = '\0';
    for (size_t i = 0; i < report->result_count; i++) {
        const struct espl_nm_bench_result *r = &report->results[i];
        const double seconds = r->outputs[ESPL_NM_FP16].graph.median;
        if (i == 0 || seconds < best) {
            best = seconds;
            if (r->packed || i + 1 == report->result_count) {
                (void)snprintf(text, ESPL_NM_BENCH_NAME, "%s", r->packed ? "packed" : "dense");
            } else {
                (void)snprintf(text, ESPL_NM_BENCH_NAME, "%u:8", r->kept);
            }
        }
    }
    for (size_t i = 0; i < report->peer_count; i++) {
        const struct espl_nm_bench_peer *peer = &report->peers[i];
        /* Dense ones, with outputs that lose nothing. */
        const bool counts = peer->measured && strncmp(peer->name, "cublaslt-", 9) == 0 &&
                            strcmp(peer->name, "cublaslt-int8-int8") != 0;
        if (counts && peer->graph.median < best) {
            best = peer->graph.median;
            (void)snprintf(text, ESPL_NM_BENCH_NAME, "%s", peer->name);
        }
    }
}

enum espl_status espl_nm_bench_run(const struct espl_nm_bench_options *options,
                                   const struct espl_nm_bench_case *item,
                                   struct espl_nm_bench_report *report, struct espl_error *err)
{
    struct operands operands = {.x = NULL};
    memset(report, 0, sizeof *report);
    report->item = *item;
    int8_t *codes = options->peer_count > 0
                        ? espl_baseline_activations(item->rows * item->cols) /* small dense codes */
                        : NULL;
    if (options->peer_count > 0 && codes == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for weights of a bench");
    }
    enum espl_status status = operands_make(item, &operands, err);
    for (size_t i = 0; status == ESPL_OK && i <= options->kept_count; i++) {
        const unsigned kept = i < options->kept_count ? options->kept[i] : WINDOW;
        status =
            run_kept(options, item, &operands, kept, &report->results[report->result_count++], err);
    }
    for (size_t i = 0; status == ESPL_OK && i < options->peer_count; i++) {
        run_peer(options, item, codes, options->peers[i], &report->peers[report->peer_count++]);
    }
    operands_free(&operands);
    free(codes);
    return status;
}

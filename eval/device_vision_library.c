#include "eval/device_vision_library.h"

#include "espalier/cuda_memory.h"
#include "espalier/cuda_timing.h"
#include "eval/device_memory.h"

#include <stdlib.h>

enum {
    MOST_SIZES = 64,
    MOST_CHOICES = 512, /* sizes with their levels */
    CODE_STEP = 16,     /* rows of codes without gaps */
    OUT_STEP = 8,       /* of the kernel that scales */
    LAUNCHES = 4,
    REPEATS = 3
};

struct size {
    size_t tokens, in, out;
    struct espl_cuda_blaslt_product *product; /* NULL: there is none */
    size_t algorithm;
};

struct choice {
    size_t tokens;
    struct espl_nm_layout layout;
    bool by_library;
};

struct espl_device_vision_library {
    struct espl_cuda_blaslt *blaslt;
    struct size sizes[MOST_SIZES];
    size_t size_count;
    struct choice choices[MOST_CHOICES];
    size_t choice_count;
};

enum espl_status espl_device_vision_library_create(struct espl_device_vision_library **out,
                                                   struct espl_error *err)
{
    struct espl_device_vision_library *library = calloc(1, sizeof *library);
    if (library == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for products by cuBLASLt");
    }
    const enum espl_status status = espl_cuda_blaslt_create(&library->blaslt, err);
    if (status != ESPL_OK) {
        free(library);
        return status;
    }
    *out = library;
    return ESPL_OK;
}

void espl_device_vision_library_destroy(struct espl_device_vision_library *library)
{
    if (library == NULL) {
        return;
    }
    for (size_t i = 0; i < library->size_count; i++) {
        espl_cuda_blaslt_product_destroy(library->sizes[i].product);
    }
    espl_cuda_blaslt_destroy(library->blaslt);
    free(library);
}

bool espl_device_vision_library_can(size_t in, size_t out)
{
    return in % CODE_STEP == 0 && out % OUT_STEP == 0;
}

/* A linear being timed. */
struct trial {
    const struct espl_device_vision_operands *operands;
    const struct espl_device_vision_linear *linear;
    size_t tokens;
};

static enum espl_status launch_trial(void *self, size_t copy, bool overlap, void *stream,
                                     struct espl_error *err)
{
    const struct trial *trial = self;
    (void)copy;
    (void)overlap;
    return espl_device_vision_linear_run(trial->linear, trial->operands->codes,
                                         trial->operands->scales, trial->tokens, trial->operands->y,
                                         stream, err);
}

static enum espl_status time_trial(const struct espl_device_vision_operands *operands,
                                   const struct espl_device_vision_linear *linear, size_t tokens,
                                   double *seconds, struct espl_error *err)
{
    struct trial trial = {operands, linear, tokens};
    const struct espl_cuda_subject subject = {&trial, launch_trial};
    const struct espl_cuda_timing_options options = {
        .graph = true, .launches = LAUNCHES, .repeats = REPEATS};
    struct espl_cuda_time time = {0};
    const enum espl_status status = espl_cuda_time_launches(&subject, &options, &time, err);
    *seconds = time.median;
    return status;
}

/* size->algorithm <- the fastest; none that runs: the product is given up. */
static enum espl_status pick_algorithm(const struct espl_device_vision_operands *operands,
                                       struct espl_device_vision_linear *linear, struct size *size,
                                       struct espl_error *err)
{
    const size_t count = espl_cuda_blaslt_algorithms(size->product);
    double best = 0.0;
    bool found = false;
    linear->library = size->product;
    linear->sums = operands->sums;
    for (size_t a = 0; a < count; a++) {
        double seconds = 0.0;
        struct espl_error ignored;
        linear->algorithm = a;
        if (time_trial(operands, linear, size->tokens, &seconds, &ignored) == ESPL_OK &&
            (!found || seconds < best)) {
            best = seconds;
            size->algorithm = a;
            found = true;
        }
    }
    if (!found) {
        espl_cuda_blaslt_product_destroy(size->product);
        size->product = NULL;
    }
    return espl_cuda_synchronize(err);
}

static enum espl_status add_size(struct espl_device_vision_library *library,
                                 const struct espl_device_vision_operands *operands, size_t tokens,
                                 struct espl_device_vision_linear *linear, struct espl_error *err)
{
    if (library->size_count == MOST_SIZES) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "more than %d sizes of products by cuBLASLt",
                         (int)MOST_SIZES);
    }
    struct size *size = &library->sizes[library->size_count];
    *size = (struct size){.tokens = tokens, .in = linear->in, .out = linear->out};
    enum espl_status status =
        espl_cuda_blaslt_product_create(library->blaslt, ESPL_CUDA_BLASLT_SUMS, tokens, linear->in,
                                        linear->out, &size->product, err);
    if (status == ESPL_OK) {
        status = pick_algorithm(operands, linear, size, err);
    } else if (status == ESPL_E_UNSUPPORTED) { /* no algorithm: our own kernel runs */
        status = ESPL_OK;
    }
    if (status != ESPL_OK) {
        espl_cuda_blaslt_product_destroy(size->product);
        return status;
    }
    library->size_count++;
    return ESPL_OK;
}

enum espl_status espl_device_vision_library_find(struct espl_device_vision_library *library,
                                                 const struct espl_device_vision_operands *operands,
                                                 size_t tokens,
                                                 struct espl_device_vision_linear *linear,
                                                 struct espl_error *err)
{
    size_t i = 0;
    while (i < library->size_count &&
           (library->sizes[i].tokens != tokens || library->sizes[i].in != linear->in ||
            library->sizes[i].out != linear->out)) {
        i++;
    }
    enum espl_status status = ESPL_OK;
    if (i == library->size_count) {
        status = add_size(library, operands, tokens, linear, err);
    }
    linear->library = NULL;
    if (status == ESPL_OK) {
        linear->library = library->sizes[i].product;
        linear->algorithm = library->sizes[i].algorithm;
        linear->sums = operands->sums;
    }
    return status;
}

static bool same_layout(const struct espl_nm_layout *a, const struct espl_nm_layout *b)
{
    return a->rows == b->rows && a->cols == b->cols && a->n == b->n && a->m == b->m && a->v == b->v;
}

static const struct choice *find_choice(const struct espl_device_vision_library *library,
                                        size_t tokens, const struct espl_nm_layout *layout)
{
    for (size_t i = 0; i < library->choice_count; i++) {
        const struct choice *choice = &library->choices[i];
        if (choice->tokens == tokens && same_layout(&choice->layout, layout)) {
            return choice;
        }
    }
    return NULL;
}

/* *by_library <- whether it took less time; the linear is left with it. */
static enum espl_status compare(const struct espl_device_vision_operands *operands, size_t tokens,
                                struct espl_device_vision_linear *linear, bool *by_library,
                                struct espl_error *err)
{
    const struct espl_cuda_blaslt_product *product = linear->library;
    double own = 0.0;
    double theirs = 0.0;
    enum espl_status status = time_trial(operands, linear, tokens, &theirs, err);
    linear->library = NULL;
    if (status == ESPL_OK) {
        status = time_trial(operands, linear, tokens, &own, err);
    }
    linear->library = product;
    *by_library = theirs < own;
    return status;
}

static enum espl_status decide(struct espl_device_vision_library *library,
                               const struct espl_device_vision_operands *operands, bool always,
                               size_t tokens, const struct espl_nm_layout *layout,
                               struct espl_device_vision_linear *linear, bool *by_library,
                               struct espl_error *err)
{
    const struct choice *known = find_choice(library, tokens, layout);
    enum espl_status status =
        espl_device_vision_library_find(library, operands, tokens, linear, err);
    *by_library = linear->library != NULL && (always || (known != NULL && known->by_library));
    if (status != ESPL_OK || linear->library == NULL || always || known != NULL) {
        return status;
    }
    status = compare(operands, tokens, linear, by_library, err);
    if (status == ESPL_OK && library->choice_count < MOST_CHOICES) {
        library->choices[library->choice_count++] = (struct choice){tokens, *layout, *by_library};
    }
    return status;
}

enum espl_status espl_device_vision_library_take(
    struct espl_device_vision_library *library, const struct espl_device_vision_operands *operands,
    bool always, size_t tokens, const struct espl_nm_layout *layout, const int8_t *codes,
    struct espl_device_vision_linear *linear, struct espl_error *err)
{
    const struct choice *known = find_choice(library, tokens, layout);
    const bool refused = !always && known != NULL && !known->by_library;
    bool by_library = false;
    void *bytes = NULL;
    espl_cuda_free(linear->bytes);
    linear->bytes = NULL;
    linear->library = NULL;
    if (refused || !espl_device_vision_library_can(linear->in, linear->out)) {
        return ESPL_OK;
    }
    enum espl_status status =
        espl_device_upload(codes, linear->out * linear->in, sizeof *codes, &bytes, err);
    linear->bytes = bytes;
    if (status == ESPL_OK) {
        status = decide(library, operands, always, tokens, layout, linear, &by_library, err);
    }
    if (status != ESPL_OK || !by_library) {
        espl_cuda_free(linear->bytes);
        linear->bytes = NULL;
        linear->library = NULL;
    }
    return status;
}

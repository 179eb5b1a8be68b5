#include "eval/vision_quality.h"

#include "core/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Pictures at a time: the activations of a call (3 MB for 32 x 32 pixels, 192 wide) stay near the
 * caches, and its products are large enough for BLAS. */
enum { BATCH = 32, TOP = 5 };

/* ---- tally ---- */

/* How many classes stand before `label`: higher logits, and equal ones of lower number. */
static size_t rank_of(const float *logits, size_t classes, size_t label)
{
    size_t before = 0;
    for (size_t c = 0; c < classes; c++) {
        before += logits[c] > logits[label] || (logits[c] == logits[label] && c < label);
    }
    return before;
}

static enum espl_status check_finite(const struct espl_vision_tally *tally,
                                     struct espl_backend *backend, const float *logits,
                                     size_t images, size_t classes, struct espl_error *err)
{
    size_t at = 0;
    const enum espl_status status =
        espl_backend_ops(backend)->find_nonfinite(backend, images * classes, logits, &at, err);
    if (status == ESPL_OK && at < images * classes) {
        return espl_fail(err, ESPL_E_NUMERIC,
                         "the logit of class %zu of picture %" PRIu64 " is not finite",
                         at % classes, tally->images + at / classes);
    }
    return status;
}

static enum espl_status add_values(double *sum, struct espl_backend *backend, const float *logits,
                                   const float *base_logits, const int32_t *labels, size_t images,
                                   size_t classes, struct espl_error *err)
{
    const struct espl_ops *ops = espl_backend_ops(backend);
    double *values = malloc((images == 0 ? 1 : images) * sizeof *values);
    if (values == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu pictures", images);
    }
    const enum espl_status status =
        labels != NULL
            ? ops->cross_entropy(backend, images, classes, logits, labels, values, err)
            : ops->kl_divergence(backend, images, classes, base_logits, logits, values, err);
    for (size_t i = 0; status == ESPL_OK && i < images; i++) {
        *sum += values[i];
    }
    free(values);
    return status;
}

enum espl_status espl_vision_tally_add(struct espl_vision_tally *tally,
                                       struct espl_backend *backend, const float *logits,
                                       const float *base_logits, const int32_t *labels,
                                       size_t images, size_t classes, struct espl_error *err)
{
    enum espl_status status = check_finite(tally, backend, logits, images, classes, err);
    if (status == ESPL_OK && labels != NULL) {
        status = add_values(&tally->loss, backend, logits, NULL, labels, images, classes, err);
    }
    if (status == ESPL_OK && base_logits != NULL) {
        status = add_values(&tally->kl, backend, logits, base_logits, NULL, images, classes, err);
    }
    for (size_t i = 0; status == ESPL_OK && labels != NULL && i < images; i++) {
        const size_t rank = rank_of(logits + i * classes, classes, (size_t)labels[i]);
        tally->top1 += rank == 0;
        tally->top5 += rank < TOP;
    }
    tally->images += status == ESPL_OK ? images : 0;
    return status;
}

/* ---- a whole set ---- */

/* One batch and what it becomes. */
struct batch {
    uint8_t *pixels;
    int32_t *labels; /* NULL without labels */
    float *logits;
    float *base_logits;
};

static enum espl_status make_batch(const struct espl_image_set *set, size_t classes,
                                   struct batch *batch, struct espl_error *err)
{
    *batch = (struct batch){0};
    batch->pixels = malloc(BATCH * espl_image_set_bytes(set));
    batch->labels = set->classes != 0 ? malloc(BATCH * sizeof *batch->labels) : NULL;
    batch->logits = malloc(BATCH * classes * sizeof *batch->logits);
    batch->base_logits = malloc(BATCH * classes * sizeof *batch->base_logits);
    const bool complete = batch->pixels != NULL && batch->logits != NULL &&
                          batch->base_logits != NULL &&
                          (batch->labels != NULL || set->classes == 0);
    return complete ? ESPL_OK
                    : espl_fail(err, ESPL_E_NOMEM, "out of memory for %d pictures", (int)BATCH);
}

static void free_batch(struct batch *batch)
{
    free(batch->pixels);
    free(batch->labels);
    free(batch->logits);
    free(batch->base_logits);
}

static enum espl_status run_batch(struct espl_vision *model, struct espl_vision *base,
                                  struct espl_backend *backend, const struct batch *batch,
                                  size_t images, struct espl_vision_quality *out,
                                  struct espl_error *err)
{
    const size_t classes = espl_vision_classes(model);
    enum espl_status status =
        espl_vision_logits(model, NULL, batch->pixels, images, batch->logits, err);
    if (status == ESPL_OK && base != NULL) {
        status = espl_vision_logits(base, NULL, batch->pixels, images, batch->base_logits, err);
    }
    if (status == ESPL_OK && base != NULL) {
        status = espl_vision_tally_add(&out->base, backend, batch->base_logits, NULL, batch->labels,
                                       images, classes, err);
        status = status == ESPL_OK ? status : espl_context(err, "in the base model");
    }
    return status == ESPL_OK ? espl_vision_tally_add(&out->model, backend, batch->logits,
                                                     base != NULL ? batch->base_logits : NULL,
                                                     batch->labels, images, classes, err)
                             : status;
}

static void add_times(const struct espl_vision_times *times, struct espl_vision_times *sum)
{
    sum->load += times->load;
    sum->embed += times->embed;
    sum->gemm += times->gemm;
    sum->attention += times->attention;
    sum->norm += times->norm;
    sum->elementwise += times->elementwise;
    sum->head += times->head;
}

static enum espl_status create_both(struct espl_model *model, struct espl_model *base,
                                    struct espl_backend *backend, const struct espl_image_set *set,
                                    struct espl_vision *both[2], struct espl_error *err)
{
    enum espl_status status = espl_vision_create(model, backend, BATCH, &set->scale, &both[0], err);
    if (status == ESPL_OK && base != NULL) {
        status = espl_image_set_check(set, espl_model_get_config(base), false, err);
    }
    if (status == ESPL_OK && base != NULL) {
        status = espl_vision_create(base, backend, BATCH, &set->scale, &both[1], err);
    }
    if (status == ESPL_OK && base != NULL &&
        espl_vision_classes(both[0]) != espl_vision_classes(both[1])) {
        status =
            espl_fail(err, ESPL_E_KIND, "the model has %zu classes, but the base model has %zu",
                      espl_vision_classes(both[0]), espl_vision_classes(both[1]));
    }
    return status;
}

/* Batch after batch. */
static enum espl_status run_all(struct espl_vision *both[2], struct espl_backend *backend,
                                const struct espl_vision_pictures *pictures,
                                const struct batch *batch, espl_image_progress_fn progress,
                                void *user, struct espl_vision_quality *out, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (uint64_t done = 0; status == ESPL_OK && done < pictures->count;) {
        const uint64_t left = pictures->count - done;
        const uint64_t images = left < BATCH ? left : BATCH;
        status = pictures->read(pictures->user, done, images, batch->pixels, batch->labels, err);
        if (status == ESPL_OK) {
            status = run_batch(both[0], both[1], backend, batch, (size_t)images, out, err);
        }
        done += images;
        if (status == ESPL_OK && progress != NULL && !progress(user, done, pictures->count)) {
            status = espl_fail(err, ESPL_E_CANCELLED, "stopped after %" PRIu64 " pictures", done);
        }
    }
    return status;
}

enum espl_status espl_vision_measure(struct espl_model *model, struct espl_model *base,
                                     struct espl_backend *backend,
                                     const struct espl_vision_pictures *pictures,
                                     espl_image_progress_fn progress, void *user,
                                     struct espl_vision_quality *out, struct espl_error *err)
{
    struct espl_vision *both[2] = {NULL, NULL};
    struct batch batch = {0};
    memset(out, 0, sizeof *out);
    enum espl_status status = create_both(model, base, backend, pictures->set, both, err);
    if (status == ESPL_OK) {
        status = make_batch(pictures->set, espl_vision_classes(both[0]), &batch, err);
    }
    const double start = espl_clock_monotonic();
    if (status == ESPL_OK) {
        status = run_all(both, backend, pictures, &batch, progress, user, out, err);
    }
    out->seconds = espl_clock_monotonic() - start;
    for (size_t i = 0; status == ESPL_OK && i < 2 && both[i] != NULL; i++) {
        const struct espl_model *which = i == 0 ? model : base;
        out->flop += (double)pictures->count * espl_vision_flop(espl_model_get_config(which));
        add_times(espl_vision_get_times(both[i]), &out->times);
    }
    free_batch(&batch);
    espl_vision_destroy(both[0]);
    espl_vision_destroy(both[1]);
    return status;
}

static enum espl_status read_stored(void *user, uint64_t first, uint64_t count, uint8_t *pixels,
                                    int32_t *labels, struct espl_error *err)
{
    struct espl_stored_pictures *stored = user;
    return espl_image_set_read(stored->artifact, &stored->set, first, count, pixels, labels, err);
}

struct espl_vision_pictures espl_stored_pictures(struct espl_stored_pictures *stored,
                                                 uint64_t count)
{
    return (struct espl_vision_pictures){&stored->set, count, read_stored, stored};
}

uint64_t espl_vision_measure_bytes(const struct espl_model_config *config,
                                   const struct espl_model_config *base)
{
    const uint64_t pixels =
        config->vision.image_size * config->vision.image_size * config->vision.channels;
    uint64_t bytes = espl_vision_bytes(config, BATCH);
    bytes += BATCH * (pixels + 2 * config->vocab * sizeof(float));
    return bytes + (base != NULL ? espl_vision_bytes(base, BATCH) : 0);
}

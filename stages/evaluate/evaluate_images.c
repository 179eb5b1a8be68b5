#include "stages/evaluate/evaluate_images.h"

#include "stages/evaluate/evaluate_metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* ---- plan ---- */

/* How many pictures; 0 when the set is not known yet. */
static enum espl_status choose_count(const struct espl_image_set *set, uint64_t asked,
                                     uint64_t *count, struct espl_error *err)
{
    if (set->count != 0 && asked > set->count) {
        (void)espl_fail(err, ESPL_E_KIND, "'images' is %" PRIu64 ", but there are %" PRIu64, asked,
                        set->count);
        (void)espl_hint(err, "use at most %" PRIu64 ", or 0 for all", set->count);
        return espl_blame(err, "param:images");
    }
    *count = asked != 0 ? asked : set->count;
    return ESPL_OK;
}

enum espl_status espl_evaluate_plan_images(struct espl_plan_ctx *ctx,
                                           const struct espl_model_config *config,
                                           const struct espl_model_config *base, uint64_t asked,
                                           struct espl_estimate *est, struct espl_error *err)
{
    const json_t *description = espl_plan_input(ctx, "images");
    struct espl_image_set set;
    uint64_t count = asked;
    est->host_bytes = espl_vision_measure_bytes(config, base);
    if (description != NULL) {
        enum espl_status status = espl_image_set_from_description(description, &set, err);
        if (status == ESPL_OK) {
            status = espl_image_set_check(&set, config, false, err);
        }
        if (status != ESPL_OK) {
            return espl_blame(err, "input:images");
        }
        status = choose_count(&set, asked, &count, err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    est->flop =
        (double)count * (espl_vision_flop(config) + (base != NULL ? espl_vision_flop(base) : 0.0));
    if (count != 0) {
        (void)snprintf(est->note, sizeof est->note, "%" PRIu64 " images", count);
    }
    return ESPL_OK;
}

/* ---- run ---- */

static bool report_image(void *user, uint64_t done, uint64_t total)
{
    struct espl_stage_ctx *ctx = user;
    espl_ctx_progress(ctx, done, total, "image");
    return !espl_ctx_cancelled(ctx);
}

/* The pictures say how they are scaled; a model that was trained with another scale is worth a
 * word. */
static void warn_scale(struct espl_stage_ctx *ctx, const struct espl_image_set *set,
                       const struct espl_model_config *config)
{
    for (size_t c = 0; c < config->vision.channels; c++) {
        if (fabs(set->scale.mean[c] - config->vision.mean[c]) > 1e-6 ||
            fabs(set->scale.std[c] - config->vision.std[c]) > 1e-6) {
            espl_log(espl_ctx_log(ctx), ESPL_LOG_WARN,
                     "channel %zu of the pictures is scaled with mean %g and std %g, the model's "
                     "configuration says %g and %g",
                     c, set->scale.mean[c], set->scale.std[c], config->vision.mean[c],
                     config->vision.std[c]);
            return;
        }
    }
}

/* In the order of their names, as the artifact has them. */
static size_t list_values(const struct espl_vision_quality *result, bool labelled, bool compared,
                          struct espl_named_value values[8])
{
    const struct espl_vision_tally *model = &result->model;
    const double images = (double)model->images;
    size_t count = 0;
    values[count++] = (struct espl_named_value){"images", images};
    if (compared) {
        values[count++] = (struct espl_named_value){"kl", model->kl / images};
    }
    if (labelled) {
        values[count++] = (struct espl_named_value){"loss", model->loss / images};
        values[count++] = (struct espl_named_value){"top1", 100.0 * (double)model->top1 / images};
    }
    if (labelled && compared) {
        values[count++] =
            (struct espl_named_value){"top1_base", 100.0 * (double)result->base.top1 / images};
    }
    if (labelled) {
        values[count++] = (struct espl_named_value){"top5", 100.0 * (double)model->top5 / images};
    }
    if (labelled && compared) {
        values[count++] =
            (struct espl_named_value){"top5_base", 100.0 * (double)result->base.top5 / images};
    }
    return count;
}

static enum espl_status report(struct espl_stage_ctx *ctx, const struct espl_vision_quality *result,
                               bool labelled, bool compared, struct espl_error *err)
{
    struct espl_named_value values[8];
    const size_t count = list_values(result, labelled, compared, values);
    const struct espl_named_value rates[] = {
        {"gflops", result->flop / result->seconds * 1e-9},
        {"images_per_second", (double)result->model.images / result->seconds},
        {"seconds", result->seconds},
    };
    enum espl_status status =
        espl_evaluate_write_metrics(espl_ctx_output(ctx, "metrics"), values, count, err);
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        status = espl_ctx_metric(ctx, values[i].name, values[i].value, false, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < sizeof rates / sizeof rates[0]; i++) {
        status = espl_ctx_metric(ctx, rates[i].name, rates[i].value, true, err);
    }
    return status;
}

enum espl_status espl_evaluate_run_images(struct espl_stage_ctx *ctx, struct espl_model *model,
                                          struct espl_model *base, struct espl_backend *backend,
                                          uint64_t asked, struct espl_error *err)
{
    struct espl_stored_pictures stored = {.artifact = espl_ctx_input(ctx, "images")};
    struct espl_vision_quality result;
    uint64_t count = 0;
    enum espl_status status = espl_image_set_open(stored.artifact, &stored.set, err);
    const bool labelled = stored.set.classes != 0;
    if (status == ESPL_OK) {
        status = espl_image_set_check(&stored.set, espl_model_get_config(model), base == NULL, err);
    }
    if (status == ESPL_OK) {
        status = choose_count(&stored.set, asked, &count, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    warn_scale(ctx, &stored.set, espl_model_get_config(model));
    const struct espl_vision_pictures pictures = espl_stored_pictures(&stored, count);
    espl_ctx_progress(ctx, 0, count, "image");
    status = espl_vision_measure(model, base, backend, &pictures, report_image, ctx, &result, err);
    if (status == ESPL_E_CANCELLED) {
        return espl_ctx_stop(ctx, err);
    }
    return status == ESPL_OK ? report(ctx, &result, labelled, base != NULL, err) : status;
}

#include "stages/deploy_bench/encoder_accuracy.h"

#include "eval/device_vision.h"
#include "eval/vision_quality.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32 };

struct judge {
    struct espl_artifact *artifact;
    struct espl_image_set set;
    uint64_t count;
    size_t classes;
    struct espl_backend *cpu;
    struct espl_vision *on_cpu;
    struct espl_device_vision *on_device;
    uint8_t *pixels;
    int32_t *labels;
    float *logits; /* (2, BATCH, classes): CPU, device */
    struct espl_vision_tally tallies[2];
    uint64_t agreeing;
};

static size_t best_of(const float *logits, size_t classes)
{
    size_t best = 0;
    for (size_t c = 1; c < classes; c++) {
        best = logits[c] > logits[best] ? c : best;
    }
    return best;
}

static void compare(struct judge *judge, size_t images, struct espl_encoder_accuracy *accuracy)
{
    for (size_t i = 0; i < images; i++) {
        const float *cpu = judge->logits + i * judge->classes;
        const float *device = judge->logits + (BATCH + i) * judge->classes;
        double largest = 0.0;
        double difference = 0.0;
        for (size_t c = 0; c < judge->classes; c++) {
            largest = fmax(largest, fabs((double)cpu[c]));
            difference = fmax(difference, fabs((double)cpu[c] - (double)device[c]));
        }
        judge->agreeing += best_of(cpu, judge->classes) == best_of(device, judge->classes);
        accuracy->difference = fmax(accuracy->difference, difference / largest);
    }
}

static enum espl_status judge_some(struct judge *judge, uint64_t first, size_t images,
                                   struct espl_encoder_accuracy *accuracy, struct espl_error *err)
{
    int32_t *labels = judge->set.classes != 0 ? judge->labels : NULL;
    float *logits[2] = {judge->logits, judge->logits + BATCH * judge->classes};
    enum espl_status status = espl_image_set_read(judge->artifact, &judge->set, first, images,
                                                  judge->pixels, labels, err);
    if (status == ESPL_OK) {
        status = espl_vision_logits(judge->on_cpu, NULL, judge->pixels, images, logits[0], err);
    }
    if (status == ESPL_OK) {
        status = espl_device_vision_logits(judge->on_device, judge->pixels, images, logits[1], err);
    }
    for (size_t i = 0; status == ESPL_OK && i < 2; i++) {
        status =
            espl_vision_tally_add(&judge->tallies[i], judge->cpu, logits[i],
                                  i == 1 ? logits[0] : NULL, labels, images, judge->classes, err);
    }
    if (status == ESPL_OK) {
        compare(judge, images, accuracy);
    }
    return status;
}

static enum espl_status open_judge(struct judge *judge, struct espl_model *model, uint64_t asked,
                                   unsigned threads, struct espl_error *err)
{
    const struct espl_model_config *config = espl_model_get_config(model);
    enum espl_status status = espl_image_set_open(judge->artifact, &judge->set, err);
    if (status == ESPL_OK) {
        status = espl_image_set_check(&judge->set, config, false, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    judge->count = asked != 0 && asked < judge->set.count ? asked : judge->set.count;
    judge->classes = (size_t)config->vocab;
    judge->pixels = malloc(BATCH * espl_image_set_bytes(&judge->set));
    judge->labels = malloc(BATCH * sizeof *judge->labels);
    judge->logits = malloc(2 * BATCH * judge->classes * sizeof *judge->logits);
    if (judge->pixels == NULL || judge->labels == NULL || judge->logits == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for pictures");
    }
    status = espl_backend_open("cpu", threads, &judge->cpu, err);
    if (status == ESPL_OK) {
        status =
            espl_vision_create(model, judge->cpu, BATCH, &judge->set.scale, &judge->on_cpu, err);
    }
    return status == ESPL_OK
               ? espl_device_vision_create(model, BATCH, &judge->set.scale, NULL, NULL,
                                           ESPL_DEVICE_VISION_OWN, &judge->on_device, err)
               : status;
}

enum espl_status espl_encoder_judge(struct espl_stage_ctx *ctx, struct espl_model *model,
                                    uint64_t asked, unsigned threads,
                                    struct espl_encoder_accuracy *accuracy, struct espl_error *err)
{
    struct judge judge = {.artifact = espl_ctx_input(ctx, "images")};
    enum espl_status status = open_judge(&judge, model, asked, threads, err);
    for (uint64_t first = 0; status == ESPL_OK && first < judge.count; first += BATCH) {
        const uint64_t left = judge.count - first;
        espl_ctx_progress(ctx, first, judge.count, "image");
        status =
            espl_ctx_cancelled(ctx)
                ? espl_ctx_stop(ctx, err)
                : judge_some(&judge, first, left < BATCH ? (size_t)left : BATCH, accuracy, err);
    }
    if (status == ESPL_OK && judge.count > 0) {
        const double percent = 100.0 / (double)judge.count;
        accuracy->images = (size_t)judge.count;
        accuracy->labelled = judge.set.classes != 0;
        accuracy->top1_cpu = percent * (double)judge.tallies[0].top1;
        accuracy->top1 = percent * (double)judge.tallies[1].top1;
        accuracy->agreeing = percent * (double)judge.agreeing;
    }
    espl_device_vision_destroy(judge.on_device);
    espl_vision_destroy(judge.on_cpu);
    espl_backend_close(judge.cpu);
    free(judge.pixels);
    free(judge.labels);
    free(judge.logits);
    return status;
}

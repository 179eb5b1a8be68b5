#include "stages/images/image_setup.h"

#include "model/arch_vision.h"

#include <string.h>

const char *const espl_image_order_choices[] = {"sorted", "shuffled", NULL};
const char *const espl_image_interpolation_choices[] = {"auto", "bicubic", "bilinear", NULL};
const char *const espl_image_on_error_choices[] = {"fail", "skip", NULL};

static enum espl_status check_model(const struct espl_model_config *model, struct espl_error *err)
{
    if (model == NULL || espl_model_config_is_vision(model)) {
        return ESPL_OK;
    }
    (void)espl_fail(err, ESPL_E_KIND, "architecture '%s' does not read images",
                    model->architecture);
    (void)espl_hint(err, "connect an image model, or give size: instead");
    return espl_blame(err, "input:model");
}

/* mean or std: the parameter, else what the model or ImageNet says. */
static enum espl_status choose_scale(const struct espl_list *list, const char *name,
                                     size_t channels, double *values, struct espl_error *err)
{
    const double *items = list->items;
    if (list->count == 0) {
        return ESPL_OK;
    }
    if (list->count != channels) {
        (void)espl_fail(err, ESPL_E_JOB, "'%s' has %zu numbers, the pictures have %zu channels",
                        name, list->count, channels);
        return espl_blame(err, strcmp(name, "mean") == 0 ? "param:mean" : "param:std");
    }
    for (size_t c = 0; c < channels; c++) {
        values[c] = items[c];
    }
    return ESPL_OK;
}

static enum espl_status choose_scales(const struct espl_image_params *params,
                                      struct espl_image_setup *setup, struct espl_error *err)
{
    const size_t channels = setup->fit.channels;
    enum espl_status status = choose_scale(&params->mean, "mean", channels, setup->mean, err);
    if (status == ESPL_OK) {
        status = choose_scale(&params->std, "std", channels, setup->std, err);
    }
    for (size_t c = 0; status == ESPL_OK && c < channels; c++) {
        if (!(setup->std[c] > 0.0)) {
            (void)espl_fail(err, ESPL_E_JOB, "'std' must be above 0, got %g", setup->std[c]);
            status = espl_blame(err, "param:std");
        }
    }
    return status;
}

static void take_defaults(const struct espl_model_config *model, struct espl_image_setup *setup)
{
    if (model == NULL) {
        setup->crop_pct = 1.0;
        return;
    }
    const struct espl_vision_config *vision = &model->vision;
    setup->fit.size = (size_t)vision->image_size;
    setup->fit.channels = (size_t)vision->channels;
    setup->fit.filter =
        strcmp(vision->interpolation, "bilinear") == 0 ? ESPL_FILTER_BILINEAR : ESPL_FILTER_BICUBIC;
    setup->crop_pct = vision->crop_pct;
    setup->model_classes = model->vocab;
    memcpy(setup->mean, vision->mean, sizeof setup->mean);
    memcpy(setup->std, vision->std, sizeof setup->std);
}

/* The mean and std of ImageNet, where no model says others. */
static void take_default_scale(const struct espl_model_config *model,
                               struct espl_image_setup *setup)
{
    struct espl_vision_config usual = {.channels = setup->fit.channels};
    if (model != NULL && model->vision.channels == setup->fit.channels) {
        return;
    }
    espl_vision_default_scale(&usual);
    memcpy(setup->mean, usual.mean, sizeof setup->mean);
    memcpy(setup->std, usual.std, sizeof setup->std);
}

enum espl_status espl_image_setup_make(const struct espl_image_params *params,
                                       const struct espl_model_config *model,
                                       struct espl_image_setup *setup, struct espl_error *err)
{
    memset(setup, 0, sizeof *setup);
    const enum espl_status status = check_model(model, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (params->channels != 0 && params->channels != 1 && params->channels != 3) {
        (void)espl_fail(err, ESPL_E_JOB, "'channels' must be 1 (grey) or 3 (colour), got %lld",
                        (long long)params->channels);
        return espl_blame(err, "param:channels");
    }
    take_defaults(model, setup);
    if (params->size != 0) {
        setup->fit.size = (size_t)params->size;
    }
    if (params->channels != 0) {
        setup->fit.channels = (size_t)params->channels;
    }
    if (params->crop_pct > 0.0) {
        setup->crop_pct = params->crop_pct;
    }
    if (params->interpolation != 0) {
        setup->fit.filter = params->interpolation == 1 ? ESPL_FILTER_BICUBIC : ESPL_FILTER_BILINEAR;
    }
    if (setup->fit.channels == 0) {
        return ESPL_OK; /* the idx file decides, see espl_image_setup_finish() */
    }
    take_default_scale(model, setup);
    return choose_scales(params, setup, err);
}

enum espl_status espl_image_setup_finish(const struct espl_image_params *params, uint64_t height,
                                         uint64_t width, uint64_t channels,
                                         struct espl_image_setup *setup, struct espl_error *err)
{
    if (setup->fit.size == 0 && height != width) {
        (void)espl_fail(err, ESPL_E_JOB,
                        "the pictures are %llu x %llu pixels: which square is meant?",
                        (unsigned long long)height, (unsigned long long)width);
        (void)espl_hint(err, "give size:, or connect the model");
        return espl_blame(err, "param:size");
    }
    if (setup->fit.size == 0) {
        setup->fit.size = (size_t)height;
    }
    if (setup->fit.channels == 0) {
        setup->fit.channels = (size_t)channels;
        take_default_scale(NULL, setup);
    }
    setup->fit.resized = espl_picture_resized_side(setup->fit.size, setup->crop_pct);
    return choose_scales(params, setup, err);
}

/* Parameters of the images stage, and what they and the model decide: how pictures are brought to
 * the size the model reads. */
#ifndef ESPL_STAGES_IMAGE_SETUP_H
#define ESPL_STAGES_IMAGE_SETUP_H

#include "datasets/image_resize.h"
#include "engine/param.h"
#include "model/config.h"

enum espl_image_order { ESPL_IMAGE_ORDER_SORTED, ESPL_IMAGE_ORDER_SHUFFLED };
enum espl_image_on_error { ESPL_IMAGE_ON_ERROR_FAIL, ESPL_IMAGE_ON_ERROR_SKIP };

struct espl_image_params {
    const char *source;
    const char *labels; /* NULL = classes are folders */
    const char *subset; /* NULL = everything */
    const char *list;   /* NULL = all of it */
    int order;
    int64_t seed;
    int64_t first;
    int64_t count; /* 0 = all from first on */
    int64_t size;  /* 0 = the model's, or an idx file's own */
    int64_t channels;
    double crop_pct;
    int interpolation; /* 0 = the model's */
    struct espl_list mean, std;
    int on_error;
    uint64_t memory;
};

extern const char *const espl_image_order_choices[];
extern const char *const espl_image_interpolation_choices[];
extern const char *const espl_image_on_error_choices[];

/** All decided. size and channels 0: those of the idx file. */
struct espl_image_setup {
    struct espl_picture_fit fit;
    double crop_pct;
    double mean[ESPL_VISION_MAX_CHANNELS], std[ESPL_VISION_MAX_CHANNELS];
    uint64_t model_classes; /* 0 = no model is connected */
};

/** model: NULL when none is connected. Errors: KIND (a language model), JOB (combinations). */
enum espl_status espl_image_setup_make(const struct espl_image_params *params,
                                       const struct espl_model_config *model,
                                       struct espl_image_setup *setup, struct espl_error *err);
/** Fills in what an idx file's own sizes decide (a no-op when nothing is open). JOB when the sizes
 *  are still not known, or pictures are not square. */
enum espl_status espl_image_setup_finish(const struct espl_image_params *params, uint64_t height,
                                         uint64_t width, uint64_t channels,
                                         struct espl_image_setup *setup, struct espl_error *err);

#endif

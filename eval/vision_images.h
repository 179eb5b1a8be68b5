/* Reading images/1 artifacts: pictures as bytes, labels, and how to scale the bytes.
 *
 * Datasets: /images/pixels u8 [count, height, width, channels]; /images/labels i32 [count] when the
 * source had labels. Description: {"count","height","width","channels","classes" (0 = no labels),
 * "class_names" (optional),"mean":[..],"std":[..], and facts of the source}. At plan time count
 * and classes may be unknown (absent). */
#ifndef ESPL_EVAL_VISION_IMAGES_H
#define ESPL_EVAL_VISION_IMAGES_H

#include "eval/vision.h"

struct espl_image_set {
    uint64_t count; /* 0 = not known yet */
    uint64_t height, width, channels;
    uint64_t classes; /* 0 = no labels, or not known yet */
    bool labelled;    /* false: known to have none */
    struct espl_pixel_scale scale;
};

/** From a description, as espl_plan_input() gives it. Errors: CORRUPT naming the member. */
enum espl_status espl_image_set_from_description(const json_t *description,
                                                 struct espl_image_set *set,
                                                 struct espl_error *err);
/** From an open artifact; also checks that the datasets are what the description says. */
enum espl_status espl_image_set_open(const struct espl_artifact *artifact,
                                     struct espl_image_set *set, struct espl_error *err);
/** Do the pictures fit the model (size, channels, classes)? labels_needed: pictures without labels
 * are an error too. KIND with a hint. */
enum espl_status espl_image_set_check(const struct espl_image_set *set,
                                      const struct espl_model_config *config, bool labels_needed,
                                      struct espl_error *err);
/** Bytes of one picture. */
size_t espl_image_set_bytes(const struct espl_image_set *set);
/** Pictures [first, first + count) and their labels. pixels: count * espl_image_set_bytes(); labels
 *  (count): NULL = not wanted. A label outside the classes is CORRUPT. */
enum espl_status espl_image_set_read(struct espl_artifact *artifact,
                                     const struct espl_image_set *set, uint64_t first,
                                     uint64_t count, uint8_t *pixels, int32_t *labels,
                                     struct espl_error *err);

#endif

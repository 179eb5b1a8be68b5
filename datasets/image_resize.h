/* From a picture of any size to the square a model reads, by the rules of timm's evaluation
 * transform with Pillow's antialiased filters: stages/images/README.md writes them down. */
#ifndef ESPL_DATASETS_IMAGE_RESIZE_H
#define ESPL_DATASETS_IMAGE_RESIZE_H

#include "datasets/image_decode.h"

enum espl_filter { ESPL_FILTER_BICUBIC, ESPL_FILTER_BILINEAR };

struct espl_picture_fit {
    size_t size;     /* side of the result, pixels */
    size_t resized;  /* length of the shorter side before the crop; >= size */
    size_t channels; /* of the result: 1 or 3 */
    enum espl_filter filter;
};

/** Shorter side before the crop: floor(size / crop_pct), as timm computes it. 0 < crop_pct <= 1. */
size_t espl_picture_resized_side(size_t size, double crop_pct);
/** out (size, size, channels). Colours first (grey <-> red, green, blue), then resize so that the
 *  shorter side is `resized`, then the middle square. Errors: UNSUPPORTED (too long and thin),
 * NOMEM.
 */
enum espl_status espl_picture_fit(const struct espl_picture *picture,
                                  const struct espl_picture_fit *fit, uint8_t *out,
                                  struct espl_error *err);
/** Resizes to width x height with antialiasing: horizontally first, values rounded to bytes after
 * each pass. *out is a new picture. */
enum espl_status espl_picture_resize(const struct espl_picture *picture, size_t width,
                                     size_t height, enum espl_filter filter,
                                     struct espl_picture *out, struct espl_error *err);

#endif

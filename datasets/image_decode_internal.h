/* The decoders behind espl_picture_decode(). */
#ifndef ESPL_DATASETS_IMAGE_DECODE_INTERNAL_H
#define ESPL_DATASETS_IMAGE_DECODE_INTERNAL_H

#include "datasets/image_decode.h"

/** Sets the sizes and reserves the pixels, after checking them against the limits. */
enum espl_status espl_picture_reserve(struct espl_picture *picture, uint64_t width, uint64_t height,
                                      unsigned channels, struct espl_error *err);
enum espl_status espl_jpeg_decode(const uint8_t *bytes, size_t len, struct espl_picture *picture,
                                  struct espl_error *err);
enum espl_status espl_png_decode(const uint8_t *bytes, size_t len, struct espl_picture *picture,
                                 struct espl_error *err);

#endif

/* Pictures from JPEG and PNG files in memory. Untrusted input: sizes are checked before memory is
 * reserved, and anything that a decoder only warns about but that would show (missing or damaged
 * data) is an error. */
#ifndef ESPL_DATASETS_IMAGE_DECODE_H
#define ESPL_DATASETS_IMAGE_DECODE_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Rows from the top, pixels from the left, channels next to each other. */
struct espl_picture {
    size_t width, height;
    size_t channels; /* 1 = grey, 3 = red, green, blue */
    uint8_t *pixels; /* height * width * channels; owned */
};

/** Most pixels of a picture; a larger one is refused before anything is decoded. */
#define ESPL_PICTURE_MAX_PIXELS ((size_t)1 << 27)
/** And the longest side, also while it is resized. */
enum { ESPL_PICTURE_MAX_SIDE = 65535 };

/** Decodes by the first bytes, not by a name: many files are not what their name says. Alpha is
 * dropped and palettes are expanded. Errors (what only; the caller adds which file): CORRUPT
 * (empty, truncated, damaged), UNSUPPORTED (neither format, CMYK, 16 bits a channel, too large),
 * NOMEM. */
enum espl_status espl_picture_decode(const uint8_t *bytes, size_t len, struct espl_picture *picture,
                                     struct espl_error *err);
void espl_picture_free(struct espl_picture *picture);

#endif

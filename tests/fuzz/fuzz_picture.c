/* libFuzzer target: JPEG and PNG files are untrusted input. What decodes is also brought to the
 * size of a model. */
#include "datasets/image_resize.h"

#include <stdlib.h>
#include <string.h>

enum { SIDE = 8, MOST_PIXELS = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Width times height that the header announces; decoding megapixels finds nothing and is slow. */
static bool is_small(const uint8_t *data, size_t size)
{
    if (size < 24 || data[0] != 0x89) {
        return true; /* a JPEG, whose decoder needs data for every pixel */
    }
    uint64_t sides[2] = {0, 0};
    for (size_t i = 0; i < 8; i++) {
        sides[i / 4] = sides[i / 4] << 8 | data[16 + i];
    }
    return sides[0] < 65536 && sides[1] < 65536 && sides[0] * sides[1] <= MOST_PIXELS;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct espl_picture_fit fit = {SIDE, SIDE + 1, 3, ESPL_FILTER_BICUBIC};
    struct espl_picture picture;
    uint8_t out[SIDE * SIDE * 3];
    /* An exact copy, so that a read behind the end is seen. */
    uint8_t *bytes = malloc(size == 0 ? 1 : size);
    if (bytes == NULL || !is_small(data, size)) {
        free(bytes);
        return 0;
    }
    memcpy(bytes, data, size);
    if (espl_picture_decode(bytes, size, &picture, NULL) == ESPL_OK) {
        if (picture.width == 0 || picture.height == 0 || picture.pixels == NULL ||
            (picture.channels != 1 && picture.channels != 3)) {
            abort();
        }
        (void)espl_picture_fit(&picture, &fit, out, NULL);
        espl_picture_free(&picture);
    }
    free(bytes);
    return 0;
}

#include "datasets/image_decode.h"

#include "datasets/image_decode_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum espl_status espl_picture_reserve(struct espl_picture *picture, uint64_t width, uint64_t height,
                                      unsigned channels, struct espl_error *err)
{
    if (width == 0 || height == 0) {
        return espl_fail(err, ESPL_E_CORRUPT, "the picture is %" PRIu64 " x %" PRIu64 " pixels",
                         width, height);
    }
    if (width > ESPL_PICTURE_MAX_SIDE || height > ESPL_PICTURE_MAX_SIDE) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "the picture is %" PRIu64 " x %" PRIu64
                         " pixels, a side is longer than %d",
                         width, height, (int)ESPL_PICTURE_MAX_SIDE);
    }
    if (width * height > ESPL_PICTURE_MAX_PIXELS) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "the picture is %" PRIu64 " x %" PRIu64 " pixels, more than %zu", width,
                         height, ESPL_PICTURE_MAX_PIXELS);
    }
    picture->width = (size_t)width;
    picture->height = (size_t)height;
    picture->channels = channels;
    picture->pixels = malloc(picture->width * picture->height * channels);
    return picture->pixels != NULL
               ? ESPL_OK
               : espl_fail(err, ESPL_E_NOMEM, "out of memory for %" PRIu64 " x %" PRIu64 " pixels",
                           width, height);
}

void espl_picture_free(struct espl_picture *picture)
{
    free(picture->pixels);
    memset(picture, 0, sizeof *picture);
}

static bool begins_with(const uint8_t *bytes, size_t len, const char *magic, size_t magic_len)
{
    return len >= magic_len && memcmp(bytes, magic, magic_len) == 0;
}

enum espl_status espl_picture_decode(const uint8_t *bytes, size_t len, struct espl_picture *picture,
                                     struct espl_error *err)
{
    memset(picture, 0, sizeof *picture);
    enum espl_status status = ESPL_OK;
    if (len == 0) {
        status = espl_fail(err, ESPL_E_CORRUPT, "the file is empty");
    } else if (begins_with(bytes, len, "\xff\xd8\xff", 3)) {
        status = espl_jpeg_decode(bytes, len, picture, err);
    } else if (begins_with(bytes, len, "\x89PNG\r\n\x1a\n", 8)) {
        status = espl_png_decode(bytes, len, picture, err);
    } else {
        status = espl_fail(err, ESPL_E_UNSUPPORTED, "it is neither a JPEG nor a PNG file");
    }
    if (status != ESPL_OK) {
        espl_picture_free(picture);
    }
    return status;
}

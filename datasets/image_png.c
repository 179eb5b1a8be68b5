/* PNG through libpng. Its errors leave by longjmp, so what must be freed lives in a struct of the
 * caller of the function that called setjmp. */
#include "datasets/image_decode_internal.h"

#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE = 160, MOST_CHUNK_BYTES = 8 << 20 };

struct reader {
    png_structp png;
    png_infop info;
    png_bytepp lines;
    const uint8_t *bytes;
    size_t len, at;
    bool ended; /* read behind the end */
    jmp_buf leave;
    char message[MESSAGE];
};

PNG_NORETURN static void leave(png_structp png, png_const_charp message)
{
    struct reader *reader = png_get_error_ptr(png);
    (void)snprintf(reader->message, sizeof reader->message, "%s", message);
    longjmp(reader->leave, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message; /* ancillary chunks only: damaged pixels are errors */
}

static void read_bytes(png_structp png, png_bytep out, size_t count)
{
    struct reader *reader = png_get_io_ptr(png);
    if (count > reader->len - reader->at) {
        reader->ended = true;
        png_error(png, "the file ends in the middle");
    }
    memcpy(out, reader->bytes + reader->at, count);
    reader->at += count;
}

/* Palettes and small bit depths become bytes, alpha goes. */
static enum espl_status start(struct reader *reader, struct espl_picture *picture,
                              struct espl_error *err)
{
    png_structp png = reader->png;
    png_read_info(png, reader->info);
    const int depth = png_get_bit_depth(png, reader->info);
    const int colour = png_get_color_type(png, reader->info);
    if (depth == 16) {
        (void)espl_fail(err, ESPL_E_UNSUPPORTED, "it is a PNG with 16 bits a channel");
        return espl_hint(err, "convert it to 8 bits, or leave it out with on_error: skip");
    }
    if (colour == PNG_COLOR_TYPE_PALETTE) {
        png_set_palette_to_rgb(png);
    } else if (colour == PNG_COLOR_TYPE_GRAY && depth < 8) {
        png_set_expand_gray_1_2_4_to_8(png);
    }
    png_set_strip_alpha(png);
    (void)png_set_interlace_handling(png);
    png_read_update_info(png, reader->info);
    const unsigned channels = (colour & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1;
    const enum espl_status status =
        espl_picture_reserve(picture, png_get_image_width(png, reader->info),
                             png_get_image_height(png, reader->info), channels, err);
    if (status == ESPL_OK &&
        png_get_rowbytes(png, reader->info) != picture->width * picture->channels) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "it is a PNG of an unusual colour type");
    }
    return status;
}

static enum espl_status read_lines(struct reader *reader, struct espl_picture *picture,
                                   struct espl_error *err)
{
    const size_t stride = picture->width * picture->channels;
    reader->lines = calloc(picture->height, sizeof *reader->lines);
    if (reader->lines == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the lines of a PNG");
    }
    for (size_t y = 0; y < picture->height; y++) {
        reader->lines[y] = picture->pixels + y * stride;
    }
    png_read_image(reader->png, reader->lines);
    png_read_end(reader->png, NULL);
    return ESPL_OK;
}

/* setjmp stands in a function without locals of its own: nothing it needs can be lost. */
static enum espl_status run(struct reader *reader, struct espl_picture *picture,
                            struct espl_error *err)
{
    if (setjmp(reader->leave) != 0) {
        return espl_fail(err, ESPL_E_CORRUPT, "the PNG is %s: %s",
                         reader->ended ? "truncated" : "damaged", reader->message);
    }
    reader->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, reader, leave, on_warning);
    reader->info = reader->png != NULL ? png_create_info_struct(reader->png) : NULL;
    if (reader->info == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a PNG reader");
    }
    png_set_read_fn(reader->png, reader, read_bytes);
    png_set_chunk_malloc_max(reader->png, MOST_CHUNK_BYTES);
    const enum espl_status status = start(reader, picture, err);
    return status == ESPL_OK ? read_lines(reader, picture, err) : status;
}

enum espl_status espl_png_decode(const uint8_t *bytes, size_t len, struct espl_picture *picture,
                                 struct espl_error *err)
{
    struct reader reader;
    memset(&reader, 0, sizeof reader);
    reader.bytes = bytes;
    reader.len = len;
    const enum espl_status status = run(&reader, picture, err);
    png_destroy_read_struct(&reader.png, &reader.info, NULL);
    free(reader.lines);
    return status;
}

/* JPEG through libjpeg-turbo. Its errors leave by longjmp, so what must be freed lives in a struct
 * of the caller of the function that called setjmp. */
#include "datasets/image_decode_internal.h"

#include <setjmp.h>
#include <stdio.h> /* jpeglib.h needs FILE */
#include <string.h>

#include <jpeglib.h>

#include <jerror.h> /* after jpeglib.h: its numbers depend on the ABI that one names */

/* Scans of a progressive file: real ones have about ten, bombs thousands. */
enum { MOST_SCANS = 200 };

struct reader {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf leave;
    char message[JMSG_LENGTH_MAX];
    int code; /* of the error or of the first warning that counts */
};

static void leave(j_common_ptr info)
{
    struct reader *reader = info->client_data;
    reader->code = info->err->msg_code;
    (*info->err->format_message)(info, reader->message);
    longjmp(reader->leave, 1);
}

/* Of the warnings, only these two leave every pixel as it should be. */
static void on_message(j_common_ptr info, int level)
{
    const int code = info->err->msg_code;
    if (level < 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_JFIF_MAJOR) {
        leave(info);
    }
}

static void on_output(j_common_ptr info)
{
    (void)info; /* nothing is printed */
}

static void on_progress(j_common_ptr info)
{
    const j_decompress_ptr decompress = (j_decompress_ptr)info;
    struct reader *reader = info->client_data;
    if (decompress->input_scan_number > MOST_SCANS) {
        reader->code = 0;
        (void)snprintf(reader->message, sizeof reader->message, "more than %d scans",
                       (int)MOST_SCANS);
        longjmp(reader->leave, 1);
    }
}

static enum espl_status start(struct reader *reader, struct espl_picture *picture,
                              struct espl_error *err)
{
    struct jpeg_decompress_struct *info = &reader->info;
    (void)jpeg_read_header(info, TRUE); /* leaves when there is no picture */
    if (info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK) {
        (void)espl_fail(err, ESPL_E_UNSUPPORTED, "it is a CMYK JPEG");
        return espl_hint(err, "convert it to RGB, or leave it out with on_error: skip");
    }
    if (info->jpeg_color_space == JCS_UNKNOWN ||
        (info->num_components != 1 && info->num_components != 3)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "it is a JPEG with %d colour components",
                         info->num_components);
    }
    info->out_color_space = info->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    return espl_picture_reserve(picture, info->image_width, info->image_height,
                                info->num_components == 1 ? 1 : 3, err);
}

static void read_lines(struct reader *reader, struct espl_picture *picture)
{
    (void)jpeg_start_decompress(&reader->info); /* leaves on failure; memory never suspends */
    const size_t stride = picture->width * picture->channels;
    while (reader->info.output_scanline < reader->info.output_height) {
        JSAMPROW line = picture->pixels + reader->info.output_scanline * stride;
        (void)jpeg_read_scanlines(&reader->info, &line, 1);
    }
    (void)jpeg_finish_decompress(&reader->info);
}

static enum espl_status fail_reading(const struct reader *reader, struct espl_error *err)
{
    if (reader->code == JERR_OUT_OF_MEMORY) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory while decoding a JPEG");
    }
    if (reader->code == JWRN_JPEG_EOF || reader->code == JWRN_HIT_MARKER ||
        reader->code == JERR_INPUT_EOF || reader->code == JERR_INPUT_EMPTY) {
        return espl_fail(err, ESPL_E_CORRUPT, "the JPEG is truncated or damaged: %s",
                         reader->message);
    }
    return espl_fail(err, ESPL_E_CORRUPT, "cannot decode the JPEG: %s", reader->message);
}

/* setjmp stands in a function without locals of its own: nothing it needs can be lost. */
static enum espl_status run(struct reader *reader, const uint8_t *bytes, size_t len,
                            struct espl_picture *picture, struct espl_error *err)
{
    if (setjmp(reader->leave) != 0) {
        return fail_reading(reader, err);
    }
    jpeg_create_decompress(&reader->info);
    reader->progress.progress_monitor = on_progress;
    reader->info.progress = &reader->progress;
    jpeg_mem_src(&reader->info, bytes, (unsigned long)len);
    const enum espl_status status = start(reader, picture, err);
    if (status == ESPL_OK) {
        read_lines(reader, picture);
    }
    return status;
}

enum espl_status espl_jpeg_decode(const uint8_t *bytes, size_t len, struct espl_picture *picture,
                                  struct espl_error *err)
{
    struct reader reader;
    memset(&reader, 0, sizeof reader);
    reader.info.err = jpeg_std_error(&reader.errors);
    reader.errors.error_exit = leave;
    reader.errors.emit_message = on_message;
    reader.errors.output_message = on_output;
    reader.info.client_data = &reader;
    const enum espl_status status = run(&reader, bytes, len, picture, err);
    jpeg_destroy_decompress(&reader.info);
    return status;
}

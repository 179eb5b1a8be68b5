#include "datasets/image_resize.h"

#include "core/checked.h"
#include "datasets/image_decode_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Weights are whole multiples of 2^-22: a sum of bytes times weights that add up to 1, with what a
 * bicubic overshoots, stays inside 32 bits. */
enum { WEIGHT_BITS = 22 };

/* ---- filters ---- */

/* Keys' cubic with a = -0.5, support 2. */
static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) {
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    }
    return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * a : 0.0;
}

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

/* ---- one axis ---- */

/* For every output position: the first input, how many inputs, their weights. */
struct axis {
    size_t count;  /* outputs */
    size_t stride; /* weights reserved for an output */
    size_t *first;
    size_t *length;
    int32_t *weights;
};

static void free_axis(struct axis *axis)
{
    free(axis->first);
    free(axis->length);
    free(axis->weights);
}

/* Output `at` covers the input around (at + 0.5) * scale; when the picture shrinks, the filter is
 * stretched by the same factor (antialiasing). */
static void fill_output(struct axis *axis, size_t at, size_t inputs, double scale, double support,
                        enum espl_filter filter, double *values)
{
    const double stretch = scale < 1.0 ? 1.0 : scale;
    const double center = ((double)at + 0.5) * scale;
    const double low = center - support + 0.5;
    const double high = center + support + 0.5;
    const size_t first = low < 0.0 ? 0 : (size_t)low;
    const size_t end = high > (double)inputs ? inputs : (size_t)high;
    double sum = 0.0;
    for (size_t i = first; i < end; i++) {
        const double x = ((double)i - center + 0.5) / stretch;
        values[i - first] = filter == ESPL_FILTER_BICUBIC ? bicubic(x) : bilinear(x);
        sum += values[i - first];
    }
    axis->first[at] = first;
    axis->length[at] = end - first;
    for (size_t i = 0; i < end - first; i++) {
        const double weight = values[i] / sum * (double)(1 << WEIGHT_BITS);
        axis->weights[at * axis->stride + i] = (int32_t)(weight + (weight < 0.0 ? -0.5 : 0.5));
    }
}

static enum espl_status make_axis(size_t inputs, size_t outputs, enum espl_filter filter,
                                  struct axis *axis, struct espl_error *err)
{
    const double scale = (double)inputs / (double)outputs;
    const double support =
        (filter == ESPL_FILTER_BICUBIC ? 2.0 : 1.0) * (scale < 1.0 ? 1.0 : scale);
    size_t weights = 0;
    memset(axis, 0, sizeof *axis);
    axis->count = outputs;
    axis->stride = 2 * (size_t)ceil(support) + 1;
    double *values = calloc(axis->stride, sizeof *values);
    axis->first = calloc(outputs, sizeof *axis->first);
    axis->length = calloc(outputs, sizeof *axis->length);
    axis->weights = espl_mul_size(outputs, axis->stride, &weights)
                        ? calloc(weights, sizeof *axis->weights)
                        : NULL;
    if (values == NULL || axis->first == NULL || axis->length == NULL || axis->weights == NULL) {
        free(values);
        return espl_fail(err, ESPL_E_NOMEM, "out of memory while resizing a picture");
    }
    for (size_t at = 0; at < outputs; at++) {
        fill_output(axis, at, inputs, scale, support, filter, values);
    }
    free(values);
    return ESPL_OK;
}

/* One output value: inputs `step` bytes apart, from the first input on. */
static uint8_t weigh(const struct axis *axis, size_t at, const uint8_t *from, size_t step)
{
    const int32_t *weights = axis->weights + at * axis->stride;
    int32_t sum = 1 << (WEIGHT_BITS - 1);
    for (size_t i = 0; i < axis->length[at]; i++) {
        sum += (int32_t)from[i * step] * weights[i];
    }
    if (sum < 0) {
        return 0;
    }
    sum >>= WEIGHT_BITS;
    return (uint8_t)(sum > 255 ? 255 : sum);
}

/* ---- passes ---- */

static enum espl_status resize_rows(const struct espl_picture *picture, size_t width,
                                    enum espl_filter filter, struct espl_picture *out,
                                    struct espl_error *err)
{
    struct axis axis;
    const size_t channels = picture->channels;
    enum espl_status status = make_axis(picture->width, width, filter, &axis, err);
    if (status == ESPL_OK) {
        status = espl_picture_reserve(out, width, picture->height, (unsigned)channels, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < picture->height * width * channels; i++) {
        const size_t channel = i % channels;
        const size_t x = i / channels % width;
        const uint8_t *line =
            picture->pixels + i / channels / width * picture->width * channels + channel;
        out->pixels[i] = weigh(&axis, x, line + axis.first[x] * channels, channels);
    }
    free_axis(&axis);
    return status;
}

static enum espl_status resize_columns(const struct espl_picture *picture, size_t height,
                                       enum espl_filter filter, struct espl_picture *out,
                                       struct espl_error *err)
{
    struct axis axis;
    const size_t line = picture->width * picture->channels;
    enum espl_status status = make_axis(picture->height, height, filter, &axis, err);
    if (status == ESPL_OK) {
        status =
            espl_picture_reserve(out, picture->width, height, (unsigned)picture->channels, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < height * line; i++) {
        const size_t y = i / line;
        const uint8_t *column = picture->pixels + axis.first[y] * line + i % line;
        out->pixels[i] = weigh(&axis, y, column, line);
    }
    free_axis(&axis);
    return status;
}

enum espl_status espl_picture_resize(const struct espl_picture *picture, size_t width,
                                     size_t height, enum espl_filter filter,
                                     struct espl_picture *out, struct espl_error *err)
{
    struct espl_picture wide = {0};
    memset(out, 0, sizeof *out);
    enum espl_status status = resize_rows(picture, width, filter, &wide, err);
    if (status == ESPL_OK) {
        status = resize_columns(&wide, height, filter, out, err);
    }
    espl_picture_free(&wide);
    if (status != ESPL_OK) {
        espl_picture_free(out);
    }
    return status;
}

/* ---- colours ---- */

/* ITU-R 601-2 luma in 16-bit fixed point, as Pillow converts to "L". */
static uint8_t luma(const uint8_t *rgb)
{
    return (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

static enum espl_status convert(const struct espl_picture *picture, size_t channels,
                                struct espl_picture *out, struct espl_error *err)
{
    const enum espl_status status =
        espl_picture_reserve(out, picture->width, picture->height, (unsigned)channels, err);
    const size_t pixels = picture->width * picture->height;
    for (size_t i = 0; status == ESPL_OK && i < pixels; i++) {
        const uint8_t *from = picture->pixels + i * picture->channels;
        const uint8_t grey = picture->channels == 3 ? luma(from) : from[0];
        memset(out->pixels + i * channels, grey, channels);
    }
    return status;
}

/* ---- the whole of it ---- */

size_t espl_picture_resized_side(size_t size, double crop_pct)
{
    return (size_t)floor((double)size / crop_pct);
}

/* Python's round((side - size) / 2): halves go to the even number. */
static size_t crop_start(size_t side, size_t size)
{
    const size_t margin = side - size;
    const size_t half = margin / 2;
    return margin % 2 == 0 || half % 2 == 0 ? half : half + 1;
}

static void crop(const struct espl_picture *picture, size_t size, uint8_t *out)
{
    const size_t line = size * picture->channels;
    const size_t top = crop_start(picture->height, size);
    const size_t left = crop_start(picture->width, size);
    for (size_t y = 0; y < size; y++) {
        memcpy(out + y * line,
               picture->pixels + ((top + y) * picture->width + left) * picture->channels, line);
    }
}

enum espl_status espl_picture_fit(const struct espl_picture *picture,
                                  const struct espl_picture_fit *fit, uint8_t *out,
                                  struct espl_error *err)
{
    struct espl_picture coloured = {0};
    struct espl_picture resized = {0};
    const struct espl_picture *now = picture;
    const bool landscape = picture->width > picture->height;
    const size_t shorter = landscape ? picture->height : picture->width;
    const size_t longer = landscape ? picture->width : picture->height;
    const size_t side = fit->resized * longer / shorter; /* of the longer side, rounded down */
    enum espl_status status = ESPL_OK;
    if (side > ESPL_PICTURE_MAX_SIDE) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "the picture is %zu x %zu pixels: with the shorter side at %zu the longer "
                         "one is %zu, at most %d can be",
                         picture->width, picture->height, fit->resized, side,
                         (int)ESPL_PICTURE_MAX_SIDE);
    }
    if (picture->channels != fit->channels) {
        status = convert(picture, fit->channels, &coloured, err);
        now = &coloured;
    }
    if (status == ESPL_OK && shorter != fit->resized) {
        status = espl_picture_resize(now, landscape ? side : fit->resized,
                                     landscape ? fit->resized : side, fit->filter, &resized, err);
        now = &resized;
    }
    if (status == ESPL_OK) {
        crop(now, fit->size, out);
    }
    espl_picture_free(&coloured);
    espl_picture_free(&resized);
    return status;
}

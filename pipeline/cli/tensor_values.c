#include "cli/tensor_values.h"

#include "core/checked.h"
#include "core/codes.h"
#include "model/element.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_ELEMENTS = 1 << 18 }; /* aimed at per read; one row at least */

/* Reads a dataset in pieces of whole rows and turns them into doubles. */
struct reader {
    struct espl_artifact *artifact;
    const struct espl_tensor_info *info;
    unsigned bits; /* of a packed element: 1 = a mask, more = a signed code; 0 = not packed */
    uint64_t rows; /* of the first dimension; of a packed list its bytes */
    uint64_t row;  /* next to read */
    uint64_t piece_rows;
    size_t row_bytes;    /* stored */
    size_t row_elements; /* logical */
    unsigned char *raw;
    double *values;
    size_t count;  /* values of the current piece */
    uint64_t left; /* values not read yet */
};

uint64_t espl_tensor_element_count(const struct espl_tensor_info *info)
{
    uint64_t count = 1;
    for (unsigned i = 0; i < info->rank; ++i) {
        count *= info->logical_shape[i];
    }
    return count;
}

void espl_tensor_shape_text(const struct espl_tensor_info *info, char out[ESPL_SHAPE_TEXT])
{
    size_t len = 0;
    (void)snprintf(out, ESPL_SHAPE_TEXT, "scalar");
    for (unsigned i = 0; i < info->rank && len < ESPL_SHAPE_TEXT; ++i) {
        const int n = snprintf(out + len, ESPL_SHAPE_TEXT - len, "%s%" PRIu64, i > 0 ? " x " : "",
                               info->logical_shape[i]);
        len += n > 0 ? (size_t)n : 0;
    }
}

static void reader_close(struct reader *reader)
{
    free(reader->raw);
    free(reader->values);
}

/* Bits of an element of a packing that can be read, 0 for any other. A list of codes (rank 1) has
 * no padding between bytes, so an element must not cross them. */
static unsigned packed_bits(const struct espl_tensor_info *info)
{
    if (strcmp(info->packing, "bitmask-lsb0") == 0) {
        return 1;
    }
    for (unsigned bits = ESPL_CODES_MIN_BITS; bits <= ESPL_CODES_MAX_BITS; ++bits) {
        char name[sizeof info->packing];
        (void)snprintf(name, sizeof name, "int%u-lsb0", bits);
        if (strcmp(info->packing, name) == 0) {
            return info->rank > 1 || 8 % bits == 0 ? bits : 0;
        }
    }
    return 0;
}

static double packed_value(const unsigned char *row, size_t index, unsigned bits)
{
    unsigned code = 0;
    for (unsigned bit = 0; bit < bits; ++bit) {
        const size_t at = index * bits + bit;
        code |= (row[at / 8] >> (at % 8) & 1u) << bit;
    }
    const unsigned sign = bits > 1 ? 1u << (bits - 1) : 0;
    return (double)(int)(code ^ sign) - (double)sign;
}

static enum espl_status reader_open(struct espl_artifact *artifact,
                                    const struct espl_tensor_info *info, struct reader *out,
                                    struct espl_error *err)
{
    memset(out, 0, sizeof *out);
    out->artifact = artifact;
    out->info = info;
    out->bits = packed_bits(info);
    if (info->packing[0] != '\0' && out->bits == 0) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "cannot unpack '%s', the packing of '%s'",
                         info->packing, info->path);
    }
    out->rows = info->rank == 0 ? 1 : info->shape[0];
    if (out->rows == 0 || info->bytes == 0) {
        out->rows = 0;
        return ESPL_OK;
    }
    const uint64_t row_bytes = info->bytes / out->rows;
    out->left = espl_tensor_element_count(info);
    const uint64_t held =
        out->bits > 0 ? row_bytes * 8 / out->bits : row_bytes / espl_dtype_size(info->dtype);
    const bool list = out->bits > 0 && info->rank == 1;
    const uint64_t row_elements = list ? held : out->left / out->rows;
    const bool fits = list ? out->left <= held * out->rows : row_elements * out->rows == out->left;
    if (row_elements == 0 || row_elements > held || !fits) {
        return espl_fail(err, ESPL_E_CORRUPT, "shape of '%s' does not fit its size", info->path);
    }
    out->piece_rows = row_elements < PIECE_ELEMENTS ? PIECE_ELEMENTS / row_elements : 1;
    out->piece_rows = out->piece_rows < out->rows ? out->piece_rows : out->rows;
    size_t raw_bytes;
    size_t value_bytes;
    if (row_bytes > SIZE_MAX ||
        !espl_mul_size((size_t)row_bytes, (size_t)out->piece_rows, &raw_bytes) ||
        !espl_mul_size((size_t)row_elements * sizeof(double), (size_t)out->piece_rows,
                       &value_bytes) ||
        raw_bytes == 0) {
        return espl_fail(err, ESPL_E_CORRUPT, "shape of '%s' does not fit its size", info->path);
    }
    out->row_bytes = (size_t)row_bytes;
    out->row_elements = (size_t)row_elements;
    out->raw = malloc(raw_bytes);
    out->values = malloc(value_bytes);
    if (out->raw == NULL || out->values == NULL) {
        reader_close(out);
        out->raw = NULL;
        out->values = NULL;
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a piece of '%s'", info->path);
    }
    return ESPL_OK;
}

static double half_value(enum espl_dtype dtype, const unsigned char *at)
{
    float value;
    espl_element_to_f32(dtype, at, 1, &value);
    return (double)value;
}

static double element_value(enum espl_dtype dtype, const unsigned char *at)
{
    union {
        uint16_t u16;
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
        float f32;
        double f64;
    } word;
    memcpy(&word, at, espl_dtype_size(dtype));
    switch (dtype) {
    case ESPL_DTYPE_U8:
        return (double)*at;
    case ESPL_DTYPE_I8:
        return (double)(signed char)*at;
    case ESPL_DTYPE_U16:
        return (double)word.u16;
    case ESPL_DTYPE_I32:
        return (double)word.i32;
    case ESPL_DTYPE_U32:
        return (double)word.u32;
    case ESPL_DTYPE_I64:
        return (double)word.i64;
    case ESPL_DTYPE_U64:
        return (double)word.u64;
    case ESPL_DTYPE_F16:
    case ESPL_DTYPE_BF16:
        return half_value(dtype, at);
    case ESPL_DTYPE_F32:
        return (double)word.f32;
    case ESPL_DTYPE_F64:
        return word.f64;
    }
    return (double)NAN;
}

/* Reads the next piece; count 0 at the end. */
static enum espl_status reader_next(struct reader *reader, struct espl_error *err)
{
    const uint64_t left = reader->rows - reader->row;
    const uint64_t rows = left < reader->piece_rows ? left : reader->piece_rows;
    reader->count = 0;
    if (rows == 0 || reader->raw == NULL) {
        return ESPL_OK;
    }
    const enum espl_status status =
        espl_artifact_read_rows(reader->artifact, reader->info->path, reader->row, rows,
                                reader->raw, (size_t)rows * reader->row_bytes, err);
    if (status != ESPL_OK) {
        return status;
    }
    const size_t size = espl_dtype_size(reader->info->dtype);
    for (size_t row = 0; row < (size_t)rows; ++row) {
        const unsigned char *raw = reader->raw + row * reader->row_bytes;
        double *values = reader->values + row * reader->row_elements;
        for (size_t i = 0; i < reader->row_elements; ++i) {
            values[i] = reader->bits > 0 ? packed_value(raw, i, reader->bits)
                                         : element_value(reader->info->dtype, raw + i * size);
        }
    }
    reader->row += rows;
    reader->count = (size_t)rows * reader->row_elements;
    reader->count = reader->count < reader->left ? reader->count : (size_t)reader->left;
    reader->left -= reader->count;
    return ESPL_OK;
}

enum espl_status espl_tensor_measure(struct espl_artifact *artifact,
                                     const struct espl_tensor_info *info,
                                     struct espl_tensor_stats *out, struct espl_error *err)
{
    struct reader reader;
    double sum = 0.0;
    uint64_t finite = 0;
    memset(out, 0, sizeof *out);
    enum espl_status status = reader_open(artifact, info, &reader, err);
    while (status == ESPL_OK) {
        status = reader_next(&reader, err);
        if (status != ESPL_OK || reader.count == 0) {
            break;
        }
        for (size_t i = 0; i < reader.count; ++i) {
            const double value = reader.values[i];
            out->nonzero += value != 0.0 ? 1 : 0;
            out->nan += isnan(value) ? 1 : 0;
            out->infinite += isinf(value) ? 1 : 0;
            if (isfinite(value)) {
                out->min = finite == 0 || value < out->min ? value : out->min;
                out->max = finite == 0 || value > out->max ? value : out->max;
                sum += value;
                ++finite;
            }
        }
        out->count += reader.count;
    }
    out->mean = finite > 0 ? sum / (double)finite : 0.0;
    reader_close(&reader);
    return status;
}

/* The first values as numbers, or as the words they are stored in. */
static enum espl_status read_first(struct espl_artifact *artifact,
                                   const struct espl_tensor_info *info, double *values,
                                   uint64_t *words, size_t limit, size_t *count,
                                   struct espl_error *err)
{
    struct reader reader;
    *count = 0;
    enum espl_status status = reader_open(artifact, info, &reader, err);
    if (status == ESPL_OK) {
        status = reader_next(&reader, err);
    }
    if (status == ESPL_OK && reader.count > 0) {
        *count = reader.count < limit ? reader.count : limit;
        if (words != NULL) {
            memcpy(words, reader.raw, *count * sizeof *words);
        }
        if (values != NULL) {
            memcpy(values, reader.values, *count * sizeof *values);
        }
    }
    reader_close(&reader);
    return status;
}

enum espl_status espl_tensor_first_values(struct espl_artifact *artifact,
                                          const struct espl_tensor_info *info, double *values,
                                          size_t limit, size_t *count, struct espl_error *err)
{
    return read_first(artifact, info, values, NULL, limit, count, err);
}

bool espl_tensor_has_words(const struct espl_tensor_info *info)
{
    return info->packing[0] == '\0' &&
           (info->dtype == ESPL_DTYPE_U64 || info->dtype == ESPL_DTYPE_I64);
}

enum espl_status espl_tensor_first_words(struct espl_artifact *artifact,
                                         const struct espl_tensor_info *info, uint64_t *words,
                                         size_t limit, size_t *count, struct espl_error *err)
{
    if (!espl_tensor_has_words(info)) {
        return espl_fail(err, ESPL_E_INTERNAL, "'%s' has no 64-bit words", info->path);
    }
    return read_first(artifact, info, NULL, words, limit, count, err);
}

static void compare_piece(const double *a, const double *b, size_t count,
                          struct espl_tensor_difference *out)
{
    for (size_t i = 0; i < count; ++i) {
        if (a[i] == b[i] || (isnan(a[i]) && isnan(b[i]))) {
            continue;
        }
        const double distance = isnan(a[i]) || isnan(b[i]) ? (double)INFINITY : fabs(a[i] - b[i]);
        ++out->differing;
        out->max_abs = distance > out->max_abs ? distance : out->max_abs;
    }
    out->count += count;
}

/* Whole words, such as union masks and row orders: a double would not see their lowest bits. */
static void compare_words(enum espl_dtype dtype, const unsigned char *a, const unsigned char *b,
                          size_t count, struct espl_tensor_difference *out)
{
    /* Turns the order of signed numbers into that of unsigned ones. */
    const uint64_t flip = dtype == ESPL_DTYPE_I64 ? UINT64_C(1) << 63 : 0;
    for (size_t i = 0; i < count; ++i) {
        uint64_t word_a;
        uint64_t word_b;
        memcpy(&word_a, a + i * sizeof word_a, sizeof word_a);
        memcpy(&word_b, b + i * sizeof word_b, sizeof word_b);
        if (word_a != word_b) {
            const bool first = (word_a ^ flip) > (word_b ^ flip);
            const double distance = (double)(first ? word_a - word_b : word_b - word_a);
            ++out->differing;
            out->max_abs = distance > out->max_abs ? distance : out->max_abs;
        }
    }
    out->count += count;
}

enum espl_status espl_tensor_compare(struct espl_artifact *a, const struct espl_tensor_info *info_a,
                                     struct espl_artifact *b, const struct espl_tensor_info *info_b,
                                     struct espl_tensor_difference *out, struct espl_error *err)
{
    struct reader reader_a;
    struct reader reader_b;
    memset(out, 0, sizeof *out);
    enum espl_status status = reader_open(a, info_a, &reader_a, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = reader_open(b, info_b, &reader_b, err);
    while (status == ESPL_OK) {
        status = reader_next(&reader_a, err);
        if (status == ESPL_OK) {
            status = reader_next(&reader_b, err);
        }
        /* Equal logical shapes give equal pieces. */
        if (status != ESPL_OK || reader_a.count == 0 || reader_a.count != reader_b.count) {
            break;
        }
        if (info_a->dtype == info_b->dtype && espl_tensor_has_words(info_a) &&
            espl_tensor_has_words(info_b)) {
            compare_words(info_a->dtype, reader_a.raw, reader_b.raw, reader_a.count, out);
        } else {
            compare_piece(reader_a.values, reader_b.values, reader_a.count, out);
        }
    }
    reader_close(&reader_b);
    reader_close(&reader_a);
    return status;
}

/* The peers' formats: dense and CSR here, the tiled ones in their own files, and what is common. */
#include "core/checked.h"
#include "core/codes.h"
#include "kernels/formats/peer_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- elements of the sections ---- */

void espl_peer_put(uint8_t *bytes, unsigned bits, size_t index, int8_t code)
{
    const unsigned per_byte = 8 / bits;
    const unsigned shift = (unsigned)(index % per_byte) * bits;
    const unsigned field = (unsigned)code & ((1u << bits) - 1u);
    bytes[index / per_byte] = (uint8_t)(bytes[index / per_byte] | field << shift);
}

int8_t espl_peer_get(const uint8_t *bytes, unsigned bits, size_t index)
{
    const unsigned per_byte = 8 / bits;
    const unsigned shift = (unsigned)(index % per_byte) * bits;
    const int field = bytes[index / per_byte] >> shift & ((1 << bits) - 1);
    const int half = 1 << (bits - 1u);
    return (int8_t)((field ^ half) - half);
}

uint32_t espl_peer_u32(const uint8_t *bytes, size_t index)
{
    uint32_t value;
    memcpy(&value, bytes + index * sizeof value, sizeof value);
    return value;
}

void espl_peer_set_u32(uint8_t *bytes, size_t index, uint32_t value)
{
    memcpy(bytes + index * sizeof value, &value, sizeof value);
}

uint16_t espl_peer_u16(const uint8_t *bytes, size_t index)
{
    uint16_t value;
    memcpy(&value, bytes + index * sizeof value, sizeof value);
    return value;
}

void espl_peer_set_u16(uint8_t *bytes, size_t index, uint16_t value)
{
    memcpy(bytes + index * sizeof value, &value, sizeof value);
}

/* ---- dense ---- */

static enum espl_status plan_dense(const struct espl_peer_source *source,
                                   size_t bytes[ESPL_PEER_SECTIONS], struct espl_error *err)
{
    if (!espl_mul_size(source->rows, espl_codes_stride(source->cols, source->bits), &bytes[0])) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "a matrix of %zu x %zu is too large",
                         source->rows, source->cols);
    }
    return ESPL_OK;
}

static void encode_dense(const struct espl_peer_source *source, struct espl_peer_matrix *matrix)
{
    espl_codes_pack(source->codes, source->rows, source->cols, source->bits, matrix->section[0]);
}

static enum espl_status decode_dense(const struct espl_peer_matrix *matrix, int8_t *codes,
                                     struct espl_error *err)
{
    size_t expected = 0;
    if (!espl_mul_size(matrix->rows, espl_codes_stride(matrix->cols, matrix->bits), &expected) ||
        matrix->section_bytes[0] != expected) {
        return espl_peer_fail(matrix, "has the wrong size", err);
    }
    espl_codes_unpack(matrix->section[0], matrix->rows, matrix->cols, matrix->bits, codes);
    return ESPL_OK;
}

/* ---- CSR: values, columns, row offsets ---- */

static enum espl_status plan_csr(const struct espl_peer_source *source, size_t column_bytes,
                                 size_t bytes[ESPL_PEER_SECTIONS], struct espl_error *err)
{
    const size_t nonzeros =
        (size_t)espl_format_nonzeros(source->codes, source->rows * source->cols);
    const uint64_t columns_at_most = UINT64_C(1) << (8 * column_bytes);
    if (source->cols > columns_at_most || nonzeros > UINT32_MAX) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "CSR with %zu-byte columns cannot index %zu x %zu with %zu values",
                         column_bytes, source->rows, source->cols, nonzeros);
    }
    bytes[0] = espl_peer_packed_bytes(nonzeros, source->bits);
    bytes[1] = nonzeros * column_bytes;
    bytes[2] = (source->rows + 1) * sizeof(uint32_t);
    return ESPL_OK;
}

static void put_column(uint8_t *bytes, size_t column_bytes, size_t index, size_t col)
{
    if (column_bytes == sizeof(uint16_t)) {
        espl_peer_set_u16(bytes, index, (uint16_t)col);
    } else {
        espl_peer_set_u32(bytes, index, (uint32_t)col);
    }
}

static void encode_csr(const struct espl_peer_source *source, size_t column_bytes,
                       struct espl_peer_matrix *matrix)
{
    size_t at = 0;
    for (size_t row = 0; row < source->rows; row++) {
        espl_peer_set_u32(matrix->section[2], row, (uint32_t)at);
        for (size_t col = 0; col < source->cols; col++) {
            const int8_t code = source->codes[row * source->cols + col];
            if (code != 0) {
                espl_peer_put(matrix->section[0], source->bits, at, code);
                put_column(matrix->section[1], column_bytes, at, col);
                at++;
            }
        }
    }
    espl_peer_set_u32(matrix->section[2], source->rows, (uint32_t)at);
}

static enum espl_status decode_csr(const struct espl_peer_matrix *matrix, size_t column_bytes,
                                   int8_t *codes, struct espl_error *err)
{
    if (matrix->rows > SIZE_MAX / sizeof(uint32_t) - 1 ||
        matrix->section_bytes[2] != (matrix->rows + 1) * sizeof(uint32_t)) {
        return espl_peer_fail(matrix, "has row offsets of the wrong size", err);
    }
    const size_t nonzeros = espl_peer_u32(matrix->section[2], matrix->rows);
    if (matrix->section_bytes[0] != espl_peer_packed_bytes(nonzeros, matrix->bits) ||
        matrix->section_bytes[1] != nonzeros * column_bytes) {
        return espl_peer_fail(matrix, "has values or columns of the wrong size", err);
    }
    for (size_t row = 0; row < matrix->rows; row++) {
        const size_t first = espl_peer_u32(matrix->section[2], row);
        const size_t end = espl_peer_u32(matrix->section[2], row + 1);
        if (first > end || end > nonzeros || (row == 0 && first != 0)) {
            return espl_peer_fail(matrix, "has row offsets that do not ascend", err);
        }
        for (size_t i = first; i < end; i++) {
            const size_t col = column_bytes == sizeof(uint16_t)
                                   ? espl_peer_u16(matrix->section[1], i)
                                   : espl_peer_u32(matrix->section[1], i);
            if (col >= matrix->cols) {
                return espl_peer_fail(matrix, "has a column beyond the matrix", err);
            }
            codes[row * matrix->cols + col] = espl_peer_get(matrix->section[0], matrix->bits, i);
        }
    }
    return ESPL_OK;
}

static enum espl_status plan_csr16(const struct espl_peer_source *source,
                                   size_t bytes[ESPL_PEER_SECTIONS], struct espl_error *err)
{
    return plan_csr(source, sizeof(uint16_t), bytes, err);
}

static void encode_csr16(const struct espl_peer_source *source, struct espl_peer_matrix *matrix)
{
    encode_csr(source, sizeof(uint16_t), matrix);
}

static enum espl_status decode_csr16(const struct espl_peer_matrix *matrix, int8_t *codes,
                                     struct espl_error *err)
{
    return decode_csr(matrix, sizeof(uint16_t), codes, err);
}

static enum espl_status plan_csr32(const struct espl_peer_source *source,
                                   size_t bytes[ESPL_PEER_SECTIONS], struct espl_error *err)
{
    return plan_csr(source, sizeof(uint32_t), bytes, err);
}

static void encode_csr32(const struct espl_peer_source *source, struct espl_peer_matrix *matrix)
{
    encode_csr(source, sizeof(uint32_t), matrix);
}

static enum espl_status decode_csr32(const struct espl_peer_matrix *matrix, int8_t *codes,
                                     struct espl_error *err)
{
    return decode_csr(matrix, sizeof(uint32_t), codes, err);
}

static const struct espl_peer_format_ops dense_ops = {"dense", plan_dense, encode_dense,
                                                      decode_dense};
static const struct espl_peer_format_ops csr16_ops = {"csr16", plan_csr16, encode_csr16,
                                                      decode_csr16};
static const struct espl_peer_format_ops csr32_ops = {"csr32", plan_csr32, encode_csr32,
                                                      decode_csr32};

/* ---- the table ---- */

static const struct espl_peer_format_ops *const formats[ESPL_PEER_FORMATS] = {
    [ESPL_PEER_DENSE] = &dense_ops,
    [ESPL_PEER_TCA_BME] = &espl_peer_tca_bme_ops,
    [ESPL_PEER_CSR16] = &csr16_ops,
    [ESPL_PEER_CSR32] = &csr32_ops,
    [ESPL_PEER_TILED_CSL_HALF] = &espl_peer_tiled_csl_half_ops,
    [ESPL_PEER_TILED_CSL] = &espl_peer_tiled_csl_ops,
};

const char *espl_peer_name(enum espl_peer_format format)
{
    return (size_t)format < ESPL_PEER_FORMATS ? formats[format]->name : NULL;
}

enum espl_status espl_peer_fail(const struct espl_peer_matrix *matrix, const char *what,
                                struct espl_error *err)
{
    return espl_fail(err, ESPL_E_CORRUPT, "%s matrix of %zu x %zu %s",
                     espl_peer_name(matrix->format), matrix->rows, matrix->cols, what);
}

static enum espl_status check_shape(enum espl_peer_format format, size_t rows, size_t cols,
                                    unsigned bits, struct espl_error *err)
{
    size_t padded = 0;
    if ((size_t)format >= ESPL_PEER_FORMATS) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "no format with number %u", (unsigned)format);
    }
    /* the largest tile is 128 x 64, the largest element 4 bytes */
    if (rows == 0 || cols == 0 || rows > SIZE_MAX - 128 || cols > SIZE_MAX - 64 ||
        !espl_mul_size(rows + 128, cols + 64, &padded) || padded > SIZE_MAX / 8) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "cannot encode a matrix of %zu x %zu", rows,
                         cols);
    }
    if (bits != 2 && bits != 4 && bits != 8) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "codes have 2, 4 or 8 bits, not %u", bits);
    }
    return ESPL_OK;
}

enum espl_status espl_peer_plan(enum espl_peer_format format, const int8_t *codes, size_t rows,
                                size_t cols, unsigned bits,
                                size_t section_bytes[ESPL_PEER_SECTIONS], uint64_t *bytes,
                                struct espl_error *err)
{
    const struct espl_peer_source source = {codes, rows, cols, bits};
    size_t sizes[ESPL_PEER_SECTIONS] = {0};
    enum espl_status status = check_shape(format, rows, cols, bits, err);
    if (status == ESPL_OK) {
        status = formats[format]->plan(&source, sizes, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    *bytes = 0;
    for (size_t i = 0; i < ESPL_PEER_SECTIONS; i++) {
        section_bytes[i] = sizes[i];
        *bytes += sizes[i];
    }
    return ESPL_OK;
}

enum espl_status espl_peer_encode(enum espl_peer_format format, const int8_t *codes, size_t rows,
                                  size_t cols, unsigned bits, struct espl_peer_matrix *matrix,
                                  struct espl_error *err)
{
    const struct espl_peer_source source = {codes, rows, cols, bits};
    struct espl_peer_matrix made = {.format = format, .rows = rows, .cols = cols, .bits = bits};
    uint64_t bytes = 0;
    const enum espl_status status =
        espl_peer_plan(format, codes, rows, cols, bits, made.section_bytes, &bytes, err);
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t i = 0; i < ESPL_PEER_SECTIONS; i++) {
        made.section[i] = calloc(made.section_bytes[i] != 0 ? made.section_bytes[i] : 1, 1);
        if (made.section[i] == NULL) {
            espl_peer_free(&made);
            return espl_fail(err, ESPL_E_NOMEM, "out of memory for %llu bytes of encoded weights",
                             (unsigned long long)bytes);
        }
    }
    formats[format]->encode(&source, &made);
    *matrix = made;
    return ESPL_OK;
}

enum espl_status espl_peer_decode(const struct espl_peer_matrix *matrix, int8_t *codes,
                                  struct espl_error *err)
{
    const enum espl_status status =
        check_shape(matrix->format, matrix->rows, matrix->cols, matrix->bits, err);
    if (status != ESPL_OK) {
        return status;
    }
    memset(codes, 0, matrix->rows * matrix->cols);
    return formats[matrix->format]->decode(matrix, codes, err);
}

void espl_peer_free(struct espl_peer_matrix *matrix)
{
    if (matrix == NULL) {
        return;
    }
    for (size_t i = 0; i < ESPL_PEER_SECTIONS; i++) {
        free(matrix->section[i]);
        matrix->section[i] = NULL;
        matrix->section_bytes[i] = 0;
    }
}

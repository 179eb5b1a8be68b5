/* Random weights for the SpMM bench. Layouts are stripe-major, so that a matrix can be laid out in
 * pieces of whole stripes and the pieces put one after the other. */
#include "kernels/bench/spmm_weights.h"

#include "core/checked.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_ROWS = 256, SLICE = 512 };

uint64_t espl_spmm_random_word(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static void fill_rows(int8_t *codes, size_t count, unsigned bits, double sparsity, uint64_t seed)
{
    uint64_t state = seed;
    const uint32_t limit = (uint32_t)(sparsity * 4294967295.0);
    const uint32_t span = (1u << bits) - 1u; /* codes that are not 0 */
    const int lowest = -(1 << (bits - 1u));
    for (size_t i = 0; i < count; i++) {
        const uint64_t word = espl_spmm_random_word(&state);
        const int code = lowest + (int)((word >> 32) * span >> 32);
        codes[i] = (uint32_t)word < limit ? 0 : (int8_t)(code >= 0 ? code + 1 : code);
    }
}

static int piece_threads(size_t pieces)
{
    const int processors = omp_get_num_procs();
    return pieces < (size_t)processors ? (int)pieces : processors;
}

enum espl_status espl_spmm_weights_codes(size_t rows, size_t cols, unsigned bits, double sparsity,
                                         uint64_t seed, int8_t **codes, struct espl_error *err)
{
    size_t count = 0;
    int8_t *made = espl_mul_size(rows, cols, &count) ? malloc(count) : NULL;
    const size_t pieces = espl_ceil_div(rows, PIECE_ROWS);
    if (made == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu x %zu weights", rows, cols);
    }
#pragma omp parallel for num_threads(piece_threads(pieces)) schedule(dynamic)
    for (size_t p = 0; p < pieces; p++) {
        const size_t first = p * PIECE_ROWS;
        const size_t height = rows - first < PIECE_ROWS ? rows - first : PIECE_ROWS;
        fill_rows(made + first * cols, height * cols, bits, sparsity,
                  (seed + 1) * UINT64_C(0xD1B54A32D192ED03) + p);
    }
    *codes = made;
    return ESPL_OK;
}

/* ---- IE-BME ---- */

static enum espl_status encode_piece(const int8_t *codes, size_t rows, size_t cols,
                                     enum espl_iebme_areas unit, struct espl_iebme_device *device,
                                     struct espl_error *err)
{
    struct espl_iebme_plan plan;
    struct espl_iebme_matrix matrix = {.masks = NULL};
    const struct espl_iebme_layout layout = {rows, cols, 4, ESPL_IEBME_1X1, ESPL_IEBME_SCOPE_NONE};
    enum espl_status status = espl_iebme_plan(codes, &layout, NULL, &plan, err);
    if (status == ESPL_OK) {
        status = espl_iebme_encode(codes, NULL, &plan, &matrix, err);
    }
    if (status == ESPL_OK) {
        status = espl_iebme_device_encode(&matrix, unit, SLICE, device, err);
    }
    espl_iebme_matrix_free(&matrix);
    return status;
}

/* whole <- the pieces one after the other. */
static enum espl_status join_pieces(const struct espl_iebme_device *piece, size_t pieces,
                                    struct espl_iebme_device *whole, struct espl_error *err)
{
    size_t bytes = ESPL_IEBME_DEVICE_TAIL;
    size_t chunks = 0;
    size_t start = 0;
    size_t chunk = 0;
    for (size_t p = 0; p < pieces; p++) {
        bytes += piece[p].data_bytes - ESPL_IEBME_DEVICE_TAIL;
        chunks += piece[p].chunks;
    }
    whole->chunks = chunks;
    whole->data_bytes = bytes;
    whole->index = malloc(chunks * 2 * sizeof *whole->index);
    whole->data = aligned_alloc(ESPL_IEBME_DEVICE_UNIT, bytes);
    if (whole->index == NULL || whole->data == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a device layout of %zu bytes",
                         bytes);
    }
    for (size_t p = 0; p < pieces; p++) {
        const size_t length = piece[p].data_bytes - ESPL_IEBME_DEVICE_TAIL;
        memcpy(whole->data + start, piece[p].data, length);
        for (size_t c = 0; c < piece[p].chunks; c++, chunk++) {
            whole->index[2 * chunk] =
                piece[p].index[2 * c] + (uint32_t)(start / ESPL_IEBME_DEVICE_UNIT);
            whole->index[2 * chunk + 1] = piece[p].index[2 * c + 1];
        }
        start += length;
    }
    memset(whole->data + start, 0, ESPL_IEBME_DEVICE_TAIL);
    return ESPL_OK;
}

enum espl_status espl_spmm_weights_iebme(const int8_t *codes, size_t rows, size_t cols,
                                         enum espl_iebme_areas unit,
                                         struct espl_iebme_device *device, struct espl_error *err)
{
    const size_t pieces = espl_ceil_div(rows, PIECE_ROWS);
    struct espl_iebme_device whole = {.rows = rows, .cols = cols, .unit = unit, .slice = SLICE};
    struct espl_iebme_device *piece = calloc(pieces, sizeof *piece);
    enum espl_status status = ESPL_OK;
    if (piece == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu pieces", pieces);
    }
#pragma omp parallel for num_threads(piece_threads(pieces)) schedule(dynamic)
    for (size_t p = 0; p < pieces; p++) {
        struct espl_error own;
        const size_t first = p * PIECE_ROWS;
        const size_t height = rows - first < PIECE_ROWS ? rows - first : PIECE_ROWS;
        const enum espl_status result =
            encode_piece(codes + first * cols, height, cols, unit, &piece[p], &own);
        if (result != ESPL_OK) {
#pragma omp critical
            {
                status = result;
                *err = own;
            }
        }
    }
    if (status == ESPL_OK) {
        status = join_pieces(piece, pieces, &whole, err);
    }
    for (size_t p = 0; p < pieces; p++) {
        espl_iebme_device_free(&piece[p]);
    }
    free(piece);
    if (status != ESPL_OK) {
        espl_iebme_device_free(&whole);
        return status;
    }
    *device = whole;
    return ESPL_OK;
}

/* ---- dense ---- */

enum espl_status espl_spmm_weights_dense(const int8_t *codes, size_t rows, size_t cols,
                                         unsigned bits, struct espl_dense_device *device,
                                         struct espl_error *err)
{
    const size_t pieces = espl_ceil_div(rows, PIECE_ROWS);
    const size_t depth = espl_ceil_div(cols, ESPL_DENSE_UNIT_COLS);
    const size_t stripes = espl_ceil_div(rows, ESPL_DENSE_UNIT_ROWS);
    const size_t stripe_bytes = depth * bits * ESPL_DENSE_UNIT_BYTES;
    enum espl_status status = ESPL_OK;
    uint8_t *data = aligned_alloc(ESPL_IEBME_DEVICE_UNIT, stripes * stripe_bytes);
    if (data == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a device layout of %zu bytes",
                         stripes * stripe_bytes);
    }
#pragma omp parallel for num_threads(piece_threads(pieces)) schedule(dynamic)
    for (size_t p = 0; p < pieces; p++) {
        struct espl_error own;
        struct espl_dense_device piece = {.data = NULL};
        const size_t first = p * PIECE_ROWS;
        const size_t height = rows - first < PIECE_ROWS ? rows - first : PIECE_ROWS;
        const enum espl_status result =
            espl_dense_device_encode(codes + first * cols, height, cols, bits, &piece, &own);
        if (result == ESPL_OK) {
            memcpy(data + first / ESPL_DENSE_UNIT_ROWS * stripe_bytes, piece.data,
                   piece.data_bytes);
        } else {
#pragma omp critical
            {
                status = result;
                *err = own;
            }
        }
        espl_dense_device_free(&piece);
    }
    if (status != ESPL_OK) {
        free(data);
        return status;
    }
    *device = (struct espl_dense_device){.rows = rows,
                                         .cols = cols,
                                         .bits = bits,
                                         .stripes = stripes,
                                         .depth = depth,
                                         .data = data,
                                         .data_bytes = stripes * stripe_bytes};
    return ESPL_OK;
}

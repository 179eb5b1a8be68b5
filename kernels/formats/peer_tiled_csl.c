/* Tiled-CSL [Flash-LLM, VLDB 2024]. As published, an entry is a half and a 16-bit place; with
 * codes, values and places are two sections. Last section: tile offsets in groups of four entries.
 */
#include "core/checked.h"
#include "kernels/formats/peer_internal.h"

#include <string.h>

enum { TILE_ROWS = 128, TILE_COLS = 64, GROUP = 4, HALF_OFFSETS = 1, CODE_OFFSETS = 2 };

static size_t tile_count(size_t rows, size_t cols)
{
    return espl_ceil_div(rows, TILE_ROWS) * espl_ceil_div(cols, TILE_COLS);
}

static size_t tile_nonzeros(const struct espl_peer_source *source, size_t tile)
{
    const size_t across = espl_ceil_div(source->cols, TILE_COLS);
    size_t nonzeros = 0;
    for (size_t r = 0; r < TILE_ROWS; r++) {
        for (size_t c = 0; c < TILE_COLS; c++) {
            nonzeros += espl_peer_code(source, tile / across * TILE_ROWS + r,
                                       tile % across * TILE_COLS + c) != 0
                            ? 1
                            : 0;
        }
    }
    return nonzeros;
}

/* IEEE half of a whole number from -128 to 127, and back: sign, exponent + 15, 10 bits. */
static uint16_t half_of_code(int8_t code)
{
    if (code == 0) {
        return 0;
    }
    const unsigned magnitude = (unsigned)(code < 0 ? -code : code);
    const unsigned exponent = 31u - (unsigned)__builtin_clz(magnitude);
    const unsigned fraction = (magnitude << (10u - exponent)) & 0x3FFu;
    return (uint16_t)((code < 0 ? 0x8000u : 0u) | (exponent + 15u) << 10 | fraction);
}

/* false when the half is not a whole number of `bits` bits. */
static bool code_of_half(uint16_t half, unsigned bits, int8_t *code)
{
    const int limit = 1 << (bits - 1u);
    for (int candidate = -limit; candidate < limit; candidate++) {
        if (half_of_code((int8_t)candidate) == half) {
            *code = (int8_t)candidate;
            return true;
        }
    }
    return false;
}

static enum espl_status plan_groups(const struct espl_peer_source *source, size_t *groups,
                                    size_t *offset_bytes, struct espl_error *err)
{
    const size_t tiles = tile_count(source->rows, source->cols);
    *groups = 0;
    for (size_t t = 0; t < tiles; t++) {
        *groups += espl_ceil_div(tile_nonzeros(source, t), GROUP);
    }
    if (*groups > UINT32_MAX) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "Tiled-CSL cannot index a matrix of %zu x %zu",
                         source->rows, source->cols);
    }
    *offset_bytes = (tiles + 1) * sizeof(uint32_t);
    return ESPL_OK;
}

static enum espl_status plan_half(const struct espl_peer_source *source,
                                  size_t bytes[ESPL_PEER_SECTIONS], struct espl_error *err)
{
    size_t groups = 0;
    const enum espl_status status = plan_groups(source, &groups, &bytes[HALF_OFFSETS], err);
    bytes[0] = groups * GROUP * sizeof(uint32_t);
    return status;
}

static enum espl_status plan_codes(const struct espl_peer_source *source,
                                   size_t bytes[ESPL_PEER_SECTIONS], struct espl_error *err)
{
    size_t groups = 0;
    const enum espl_status status = plan_groups(source, &groups, &bytes[CODE_OFFSETS], err);
    bytes[0] = espl_peer_packed_bytes(groups * GROUP, source->bits);
    bytes[1] = groups * GROUP * sizeof(uint16_t);
    return status;
}

/* Fill entries are all zero bits, which the sections already hold. */
static void encode(const struct espl_peer_source *source, struct espl_peer_matrix *matrix)
{
    const bool halves = matrix->format == ESPL_PEER_TILED_CSL_HALF;
    uint8_t *offsets = matrix->section[halves ? HALF_OFFSETS : CODE_OFFSETS];
    const size_t tiles = tile_count(source->rows, source->cols);
    const size_t across = espl_ceil_div(source->cols, TILE_COLS);
    size_t at = 0;
    for (size_t t = 0; t < tiles; t++) {
        espl_peer_set_u32(offsets, t, (uint32_t)(at / GROUP));
        for (size_t place = 0; place < (size_t)TILE_ROWS * TILE_COLS; place++) {
            const int8_t code = espl_peer_code(source, t / across * TILE_ROWS + place / TILE_COLS,
                                               t % across * TILE_COLS + place % TILE_COLS);
            if (code == 0) {
                continue;
            }
            if (halves) {
                espl_peer_set_u32(matrix->section[0], at,
                                  (uint32_t)half_of_code(code) | (uint32_t)place << 16);
            } else {
                espl_peer_put(matrix->section[0], source->bits, at, code);
                espl_peer_set_u16(matrix->section[1], at, (uint16_t)place);
            }
            at++;
        }
        at = espl_ceil_div(at, GROUP) * GROUP;
    }
    espl_peer_set_u32(offsets, tiles, (uint32_t)(at / GROUP));
}

static bool read_entry(const struct espl_peer_matrix *matrix, size_t index, int8_t *code,
                       size_t *place)
{
    if (matrix->format == ESPL_PEER_TILED_CSL) {
        *code = espl_peer_get(matrix->section[0], matrix->bits, index);
        *place = espl_peer_u16(matrix->section[1], index);
        return true;
    }
    const uint32_t entry = espl_peer_u32(matrix->section[0], index);
    *place = entry >> 16;
    return code_of_half((uint16_t)(entry & 0xFFFFu), matrix->bits, code);
}

static enum espl_status decode_tile(const struct espl_peer_matrix *matrix, size_t tile,
                                    size_t first, size_t end, int8_t *codes, struct espl_error *err)
{
    const size_t across = espl_ceil_div(matrix->cols, TILE_COLS);
    for (size_t i = first; i < end; i++) {
        int8_t code = 0;
        size_t place = 0;
        if (!read_entry(matrix, i, &code, &place)) {
            return espl_peer_fail(matrix, "has a value that is no code", err);
        }
        const size_t row = tile / across * TILE_ROWS + place / TILE_COLS;
        const size_t col = tile % across * TILE_COLS + place % TILE_COLS;
        if (code == 0) {
            continue; /* fill */
        }
        if (place >= (size_t)TILE_ROWS * TILE_COLS || row >= matrix->rows || col >= matrix->cols) {
            return espl_peer_fail(matrix, "has a place beyond the tile or the matrix", err);
        }
        codes[row * matrix->cols + col] = code;
    }
    return ESPL_OK;
}

static enum espl_status decode(const struct espl_peer_matrix *matrix, int8_t *codes,
                               struct espl_error *err)
{
    const bool halves = matrix->format == ESPL_PEER_TILED_CSL_HALF;
    const unsigned section = halves ? HALF_OFFSETS : CODE_OFFSETS;
    const size_t tiles = tile_count(matrix->rows, matrix->cols);
    if (matrix->section_bytes[section] != (tiles + 1) * sizeof(uint32_t)) {
        return espl_peer_fail(matrix, "has offsets of the wrong size", err);
    }
    const uint8_t *offsets = matrix->section[section];
    const size_t entries = (size_t)espl_peer_u32(offsets, tiles) * GROUP;
    const size_t value_bytes =
        halves ? entries * sizeof(uint32_t) : espl_peer_packed_bytes(entries, matrix->bits);
    if (matrix->section_bytes[0] != value_bytes ||
        (!halves && matrix->section_bytes[1] != entries * sizeof(uint16_t))) {
        return espl_peer_fail(matrix, "has entries of the wrong size", err);
    }
    for (size_t t = 0; t < tiles; t++) {
        const size_t first = (size_t)espl_peer_u32(offsets, t) * GROUP;
        const size_t end = (size_t)espl_peer_u32(offsets, t + 1) * GROUP;
        if (first > end || end > entries || (t == 0 && first != 0)) {
            return espl_peer_fail(matrix, "has offsets that do not ascend", err);
        }
        const enum espl_status status = decode_tile(matrix, t, first, end, codes, err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    return ESPL_OK;
}

const struct espl_peer_format_ops espl_peer_tiled_csl_half_ops = {"tiled-csl-half", plan_half,
                                                                  encode, decode};
const struct espl_peer_format_ops espl_peer_tiled_csl_ops = {"tiled-csl", plan_codes, encode,
                                                             decode};

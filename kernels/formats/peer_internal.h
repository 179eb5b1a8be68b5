/* What the files of the peers' formats share. */
#ifndef ESPL_FORMATS_PEER_INTERNAL_H
#define ESPL_FORMATS_PEER_INTERNAL_H

#include "espalier/formats.h"

/** Codes to encode. */
struct espl_peer_source {
    const int8_t *codes; /* (rows, cols) */
    size_t rows;
    size_t cols;
    unsigned bits;
};

/** One format. plan fills section sizes; encode writes into zero-filled sections of those sizes;
 *  decode writes into zero-filled codes and checks what it reads. */
struct espl_peer_format_ops {
    const char *name;
    enum espl_status (*plan)(const struct espl_peer_source *source,
                             size_t bytes[ESPL_PEER_SECTIONS], struct espl_error *err);
    void (*encode)(const struct espl_peer_source *source, struct espl_peer_matrix *matrix);
    enum espl_status (*decode)(const struct espl_peer_matrix *matrix, int8_t *codes,
                               struct espl_error *err);
};

extern const struct espl_peer_format_ops espl_peer_tca_bme_ops;
extern const struct espl_peer_format_ops espl_peer_tiled_csl_half_ops;
extern const struct espl_peer_format_ops espl_peer_tiled_csl_ops;

void espl_peer_put(uint8_t *bytes, unsigned bits, size_t index, int8_t code);
int8_t espl_peer_get(const uint8_t *bytes, unsigned bits, size_t index);
uint32_t espl_peer_u32(const uint8_t *bytes, size_t index);
void espl_peer_set_u32(uint8_t *bytes, size_t index, uint32_t value);
uint16_t espl_peer_u16(const uint8_t *bytes, size_t index);
void espl_peer_set_u16(uint8_t *bytes, size_t index, uint16_t value);

static inline size_t espl_peer_packed_bytes(size_t values, unsigned bits)
{
    return values / 8 * bits + (values % 8 * bits + 7) / 8;
}

/** The code at a place, 0 beyond the matrix. */
static inline int8_t espl_peer_code(const struct espl_peer_source *source, size_t row, size_t col)
{
    return row < source->rows && col < source->cols ? source->codes[row * source->cols + col] : 0;
}

/** CORRUPT, naming the format and what is wrong. */
enum espl_status espl_peer_fail(const struct espl_peer_matrix *matrix, const char *what,
                                struct espl_error *err);

#endif

/* Small signed integers packed into bits: two's complement, little-endian bit order (a code's first
 * bit follows the last bit of the code before it, the lowest bit of a byte comes first), every row
 * padded with zero bits to whole bytes. With 4 bits the low nibble is the even column. */
#ifndef ESPL_CORE_CODES_H
#define ESPL_CORE_CODES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ESPL_CODES_MIN_BITS = 2, ESPL_CODES_MAX_BITS = 8 };

/** Bytes of a packed row of `cols` codes. */
static inline size_t espl_codes_stride(size_t cols, unsigned bits)
{
    return cols / 8u * bits + (cols % 8u * bits + 7u) / 8u;
}

/** packed (rows, stride) <- codes (rows, cols). bits 2..8; every code must lie in
 *  [-2^(bits-1), 2^(bits-1) - 1]: other bits of a code are dropped. */
void espl_codes_pack(const int8_t *codes, size_t rows, size_t cols, unsigned bits, uint8_t *packed);
/** codes (rows, cols) <- packed (rows, stride). */
void espl_codes_unpack(const uint8_t *packed, size_t rows, size_t cols, unsigned bits,
                       int8_t *codes);
/** The same for one row, each code with 2^(bits-1) added: 0 .. 2^bits - 1. */
void espl_codes_unpack_raised(const uint8_t *packed, size_t cols, unsigned bits, uint8_t *codes);

#ifdef __cplusplus
}
#endif

#endif

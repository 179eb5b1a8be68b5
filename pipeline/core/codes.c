#include "core/codes.h"

void espl_codes_pack(const int8_t *codes, size_t rows, size_t cols, unsigned bits, uint8_t *packed)
{
    const size_t stride = espl_codes_stride(cols, bits);
    const unsigned mask = (1u << bits) - 1u;
    for (size_t r = 0; r < rows; r++) {
        const int8_t *row = codes + r * cols;
        uint8_t *to = packed + r * stride;
        unsigned pending = 0; /* bits not written yet, lowest first */
        unsigned held = 0;
        for (size_t c = 0; c < cols; c++) {
            pending |= ((unsigned)row[c] & mask) << held;
            held += bits;
            if (held >= 8) {
                *to++ = (uint8_t)(pending & 0xFFu);
                pending >>= 8;
                held -= 8;
            }
        }
        if (held > 0) {
            *to = (uint8_t)(pending & 0xFFu);
        }
    }
}

void espl_codes_unpack(const uint8_t *packed, size_t rows, size_t cols, unsigned bits,
                       int8_t *codes)
{
    const size_t stride = espl_codes_stride(cols, bits);
    const unsigned mask = (1u << bits) - 1u;
    const int sign = 1 << (bits - 1u);
    for (size_t r = 0; r < rows; r++) {
        const uint8_t *from = packed + r * stride;
        int8_t *row = codes + r * cols;
        unsigned pending = 0;
        unsigned held = 0;
        for (size_t c = 0; c < cols; c++) {
            if (held < bits) {
                pending |= (unsigned)*from++ << held;
                held += 8;
            }
            /* Moves the sign bit to the top of the number line: 0..2^bits-1 to two's complement. */
            row[c] = (int8_t)((int)((pending & mask) ^ (unsigned)sign) - sign);
            pending >>= bits;
            held -= bits;
        }
    }
}

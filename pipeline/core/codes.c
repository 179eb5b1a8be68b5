#include "core/codes.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "packed rows are read and written as 64-bit words");

enum { WORD = 8 }; /* codes that are unpacked together, and their bytes */
static const uint64_t EVERY_BYTE = UINT64_C(0x0101010101010101);

/* What spread() needs to know about a width. */
struct field {
    unsigned bits;
    uint64_t four, two, one; /* the lower ones of the halves that 8, 4 and 2 codes split into */
    uint64_t sign;           /* the sign bit of every code */
};

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

static struct field make_field(unsigned bits)
{
    const struct field field = {
        .bits = bits,
        .four = (UINT64_C(1) << (4 * bits)) - 1,
        .two = ((UINT64_C(1) << (2 * bits)) - 1) * UINT64_C(0x0000000100000001),
        .one = ((UINT64_C(1) << bits) - 1) * UINT64_C(0x0001000100010001),
        .sign = EVERY_BYTE << (bits - 1u),
    };
    return field;
}

/* Eight codes of less than 8 bits side by side move to a byte each: halves step apart, three times.
 * What lies above them is dropped. */
static uint64_t spread(uint64_t word, const struct field *field)
{
    const unsigned bits = field->bits;
    word = (word & field->four) | (word << (32u - 4u * bits) & field->four << 32);
    word = (word & field->two) | (word << (16u - 2u * bits) & field->two << 16);
    return (word & field->one) | (word << (8u - bits) & field->one << 8);
}

void espl_codes_unpack_raised(const uint8_t *packed, size_t cols, unsigned bits, uint8_t *codes)
{
    const size_t stride = espl_codes_stride(cols, bits);
    const struct field field = make_field(bits);
    uint64_t word = 0;
    size_t at = 0; /* bytes read */
    size_t c = 0;
    if (bits == ESPL_CODES_MAX_BITS) {
        for (; c < cols; c++) {
            codes[c] = packed[c] ^ 0x80u;
        }
        return;
    }
    for (; c + WORD <= cols && at + WORD <= stride; c += WORD, at += bits) {
        memcpy(&word, packed + at, WORD);
        word = spread(word, &field) ^ field.sign;
        memcpy(codes + c, &word, WORD);
    }
    for (; c < cols; c += WORD, at += bits) {
        word = 0;
        memcpy(&word, packed + at, stride - at < bits ? stride - at : bits);
        word = spread(word, &field) ^ field.sign;
        memcpy(codes + c, &word, cols - c < WORD ? cols - c : WORD);
    }
}

void espl_codes_unpack(const uint8_t *packed, size_t rows, size_t cols, unsigned bits,
                       int8_t *codes)
{
    const size_t stride = espl_codes_stride(cols, bits);
    const unsigned raise = 1u << (bits - 1u);
    for (size_t r = 0; r < rows; r++) {
        uint8_t *row = (uint8_t *)codes + r * cols;
        espl_codes_unpack_raised(packed + r * stride, cols, bits, row);
        for (size_t c = 0; c < cols; c++) {
            row[c] = (uint8_t)(row[c] - raise);
        }
    }
}

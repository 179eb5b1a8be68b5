#include "engine/source_text.h"

#include <string.h>

size_t espl_text_decode(const char *text, size_t len, uint32_t *code_point)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (len == 0) {
        return 0;
    }
    const unsigned char *bytes = (const unsigned char *)text;
    size_t count = 1;
    uint32_t value = bytes[0];
    if (bytes[0] >= 0xf0 && bytes[0] <= 0xf4) {
        count = 4;
        value &= 0x07;
    } else if (bytes[0] >= 0xe0 && bytes[0] < 0xf0) {
        count = 3;
        value &= 0x0f;
    } else if (bytes[0] >= 0xc2 && bytes[0] < 0xe0) {
        count = 2;
        value &= 0x1f;
    } else if (bytes[0] >= 0x80) {
        return 0;
    }
    if (count > len) {
        return 0;
    }
    for (size_t i = 1; i < count; i++) {
        if ((bytes[i] & 0xc0) != 0x80) {
            return 0;
        }
        value = (value << 6) | (bytes[i] & 0x3fu);
    }
    if (value < smallest[count] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
        return 0;
    }
    *code_point = value;
    return count;
}

/* The blocks that matter in practice; a terminal's own table is longer. */
struct width_range {
    uint32_t first, last;
    unsigned width;
};

static const struct width_range width_ranges[] = {
    {0x0300, 0x036f, 0},   {0x1100, 0x115f, 2}, {0x200b, 0x200f, 0},   {0x20d0, 0x20ff, 0},
    {0x2e80, 0x303e, 2},   {0x3041, 0xa4cf, 2}, {0xac00, 0xd7a3, 2},   {0xf900, 0xfaff, 2},
    {0xfe00, 0xfe0f, 0},   {0xfe20, 0xfe2f, 0}, {0xfe30, 0xfe6f, 2},   {0xfeff, 0xfeff, 0},
    {0xff00, 0xff60, 2},   {0xffe0, 0xffe6, 2}, {0x1f300, 0x1f64f, 2}, {0x1f900, 0x1f9ff, 2},
    {0x20000, 0x3fffd, 2},
};

unsigned espl_code_point_width(uint32_t code_point)
{
    for (size_t i = 0; i < sizeof width_ranges / sizeof width_ranges[0]; i++) {
        if (code_point >= width_ranges[i].first && code_point <= width_ranges[i].last) {
            return width_ranges[i].width;
        }
    }
    return 1;
}

size_t espl_text_break(const char *text, size_t len)
{
    const unsigned char *bytes = (const unsigned char *)text;
    if (len == 0) {
        return 0;
    }
    if (bytes[0] == '\n') {
        return 1;
    }
    if (bytes[0] == '\r') {
        return len > 1 && bytes[1] == '\n' ? 2 : 1;
    }
    if (len > 1 && bytes[0] == 0xc2 && bytes[1] == 0x85) {
        return 2;
    }
    if (len > 2 && bytes[0] == 0xe2 && bytes[1] == 0x80 && (bytes[2] == 0xa8 || bytes[2] == 0xa9)) {
        return 3;
    }
    return 0;
}

bool espl_text_line(const char *text, size_t len, unsigned number, const char **line,
                    size_t *line_len)
{
    size_t at = espl_text_bom(text, len);
    for (unsigned current = 1; current < number; current++) {
        size_t end = at;
        size_t step = 0;
        while (end < len && (step = espl_text_break(text + end, len - end)) == 0) {
            end++;
        }
        if (step == 0) {
            return false;
        }
        at = end + step;
    }
    if (at >= len) {
        return false;
    }
    size_t end = at;
    while (end < len && espl_text_break(text + end, len - end) == 0) {
        end++;
    }
    *line = text + at;
    *line_len = end - at;
    return true;
}

size_t espl_text_bom(const char *text, size_t len)
{
    return len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

void espl_text_clip(const char *text, char out[ESPL_CLIP_TEXT])
{
    enum { KEPT_BYTES = ESPL_CLIP_TEXT - 4, KEPT_CHARACTERS = 48 };
    const size_t len = strlen(text);
    size_t at = 0;
    size_t used = 0;
    size_t characters = 0;
    while (at < len) {
        uint32_t code_point = 0;
        size_t step = espl_text_decode(text + at, len - at, &code_point);
        const bool printable = step > 0 && code_point >= 0x20 && code_point != 0x7f &&
                               (code_point < 0x80 || code_point > 0x9f) && code_point != 0x2028 &&
                               code_point != 0x2029;
        const size_t needed = printable ? step : 1;
        step = step > 0 ? step : 1;
        if (characters == KEPT_CHARACTERS || used + needed > KEPT_BYTES) {
            memcpy(out + used, "...", 3);
            used += 3;
            break;
        }
        if (printable) {
            memcpy(out + used, text + at, step);
        } else {
            out[used] = ' ';
        }
        used += needed;
        at += step;
        characters++;
    }
    out[used] = '\0';
}

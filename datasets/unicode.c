#include "datasets/unicode.h"

#include <utf8proc.h>

static bool is_continuation(unsigned char byte)
{
    return (byte & 0xC0u) == 0x80u;
}

/* Bytes of the sequence that starts at text, 0 when it is not valid UTF-8. */
static size_t valid_sequence(const unsigned char *text, size_t len)
{
    const unsigned char lead = text[0];
    if (lead < 0x80u) {
        return 1;
    }
    if (lead >= 0xC2u && lead <= 0xDFu) {
        return len >= 2 && is_continuation(text[1]) ? 2 : 0;
    }
    if (lead >= 0xE0u && lead <= 0xEFu) {
        if (len < 3 || !is_continuation(text[1]) || !is_continuation(text[2])) {
            return 0;
        }
        const bool overlong = lead == 0xE0u && text[1] < 0xA0u;
        const bool surrogate = lead == 0xEDu && text[1] > 0x9Fu;
        return overlong || surrogate ? 0 : 3;
    }
    if (lead >= 0xF0u && lead <= 0xF4u) {
        if (len < 4 || !is_continuation(text[1]) || !is_continuation(text[2]) ||
            !is_continuation(text[3])) {
            return 0;
        }
        const bool overlong = lead == 0xF0u && text[1] < 0x90u;
        const bool too_large = lead == 0xF4u && text[1] > 0x8Fu;
        return overlong || too_large ? 0 : 4;
    }
    return 0;
}

size_t espl_utf8_invalid_at(const char *text, size_t len)
{
    const unsigned char *const bytes = (const unsigned char *)text;
    size_t at = 0;
    while (at < len) {
        const size_t step = valid_sequence(bytes + at, len - at);
        if (step == 0) {
            return at;
        }
        at += step;
    }
    return len;
}

size_t espl_utf8_decode(const char *text, uint32_t *code)
{
    const unsigned char *const bytes = (const unsigned char *)text;
    const uint32_t lead = bytes[0];
    if (lead < 0x80u) {
        *code = lead;
        return 1;
    }
    if (lead < 0xE0u) {
        *code = (lead & 0x1Fu) << 6 | (bytes[1] & 0x3Fu);
        return 2;
    }
    if (lead < 0xF0u) {
        *code = (lead & 0x0Fu) << 12 | (bytes[1] & 0x3Fu) << 6 | (bytes[2] & 0x3Fu);
        return 3;
    }
    *code = (lead & 0x07u) << 18 | (bytes[1] & 0x3Fu) << 12 | (bytes[2] & 0x3Fu) << 6 |
            (bytes[3] & 0x3Fu);
    return 4;
}

size_t espl_utf8_decode_last(const char *text, size_t len, uint32_t *code)
{
    size_t at = len - 1;
    while (at > 0 && is_continuation((unsigned char)text[at])) {
        at--;
    }
    return espl_utf8_decode(text + at, code);
}

size_t espl_utf8_encode(uint32_t code, char out[4])
{
    if (code < 0x80u) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800u) {
        out[0] = (char)(0xC0u | code >> 6);
        out[1] = (char)(0x80u | (code & 0x3Fu));
        return 2;
    }
    if (code < 0x10000u) {
        out[0] = (char)(0xE0u | code >> 12);
        out[1] = (char)(0x80u | (code >> 6 & 0x3Fu));
        out[2] = (char)(0x80u | (code & 0x3Fu));
        return 3;
    }
    out[0] = (char)(0xF0u | code >> 18);
    out[1] = (char)(0x80u | (code >> 12 & 0x3Fu));
    out[2] = (char)(0x80u | (code >> 6 & 0x3Fu));
    out[3] = (char)(0x80u | (code & 0x3Fu));
    return 4;
}

bool espl_unicode_is_space(uint32_t code)
{
    if (code < 0x80u) {
        return code == ' ' || (code >= '\t' && code <= '\r');
    }
    return code == 0x85u || code == 0xA0u || code == 0x1680u ||
           (code >= 0x2000u && code <= 0x200Au) || code == 0x2028u || code == 0x2029u ||
           code == 0x202Fu || code == 0x205Fu || code == 0x3000u;
}

/* Symbols that are alphabetic all the same: circled, parenthesised and squared Latin letters. */
static bool is_letter_symbol(uint32_t code)
{
    return (code >= 0x24B6u && code <= 0x24E9u) || (code >= 0x1F130u && code <= 0x1F149u) ||
           (code >= 0x1F150u && code <= 0x1F169u) || (code >= 0x1F170u && code <= 0x1F189u);
}

bool espl_unicode_is_word(uint32_t code)
{
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        /* U+200C and U+200D are Join_Control. */
        return is_letter_symbol(code) || code == 0x200Cu || code == 0x200Du;
    }
}

bool espl_unicode_is_numeric(uint32_t code)
{
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return true;
    default:
        return false;
    }
}

bool espl_unicode_is_punctuation(uint32_t code)
{
    if (code < 0x80u) {
        return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') ||
               (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
    }
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return true;
    default:
        return false;
    }
}

size_t espl_unicode_lower(uint32_t code, uint32_t out[2])
{
    if (code == 0x130u) {
        out[0] = 'i';
        out[1] = 0x307u;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
    return 1;
}

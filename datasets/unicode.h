/* UTF-8 and the character classes that tokenizers use. Classes follow Unicode as the tokenizers
 * library reads them (White_Space, Word, Nd+Nl+No, P), independent of the locale. */
#ifndef ESPL_DATASETS_UNICODE_H
#define ESPL_DATASETS_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Offset of the first byte that is not valid UTF-8 (overlong forms, surrogates and code points
 * above U+10FFFF are not), or len when all of it is. */
size_t espl_utf8_invalid_at(const char *text, size_t len);
/** Decodes the character at text (valid UTF-8, at least one byte). Returns its bytes, 1..4. */
size_t espl_utf8_decode(const char *text, uint32_t *code);
/** Decodes the character that ends just before text[len], len > 0. Returns its bytes. */
size_t espl_utf8_decode_last(const char *text, size_t len, uint32_t *code);
/** Writes code (a valid scalar value) and returns its bytes, 1..4. */
size_t espl_utf8_encode(uint32_t code, char out[4]);

/** Property White_Space. */
bool espl_unicode_is_space(uint32_t code);
/** \w: letters and other alphabetic characters, marks, decimal and letter numbers, connectors. */
bool espl_unicode_is_word(uint32_t code);
/** Nd, Nl or No. */
bool espl_unicode_is_numeric(uint32_t code);
/** ASCII punctuation and symbols, or general category P. */
bool espl_unicode_is_punctuation(uint32_t code);
/** Simple lower case of one character, as one or two characters (only U+0130 gives two). Returns
 * their count. */
size_t espl_unicode_lower(uint32_t code, uint32_t out[2]);

#endif

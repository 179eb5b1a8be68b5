/* UTF-8 text of a job file as people see it: characters, lines, display width. Line breaks are
 * those of YAML 1.1, which libyaml counts: LF, CR, CR LF, U+0085, U+2028, U+2029. */
#ifndef ESPL_ENGINE_SOURCE_TEXT_H
#define ESPL_ENGINE_SOURCE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Decodes one character of at most `len` bytes. Returns its length in bytes, or 0 when the bytes
 * are not well-formed UTF-8 (overlong forms and surrogates included) or len is 0. */
size_t espl_text_decode(const char *text, size_t len, uint32_t *code_point);
/** Columns of a terminal that a character takes: 0 for combining marks, 2 for East Asian wide ones
 * and pictographs, else 1. */
unsigned espl_code_point_width(uint32_t code_point);
/** Length in bytes of the line break at `text`, 0 when there is none. */
size_t espl_text_break(const char *text, size_t len);
/** Finds line `number` (from 1). False when the text has no such line or ends right before it. */
bool espl_text_line(const char *text, size_t len, unsigned number, const char **line,
                    size_t *line_len);
/** Bytes of a byte order mark at the start: 3 or 0. */
size_t espl_text_bom(const char *text, size_t len);

enum { ESPL_CLIP_TEXT = 64 };
/** Copies text for a message: control characters become spaces, what is over 48 characters is cut
 * at a character's border and ends in "...". */
void espl_text_clip(const char *text, char out[ESPL_CLIP_TEXT]);

#endif

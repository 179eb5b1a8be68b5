/* Writing HTML that is also well-formed XML: every text from outside goes through
 * espl_html_text(). Nothing here fails; the buffer remembers (espl_buf_check() at the end). */
#ifndef ESPL_REPORT_HTML_H
#define ESPL_REPORT_HTML_H

#include "core/buf.h"

/** Appends text with & < > " ' escaped, for element content and double-quoted attributes. Bytes
 *  that are not valid UTF-8 and characters XML forbids become U+FFFD. text: NULL = nothing. */
void espl_html_text(struct espl_buf *out, const char *text);
/** printf, then as espl_html_text(). The formatted text is cut at 1 KiB. */
void espl_html_textf(struct espl_buf *out, const char *fmt, ...) ESPL_PRINTF(2, 3);
/** As espl_html_text(), at most `max_chars` characters; a longer text ends in an ellipsis. */
void espl_html_text_cut(struct espl_buf *out, const char *text, size_t max_chars);
/** <td class="css_class">text</td>. css_class: NULL = none. */
void espl_html_cell(struct espl_buf *out, const char *css_class, const char *text);
/** <th scope="scope" class="css_class">text</th>. scope: "col" or "row". */
void espl_html_head(struct espl_buf *out, const char *scope, const char *css_class,
                    const char *text);
/** Text of plain numbers with groups of three digits from 10 000 up ("12 345", narrow no-break
 *  spaces), everything else as it is. */
void espl_html_group_digits(const char *number, char *out, size_t out_size);

#endif

#include "report/html.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define REPLACEMENT  "\xEF\xBF\xBD"
#define ELLIPSIS     "\xE2\x80\xA6"
#define NARROW_SPACE "\xE2\x80\xAF"

/* Length of the valid UTF-8 sequence at `s`, 0 when there is none (overlong forms, surrogates and
 * code points past U+10FFFF count as none; so do U+FFFE and U+FFFF, which XML forbids). */
static size_t sequence_length(const unsigned char *s)
{
    if (s[0] < 0x80) {
        return 1;
    }
    const size_t len = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4) {
        return 0;
    }
    unsigned long code = s[0] & (0x7Fu >> len);
    for (size_t i = 1; i < len; ++i) {
        if ((s[i] & 0xC0) != 0x80) {
            return 0;
        }
        code = (code << 6) | (s[i] & 0x3Fu);
    }
    static const unsigned long lowest[5] = {0, 0, 0x80, 0x800, 0x10000};
    const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    const bool forbidden = code == 0xFFFE || code == 0xFFFF;
    return code < lowest[len] || code > 0x10FFFF || surrogate || forbidden ? 0 : len;
}

/* Appends the character at `s` escaped; returns the bytes it took. */
static size_t add_character(struct espl_buf *out, const unsigned char *s)
{
    switch (*s) {
    case '&':
        espl_buf_puts(out, "&amp;");
        return 1;
    case '<':
        espl_buf_puts(out, "&lt;");
        return 1;
    case '>':
        espl_buf_puts(out, "&gt;");
        return 1;
    case '"':
        espl_buf_puts(out, "&quot;");
        return 1;
    case '\'':
        espl_buf_puts(out, "&#39;");
        return 1;
    default:
        break;
    }
    const bool control = (*s < 0x20 && *s != '\n' && *s != '\t') || *s == 0x7F;
    const size_t len = sequence_length(s);
    if (control || len == 0) {
        espl_buf_puts(out, REPLACEMENT);
        return 1;
    }
    espl_buf_add(out, s, len);
    return len;
}

void espl_html_text(struct espl_buf *out, const char *text)
{
    if (text == NULL) {
        return;
    }
    for (const unsigned char *s = (const unsigned char *)text; *s != '\0';) {
        s += add_character(out, s);
    }
}

void espl_html_textf(struct espl_buf *out, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args); /* a cut text is still worth showing */
    va_end(args);
    espl_html_text(out, text);
}

void espl_html_text_cut(struct espl_buf *out, const char *text, size_t max_chars)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t chars = 0;
    for (const unsigned char *t = s; *t != '\0'; ++chars) {
        const size_t len = sequence_length(t);
        t += len == 0 ? 1 : len;
    }
    const size_t shown = chars <= max_chars ? chars : max_chars - 1;
    for (size_t i = 0; i < shown; ++i) {
        s += add_character(out, s);
    }
    if (shown < chars) {
        espl_buf_puts(out, ELLIPSIS);
    }
}

void espl_html_cell(struct espl_buf *out, const char *css_class, const char *text)
{
    if (css_class != NULL) {
        espl_buf_printf(out, "<td class=\"%s\">", css_class);
    } else {
        espl_buf_puts(out, "<td>");
    }
    espl_html_text(out, text);
    espl_buf_puts(out, "</td>");
}

void espl_html_head(struct espl_buf *out, const char *scope, const char *css_class,
                    const char *text)
{
    espl_buf_printf(out, "<th scope=\"%s\"", scope);
    if (css_class != NULL) {
        espl_buf_printf(out, " class=\"%s\"", css_class);
    }
    espl_buf_puts(out, ">");
    espl_html_text(out, text);
    espl_buf_puts(out, "</th>");
}

void espl_html_group_digits(const char *number, char *out, size_t out_size)
{
    const size_t sign = number[0] == '-' ? 1 : 0;
    const size_t digits = strspn(number + sign, "0123456789");
    size_t len = 0;
    for (size_t i = 0; number[i] != '\0'; ++i) {
        const size_t left = i >= sign && i < sign + digits ? sign + digits - i : 0;
        const bool gap = digits >= 5 && i > sign && left != 0 && left % 3 == 0;
        if (len + 5 > out_size) {
            break;
        }
        if (gap) {
            memcpy(out + len, NARROW_SPACE, 3);
            len += 3;
        }
        out[len++] = number[i];
    }
    out[len] = '\0';
}

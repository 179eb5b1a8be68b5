#include "core/units.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* strtod of the "C" locale, whatever the process uses: "0,5" must never become canonical text. */
static double read_real(const char *text, char **end)
{
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0) {
        return strtod(text, end);
    }
    const double value = strtod_l(text, end, plain);
    freelocale(plain);
    return value;
}

/* "%.*e" of the "C" locale. */
static void write_scientific(char *out, size_t size, int decimals, double value)
{
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const locale_t before = plain != (locale_t)0 ? uselocale(plain) : (locale_t)0;
    (void)snprintf(out, size, "%.*e", decimals, value);
    if (plain != (locale_t)0) {
        (void)uselocale(before);
        freelocale(plain);
    }
}

bool espl_parse_int(const char *text, int64_t *out)
{
    const bool negative = text[0] == '-';
    const char *c = text + (text[0] == '-' || text[0] == '+' ? 1 : 0);
    if (!is_digit(*c)) {
        return false;
    }
    const uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    uint64_t value = 0;
    for (; is_digit(*c); c++) {
        const uint64_t digit = (uint64_t)(*c - '0');
        if (value > (limit - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    if (*c != '\0') {
        return false;
    }
    if (!negative) {
        *out = (int64_t)value;
    } else {
        *out = value == 0 ? 0 : -(int64_t)(value - 1) - 1;
    }
    return true;
}

/* Length of the decimal number at the start of text (YAML 1.2 core float), 0 when there is none.
 * *nonzero: whether a digit of its mantissa differs from 0. */
static size_t scan_real(const char *text, bool *nonzero)
{
    const char *c = text;
    size_t digits = 0;
    *nonzero = false;
    if (*c == '-' || *c == '+') {
        c++;
    }
    for (bool dot = false; is_digit(*c) || (*c == '.' && !dot); c++) {
        if (*c == '.') {
            dot = true;
        } else {
            digits++;
            *nonzero = *nonzero || *c != '0';
        }
    }
    if (digits == 0) {
        return 0;
    }
    if (*c == 'e' || *c == 'E') {
        const char *exponent = c + 1;
        if (*exponent == '-' || *exponent == '+') {
            exponent++;
        }
        if (is_digit(*exponent)) {
            for (c = exponent; is_digit(*c);) {
                c++;
            }
        }
    }
    return (size_t)(c - text);
}

/* Reads the number at the start of text; returns its length, 0 on failure. Values too large for a
 * double, and nonzero ones that would become 0, are failures. */
static size_t parse_real_prefix(const char *text, double *out)
{
    bool nonzero = false;
    const size_t len = scan_real(text, &nonzero);
    if (len == 0) {
        return 0;
    }
    char *end = NULL;
    const double value = read_real(text, &end);
    if (end != text + len || !isfinite(value) || (nonzero && value == 0.0)) {
        return 0;
    }
    *out = value;
    return len;
}

bool espl_parse_real(const char *text, double *out)
{
    double value = 0.0;
    const size_t len = parse_real_prefix(text, &value);
    if (len == 0 || text[len] != '\0') {
        return false;
    }
    *out = value;
    return true;
}

bool espl_parse_bool(const char *text, bool *out)
{
    static const struct {
        const char *text;
        bool value;
    } words[] = {
        {"true", true},   {"True", true},   {"TRUE", true},
        {"false", false}, {"False", false}, {"FALSE", false},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i].text) == 0) {
            *out = words[i].value;
            return true;
        }
    }
    return false;
}

static const struct size_unit {
    const char *name;
    uint64_t bytes;
} size_units[] = {
    {"B", 1},
    {"kB", UINT64_C(1000)},
    {"MB", UINT64_C(1000000)},
    {"GB", UINT64_C(1000000000)},
    {"TB", UINT64_C(1000000000000)},
    {"KiB", UINT64_C(1) << 10},
    {"MiB", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30},
    {"TiB", UINT64_C(1) << 40},
};

static const char *skip_blanks(const char *text)
{
    while (*text == ' ') {
        text++;
    }
    return text;
}

static uint64_t find_size_unit(const char *name)
{
    for (size_t i = 0; i < sizeof size_units / sizeof size_units[0]; i++) {
        if (strcmp(name, size_units[i].name) == 0) {
            return size_units[i].bytes;
        }
    }
    return 0;
}

/* Integers throughout: a double would lose bytes above 2^53. Parts of a byte are dropped, except
 * that a fraction of "B" itself is a mistake. */
bool espl_parse_size(const char *text, uint64_t *bytes)
{
    enum { MAX_FRACTION_DIGITS = 6 }; /* 10^6 times 1 TiB fits in 64 bits */
    const char *c = text;
    uint64_t whole = 0;
    if (!is_digit(*c)) {
        return false;
    }
    for (; is_digit(*c); c++) {
        const uint64_t digit = (uint64_t)(*c - '0');
        if (whole > (UINT64_MAX - digit) / 10) {
            return false;
        }
        whole = whole * 10 + digit;
    }
    uint64_t fraction = 0;
    uint64_t scale = 1;
    if (*c == '.') {
        c++;
        const char *first = c;
        for (; is_digit(*c); c++) {
            if (c - first >= MAX_FRACTION_DIGITS) {
                return false;
            }
            fraction = fraction * 10 + (uint64_t)(*c - '0');
            scale *= 10;
        }
        if (c == first) {
            return false;
        }
    }
    const uint64_t unit = find_size_unit(skip_blanks(c));
    if (unit == 0 || (unit == 1 && scale != 1) || whole > UINT64_MAX / unit) {
        return false;
    }
    const uint64_t part = fraction * unit / scale;
    if (whole * unit > UINT64_MAX - part) {
        return false;
    }
    *bytes = whole * unit + part;
    return true;
}

bool espl_parse_duration(const char *text, double *seconds)
{
    /* One operation per unit keeps "45ms" equal to 0.045: dividing rounds once, a product with the
     * inexact 0.001 would round twice. */
    static const struct {
        const char *name;
        double multiply;
        double divide;
    } units[] = {
        {"us", 1.0, 1e6}, {"ms", 1.0, 1e3}, {"s", 1.0, 1.0}, {"min", 60.0, 1.0}, {"h", 3600.0, 1.0},
    };
    double value = 0.0;
    const size_t len = parse_real_prefix(text, &value);
    if (len == 0 || text[0] == '-' || text[0] == '+') {
        return false;
    }
    const char *unit = skip_blanks(text + len);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(unit, units[i].name) == 0) {
            const double result = value * units[i].multiply / units[i].divide;
            if (!isfinite(result)) {
                return false;
            }
            *seconds = result;
            return true;
        }
    }
    return false;
}

/* One or two digits without leading zero. Returns the characters used, 0 when there is no number.
 */
static size_t parse_small(const char *text, uint32_t *out)
{
    if (!is_digit(text[0]) || text[0] == '0') {
        return 0;
    }
    *out = (uint32_t)(text[0] - '0');
    if (!is_digit(text[1])) {
        return 1;
    }
    *out = *out * 10 + (uint32_t)(text[1] - '0');
    return is_digit(text[2]) ? 0 : 2;
}

/* Two small numbers of at most 64 around a separator. */
static bool parse_pair(const char *text, char separator, uint32_t *first, uint32_t *second)
{
    enum { LARGEST = 64 };
    const size_t len = parse_small(text, first);
    if (len == 0 || text[len] != separator) {
        return false;
    }
    const char *rest = text + len + 1;
    const size_t rest_len = parse_small(rest, second);
    return rest_len != 0 && rest[rest_len] == '\0' && *first <= LARGEST && *second <= LARGEST;
}

bool espl_parse_nm(const char *text, struct espl_nm *out)
{
    struct espl_nm nm = {0, 0};
    if (!parse_pair(text, ':', &nm.n, &nm.m) || nm.n > nm.m) {
        return false;
    }
    *out = nm;
    return true;
}

bool espl_parse_grid(const char *text, struct espl_grid *out)
{
    struct espl_grid grid = {0, 0};
    if (!parse_pair(text, 'x', &grid.rows, &grid.cols)) {
        return false;
    }
    *out = grid;
    return true;
}

/* Turns "d.ddde[+-]xx" into the shortest usual form: positional for exponents -5 ... 16, else
 * scientific without leading zeros of the exponent. */
static void arrange_digits(const char *scientific, char out[ESPL_UNIT_TEXT])
{
    enum { LOWEST = -5, HIGHEST = 16 };
    char digits[24];
    size_t count = 0;
    const char *c = scientific;
    const char *sign = "";
    if (*c == '-') {
        sign = "-";
        c++;
    }
    for (; *c != 'e' && *c != '\0'; c++) {
        if (is_digit(*c) && count < sizeof digits - 1) {
            digits[count++] = *c;
        }
    }
    digits[count] = '\0';
    int64_t exponent = 0;
    (void)espl_parse_int(c + 1, &exponent); /* our own text: always well formed */
    if (exponent < LOWEST || exponent > HIGHEST) {
        (void)snprintf(out, ESPL_UNIT_TEXT,
                       "%s%c%s%s"
                       "e%d",
                       sign, digits[0], count > 1 ? "." : "", digits + 1, (int)exponent);
    } else if (exponent < 0) {
        (void)snprintf(out, ESPL_UNIT_TEXT, "%s0.%.*s%s", sign, (int)(-exponent - 1), "00000",
                       digits);
    } else if ((size_t)exponent + 1 >= count) {
        (void)snprintf(out, ESPL_UNIT_TEXT, "%s%s%.*s", sign, digits,
                       (int)((size_t)exponent + 1 - count), "00000000000000000");
    } else {
        (void)snprintf(out, ESPL_UNIT_TEXT, "%s%.*s.%s", sign, (int)exponent + 1, digits,
                       digits + exponent + 1);
    }
}

void espl_print_real(double value, char out[ESPL_UNIT_TEXT])
{
    if (isnan(value) || isinf(value)) {
        (void)snprintf(out, ESPL_UNIT_TEXT, "%s",
                       isnan(value) ? "nan" : (value < 0 ? "-inf" : "inf"));
        return;
    }
    char text[ESPL_UNIT_TEXT] = "";
    for (int precision = 1; precision <= 17; precision++) {
        write_scientific(text, sizeof text, precision - 1, value);
        if (read_real(text, NULL) == value) {
            break;
        }
    }
    arrange_digits(text, out);
}

void espl_print_size(uint64_t bytes, char out[ESPL_UNIT_TEXT])
{
    static const char *const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        (void)snprintf(out, ESPL_UNIT_TEXT, "%u B", (unsigned)bytes);
        return;
    }
    size_t unit = 0;
    unsigned shift = 10;
    /* Tenths, rounded half up, in integers: no locale, no 1024.0 KiB. */
    for (;;) {
        const uint64_t whole = bytes >> shift;
        const uint64_t rest = bytes & ((UINT64_C(1) << shift) - 1);
        const uint64_t half = UINT64_C(1) << (shift - 1);
        const uint64_t tenths = whole * 10 + ((rest * 10 + half) >> shift);
        if (tenths < 10240 || unit + 1 == sizeof names / sizeof names[0]) {
            (void)snprintf(out, ESPL_UNIT_TEXT, "%u.%u %s", (unsigned)(tenths / 10),
                           (unsigned)(tenths % 10), names[unit]);
            return;
        }
        unit++;
        shift += 10;
    }
}

void espl_print_duration(double seconds, char out[ESPL_UNIT_TEXT])
{
    const double most = 3.6e9; /* a million hours; keeps the integers below in range */
    if (isnan(seconds) || seconds < 0.0 || seconds > most) {
        (void)snprintf(out, ESPL_UNIT_TEXT, "unknown");
        return;
    }
    const uint64_t microseconds = (uint64_t)(seconds * 1e6 + 0.5);
    const uint64_t tenths = (uint64_t)(seconds * 10.0 + 0.5);
    const uint64_t whole = (uint64_t)(seconds + 0.5);
    if (microseconds < 1000) {
        (void)snprintf(out, ESPL_UNIT_TEXT, "%u us", (unsigned)microseconds);
    } else if (microseconds < 999500) {
        (void)snprintf(out, ESPL_UNIT_TEXT, "%u ms", (unsigned)((microseconds + 500) / 1000));
    } else if (tenths < 600) {
        (void)snprintf(out, ESPL_UNIT_TEXT, "%u.%u s", (unsigned)(tenths / 10),
                       (unsigned)(tenths % 10));
    } else if (whole < 3600) {
        (void)snprintf(out, ESPL_UNIT_TEXT, "%um%02us", (unsigned)(whole / 60),
                       (unsigned)(whole % 60));
    } else {
        const uint64_t minutes = (whole + 30) / 60;
        (void)snprintf(out, ESPL_UNIT_TEXT, "%uh%02um", (unsigned)(minutes / 60),
                       (unsigned)(minutes % 60));
    }
}

void espl_print_utc(int64_t unix_seconds, char out[ESPL_UNIT_TEXT])
{
    const time_t when = (time_t)unix_seconds;
    struct tm parts;
    out[0] = '\0';
    if (gmtime_r(&when, &parts) != NULL) {
        (void)strftime(out, ESPL_UNIT_TEXT, "%Y-%m-%dT%H:%M:%SZ", &parts);
    }
}

/* Texts with units: sizes, durations, N:M patterns, grids, reals. Parsers take the whole text or
 * nothing; printers give the canonical form that enters hashes. */
#ifndef ESPL_CORE_UNITS_H
#define ESPL_CORE_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** N weights are kept of every M consecutive input columns. */
struct espl_nm {
    uint32_t n;
    uint32_t m;
};

/** Rows x columns of a block of a matrix. */
struct espl_grid {
    uint32_t rows;
    uint32_t cols;
};

/** Strict decimal integer, optional sign. */
bool espl_parse_int(const char *text, int64_t *out);
/** Decimal or scientific real; no NaN, no infinity, no hexadecimal. */
bool espl_parse_real(const char *text, double *out);
/** YAML 1.2 core booleans: true, false (any of true/True/TRUE). Nothing else. */
bool espl_parse_bool(const char *text, bool *out);
/** "48GiB", "512 MiB", "10kB", "1.5GB"; B, kB, MB, GB, TB (decimal), KiB, MiB, GiB, TiB. Unit
 * required. */
bool espl_parse_size(const char *text, uint64_t *bytes);
/** "45ms", "60s", "2min", "1h", "10us". Unit required. Seconds out. */
bool espl_parse_duration(const char *text, double *seconds);
/** "2:4": 1 <= n <= m <= 64. */
bool espl_parse_nm(const char *text, struct espl_nm *out);
/** "2x4": two rows of four columns, 1 to 64 each. */
bool espl_parse_grid(const char *text, struct espl_grid *out);

enum { ESPL_UNIT_TEXT = 48 };
/** Shortest decimal digits that read back to the same double, in any locale: "0.5", "100", "1e-6",
 * "1e22" (positional for exponents from -5 to 16), "-0", "nan", "inf", "-inf". */
void espl_print_real(double value, char out[ESPL_UNIT_TEXT]);
/** "31.0 GiB", for people. */
void espl_print_size(uint64_t bytes, char out[ESPL_UNIT_TEXT]);
/** "40m27s", "2h05m", "5.9 s", "12 ms", "80 us", for people; "unknown" for what is no duration. */
void espl_print_duration(double seconds, char out[ESPL_UNIT_TEXT]);
/** "2026-05-12T10:04:11Z" of a UNIX time. */
void espl_print_utc(int64_t unix_seconds, char out[ESPL_UNIT_TEXT]);

#endif

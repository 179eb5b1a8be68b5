/* What IE-BME is compared with: other sparse formats as encoders of the same codes, sizes in closed
 * form for random masks, and the traffic figures of the UnionSparse paper (PMR, compute intensity,
 * roofline time). Layouts of the peers: docs/formats/peers.md. */
#ifndef ESPALIER_FORMATS_H
#define ESPALIER_FORMATS_H

#include "core/error.h"
#include "espalier/iebme.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the peers' formats ---- */

enum espl_peer_format {
    ESPL_PEER_DENSE,          /* packed codes, rows padded to bytes */
    ESPL_PEER_TCA_BME,        /* SpInfer: 8x8 bitmaps in nested tiles, codes instead of halves */
    ESPL_PEER_CSR16,          /* 16-bit columns */
    ESPL_PEER_CSR32,          /* 32-bit columns */
    ESPL_PEER_TILED_CSL_HALF, /* Flash-LLM as published: IEEE half + 16-bit place */
    ESPL_PEER_TILED_CSL       /* the same with codes: bits + 16-bit place */
};
enum { ESPL_PEER_FORMATS = 6, ESPL_PEER_SECTIONS = 4 };

/** Up to four byte arrays, each exactly as long as the format needs. */
struct espl_peer_matrix {
    enum espl_peer_format format;
    size_t rows;
    size_t cols;
    unsigned bits; /* of a code: 2, 4 or 8 */
    uint8_t *section[ESPL_PEER_SECTIONS];
    size_t section_bytes[ESPL_PEER_SECTIONS];
};

/** "dense", "tca-bme", "csr16", "csr32", "tiled-csl-half", "tiled-csl"; NULL for another number. */
const char *espl_peer_name(enum espl_peer_format format);
/** Bytes of every section and in all, before anything is allocated. codes (rows, cols). Errors:
 *  UNSUPPORTED for bits other than 2, 4, 8, an empty matrix, or one the format cannot index. */
enum espl_status espl_peer_plan(enum espl_peer_format format, const int8_t *codes, size_t rows,
                                size_t cols, unsigned bits,
                                size_t section_bytes[ESPL_PEER_SECTIONS], uint64_t *bytes,
                                struct espl_error *err);
/** Allocates *matrix, which espl_peer_free() frees. codes must fit `bits`. Errors: as above, NOMEM.
 */
enum espl_status espl_peer_encode(enum espl_peer_format format, const int8_t *codes, size_t rows,
                                  size_t cols, unsigned bits, struct espl_peer_matrix *matrix,
                                  struct espl_error *err);
/** codes (rows, cols). Checks every size, offset and place before use. Errors: UNSUPPORTED,
 * CORRUPT.
 */
enum espl_status espl_peer_decode(const struct espl_peer_matrix *matrix, int8_t *codes,
                                  struct espl_error *err);
void espl_peer_free(struct espl_peer_matrix *matrix);

/* ---- closed forms: bits a weight for a random mask without tails ---- */

/** IE-BME of uniform areas with Q areas (1024 = dense): 1/Q + bits (1 - s^Q) + offsets. */
double espl_iebme_expected_bits(unsigned areas, unsigned bits, double sparsity);
/** The same without offsets: what the break-even compares. */
double espl_iebme_expected_bits_bare(unsigned areas, unsigned bits, double sparsity);
/** Expected bits of a peer's format for a matrix of `cols` columns, all its arrays counted. */
double espl_peer_expected_bits(enum espl_peer_format format, unsigned bits, double sparsity,
                               size_t cols);
/** Sparsity above which a union mask of Q areas takes less than dense: (1 / (bits Q))^(1/Q). */
double espl_iebme_break_even(unsigned areas, unsigned bits);
/** No format can take less on average: bits (1 - s) and the entropy of a random mask. */
double espl_sparse_entropy_bits(unsigned bits, double sparsity);

/* ---- traffic ---- */

/** One encoded matrix, taken apart. bytes = payload + padding + metadata. */
struct espl_traffic {
    size_t rows;
    size_t cols;
    double bytes_per_value; /* B_w: bits / 8 */
    uint64_t nonzeros;
    double payload_bytes;  /* B_w * nonzeros */
    double padding_bytes;  /* stored zeros and filled bytes among the values */
    double metadata_bytes; /* masks, offsets, area codes, permutations, places */
};

/** Of an encoded IE-BME matrix (scales and outliers are not counted). */
struct espl_traffic espl_traffic_of_iebme(const struct espl_iebme_plan *plan);
/** Of any format, from its total and its metadata bytes; the rest above the payload is padding. */
struct espl_traffic espl_traffic_of_bytes(size_t rows, size_t cols, unsigned bits,
                                          uint64_t nonzeros, double bytes, double metadata_bytes);
/** Payload to metadata as the paper defines it [UnionSparse, eq. 1]: stored zeros do not count.
 *  Infinite without metadata. */
double espl_traffic_pmr(const struct espl_traffic *traffic);
/** The same with stored zeros counted as metadata, since they move without being payload. */
double espl_traffic_pmr_effective(const struct espl_traffic *traffic);
/** Operations a byte, weights and activations of `tokens` columns [UnionSparse, eq. 2], with the
 * PMR given: 2 M N (1-s) / (B_w M (1-s) (1 + 1/PMR) + B_w N). */
double espl_traffic_intensity(const struct espl_traffic *traffic, double tokens, double pmr);
/** Encoded bytes a weight of the matrix. */
double espl_traffic_bytes_per_weight(const struct espl_traffic *traffic);
/** Seconds that moving the weights, `tokens` activation columns of B_w bytes and as many outputs of
 *  output_bytes takes at `bandwidth` bytes a second; not less than the arithmetic takes at `rate`
 *  operations a second (0 = arithmetic is free). Dense operations: 2 M N K. */
double espl_traffic_roofline_seconds(const struct espl_traffic *traffic, double tokens,
                                     double output_bytes, double bandwidth, double rate);

/* ---- all formats side by side ---- */

/** Codes that are not 0. */
uint64_t espl_format_nonzeros(const int8_t *codes, size_t count);

/** A way to store codes: IE-BME with some areas, or a peer. */
struct espl_format {
    const char *name; /* "iebme-1x1", "iebme-auto", "dense", "tca-bme", ... */
    bool is_peer;
    enum espl_iebme_areas areas; /* when not a peer; ESPL_IEBME_AUTO: the smallest */
    enum espl_peer_format peer;
};
/** Dense, IE-BME from 1x1 to 4x4 and auto, then the peers; ends with .name == NULL. */
extern const struct espl_format espl_formats[];
/** NULL when there is none of this name. */
const struct espl_format *espl_format_find(const char *name);

/** Bits a stored value has in this format: `bits`, or 16 where the format holds halves. */
unsigned espl_format_value_bits(const struct espl_format *format, unsigned bits);
/** What the encoder takes for these codes (rows, cols), counted to the byte. orders: as for
 *  espl_iebme_plan(), with scope; NULL and ESPL_IEBME_SCOPE_NONE for rows as they are; peers ignore
 *  them. Errors: as espl_iebme_plan() and espl_peer_plan(). */
enum espl_status espl_format_measure(const struct espl_format *format, const int8_t *codes,
                                     size_t rows, size_t cols, unsigned bits,
                                     enum espl_iebme_scope scope, const uint64_t *orders,
                                     struct espl_traffic *traffic, struct espl_error *err);
/** The same in closed form for a random mask without tails. bits: 2 to 16 (no encoder has 16: it is
 *  for comparison with half-precision weights). */
struct espl_traffic espl_format_expected(const struct espl_format *format, size_t rows, size_t cols,
                                         unsigned bits, double sparsity);

/* ---- devices ---- */

/** What a roofline needs to know about a device. */
struct espl_device_rate {
    const char *name;  /* "orin-agx" */
    const char *title; /* "Jetson AGX Orin 64GB" */
    double bandwidth;  /* bytes a second; the peak of the memory's pins unless `source` says more */
    double int8_rate;  /* dense INT8 operations a second, 0 = not known */
    const char *source;
};
/** Ends with .name == NULL. The numbers are data sheets' unless they say otherwise; a rate that was
 *  measured on the device at hand is worth more. */
extern const struct espl_device_rate espl_device_rates[];
/** NULL when there is none of this name. */
const struct espl_device_rate *espl_device_rate_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif

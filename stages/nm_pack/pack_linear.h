/* nm-pack, one linear: INT8 codes with a scale a row, packed with the most rows that share their
 * pattern. */
#ifndef ESPL_STAGES_PACK_LINEAR_H
#define ESPL_STAGES_PACK_LINEAR_H

#include "espalier/nm_pack.h"
#include "stages/nm_pack/pack_setup.h"

/** What is counted of a linear, a block and the model. */
enum espl_pack_count {
    ESPL_PACK_WEIGHTS,
    ESPL_PACK_NONZEROS, /* codes that are not 0 */
    ESPL_PACK_BYTES,    /* values, patterns and scales */
    ESPL_PACK_VALUES,   /* of these */
    ESPL_PACK_PATTERNS,
    ESPL_PACK_SCALES,
    ESPL_PACK_INT8, /* bytes of all codes, one each, and scales */
    ESPL_PACK_LINEARS,
    ESPL_PACK_DENSE, /* linears with N = M */
    ESPL_PACK_V1,    /* linears whose patterns are of single rows, shared by 8 rows, ... */
    ESPL_PACK_V8,
    ESPL_PACK_V16,
    ESPL_PACK_V32,
    ESPL_PACK_V64,
    ESPL_PACK_COUNTS
};
/** Names of metrics and of unit attributes: "weights", "packed_bytes", ... */
extern const char *const espl_pack_names[];

/** linear->nm and linear->scales <- weights (out, in) with masked ones 0. mask (out, stride): NULL
 * = all kept; N is the most that it keeps in any window. verify: decodes and compares. counts <-
 * what it takes. linear: sizes, empty arrays. Errors: NUMERIC for a weight that is not finite,
 *  UNSUPPORTED (too many columns), NOMEM, INTERNAL when the decoded codes differ. */
enum espl_status espl_pack_linear(const struct espl_pack_setup *setup, const float *weights,
                                  const uint8_t *mask, bool verify,
                                  struct espl_quant_linear *linear,
                                  uint64_t counts[ESPL_PACK_COUNTS], struct espl_error *err);

#endif

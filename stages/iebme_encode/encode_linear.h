/* iebme-encode, one linear: which areas, with or without the row order, and what every format would
 * take. */
#ifndef ESPL_STAGES_ENCODE_LINEAR_H
#define ESPL_STAGES_ENCODE_LINEAR_H

#include "espalier/formats.h"
#include "espalier/iebme.h"
#include "model/quantised.h"

/** What is counted of a linear, a block and the model. Bytes of a format are those of its arrays
 *  and of what stays beside them in any format: scales, outliers and their scales. A format that
 *  cannot hold the linear has ESPL_UNIT_COUNT_NONE (stages/encode_common/unit_counts.h). */
enum espl_encode_count {
    ESPL_ENCODE_WEIGHTS,  /* outliers too */
    ESPL_ENCODE_NONZEROS, /* codes that are not 0 */
    ESPL_ENCODE_BYTES,    /* as encoded */
    ESPL_ENCODE_PAYLOAD,  /* of these, bits of codes that are not 0, rounded down to bytes */
    ESPL_ENCODE_PADDING,
    ESPL_ENCODE_METADATA,
    ESPL_ENCODE_SCALES,
    ESPL_ENCODE_DENSE, /* packed codes */
    ESPL_ENCODE_TCA_BME,
    ESPL_ENCODE_CSR16,
    ESPL_ENCODE_CSR32,
    ESPL_ENCODE_TILED_CSL,
    ESPL_ENCODE_LINEARS,
    ESPL_ENCODE_REORDERED, /* linears that use their row order */
    ESPL_ENCODE_AREAS,     /* and ESPL_IEBME_CHOICES in all: linears with these areas */
    ESPL_ENCODE_COUNTS = ESPL_ENCODE_AREAS + ESPL_IEBME_CHOICES
};
/** Names of metrics and of unit attributes, ESPL_ENCODE_COUNTS of them: "weights",
 *  "encoded_bytes", ..., "linears_2x2". */
extern const char *const espl_encode_names[];

/** What was written, taken apart, for figures such as PMR; rows x cols codes. */
struct espl_traffic espl_encode_traffic(const uint64_t counts[ESPL_ENCODE_COUNTS], size_t rows,
                                        size_t cols, unsigned bits);

/** The row order of a linear; scope NONE without. */
struct espl_encode_order {
    enum espl_iebme_scope scope;
    uint64_t *words;
};

/** Encodes linear->codes with `areas`, or the smallest when they are automatic, with the row order
 *  where it makes the matrix smaller. linear->encoded <- the result, linear->codes is freed;
 *  counts <- what it takes. Errors: as espl_iebme_plan(), NOMEM. */
enum espl_status espl_encode_linear(struct espl_quant_linear *linear, enum espl_iebme_areas areas,
                                    const struct espl_encode_order *order,
                                    uint64_t counts[ESPL_ENCODE_COUNTS], struct espl_error *err);

#endif

/* Values of datasets as numbers, whatever their element type and packing: statistics for inspect,
 * comparison for diff. Reads pieces; memory does not grow with the dataset. */
#ifndef ESPL_CLI_TENSOR_VALUES_H
#define ESPL_CLI_TENSOR_VALUES_H

#include "artifact/artifact.h"

/** min, max, mean over finite values; 0 when there is none. */
struct espl_tensor_stats {
    uint64_t count; /* logical elements */
    uint64_t nonzero;
    uint64_t nan;
    uint64_t infinite;
    double min, max, mean;
};

/** Errors: what reading gives, UNSUPPORTED for an unknown packing, NOMEM. */
enum espl_status espl_tensor_measure(struct espl_artifact *artifact,
                                     const struct espl_tensor_info *info,
                                     struct espl_tensor_stats *out, struct espl_error *err);

/** The first values in storage order; *count: at most `limit`. */
enum espl_status espl_tensor_first_values(struct espl_artifact *artifact,
                                          const struct espl_tensor_info *info, double *values,
                                          size_t limit, size_t *count, struct espl_error *err);

/** Elements that a double does not hold to the last bit: union masks, row orders. */
bool espl_tensor_has_words(const struct espl_tensor_info *info);
/** espl_tensor_first_values() of these, exact; I64 as its two's complement. */
enum espl_status espl_tensor_first_words(struct espl_artifact *artifact,
                                         const struct espl_tensor_info *info, uint64_t *words,
                                         size_t limit, size_t *count, struct espl_error *err);

struct espl_tensor_difference {
    uint64_t count;     /* elements compared */
    uint64_t differing; /* of them; NaN equals NaN here */
    double max_abs; /* largest absolute difference; infinity when a NaN stands against a number */
};

/** Same logical shape on both sides is the caller's business. Element types may differ. */
enum espl_status espl_tensor_compare(struct espl_artifact *a, const struct espl_tensor_info *info_a,
                                     struct espl_artifact *b, const struct espl_tensor_info *info_b,
                                     struct espl_tensor_difference *out, struct espl_error *err);

/** "4096 x 4096", "scalar"; of the logical shape. */
enum { ESPL_SHAPE_TEXT = 96 };
void espl_tensor_shape_text(const struct espl_tensor_info *info, char out[ESPL_SHAPE_TEXT]);
/** Logical elements. */
uint64_t espl_tensor_element_count(const struct espl_tensor_info *info);

#endif

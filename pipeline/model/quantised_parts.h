/* Datasets of a quantised linear: where they stand and what they must look like. Shared by the
 * files that read and write quantised and encoded models; internal to the model layer. */
#ifndef ESPL_MODEL_QUANTISED_PARTS_H
#define ESPL_MODEL_QUANTISED_PARTS_H

#include "model/quantised.h"

/** "/layers/003/fc1/<part>" of the linear whose weight is `weight`. */
void espl_quant_part_path(const struct espl_tensor_spec *weight, const char *part,
                          char out[ESPL_TENSOR_PATH]);
/** "/layers/003/order_mlp_in". */
void espl_quant_order_path(int64_t layer, enum espl_quant_site site, char out[ESPL_TENSOR_PATH]);
/** Plain elements (rows, cols); cols 0 = rank 1. */
struct espl_tensor_info espl_quant_plain_info(const char *path, enum espl_dtype dtype,
                                              uint64_t rows, uint64_t cols);
/** Packed codes of a linear. */
struct espl_tensor_info espl_quant_codes_info(const struct espl_tensor_spec *weight,
                                              const struct espl_quant_linear *linear);
/** Frees the encoded form of a linear's codes. */
void espl_quant_linear_free_encoded(struct espl_quant_linear *linear);
/** Reads a dataset that must be exactly as `expected` says. *data: malloc'ed, also after some
 *  errors. Errors: CORRUPT, NOMEM, IO. */
enum espl_status espl_quant_read_part(struct espl_artifact *artifact,
                                      const struct espl_tensor_info *expected, void **data,
                                      struct espl_error *err);

#endif

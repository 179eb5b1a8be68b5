/* Encoded linears of a model.iebme/1 artifact: the canonical IE-BME form of a quantised linear's
 * codes (docs/formats/ie-bme.md), with scales, outliers and column orders beside it as in
 * model/quantised.h. Also the row orders of an order.rows/1 artifact, which are stored alike.
 *
 * Stored at /layers/NNN/<module>/: masks, offsets, values, areas, permutation; an array without
 * elements has no dataset. The ranks say what is meant: `areas` is one code for the whole matrix or
 * (stripes, tile columns) of them, `permutation` (stripes) or (stripes, tile columns). */
#ifndef ESPL_MODEL_IEBME_LINEAR_H
#define ESPL_MODEL_IEBME_LINEAR_H

#include "model/quantised.h"

/** Are encoded codes of this weight in the artifact? */
bool espl_iebme_is_stored(const struct espl_artifact *artifact,
                          const struct espl_tensor_spec *weight);
/** As espl_quant_linear_read() without mask, but an encoded linear keeps its form: linear->encoded
 *  is set (and was validated) and linear->codes is NULL. A linear that is not encoded comes with
 * its packed codes. */
enum espl_status espl_iebme_linear_read(struct espl_model *model, int64_t layer,
                                        enum espl_role role, struct espl_quant_linear *linear,
                                        struct espl_error *err);
/** Is this an encoded model (model.iebme/1)? */
bool espl_model_is_encoded(const struct espl_model *model);

/** Writes the arrays of an encoded matrix, which belongs to the linear whose weight is `weight`. */
enum espl_status espl_iebme_codes_write(struct espl_artifact *artifact,
                                        const struct espl_tensor_spec *weight,
                                        const struct espl_iebme_matrix *matrix,
                                        struct espl_error *err);
/** Reads and validates them. layout: rows, columns and bits; areas and scope come from the file.
 *  *matrix: freed by the caller, also after an error. Errors: CORRUPT, UNSUPPORTED, NOMEM, IO. */
enum espl_status espl_iebme_codes_read(struct espl_artifact *artifact,
                                       const struct espl_tensor_spec *weight,
                                       const struct espl_iebme_layout *layout,
                                       struct espl_iebme_matrix *matrix, struct espl_error *err);

/** Writes the row order of a linear's codes: one word a stripe or a tile, by layout->scope. */
enum espl_status espl_iebme_order_write(struct espl_artifact *artifact,
                                        const struct espl_tensor_spec *weight,
                                        const struct espl_iebme_layout *layout,
                                        const uint64_t *orders, struct espl_error *err);
/** Reads it. layout: rows and columns; scope <- NONE (and *orders NULL), STRIPE or TILE. *orders:
 *  malloc'ed, owned by the caller, checked to be permutations. Errors: CORRUPT, NOMEM, IO. */
enum espl_status espl_iebme_order_read(struct espl_artifact *artifact,
                                       const struct espl_tensor_spec *weight,
                                       struct espl_iebme_layout *layout, uint64_t **orders,
                                       size_t *count, struct espl_error *err);

/** Starts an encoded model, which stands alone: description of `base` (a quantised model) with
 *  `encoding` (borrowed) and the content hash of what was encoded. */
enum espl_status espl_model_begin_encoded(struct espl_artifact *output,
                                          const struct espl_model *base, const json_t *encoding,
                                          struct espl_error *err);
/** Copies a tensor that is not quantised, masks applied, to its own path in an output or unit. */
enum espl_status espl_model_copy_tensor(struct espl_artifact *output, struct espl_model *model,
                                        const struct espl_tensor_spec *spec,
                                        struct espl_error *err);

#endif

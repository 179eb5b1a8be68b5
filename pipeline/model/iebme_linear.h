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

#endif

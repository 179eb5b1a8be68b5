/* Linears of a model.nm/1 artifact: INT8 codes packed N:M (docs/formats/nm-pack.md), with a scale a
 * row beside them as in model/quantised.h; no outliers, no order of columns.
 *
 * Stored at /layers/NNN/<module>/: nm u8 [3] = N, M, V; values u8; patterns u8, left out when N =
 * M. */
#ifndef ESPL_MODEL_NM_LINEAR_H
#define ESPL_MODEL_NM_LINEAR_H

#include "espalier/nm_pack.h"
#include "model/quantised.h"

/** Are packed codes of this weight in the artifact? */
bool espl_nm_is_stored(const struct espl_artifact *artifact, const struct espl_tensor_spec *weight);
/** Writes the arrays of a packed matrix, which belongs to the linear whose weight is `weight`. */
enum espl_status espl_nm_codes_write(struct espl_artifact *artifact,
                                     const struct espl_tensor_spec *weight,
                                     const struct espl_nm_matrix *matrix, struct espl_error *err);
/** Reads and checks them. *matrix: espl_nm_free() frees it, also after an error. Errors: CORRUPT,
 *  UNSUPPORTED, NOMEM, IO. */
enum espl_status espl_nm_codes_read(struct espl_artifact *artifact,
                                    const struct espl_tensor_spec *weight,
                                    struct espl_nm_matrix *matrix, struct espl_error *err);

#endif

/* The matrices that the linears of one input share while they are changed. */
#ifndef ESPL_STAGES_SITE_MATRIX_H
#define ESPL_STAGES_SITE_MATRIX_H

#include "stages/calibration/hessians.h"
#include "stages/quant_common/inverse_factor.h"

/** Hessian of an input in some column order, and the factor of its inverse. */
struct espl_site_matrix {
    double *hessian; /* (width, width), owned */
    struct espl_inverse_factor factor;
};

/** Takes the collected Hessian of a site: its sums are freed, because wide layers need the room.
 * order (width): NULL = as the columns are. damping: 0 = no factor. A Hessian that needed more
 * damping, or has no inverse at any, is logged as a warning; fallback: what happens then, "rounding
 * to nearest instead". *matrix: zeroed by the caller, freed with espl_site_matrix_free(), also
 * after an error. Errors: NUMERIC, NOMEM, INTERNAL (nothing was collected). */
enum espl_status espl_site_matrix_take(struct espl_hessians *hessians, enum espl_quant_site site,
                                       const int32_t *order, double damping, const char *fallback,
                                       struct espl_site_matrix *matrix, struct espl_error *err);
void espl_site_matrix_free(struct espl_site_matrix *matrix);

#endif

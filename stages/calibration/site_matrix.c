#include "stages/calibration/site_matrix.h"

#include "core/checked.h"

#include <inttypes.h>
#include <stdlib.h>

static void note_damping(const struct espl_hessians *hessians, enum espl_quant_site site,
                         const struct espl_inverse_factor *factor, const char *fallback)
{
    const struct espl_chains *chains = hessians->chains;
    const struct espl_log *log = espl_ctx_log(chains->ctx);
    const char *first =
        espl_role_name(espl_quant_site_roles(espl_model_get_config(chains->model), site)[0]);
    if (factor->identity) {
        espl_log(log, ESPL_LOG_WARN,
                 "block %" PRIu64 ": the Hessian at the input of '%s' has no inverse at any "
                 "damping: %s",
                 hessians->layer, first, fallback);
    } else if (factor->attempts > 1) {
        espl_log(log, ESPL_LOG_WARN,
                 "block %" PRIu64 ": the Hessian at the input of '%s' needed damping %g",
                 hessians->layer, first, factor->damp);
    }
}

enum espl_status espl_site_matrix_take(struct espl_hessians *hessians, enum espl_quant_site site,
                                       const int32_t *order, double damping, const char *fallback,
                                       struct espl_site_matrix *matrix, struct espl_error *err)
{
    struct espl_hessian *collected = hessians->sites[site];
    size_t values = 0;
    if (collected == NULL) {
        return espl_fail(err, ESPL_E_INTERNAL, "no Hessian was collected for '%s'",
                         espl_quant_order_name(site));
    }
    const size_t width = espl_hessian_width(collected);
    if (width == 0 || !espl_mul_size(width, width, &values) || values > SIZE_MAX / sizeof(double)) {
        return espl_fail(err, ESPL_E_NOMEM, "a Hessian of %zu channels does not fit in memory",
                         width);
    }
    matrix->hessian = malloc(values * sizeof(double));
    if (matrix->hessian == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a Hessian of %zu channels", width);
    }
    espl_hessian_matrix(collected, order, matrix->hessian);
    espl_hessian_destroy(collected);
    hessians->sites[site] = NULL;
    if (!(damping > 0.0)) {
        return ESPL_OK;
    }
    const enum espl_status status =
        espl_inverse_factor_create(matrix->hessian, width, damping, &matrix->factor, err);
    if (status == ESPL_OK) {
        note_damping(hessians, site, &matrix->factor, fallback);
    }
    return status;
}

void espl_site_matrix_free(struct espl_site_matrix *matrix)
{
    free(matrix->hessian);
    matrix->hessian = NULL;
    espl_inverse_factor_free(&matrix->factor);
}

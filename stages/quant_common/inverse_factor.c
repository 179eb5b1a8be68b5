#include "stages/quant_common/inverse_factor.h"

#include "core/checked.h"
#include "espalier/linalg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const double ESPL_DAMP_DEFAULT = 0.01;
const double ESPL_DAMP_LIMIT = 10.0;

static const double ESCALATION = 10.0;

static enum espl_status allocate(size_t cols, struct espl_inverse_factor *factor,
                                 struct espl_error *err)
{
    size_t count = 0;
    size_t bytes = 0;
    memset(factor, 0, sizeof *factor);
    factor->cols = cols;
    if (espl_mul_size(cols, cols, &count) && espl_mul_size(count, sizeof *factor->upper, &bytes)) {
        factor->upper = calloc(1, bytes != 0 ? bytes : 1);
        factor->dead = calloc(cols != 0 ? cols : 1, sizeof *factor->dead);
    }
    if (factor->upper == NULL || factor->dead == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a factor of %zu columns", cols);
    }
    return ESPL_OK;
}

static enum espl_status check_hessian(const double *hessian, size_t cols, struct espl_error *err)
{
    for (size_t r = 0; r < cols; r++) {
        for (size_t c = 0; c < cols; c++) {
            if (!isfinite(hessian[r * cols + c])) {
                return espl_fail(err, ESPL_E_NUMERIC,
                                 "Hessian of channels %zu and %zu is not finite", r, c);
            }
        }
        if (hessian[r * cols + r] < 0.0) {
            return espl_fail(err, ESPL_E_NUMERIC, "Hessian of channel %zu is negative (%g)", r,
                             hessian[r * cols + r]);
        }
    }
    return ESPL_OK;
}

static void set_identity(struct espl_inverse_factor *factor)
{
    memset(factor->upper, 0, factor->cols * factor->cols * sizeof *factor->upper);
    for (size_t c = 0; c < factor->cols; c++) {
        factor->upper[c * factor->cols + c] = 1.0;
    }
    factor->identity = true;
}

/* upper <- the Hessian with dead channels set to 1 and `damp` of the mean diagonal added. */
static void copy_damped(const double *hessian, struct espl_inverse_factor *factor, double damp)
{
    const size_t cols = factor->cols;
    double sum = 0.0;
    memcpy(factor->upper, hessian, cols * cols * sizeof *hessian);
    for (size_t c = 0; c < cols; c++) {
        double *diagonal = &factor->upper[c * cols + c];
        *diagonal = factor->dead[c] ? 1.0 : *diagonal;
        sum += *diagonal;
    }
    for (size_t c = 0; c < cols; c++) {
        factor->upper[c * cols + c] += damp * (sum / (double)cols);
    }
}

/* A factor can come out of a nearly singular matrix with entries that are not finite. */
static bool is_usable(const struct espl_inverse_factor *factor)
{
    for (size_t i = 0; i < factor->cols * factor->cols; i++) {
        if (!isfinite(factor->upper[i])) {
            return false;
        }
    }
    for (size_t c = 0; c < factor->cols; c++) {
        if (!(factor->upper[c * factor->cols + c] > 0.0)) {
            return false;
        }
    }
    return true;
}

enum espl_status espl_inverse_factor_create(const double *hessian, size_t cols, double damp,
                                            struct espl_inverse_factor *factor,
                                            struct espl_error *err)
{
    enum espl_status status = allocate(cols, factor, err);
    if (status == ESPL_OK) {
        status = check_hessian(hessian, cols, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t c = 0; c < cols; c++) {
        factor->dead[c] = hessian[c * cols + c] == 0.0;
        factor->dead_count += factor->dead[c] ? 1u : 0u;
    }
    for (factor->damp = damp;; factor->damp *= ESCALATION) {
        int info = 0;
        factor->attempts++;
        copy_damped(hessian, factor, factor->damp);
        status = espl_cholesky_of_inverse(cols, factor->upper, &info, err);
        if (status != ESPL_OK || (info == 0 && is_usable(factor))) {
            return status;
        }
        /* The limit itself is still tried, whatever the roundings of the products so far. */
        if (factor->damp * ESCALATION > ESPL_DAMP_LIMIT * (1.0 + 1e-9)) {
            set_identity(factor);
            return ESPL_OK;
        }
    }
}

enum espl_status espl_inverse_factor_identity(size_t cols, struct espl_inverse_factor *factor,
                                              struct espl_error *err)
{
    const enum espl_status status = allocate(cols, factor, err);
    if (status == ESPL_OK) {
        set_identity(factor);
    }
    return status;
}

void espl_inverse_factor_free(struct espl_inverse_factor *factor)
{
    if (factor != NULL) {
        free(factor->upper);
        free(factor->dead);
        memset(factor, 0, sizeof *factor);
    }
}

enum espl_status espl_output_error(size_t rows, size_t cols, const float *w,
                                   const float *approximation, const double *hessian,
                                   unsigned threads, double *absolute, double *relative,
                                   struct espl_error *err)
{
    size_t count = 0;
    size_t bytes = 0;
    double *d = NULL;
    double whole = 0.0;
    if (espl_mul_size(rows, cols, &count) && espl_mul_size(count, sizeof *d, &bytes)) {
        d = calloc(1, bytes != 0 ? bytes : 1);
    }
    if (d == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the error of a %zu x %zu matrix",
                         rows, cols);
    }
    for (size_t i = 0; i < count; i++) {
        d[i] = (double)w[i] - (double)approximation[i];
    }
    enum espl_status status = espl_quadratic_error(rows, cols, d, hessian, threads, absolute, err);
    for (size_t i = 0; i < count; i++) {
        d[i] = (double)w[i];
    }
    if (status == ESPL_OK) {
        status = espl_quadratic_error(rows, cols, d, hessian, threads, &whole, err);
    }
    free(d);
    if (status == ESPL_OK) {
        *relative = whole > 0.0 ? *absolute / whole : 0.0;
    }
    return status;
}

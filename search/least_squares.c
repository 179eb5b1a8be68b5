#include "search/least_squares.h"

#include "core/checked.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double dot(size_t count, const double *a, const double *b)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* target <- (I - 2 v v^T / (v^T v)) target, v_norm2 = v^T v. */
static void reflect(size_t count, const double *v, double v_norm2, double *target)
{
    const double factor = 2.0 * dot(count, v, target) / v_norm2;
    for (size_t i = 0; i < count; i++) {
        target[i] -= factor * v[i];
    }
}

void espl_qr_factor(size_t rows, size_t cols, double *a, double *y, double *diagonal)
{
    for (size_t k = 0; k < cols; k++) {
        double *v = a + k * rows + k;
        const size_t count = rows - k;
        const double norm = sqrt(dot(count, v, v));
        /* The sign that adds up: v[0] never cancels. */
        const double entry = v[0] > 0.0 ? -norm : norm;
        diagonal[k] = entry;
        v[0] -= entry;
        const double v_norm2 = dot(count, v, v);
        if (v_norm2 == 0.0) {
            continue;
        }
        for (size_t c = k + 1; c < cols; c++) {
            reflect(count, v, v_norm2, a + c * rows + k);
        }
        reflect(count, v, v_norm2, y + k);
    }
}

void espl_qr_solve(size_t rows, size_t cols, const double *a, const double *diagonal,
                   const double *y, double *z)
{
    for (size_t k = cols; k-- > 0;) {
        double sum = y[k];
        for (size_t c = k + 1; c < cols; c++) {
            sum -= a[c * rows + k] * z[c];
        }
        z[k] = sum / diagonal[k];
    }
}

/* Rotates two columns until they are orthogonal; false when they already were. */
static bool orthogonalise(size_t rows, double *p, double *q)
{
    const double alpha = dot(rows, p, p);
    const double beta = dot(rows, q, q);
    const double gamma = dot(rows, p, q);
    if (fabs(gamma) <= 4.0 * DBL_EPSILON * sqrt(alpha * beta)) {
        return false;
    }
    const double zeta = (beta - alpha) / (2.0 * gamma);
    const double t = (zeta >= 0.0 ? 1.0 : -1.0) / (fabs(zeta) + sqrt(1.0 + zeta * zeta));
    const double c = 1.0 / sqrt(1.0 + t * t);
    const double s = c * t;
    for (size_t i = 0; i < rows; i++) {
        const double p_i = p[i];
        p[i] = c * p_i - s * q[i];
        q[i] = s * p_i + c * q[i];
    }
    return true;
}

/* Column-major copy with columns of unit length; false when one is zero. */
static bool unit_columns(size_t rows, size_t cols, const double *a, double *columns)
{
    for (size_t c = 0; c < cols; c++) {
        double *column = columns + c * rows;
        for (size_t r = 0; r < rows; r++) {
            column[r] = a[r * cols + c];
        }
        const double norm = sqrt(dot(rows, column, column));
        if (!(norm > 0.0)) {
            return false;
        }
        for (size_t r = 0; r < rows; r++) {
            column[r] /= norm;
        }
    }
    return true;
}

enum espl_status espl_condition_number(size_t rows, size_t cols, const double *a, double *condition,
                                       struct espl_error *err)
{
    enum { MAX_SWEEPS = 60 }; /* convergence is quadratic: about ten are used */
    size_t count = 0;
    *condition = INFINITY;
    if (rows < cols || cols == 0) {
        return ESPL_OK;
    }
    if (!espl_mul_size(rows, cols, &count) || count > SIZE_MAX / sizeof(double)) {
        return espl_fail(err, ESPL_E_NOMEM, "a %zu x %zu matrix does not fit in memory", rows,
                         cols);
    }
    double *columns = malloc(count * sizeof *columns);
    if (columns == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a %zu x %zu matrix", rows, cols);
    }
    if (unit_columns(rows, cols, a, columns)) {
        bool rotated = true;
        for (unsigned sweep = 0; rotated && sweep < MAX_SWEEPS; sweep++) {
            rotated = false;
            for (size_t p = 0; p + 1 < cols; p++) {
                for (size_t q = p + 1; q < cols; q++) {
                    rotated |= orthogonalise(rows, columns + p * rows, columns + q * rows);
                }
            }
        }
        double low = INFINITY;
        double high = 0.0;
        for (size_t c = 0; c < cols; c++) {
            const double value = sqrt(dot(rows, columns + c * rows, columns + c * rows));
            low = value < low ? value : low;
            high = value > high ? value : high;
        }
        /* Below this a singular value is rounding noise: the matrix is deficient. */
        *condition = low > high * DBL_EPSILON * (double)rows ? high / low : INFINITY;
    }
    free(columns);
    return ESPL_OK;
}

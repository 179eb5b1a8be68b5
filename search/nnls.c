#include "search/nnls.h"

#include "core/checked.h"
#include "search/least_squares.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A column whose part outside the span of the passive ones is shorter than this (all have length 1)
 * is dependent: its gradient is below this times the residual, so leaving it at 0 is optimal to
 * that accuracy, and solving with it would only amplify rounding. */
static const double dependent = 1e-11;

struct nnls {
    size_t rows, cols;
    double *columns; /* (cols, rows): columns of A, scaled to length 1 (or 0) */
    double *length;  /* (cols): of the columns of A */
    double *x;       /* (cols): for the scaled columns */
    double *z;       /* (cols): unconstrained solution, in order of `passive` */
    double *factor;  /* (cols, rows): QR work */
    double *diagonal;
    double *rhs;      /* (rows) */
    double *residual; /* (rows) */
    double *gradient; /* (cols): A^T (y - A x) */
    size_t *passive;  /* indices of passive columns; the newest stands last */
    size_t passive_count;
    bool *is_passive;
    bool *rejected; /* not to be tried again before x changes */
};

static double *reals(size_t a, size_t b)
{
    size_t count = 0;
    return espl_mul_size(a, b, &count) && count <= SIZE_MAX / sizeof(double)
               ? calloc(count > 0 ? count : 1, sizeof(double))
               : NULL;
}

static void release(struct nnls *p)
{
    free(p->columns);
    free(p->length);
    free(p->x);
    free(p->z);
    free(p->factor);
    free(p->diagonal);
    free(p->rhs);
    free(p->residual);
    free(p->gradient);
    free(p->passive);
    free(p->is_passive);
    free(p->rejected);
}

static enum espl_status prepare(struct nnls *p, const double *a, const double *y,
                                struct espl_error *err)
{
    const size_t most = p->rows < p->cols ? p->rows : p->cols;
    p->columns = reals(p->cols, p->rows);
    p->length = reals(p->cols, 1);
    p->x = reals(p->cols, 1);
    p->z = reals(p->cols, 1);
    p->factor = reals(most + 1, p->rows);
    p->diagonal = reals(p->cols, 1);
    p->rhs = reals(p->rows, 1);
    p->residual = reals(p->rows, 1);
    p->gradient = reals(p->cols, 1);
    p->passive = calloc(p->cols, sizeof *p->passive);
    p->is_passive = calloc(p->cols, sizeof *p->is_passive);
    p->rejected = calloc(p->cols, sizeof *p->rejected);
    if (p->columns == NULL || p->length == NULL || p->x == NULL || p->z == NULL ||
        p->factor == NULL || p->diagonal == NULL || p->rhs == NULL || p->residual == NULL ||
        p->gradient == NULL || p->passive == NULL || p->is_passive == NULL || p->rejected == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for least squares of %zu x %zu", p->rows,
                         p->cols);
    }
    for (size_t r = 0; r < p->rows; r++) {
        for (size_t c = 0; c < p->cols; c++) {
            const double value = a[r * p->cols + c];
            if (!isfinite(value) || !isfinite(y[r])) {
                return espl_fail(err, ESPL_E_NUMERIC,
                                 "least squares: row %zu holds a value that is not finite", r);
            }
            p->columns[c * p->rows + r] = value;
            p->length[c] += value * value;
        }
    }
    for (size_t c = 0; c < p->cols; c++) {
        p->length[c] = sqrt(p->length[c]);
        for (size_t r = 0; p->length[c] > 0.0 && r < p->rows; r++) {
            p->columns[c * p->rows + r] /= p->length[c];
        }
    }
    return ESPL_OK;
}

/* residual = y - A x, gradient = A^T residual; returns |residual|. */
static double update_gradient(struct nnls *p, const double *y)
{
    double sum = 0.0;
    memcpy(p->residual, y, p->rows * sizeof *y);
    for (size_t i = 0; i < p->passive_count; i++) {
        const size_t c = p->passive[i];
        for (size_t r = 0; r < p->rows; r++) {
            p->residual[r] -= p->x[c] * p->columns[c * p->rows + r];
        }
    }
    for (size_t c = 0; c < p->cols; c++) {
        p->gradient[c] = 0.0;
        for (size_t r = 0; r < p->rows; r++) {
            p->gradient[c] += p->columns[c * p->rows + r] * p->residual[r];
        }
    }
    for (size_t r = 0; r < p->rows; r++) {
        sum += p->residual[r] * p->residual[r];
    }
    return sqrt(sum);
}

/* The inactive column of steepest descent above the tolerance; cols when there is none. */
static size_t steepest(const struct nnls *p, double tolerance)
{
    size_t best = p->cols;
    for (size_t c = 0; c < p->cols; c++) {
        if (!p->is_passive[c] && !p->rejected[c] && p->gradient[c] > tolerance &&
            (best == p->cols || p->gradient[c] > p->gradient[best])) {
            best = c;
        }
    }
    return best;
}

/* z = least squares solution on the passive columns. False when the newest one is dependent. */
static bool solve_passive(struct nnls *p, const double *y)
{
    const size_t count = p->passive_count;
    if (count > p->rows) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        memcpy(p->factor + i * p->rows, p->columns + p->passive[i] * p->rows,
               p->rows * sizeof *p->factor);
    }
    memcpy(p->rhs, y, p->rows * sizeof *y);
    espl_qr_factor(p->rows, count, p->factor, p->rhs, p->diagonal);
    for (size_t i = 0; i < count; i++) {
        if (fabs(p->diagonal[i]) < dependent) {
            return false;
        }
    }
    espl_qr_solve(p->rows, count, p->factor, p->diagonal, p->rhs, p->z);
    return true;
}

/* Drops passive columns whose x is zero. */
static void drop_zeros(struct nnls *p)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->passive_count; i++) {
        const size_t c = p->passive[i];
        if (p->x[c] > 0.0) {
            p->passive[kept++] = c;
        } else {
            p->x[c] = 0.0;
            p->is_passive[c] = false;
        }
    }
    p->passive_count = kept;
}

/* Moves x towards z as far as all stay non-negative; drops what became zero. True when z was
 * reached. */
static bool move_towards(struct nnls *p)
{
    double step = 1.0;
    size_t binding = p->cols;
    for (size_t i = 0; i < p->passive_count; i++) {
        const double x = p->x[p->passive[i]];
        if (p->z[i] <= 0.0 && (binding == p->cols || x / (x - p->z[i]) < step)) {
            step = x / (x - p->z[i]);
            binding = p->passive[i];
        }
    }
    for (size_t i = 0; i < p->passive_count; i++) {
        double *x = &p->x[p->passive[i]];
        *x = binding == p->cols ? p->z[i] : *x + step * (p->z[i] - *x);
    }
    if (binding == p->cols) {
        return true;
    }
    p->x[binding] = 0.0; /* whatever rounding left */
    drop_zeros(p);
    return false;
}

/* Takes a column in and restores x >= 0. False when the column could not enter. */
static bool enter(struct nnls *p, size_t column, const double *y)
{
    p->passive[p->passive_count++] = column;
    p->is_passive[column] = true;
    const bool solved = solve_passive(p, y);
    if (!solved || p->z[p->passive_count - 1] <= 0.0) {
        p->passive_count--;
        p->is_passive[column] = false;
        return false;
    }
    while (!move_towards(p)) {
        if (p->passive_count == 0 || !solve_passive(p, y)) {
            break; /* fewer columns than before are independent; rounding alone comes here */
        }
    }
    return true;
}

enum espl_status espl_nnls_solve(size_t rows, size_t cols, const double *a, const double *y,
                                 double *x, struct espl_nnls_info *info, struct espl_error *err)
{
    struct nnls p = {.rows = rows, .cols = cols};
    struct espl_nnls_info found = {0};
    enum espl_status status = prepare(&p, a, y, err);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    const size_t longer = rows > cols ? rows : cols;
    const size_t cap = 3 * cols + 10;
    found.residual = update_gradient(&p, y);
    const double tolerance = 10.0 * DBL_EPSILON * (double)longer * found.residual;
    for (;;) {
        const size_t column = steepest(&p, tolerance);
        if (column == cols) {
            found.converged = true;
            break;
        }
        if (found.iterations == cap) {
            break;
        }
        if (!enter(&p, column, y)) {
            p.rejected[column] = true;
            continue;
        }
        memset(p.rejected, 0, cols * sizeof *p.rejected);
        found.iterations++;
        found.residual = update_gradient(&p, y);
    }
    for (size_t c = 0; c < cols; c++) {
        x[c] = p.length[c] > 0.0 ? p.x[c] / p.length[c] : 0.0;
        found.zeros += x[c] == 0.0 ? 1u : 0u;
    }
    if (info != NULL) {
        *info = found;
    }

cleanup:
    release(&p);
    return status;
}

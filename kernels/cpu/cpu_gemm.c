/* Linear layers on OpenBLAS.
 *
 * The product is cut into pieces of fixed size: rows of tokens first and, when there are few
 * tokens, columns of the output too. Every piece is one single-threaded sgemm, so a result never
 * depends on how many threads share the pieces. Piece borders depend on the shape alone. */
#include "core/checked.h"
#include "kernels/backend_internal.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gelu.h"

#include <cblas.h>
#include <string.h>

/* Every piece packs its rows of x and of W again, at a cost of one pass over 1 / columns and 1 /
 * rows of the arithmetic: 256 rows and 512 columns keep a piece within a few percent of the rate of
 * a large product. 64 pieces: as many as there can be threads. */
enum { PANEL_ROWS = 256, PIECES_WANTED = 64, SMALLEST_COLUMNS = 512 };

struct pieces {
    size_t row_panels;
    size_t columns; /* of a column panel */
    size_t column_panels;
};

static struct pieces cut(const struct espl_gemm_shape *shape)
{
    struct pieces pieces;
    pieces.row_panels = espl_ceil_div(shape->tokens, PANEL_ROWS);
    const size_t column_panels = espl_ceil_div(PIECES_WANTED, pieces.row_panels);
    size_t columns = espl_ceil_div(shape->out, column_panels);
    columns = espl_ceil_div(columns, SMALLEST_COLUMNS) * SMALLEST_COLUMNS;
    pieces.columns = columns;
    pieces.column_panels = espl_ceil_div(shape->out, columns);
    return pieces;
}

/* What y holds before x w^T is added: bias, or what was there plus bias. */
static void start_piece(const struct espl_gemm_shape *shape, enum espl_epilogue epilogue,
                        size_t rows, size_t columns, const float *bias, float *y)
{
    for (size_t r = 0; bias != NULL && r < rows; r++) {
        float *row = y + r * shape->out;
        if (epilogue != ESPL_EPILOGUE_ADD) {
            memcpy(row, bias, columns * sizeof *row);
            continue;
        }
        for (size_t c = 0; c < columns; c++) {
            row[c] += bias[c];
        }
    }
}

/* One piece; pointers at its corner. */
static void multiply_piece(const struct espl_gemm_shape *shape, enum espl_epilogue epilogue,
                           size_t rows, size_t columns, const float *x, const float *w,
                           const float *bias, float *y)
{
    const float kept = bias != NULL || epilogue == ESPL_EPILOGUE_ADD ? 1.0F : 0.0F;
    start_piece(shape, epilogue, rows, columns, bias, y);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)columns, (int)shape->in,
                1.0F, x, (int)shape->in, w, (int)shape->in, kept, y, (int)shape->out);
    for (size_t r = 0; epilogue == ESPL_EPILOGUE_GELU && r < rows; r++) {
        espl_gelu_run(y + r * shape->out, columns);
    }
}

enum espl_status espl_cpu_fused_linear(struct espl_backend *backend,
                                       const struct espl_gemm_shape *shape,
                                       enum espl_epilogue epilogue, const float *x, const float *w,
                                       const float *bias, float *y, struct espl_error *err)
{
    int checked = 0;
    if (!espl_size_to_int(shape->in, &checked) || !espl_size_to_int(shape->out, &checked)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "a matrix of %zu x %zu is too large for BLAS",
                         shape->out, shape->in);
    }
    if (shape->tokens == 0 || shape->out == 0) {
        return ESPL_OK;
    }
    const struct pieces pieces = cut(shape);
    const size_t count = pieces.row_panels * pieces.column_panels;
#pragma omp parallel for schedule(dynamic) num_threads(backend->blas_threads) if (count > 1)
    for (size_t p = 0; p < count; p++) {
        const size_t row = (p / pieces.column_panels) * PANEL_ROWS;
        const size_t column = (p % pieces.column_panels) * pieces.columns;
        const size_t rows_left = shape->tokens - row;
        const size_t columns_left = shape->out - column;
        multiply_piece(shape, epilogue, rows_left < PANEL_ROWS ? rows_left : PANEL_ROWS,
                       columns_left < pieces.columns ? columns_left : pieces.columns,
                       x + row * shape->in, w + column * shape->in,
                       bias != NULL ? bias + column : NULL, y + row * shape->out + column);
    }
    return ESPL_OK;
}

enum espl_status espl_cpu_gemm_f32(struct espl_backend *backend,
                                   const struct espl_gemm_shape *shape, const float *x,
                                   const float *w, const float *bias, float *y,
                                   struct espl_error *err)
{
    return espl_cpu_fused_linear(backend, shape, ESPL_EPILOGUE_NONE, x, w, bias, y, err);
}

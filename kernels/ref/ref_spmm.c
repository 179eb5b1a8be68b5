/* Reference product from the canonical IE-BME form. It reads the masks bit by bit, as the format's
 * text says, and shares no code with the decoder. */
#include "espalier/iebme.h"
#include "kernels/backend_internal.h"
#include "kernels/quant_internal.h"
#include "kernels/ref/ref_ops.h"

#include <string.h>

static int8_t stored_value(const struct espl_iebme_matrix *matrix, uint64_t index)
{
    const unsigned bits = matrix->layout.bits;
    const uint64_t bit = index * bits;
    const int field = matrix->values[bit / 8] >> (bit % 8) & ((1 << bits) - 1);
    return (int8_t)(field >= 1 << (bits - 1u) ? field - (1 << bits) : field);
}

/* Mask words of a tile with R_A x C_A areas; dense tiles store none. */
static size_t mask_words(unsigned area_rows, unsigned area_cols)
{
    return area_rows == ESPL_IEBME_TILE_ROWS ? 0 : 16u / (area_rows * area_cols);
}

static enum espl_iebme_areas areas_of(const struct espl_iebme_matrix *matrix, size_t tile)
{
    return matrix->tag_count > 0 ? (enum espl_iebme_areas)matrix->tags[tile] : matrix->layout.areas;
}

/* codes (16, 64) <- tile, in original row order. */
static void read_tile(const struct espl_iebme_matrix *matrix, size_t tile, size_t stripe,
                      const uint64_t *mask, int8_t codes[ESPL_IEBME_TILE_VALUES])
{
    unsigned area_rows = 0;
    unsigned area_cols = 0;
    uint8_t order[ESPL_IEBME_TILE_ROWS];
    const uint64_t first =
        matrix->offset_count > 0 ? matrix->offsets[tile] : (uint64_t)tile * ESPL_IEBME_TILE_VALUES;
    uint64_t word = ESPL_IEBME_ORDER_IDENTITY;
    if (matrix->layout.scope != ESPL_IEBME_SCOPE_NONE) {
        word = matrix->orders[matrix->layout.scope == ESPL_IEBME_SCOPE_TILE ? tile : stripe];
    }
    espl_iebme_areas_grid(areas_of(matrix, tile), &area_rows, &area_cols);
    espl_iebme_order_unpack(word, order);
    const bool dense = mask_words(area_rows, area_cols) == 0;
    const unsigned height = ESPL_IEBME_TILE_ROWS / area_rows;
    const unsigned width = ESPL_IEBME_TILE_COLS / area_cols;
    uint64_t ones = 0; /* P */
    for (unsigned n = 0; n < height * width; n++) {
        ones += dense || (mask[n / 64] >> (n % 64) & 1u) != 0 ? 1 : 0;
    }
    memset(codes, 0, ESPL_IEBME_TILE_VALUES);
    for (unsigned q = 0; q < area_rows * area_cols; q++) {
        uint64_t rank = 0;
        for (unsigned n = 0; n < height * width; n++) {
            if (!dense && (mask[n / 64] >> (n % 64) & 1u) == 0) {
                continue;
            }
            const unsigned row = q / area_cols * height + n / width;
            const unsigned col = q % area_cols * width + n % width;
            codes[order[row] * ESPL_IEBME_TILE_COLS + col] =
                stored_value(matrix, first + q * ones + rank);
            rank++;
        }
    }
}

/* Dense rows (16, tile_cols * 64) of a stripe; *mask moves past its tiles. */
static void read_stripe(const struct espl_iebme_matrix *matrix, size_t stripe,
                        const uint64_t **mask, int8_t *rows)
{
    const size_t tile_cols = espl_iebme_tile_cols(&matrix->layout);
    for (size_t c = 0; c < tile_cols; c++) {
        int8_t codes[ESPL_IEBME_TILE_VALUES];
        unsigned area_rows = 0;
        unsigned area_cols = 0;
        const size_t tile = stripe * tile_cols + c;
        read_tile(matrix, tile, stripe, *mask, codes);
        espl_iebme_areas_grid(areas_of(matrix, tile), &area_rows, &area_cols);
        *mask += mask_words(area_rows, area_cols);
        for (size_t r = 0; r < ESPL_IEBME_TILE_ROWS; r++) {
            memcpy(rows + (r * tile_cols + c) * ESPL_IEBME_TILE_COLS,
                   codes + r * ESPL_IEBME_TILE_COLS, ESPL_IEBME_TILE_COLS);
        }
    }
}

static float accumulate(float sum, const int8_t *a, const int8_t *w, size_t count, float scale)
{
    int32_t acc = 0;
    for (size_t i = 0; i < count; i++) {
        acc += (int32_t)a[i] * (int32_t)w[i];
    }
    return sum + (float)acc * scale;
}

/* One output of one token; row: the decoded weight row. */
static float multiply(const struct espl_quant_shape *shape, const struct espl_quant_activations *a,
                      const struct espl_iebme_weights *w, size_t token, size_t out,
                      const int8_t *row)
{
    const size_t groups = espl_quant_groups(shape);
    const size_t width = espl_quant_group_columns(shape);
    const float *w_scales = w->scales + out / shape->rows_per_scale * groups;
    const float *a_scales = a->scales + token * groups;
    float sum = 0.0F;
    for (size_t g = 0; g < groups; g++) {
        sum = accumulate(sum, a->codes + token * espl_quant_normal(shape) + g * width,
                         row + g * width, width, w_scales[g] * a_scales[g]);
    }
    if (shape->outliers > 0) {
        sum = accumulate(sum, a->outlier_codes + token * shape->outliers,
                         w->outlier_codes + out * shape->outliers, shape->outliers,
                         w->outlier_scales[out] * a->outlier_scales[token]);
    }
    return w->bias != NULL ? sum + w->bias[out] : sum;
}

enum espl_status espl_ref_spmm_iebme(struct espl_backend *backend,
                                     const struct espl_quant_shape *shape,
                                     const struct espl_quant_activations *a,
                                     const struct espl_iebme_weights *w, float *y,
                                     struct espl_error *err)
{
    void *rows = NULL;
    enum espl_status status = espl_quant_encoded_check(shape, w, err);
    if (status == ESPL_OK) {
        status = espl_backend_scratch_array(backend, espl_iebme_tile_cols(&w->codes->layout),
                                            ESPL_IEBME_TILE_VALUES, &rows, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    const size_t stride = espl_iebme_tile_cols(&w->codes->layout) * ESPL_IEBME_TILE_COLS;
    const uint64_t *mask = w->codes->masks;
    for (size_t out = 0; out < shape->out; out++) {
        if (out % ESPL_IEBME_TILE_ROWS == 0) {
            read_stripe(w->codes, out / ESPL_IEBME_TILE_ROWS, &mask, rows);
        }
        const int8_t *row = (const int8_t *)rows + out % ESPL_IEBME_TILE_ROWS * stride;
        for (size_t t = 0; t < shape->tokens; t++) {
            y[t * shape->out + out] = multiply(shape, a, w, t, out, row);
        }
    }
    return ESPL_OK;
}

#include "stages/nm_pack/pack_linear.h"

#include "stages/prune_common/prune_mask.h"
#include "stages/quant_common/quantiser.h"

#include <stdlib.h>
#include <string.h>

const char *const espl_pack_names[] = {
    [ESPL_PACK_WEIGHTS] = "weights",        [ESPL_PACK_NONZEROS] = "nonzero_codes",
    [ESPL_PACK_BYTES] = "packed_bytes",     [ESPL_PACK_VALUES] = "value_bytes",
    [ESPL_PACK_PATTERNS] = "pattern_bytes", [ESPL_PACK_SCALES] = "scale_bytes",
    [ESPL_PACK_INT8] = "int8_bytes",        [ESPL_PACK_LINEARS] = "linears",
    [ESPL_PACK_DENSE] = "linears_dense",    [ESPL_PACK_V1] = "linears_v1",
    [ESPL_PACK_V8] = "linears_v8",          [ESPL_PACK_V16] = "linears_v16",
    [ESPL_PACK_V32] = "linears_v32",        [ESPL_PACK_V64] = "linears_v64",
};

/* The most columns that a mask keeps in any window of m. */
static unsigned most_kept(const struct espl_matrix_shape *shape, const uint8_t *mask, unsigned m)
{
    const size_t stride = espl_mask_stride(shape->cols);
    unsigned most = 1; /* a matrix without weights has windows of one place */
    for (size_t row = 0; row < shape->rows; row++) {
        unsigned kept = 0;
        for (size_t col = 0; col < shape->cols; col++) {
            kept = (col % m == 0 ? 0 : kept) + (espl_mask_bit(mask + row * stride, col) ? 1u : 0u);
            most = kept > most ? kept : most;
        }
    }
    return most;
}

static enum espl_pack_count count_of(const struct espl_nm_layout *layout)
{
    switch (layout->v) {
    case 64:
        return ESPL_PACK_V64;
    case 32:
        return ESPL_PACK_V32;
    case 16:
        return ESPL_PACK_V16;
    case 8:
        return ESPL_PACK_V8;
    default:
        return ESPL_PACK_V1;
    }
}

static void count(const struct espl_nm_matrix *matrix, const int8_t *codes,
                  uint64_t counts[ESPL_PACK_COUNTS])
{
    const struct espl_nm_layout *layout = &matrix->layout;
    const size_t weights = layout->rows * layout->cols;
    memset(counts, 0, ESPL_PACK_COUNTS * sizeof *counts);
    for (size_t i = 0; i < weights; i++) {
        counts[ESPL_PACK_NONZEROS] += codes[i] != 0 ? 1 : 0;
    }
    counts[ESPL_PACK_WEIGHTS] = weights;
    counts[ESPL_PACK_VALUES] = matrix->value_bytes;
    counts[ESPL_PACK_PATTERNS] = matrix->pattern_bytes;
    counts[ESPL_PACK_SCALES] = layout->rows * sizeof(float);
    counts[ESPL_PACK_BYTES] =
        counts[ESPL_PACK_VALUES] + counts[ESPL_PACK_PATTERNS] + counts[ESPL_PACK_SCALES];
    counts[ESPL_PACK_INT8] = weights + counts[ESPL_PACK_SCALES];
    counts[ESPL_PACK_LINEARS] = 1;
    counts[layout->n == layout->m ? ESPL_PACK_DENSE : count_of(layout)] = 1;
}

static enum espl_status compare(const struct espl_nm_matrix *matrix, const int8_t *codes,
                                struct espl_error *err)
{
    const size_t bytes = matrix->layout.rows * matrix->layout.cols;
    int8_t *decoded = malloc(bytes);
    enum espl_status status = decoded == NULL
                                  ? espl_fail(err, ESPL_E_NOMEM, "no memory for %zu codes", bytes)
                                  : espl_nm_decode(matrix, decoded, err);
    if (status == ESPL_OK && memcmp(decoded, codes, bytes) != 0) {
        status = espl_fail(err, ESPL_E_INTERNAL, "packed codes do not decode to what they were");
    }
    free(decoded);
    return status;
}

/* The most rows that share their patterns, up to what was asked for. */
static enum espl_status encode(const int8_t *codes, const struct espl_pack_setup *setup,
                               struct espl_nm_layout *layout, struct espl_nm_matrix *matrix,
                               struct espl_error *err)
{
    enum espl_status status = espl_nm_detect(codes, layout, &layout->v, err);
    if (status == ESPL_OK) {
        layout->v = layout->v < setup->most_v ? layout->v : setup->most_v;
        status = espl_nm_encode(codes, layout, matrix, err);
    }
    return status;
}

enum espl_status espl_pack_linear(const struct espl_pack_setup *setup, const float *weights,
                                  const uint8_t *mask, bool verify,
                                  struct espl_quant_linear *linear,
                                  uint64_t counts[ESPL_PACK_COUNTS], struct espl_error *err)
{
    const struct espl_matrix_shape shape = {linear->out, linear->in};
    const struct espl_quantiser quantiser = {
        .bits = 8, .rows_per_scale = 1, .scale = ESPL_QUANT_SCALE_HALF, .clip = 1.0f};
    struct espl_nm_layout layout = {
        .rows = shape.rows,
        .cols = shape.cols,
        .n = mask != NULL ? most_kept(&shape, mask, setup->m) : setup->m,
        .m = setup->m,
    };
    struct espl_quantised rounded = {.codes = NULL};
    linear->nm = calloc(1, sizeof *linear->nm);
    enum espl_status status = linear->nm == NULL
                                  ? espl_fail(err, ESPL_E_NOMEM, "no memory for a matrix")
                                  : espl_quantised_create(&quantiser, &shape, &rounded, err);
    if (status == ESPL_OK) {
        status = espl_rtn(&quantiser, weights, NULL, 1, &rounded, err);
    }
    if (status == ESPL_OK) {
        status = encode(rounded.codes, setup, &layout, linear->nm, err);
    }
    if (status == ESPL_OK && verify) {
        status = compare(linear->nm, rounded.codes, err);
    }
    if (status == ESPL_OK) {
        count(linear->nm, rounded.codes, counts);
        linear->scales = rounded.scales;
        rounded.scales = NULL;
    }
    espl_quantised_free(&rounded);
    return status;
}

/* Quantised layers to the device: columns filled up to whole steps, rows permuted by stripe, scales
 * and INT8 channels in the order of the kernels. */
#include "core/codes.h"
#include "kernels/cuda/atom_args.cuh"
#include "kernels/cuda/cuda_support.cuh"
#include "kernels/cuda/spmm_matrix.cuh"
#include "kernels/quant_internal.h"

#include <stdlib.h>
#include <string.h>

namespace
{

/* A layer as it was given, and how its rows stand on the device. */
struct layer {
    const struct espl_quant_shape *shape;
    const float *scales;
    const int8_t *outlier_codes;
    const float *outlier_scales;
    const float *bias;
    const uint64_t *orders; /* one a stripe; NULL: rows as they are */
    const struct espl_cuda_atom_form *form;
    struct atom_layout layout;
    size_t stripes;
    float *row_units; /* sparse: (stripes * 16) powers of two that scales are divided by */
};

enum espl_status fail_memory(struct espl_error *err)
{
    return espl_fail(err, ESPL_E_NOMEM, "out of memory for a layer of the device");
}

/* Row of the layer that stands at `row` of the device; shape->out: none. */
size_t source_row(const struct layer *l, size_t row)
{
    const size_t out = l->shape->out;
    const size_t first = row / SPMM_STRIPE * SPMM_STRIPE;
    size_t source = row;
    if (l->orders != NULL) {
        source = first + (l->orders[row / SPMM_STRIPE] >> row % SPMM_STRIPE * 4 & 15u);
    }
    return source < out ? source : out;
}

/* Rows of a stripe two by two have the same scales. */
bool rows_share(const struct layer *l)
{
    return l->shape->rows_per_scale == 2 && l->orders == NULL;
}

/* Weight scale of a row of the device for a step; 0 for what is not there. */
float scale_of(const struct layer *l, size_t row, size_t step)
{
    const size_t source = source_row(l, row);
    const size_t groups = espl_quant_groups(l->shape);
    const size_t group = step * l->layout.step / l->layout.group;
    return source < l->shape->out && group < groups
               ? l->scales[source / l->shape->rows_per_scale * groups + group]
               : 0.0F;
}

/* codes (rows of the device, layout.cols) <- codes (out, normal). */
enum espl_status place_codes(const struct layer *l, const int8_t *codes, size_t rows, int8_t **out,
                             struct espl_error *err)
{
    const size_t normal = espl_quant_normal(l->shape);
    const size_t group = espl_quant_group_columns(l->shape);
    const size_t cols = l->layout.cols;
    *out = static_cast<int8_t *>(calloc(rows, cols));
    if (*out == NULL) {
        return fail_memory(err);
    }
    for (size_t row = 0; row < rows; row++) {
        const size_t source = source_row(l, row);
        for (size_t g = 0; source < l->shape->out && g < normal / group; g++) {
            memcpy(*out + row * cols + g * l->layout.group, codes + source * normal + g * group,
                   group);
        }
    }
    return ESPL_OK;
}

/* ---- sparse: scales in front of chunks ---- */

/* Powers of two so that 256 times the sum of |code| * scale * 8 of a row, divided by its own, is at
 * most 2^21: see atom_sparse.cu. codes (rows of the device, layout.cols). Two rows that share
 * scales share the unit. */
enum espl_status find_row_units(struct layer *l, const int8_t *codes, size_t rows,
                                struct espl_error *err)
{
    const double code_products = 8.0 * 256.0; /* largest activation, and how sums are multiplied */
    const int bits = 21;
    const size_t cols = l->layout.cols;
    const size_t step = l->layout.step;
    const size_t share = rows_share(l) ? 2 : 1;
    l->row_units = static_cast<float *>(malloc(l->stripes * SPMM_STRIPE * sizeof *l->row_units));
    if (l->row_units == NULL) {
        return fail_memory(err);
    }
    for (size_t row = 0; row < l->stripes * SPMM_STRIPE; row += share) {
        double most = 0.0;
        for (size_t r = row; r < row + share && r < rows; r++) {
            double sum = 0.0;
            for (size_t first = 0; first < cols; first += step) {
                int size = 0;
                for (size_t c = first; c < first + step && c < cols; c++) {
                    size += abs(codes[r * cols + c]);
                }
                sum += size > 0 ? size * (double)scale_of(l, r, first / step) : 0.0;
            }
            most = sum > most ? sum : most;
        }
        int exponent = 0;
        (void)frexp(most * code_products, &exponent);
        for (size_t r = row; r < row + share; r++) {
            l->row_units[r] = most > 0.0 ? ldexpf(1.0F, exponent - bits) : 1.0F;
        }
    }
    return ESPL_OK;
}

unsigned sparse_scale_bytes(const struct layer *l)
{
    const unsigned unit = l->form->unit == ESPL_IEBME_2X2 ? 256 : 128; /* alignment of streams */
    const unsigned rows = rows_share(l) ? SPMM_STRIPE / 2 : SPMM_STRIPE;
    const unsigned bytes = SPMM_SLICE / l->layout.step * rows * sizeof(float);
    return (bytes + unit - 1) / unit * unit;
}

/* Scale of a row for a step in units of the row; 0 where it is too large for any code but 0. */
float scale_in_units(const struct layer *l, size_t row, size_t step)
{
    const float most = 2097152.0F; /* 2^21 */
    const float scale = scale_of(l, row, step) / l->row_units[row];
    return scale <= most ? scale : 0.0F;
}

/* The scales of a chunk: (steps, rows g, 2), of rows g and g + 8. */
void write_chunk_scales(const struct layer *l, size_t stripe, size_t slice, float *to)
{
    const size_t steps = SPMM_SLICE / l->layout.step;
    const size_t skip = rows_share(l) ? 2 : 1;
    for (size_t s = 0; s < steps; s++) {
        for (size_t g = 0; g < SPMM_STRIPE / 2; g += skip) {
            const size_t row = stripe * SPMM_STRIPE + g;
            *to++ = scale_in_units(l, row, slice * steps + s);
            *to++ = scale_in_units(l, row + SPMM_STRIPE / 2, slice * steps + s);
        }
    }
}

/* *with <- the chunks of `plain`, each with its scales in front. Owns index and data. */
enum espl_status add_scales(const struct layer *l, const struct espl_iebme_device *plain,
                            unsigned scale_bytes, struct espl_iebme_device *with,
                            struct espl_error *err)
{
    const size_t depth = plain->chunks / l->stripes;
    *with = *plain;
    with->data_bytes = plain->data_bytes + plain->chunks * scale_bytes;
    with->index = static_cast<uint32_t *>(malloc(plain->chunks * 2 * sizeof *with->index));
    with->data = static_cast<uint8_t *>(calloc(with->data_bytes, 1));
    if (with->index == NULL || with->data == NULL) {
        return fail_memory(err);
    }
    size_t at = 0;
    for (size_t i = 0; i < plain->chunks; i++) {
        const size_t bytes = static_cast<size_t>(plain->index[2 * i + 1]) * ESPL_IEBME_DEVICE_UNIT;
        write_chunk_scales(l, i / depth, i % depth, reinterpret_cast<float *>(with->data + at));
        memcpy(with->data + at + scale_bytes,
               plain->data + static_cast<size_t>(plain->index[2 * i]) * ESPL_IEBME_DEVICE_UNIT,
               bytes);
        with->index[2 * i] = static_cast<uint32_t>(at / ESPL_IEBME_DEVICE_UNIT);
        with->index[2 * i + 1] =
            static_cast<uint32_t>((bytes + scale_bytes) / ESPL_IEBME_DEVICE_UNIT);
        at += bytes + scale_bytes;
    }
    return ESPL_OK;
}

enum espl_status create_sparse(struct layer *l, const int8_t *codes, size_t rows,
                               unsigned scale_bytes, struct espl_cuda_matrix **out,
                               struct espl_error *err)
{
    const struct espl_iebme_layout layout = {rows, l->layout.cols, 4, l->form->unit,
                                             ESPL_IEBME_SCOPE_NONE};
    struct espl_iebme_plan plan;
    struct espl_iebme_matrix matrix = {};
    struct espl_iebme_device plain = {};
    struct espl_iebme_device with = {};
    enum espl_status status = find_row_units(l, codes, rows, err);
    if (status == ESPL_OK) {
        status = espl_iebme_plan(codes, &layout, NULL, &plan, err);
    }
    if (status == ESPL_OK) {
        status = espl_iebme_encode(codes, NULL, &plan, &matrix, err);
    }
    if (status == ESPL_OK) {
        status = espl_iebme_device_encode(&matrix, l->form->unit, SPMM_SLICE, &plain, err);
    }
    if (status == ESPL_OK) {
        status = add_scales(l, &plain, scale_bytes, &with, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_matrix_create_iebme(&with, out, err);
    }
    free(with.index);
    free(with.data);
    espl_iebme_device_free(&plain);
    espl_iebme_matrix_free(&matrix);
    return status;
}

/* ---- dense ---- */

/* Vectors of the scales of a unit. */
size_t unit_vectors(const struct layer *l)
{
    const size_t pairs = ESPL_DENSE_UNIT_COLS / l->layout.step / 2;
    return pairs * SPMM_STRIPE / 2 / (rows_share(l) ? 2 : 1);
}

/* (stripes, depth, pairs of steps, rows g): row g in both steps, row g + 8 in both. */
void write_dense_scales(const struct layer *l, size_t depth, float *to)
{
    const size_t pairs = ESPL_DENSE_UNIT_COLS / l->layout.step / 2;
    const size_t skip = rows_share(l) ? 2 : 1;
    for (size_t unit = 0; unit < l->stripes * depth; unit++) {
        const size_t first = unit / depth * SPMM_STRIPE;
        for (size_t p = 0; p < pairs; p++) {
            const size_t step = 2 * (unit % depth * pairs + p);
            for (size_t g = first; g < first + SPMM_STRIPE / 2; g += skip) {
                *to++ = scale_of(l, g, step);
                *to++ = scale_of(l, g, step + 1);
                *to++ = scale_of(l, g + SPMM_STRIPE / 2, step);
                *to++ = scale_of(l, g + SPMM_STRIPE / 2, step + 1);
            }
        }
    }
}

enum espl_status create_dense(const struct layer *l, const int8_t *codes, size_t rows,
                              struct espl_cuda_matrix **out, struct espl_error *err)
{
    struct espl_dense_device device = {};
    enum espl_status status =
        espl_dense_device_encode(codes, rows, l->layout.cols, l->shape->weight_bits, &device, err);
    if (status == ESPL_OK) {
        status = espl_cuda_matrix_create_dense(&device, out, err);
    }
    espl_dense_device_free(&device);
    return status;
}

/* ---- what both have ---- */

/* (stripes, blocks, lanes, 4 registers, 4 bytes): lane 4 g + t has columns 8 t .. 8 t + 7 of a
 * block; registers: first four columns of row g, of row g + 8, last four of both. */
void write_outliers(const struct layer *l, uint8_t *to)
{
    const size_t outliers = l->shape->outliers;
    const size_t blocks = l->layout.outlier_blocks;
    for (size_t row = 0; row < l->stripes * SPMM_STRIPE; row++) {
        const size_t source = source_row(l, row);
        for (size_t c = 0; source < l->shape->out && c < outliers; c++) {
            const size_t lane = row % 8 * 4 + c % ATOM_BLOCK_COLS / 8;
            const size_t reg = row % SPMM_STRIPE / 8 + c % 8 / 4 * 2;
            const size_t block = row / SPMM_STRIPE * blocks + c / ATOM_BLOCK_COLS;
            to[block * ATOM_W_BLOCK_BYTES + lane * 16 + reg * 4 + c % 4] =
                static_cast<uint8_t>(l->outlier_codes[source * outliers + c]);
        }
    }
}

/* Offsets of the arrays, each at a multiple of 256. */
size_t reserve(size_t *total, size_t bytes)
{
    const size_t at = *total;
    *total += (bytes + 255) / 256 * 256;
    return at;
}

void plan_memory(const struct layer *l, size_t depth, struct spmm_atom *atom)
{
    const size_t rows = l->stripes * SPMM_STRIPE;
    const bool dense = l->form->unit == ESPL_IEBME_DENSE;
    size_t total = 0;
    atom->scales_at =
        reserve(&total, dense ? l->stripes * depth * unit_vectors(l) * sizeof(float4) : 0);
    atom->outliers_at = reserve(&total, l->stripes * l->layout.outlier_blocks * ATOM_W_BLOCK_BYTES);
    atom->outlier_scales_at = reserve(&total, l->layout.outlier_blocks > 0 ? rows * 4 : 0);
    atom->has_bias = l->bias != NULL;
    atom->bias_at = reserve(&total, atom->has_bias ? rows * sizeof(float) : 0);
    atom->has_row_of = l->orders != NULL || l->form->row_of != NULL;
    atom->row_of_at = reserve(&total, atom->has_row_of ? rows * sizeof(int32_t) : 0);
    atom->row_units_at = reserve(&total, dense ? 0 : rows * sizeof(float));
    atom->memory_bytes = total > 0 ? total : 256;
    atom->layout = l->layout;
    atom->rows = l->shape->out;
    atom->row_shift = rows_share(l) ? 1 : 0;
    atom->scale_bytes = dense ? 0 : sparse_scale_bytes(l);
}

void write_rows(const struct layer *l, const struct spmm_atom *atom, uint8_t *memory)
{
    float *outlier_scales = reinterpret_cast<float *>(memory + atom->outlier_scales_at);
    float *bias = reinterpret_cast<float *>(memory + atom->bias_at);
    int32_t *row_of = reinterpret_cast<int32_t *>(memory + atom->row_of_at);
    for (size_t row = 0; row < l->stripes * SPMM_STRIPE; row++) {
        const size_t source = source_row(l, row);
        const bool there = source < l->shape->out;
        if (l->layout.outlier_blocks > 0) {
            outlier_scales[row] = there ? l->outlier_scales[source] : 0.0F;
        }
        if (atom->has_bias) {
            bias[row] = there ? l->bias[source] : 0.0F;
        }
        if (atom->has_row_of) {
            const int32_t place =
                l->form->row_of != NULL && there ? l->form->row_of[source] : (int32_t)source;
            row_of[row] = there ? place : -1;
        }
    }
}

enum espl_status attach(const struct layer *l, struct espl_cuda_matrix *matrix,
                        struct espl_error *err)
{
    struct spmm_atom atom = {};
    plan_memory(l, matrix->depth, &atom);
    uint8_t *memory = static_cast<uint8_t *>(calloc(atom.memory_bytes, 1));
    if (memory == NULL) {
        return fail_memory(err);
    }
    if (l->form->unit == ESPL_IEBME_DENSE) {
        write_dense_scales(l, matrix->depth, reinterpret_cast<float *>(memory + atom.scales_at));
    }
    if (l->layout.outlier_blocks > 0) {
        write_outliers(l, memory + atom.outliers_at);
    }
    if (l->row_units != NULL) {
        memcpy(memory + atom.row_units_at, l->row_units,
               l->stripes * SPMM_STRIPE * sizeof *l->row_units);
    }
    write_rows(l, &atom, memory);
    atom.memory = memory;
    const enum espl_status status = atom_attach(matrix, &atom, cudaMemcpyHostToDevice, err);
    free(memory);
    return status;
}

enum espl_status check_row_of(const struct layer *l, struct espl_error *err)
{
    const size_t out = l->shape->out;
    uint8_t *seen = static_cast<uint8_t *>(calloc(out, 1));
    enum espl_status status = seen != NULL ? ESPL_OK : fail_memory(err);
    for (size_t i = 0; status == ESPL_OK && i < out; i++) {
        const int32_t place = l->form->row_of[i];
        if (place < 0 || static_cast<size_t>(place) >= out || seen[place] != 0) {
            status = espl_fail(err, ESPL_E_CORRUPT, "place %d of row %zu is not one of %zu rows",
                               place, i, out);
        } else {
            seen[place] = 1;
        }
    }
    free(seen);
    return status;
}

void set_layer(struct layer *l, const struct espl_quant_shape *shape, const float *scales,
               const int8_t *outlier_codes, const float *outlier_scales, const float *bias,
               const struct espl_cuda_atom_form *form)
{
    l->shape = shape;
    l->scales = scales;
    l->outlier_codes = outlier_codes;
    l->outlier_scales = outlier_scales;
    l->bias = bias;
    l->form = form;
}

enum espl_status check(struct layer *l, struct espl_error *err)
{
    const enum espl_iebme_areas unit = l->form->unit;
    enum espl_status status = atom_layout_of(l->shape, &l->layout, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (l->shape->weight_bits > 4 ||
        (unit != ESPL_IEBME_DENSE && unit != ESPL_IEBME_1X1 && unit != ESPL_IEBME_1X2 &&
         unit != ESPL_IEBME_2X1 && unit != ESPL_IEBME_2X2)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "the CUDA kernels do not take %u-bit weights in areas of %s",
                         l->shape->weight_bits, espl_iebme_areas_name(unit));
    }
    return l->form->row_of != NULL ? check_row_of(l, err) : ESPL_OK;
}

/* codes (out, normal). */
enum espl_status create(struct layer *l, const int8_t *codes, struct espl_cuda_matrix **out,
                        struct espl_error *err)
{
    int8_t *placed = NULL;
    struct espl_cuda_matrix *matrix = NULL;
    l->stripes = (l->shape->out + SPMM_STRIPE - 1) / SPMM_STRIPE;
    const size_t rows = l->orders != NULL ? l->stripes * SPMM_STRIPE : l->shape->out;
    enum espl_status status = place_codes(l, codes, rows, &placed, err);
    if (status == ESPL_OK) {
        status = l->form->unit == ESPL_IEBME_DENSE
                     ? create_dense(l, placed, rows, &matrix, err)
                     : create_sparse(l, placed, rows, sparse_scale_bytes(l), &matrix, err);
    }
    free(placed);
    if (status == ESPL_OK) {
        status = attach(l, matrix, err);
    }
    free(l->row_units);
    if (status != ESPL_OK) {
        espl_cuda_matrix_destroy(matrix);
        return status;
    }
    *out = matrix;
    return ESPL_OK;
}

} // namespace

extern "C" enum espl_status espl_cuda_matrix_create_atom(const struct espl_quant_shape *shape,
                                                         const struct espl_quant_weights *w,
                                                         const struct espl_cuda_atom_form *form,
                                                         struct espl_cuda_matrix **out,
                                                         struct espl_error *err)
{
    struct layer l = {};
    set_layer(&l, shape, w->scales, w->outlier_codes, w->outlier_scales, w->bias, form);
    enum espl_status status = check(&l, err);
    if (status != ESPL_OK) {
        return status;
    }
    const size_t normal = espl_quant_normal(shape);
    int8_t *codes = static_cast<int8_t *>(calloc(shape->out, normal));
    if (codes == NULL) {
        return fail_memory(err);
    }
    espl_codes_unpack(w->codes, shape->out, normal, shape->weight_bits, codes);
    status = create(&l, codes, out, err);
    free(codes);
    return status;
}

extern "C" enum espl_status espl_cuda_matrix_create_atom_iebme(
    const struct espl_quant_shape *shape, const struct espl_iebme_weights *w,
    const struct espl_cuda_atom_form *form, struct espl_cuda_matrix **out, struct espl_error *err)
{
    struct layer l = {};
    set_layer(&l, shape, w->scales, w->outlier_codes, w->outlier_scales, w->bias, form);
    if (w->codes->layout.scope == ESPL_IEBME_SCOPE_STRIPE) {
        l.orders = w->codes->orders;
    }
    enum espl_status status = check(&l, err);
    if (status == ESPL_OK) {
        status = espl_quant_encoded_check(shape, w, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    int8_t *codes = static_cast<int8_t *>(calloc(shape->out, espl_quant_normal(shape)));
    if (codes == NULL) {
        return fail_memory(err);
    }
    status = espl_iebme_decode(w->codes, codes, err);
    if (status == ESPL_OK) {
        status = create(&l, codes, out, err);
    }
    free(codes);
    return status;
}

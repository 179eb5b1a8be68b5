/* N:M weights on the device: which form they take, upload and copies. */
#include "espalier/cuda_memory.h"
#include "kernels/cuda/cuda_support.cuh"
#include "kernels/cuda/nm_stay.cuh"
#include "kernels/cuda/nm_wide.cuh"
#include "kernels/formats/nm_wide.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

namespace
{

enum { MOST_ELEMENT = 4 }; /* values of a window of 8 that the expansion takes */

/* How the device stores a packed matrix: M = 4 is M = 8 with twice the N, byte by byte. */
struct espl_nm_layout device_layout(const struct espl_nm_layout *packed)
{
    struct espl_nm_layout layout = *packed;
    if (packed->m == 4) {
        layout.n = 2 * packed->n;
        layout.m = 8;
    }
    if (layout.v < ESPL_NM_SHARED) {
        layout.v = 1;
    }
    if (layout.m == 16 || (layout.v == 1 && layout.n > MOST_ELEMENT)) {
        layout.m = 8;
        layout.n = 8;
    }
    if (layout.n == layout.m) {
        layout.v = 64;
    }
    return layout;
}

/* Whether the bytes are those of the packed matrix already. */
bool same_bytes(const struct espl_nm_layout *packed, const struct espl_nm_layout *layout)
{
    return packed->m != 16 && (packed->n == packed->m ||
                               (packed->v == layout->v && layout->n * packed->m == packed->n * 8));
}

/* *to <- device memory with a copy of `bytes` from `from`; nothing when there are none. */
enum espl_status copy_array(uint8_t **to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            struct espl_error *err)
{
    void *memory = NULL;
    *to = NULL;
    if (bytes == 0) {
        return ESPL_OK;
    }
    enum espl_status status = espl_cuda_alloc(bytes, &memory, err);
    if (status == ESPL_OK) {
        *to = static_cast<uint8_t *>(memory);
        status = espl_cuda_check(cudaMemcpy(memory, from, bytes, kind),
                                 "cannot copy weights to the device", err);
    }
    return status;
}

/* A matrix of the device from the arrays of `from`, on the host or the device. */
enum espl_status allocate(const struct espl_cuda_nm_matrix *from, cudaMemcpyKind kind,
                          struct espl_cuda_nm_matrix **out, struct espl_error *err)
{
    struct espl_cuda_nm_matrix *matrix =
        static_cast<struct espl_cuda_nm_matrix *>(malloc(sizeof *matrix));
    if (matrix == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a matrix of the device");
    }
    *matrix = *from;
    matrix->values = matrix->patterns = matrix->wide = NULL;
    enum espl_status status =
        copy_array(&matrix->values, from->values, from->value_bytes, kind, err);
    if (status == ESPL_OK) {
        status = copy_array(&matrix->patterns, from->patterns, from->pattern_bytes, kind, err);
    }
    if (status == ESPL_OK) {
        status = copy_array(&matrix->wide, from->wide, from->wide_bytes, kind, err);
    }
    if (status != ESPL_OK) {
        espl_cuda_nm_matrix_destroy(matrix);
        return status;
    }
    *out = matrix;
    return ESPL_OK;
}

/* The same weights packed in another layout that holds them. */
enum espl_status pack_again(const struct espl_nm_matrix *packed,
                            const struct espl_nm_layout *layout, struct espl_nm_matrix *changed,
                            struct espl_error *err)
{
    int8_t *codes = static_cast<int8_t *>(malloc(layout->rows * layout->cols));
    if (codes == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a matrix of %zu x %zu", layout->rows,
                         layout->cols);
    }
    enum espl_status status = espl_nm_decode(packed, codes, err);
    if (status == ESPL_OK) {
        status = espl_nm_encode(codes, layout, changed, err);
    }
    free(codes);
    return status;
}

/* facts->wide <- the order of the kernel for large products, on the host, where there is one. */
enum espl_status make_wide(const struct espl_nm_matrix *packed, struct espl_cuda_nm_matrix *facts,
                           struct espl_error *err)
{
    struct espl_nm_matrix doubled = {};
    struct espl_nm_layout layout = packed->layout;
    const struct espl_nm_matrix *from = packed;
    int major = 0;
    enum espl_status status = espl_cuda_attribute(cudaDevAttrComputeCapabilityMajor, &major, err);
    layout.n = layout.n == 1 ? 2 : layout.n;
    if (status != ESPL_OK || major != 9 || layout.rows % NM_WIDE_ROW_STEP != 0 ||
        !espl_nm_wide_exists(&layout)) {
        return status;
    }
    const bool stays = nm_stay_fits(layout.n, layout.v, facts->blocks);
    const size_t rows = stays ? ESPL_NM_STAY_ROWS : ESPL_NM_WIDE_ROWS;
    if (!stays && layout.v < NM_WIDE_LEAST_SHARED) {
        return ESPL_OK;
    }
    if (layout.n != packed->layout.n) { /* 1 of 8 is stored as 2 of 8 */
        status = pack_again(packed, &layout, &doubled, err);
        from = &doubled;
    }
    if (status == ESPL_OK) {
        status = espl_nm_wide_encode(from, rows, &facts->wide, &facts->wide_bytes, err);
    }
    facts->wide_registers = layout.n;
    facts->wide_rows = static_cast<unsigned>(rows);
    facts->wide_unit = static_cast<unsigned>(espl_nm_wide_unit(&layout, rows));
    espl_nm_free(&doubled);
    return status;
}

enum espl_status upload(const struct espl_nm_matrix *packed, struct espl_cuda_nm_matrix **out,
                        struct espl_error *err)
{
    struct espl_cuda_nm_matrix facts = {};
    struct espl_nm_sizes sizes;
    const struct espl_nm_layout *layout = &packed->layout;
    enum espl_status status = espl_nm_sizes_of(layout, &sizes, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (layout->rows > INT_MAX - ESPL_NM_STRIPE ||
        sizes.stripes > UINT_MAX / sizes.blocks) { /* units are counted in 32 bits */
        return espl_fail(err, ESPL_E_UNSUPPORTED, "a matrix of %zu x %zu is too large for CUDA",
                         layout->rows, layout->cols);
    }
    facts.form = layout->n == layout->m        ? ESPL_CUDA_NM_DENSE
                 : layout->v >= ESPL_NM_SHARED ? ESPL_CUDA_NM_COMPACT
                                               : ESPL_CUDA_NM_ELEMENT;
    facts.registers = static_cast<unsigned>(sizes.registers);
    while (ESPL_NM_STRIPE << facts.group < static_cast<int>(layout->v)) {
        facts.group++;
    }
    facts.rows = static_cast<unsigned>(layout->rows);
    facts.cols = static_cast<unsigned>(layout->cols);
    facts.stripes = static_cast<unsigned>(sizes.stripes);
    facts.blocks = static_cast<unsigned>(sizes.blocks);
    facts.value_bytes = packed->value_bytes;
    facts.pattern_bytes = packed->pattern_bytes;
    facts.values = packed->values; /* borrowed for the copy */
    facts.patterns = packed->patterns;
    status = make_wide(packed, &facts, err);
    if (status == ESPL_OK) {
        status = allocate(&facts, cudaMemcpyHostToDevice, out, err);
    }
    free(facts.wide);
    return status;
}

/* Packs again in the layout of the device. */
enum espl_status upload_changed(const struct espl_nm_matrix *packed,
                                const struct espl_nm_layout *layout,
                                struct espl_cuda_nm_matrix **out, struct espl_error *err)
{
    struct espl_nm_matrix changed = {};
    enum espl_status status = pack_again(packed, layout, &changed, err);
    if (status == ESPL_OK) {
        status = upload(&changed, out, err);
    }
    espl_nm_free(&changed);
    return status;
}

} // namespace

extern "C" enum espl_status espl_cuda_nm_matrix_create(const struct espl_nm_matrix *packed,
                                                       struct espl_cuda_nm_matrix **out,
                                                       struct espl_error *err)
{
    const enum espl_status status = espl_nm_check(packed, err);
    if (status != ESPL_OK) {
        return status;
    }
    const struct espl_nm_layout layout = device_layout(&packed->layout);
    if (!same_bytes(&packed->layout, &layout)) {
        return upload_changed(packed, &layout, out, err);
    }
    struct espl_nm_matrix same = *packed; /* borrows the arrays */
    same.layout = layout;
    return upload(&same, out, err);
}

extern "C" enum espl_status espl_cuda_nm_matrix_clone(const struct espl_cuda_nm_matrix *matrix,
                                                      struct espl_cuda_nm_matrix **out,
                                                      struct espl_error *err)
{
    return allocate(matrix, cudaMemcpyDeviceToDevice, out, err);
}

extern "C" void espl_cuda_nm_matrix_destroy(struct espl_cuda_nm_matrix *matrix)
{
    if (matrix == NULL) {
        return;
    }
    espl_cuda_free(matrix->values);
    espl_cuda_free(matrix->patterns);
    espl_cuda_free(matrix->wide);
    free(matrix);
}

extern "C" uint64_t espl_cuda_nm_matrix_bytes(const struct espl_cuda_nm_matrix *matrix)
{
    return matrix->value_bytes + matrix->pattern_bytes;
}

extern "C" enum espl_cuda_nm_form espl_cuda_nm_matrix_form(const struct espl_cuda_nm_matrix *matrix)
{
    return matrix->form;
}

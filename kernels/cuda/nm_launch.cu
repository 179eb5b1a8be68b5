/* Products with N:M weights: choosing, and launching one kernel. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/nm_stay.cuh"
#include "kernels/cuda/nm_wide.cuh"
#include "kernels/formats/nm_wide.h"

#include <limits.h>
#include <stdlib.h>

struct espl_cuda_nm {
    const struct espl_cuda_nm_matrix *matrix;
    size_t tokens;
    enum nm_large large; /* the kernel of large products, where operands are aligned for it */
    struct espl_cuda_nm_choice choice;
    const void *kernels[3]; /* by output mode */
    const void *large_kernels[3];
    unsigned multiprocessors;
    bool can_overlap;
};

namespace
{

enum { MOST_GRID_Y = 65535 };

unsigned char log2_of(unsigned power)
{
    unsigned char shift = 0;
    while (1u << shift < power) {
        shift++;
    }
    return shift;
}

/* Of the kernels' instances. */
unsigned mode_of(const struct espl_nm_epilogue *epilogue)
{
    if (epilogue->output == ESPL_NM_INT32) {
        return 0;
    }
    return epilogue->activation == ESPL_NM_LINEAR ? 1 : 2;
}

bool is_aligned(const void *pointer, size_t bytes)
{
    return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

dim3 grid_of(const struct espl_cuda_nm *nm, size_t tokens)
{
    const unsigned width = nm->choice.tile_rows / ESPL_NM_STRIPE * nm->choice.tiles;
    return dim3(
        static_cast<unsigned>((tokens + nm->choice.tile_tokens - 1) / nm->choice.tile_tokens),
        (nm->matrix->stripes + width - 1) / width);
}

enum espl_status check_operands(const struct espl_cuda_nm *nm,
                                const struct espl_cuda_nm_operands *operands,
                                struct espl_error *err)
{
    const struct espl_nm_epilogue *epilogue = &operands->epilogue;
    const struct espl_cuda_nm_matrix *matrix = nm->matrix;
    if (operands->tokens < 1 || operands->tokens > nm->tokens ||
        operands->x_stride < matrix->cols || operands->x_stride > UINT_MAX ||
        operands->y_stride < matrix->rows || operands->y_stride > UINT_MAX) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "%zu tokens in rows of %zu, outputs in rows of %zu do not fit a product "
                         "of %u x %u for up to %zu tokens",
                         operands->tokens, operands->x_stride, operands->y_stride, matrix->rows,
                         matrix->cols, nm->tokens);
    }
    if (!is_aligned(operands->x, ESPL_CUDA_NM_ALIGN) ||
        operands->x_stride % ESPL_CUDA_NM_ALIGN != 0 ||
        !is_aligned(operands->y, espl_nm_output_bytes(epilogue->output))) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "activations and their rows must start at multiples of %d bytes, outputs "
                         "at multiples of their size",
                         static_cast<int>(ESPL_CUDA_NM_ALIGN));
    }
    if (epilogue->output != ESPL_NM_INT32 && epilogue->row_scales == NULL) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "FP16 and INT8 outputs need a scale for each row");
    }
    return ESPL_OK;
}

struct nm_args make_args(const struct espl_cuda_nm *nm, const struct espl_cuda_nm_matrix *weights,
                         const struct espl_cuda_nm_operands *operands)
{
    const struct espl_nm_epilogue *epilogue = &operands->epilogue;
    struct nm_args args = {};
    args.values = weights->values;
    args.patterns = weights->patterns;
    args.x = operands->x;
    args.y = operands->y;
    args.row_scales = epilogue->row_scales;
    args.token_scales = epilogue->token_scales;
    args.bias = epilogue->bias;
    args.multiplier = epilogue->multiplier;
    args.x_stride = static_cast<unsigned>(operands->x_stride);
    args.y_stride = static_cast<unsigned>(operands->y_stride);
    args.rows = weights->rows;
    args.tokens = static_cast<unsigned>(operands->tokens);
    args.stripes = weights->stripes;
    args.blocks = weights->blocks;
    args.group = static_cast<unsigned char>(weights->group);
    args.split_shift = log2_of(nm->choice.splits);
    args.tile_shift = log2_of(nm->choice.tiles);
    args.whole = weights->rows % 4 == 0 && operands->y_stride % 4 == 0 &&
                 is_aligned(operands->y, 4 * espl_nm_output_bytes(epilogue->output));
    args.output = static_cast<unsigned char>(epilogue->output);
    args.activation = static_cast<unsigned char>(epilogue->activation);
    return args;
}

size_t large_shared_bytes(const struct espl_cuda_nm *nm, const struct espl_cuda_nm_matrix *matrix)
{
    return nm->large == NM_LARGE_STAY ? nm_stay_shared_bytes(matrix) : nm_wide_shared_bytes(matrix);
}

/* Kernels of the choice, and the room that they need. */
enum espl_status find_kernels(struct espl_cuda_nm *nm, struct espl_error *err)
{
    const struct espl_cuda_nm_matrix *matrix = nm->matrix;
    enum espl_status status = ESPL_OK;
    for (unsigned mode = 0; mode < 3; mode++) {
        nm->kernels[mode] = nm_kernel(matrix, nm->choice.tile_tokens / NM_TOKENS,
                                      nm->choice.tile_rows / ESPL_NM_STRIPE, mode);
    }
    for (unsigned mode = 0; nm->large != NM_NOT_LARGE && status == ESPL_OK && mode < 3; mode++) {
        nm->large_kernels[mode] = nm->large == NM_LARGE_STAY ? nm_stay_kernel_of(matrix, mode)
                                                             : nm_wide_kernel_of(matrix, mode);
        /* The limit is the kernel's, not the product's: another product of it must not lower it. */
        const size_t most = nm->large == NM_LARGE_STAY ? static_cast<size_t>(NM_STAY_MOST_SHARED)
                                                       : nm_wide_shared_bytes(matrix);
        status = espl_cuda_check(cudaFuncSetAttribute(nm->large_kernels[mode],
                                                      cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                      static_cast<int>(most)),
                                 "cannot prepare an N:M kernel", err);
    }
    return status;
}

/* What the caller or the rule wants. */
void choose(struct espl_cuda_nm *nm, const struct espl_cuda_nm_choice *wanted)
{
    nm->large = wanted == NULL ? nm_prefers_large(nm->matrix, nm->tokens, nm->multiprocessors)
                : nm_choice_exists(nm->matrix, wanted) ? nm_large_of(wanted)
                                                       : NM_NOT_LARGE;
    nm->choice = wanted != NULL && nm->large == NM_NOT_LARGE
                     ? *wanted
                     : nm_choose(nm->matrix, nm->tokens, nm->multiprocessors);
}

/* Whether outputs leave in whole pieces of 16 bytes. */
bool fits_wide(const struct espl_cuda_nm_operands *operands)
{
    return operands->y_stride % NM_WIDE_ROW_STEP == 0 && is_aligned(operands->y, NM_WIDE_ROW_STEP);
}

} // namespace

extern "C" enum espl_status espl_cuda_nm_create(const struct espl_cuda_nm_matrix *matrix,
                                                size_t tokens,
                                                const struct espl_cuda_nm_choice *wanted,
                                                struct espl_cuda_nm **out, struct espl_error *err)
{
    int multiprocessors = 0;
    bool can_overlap = false;
    enum espl_status status =
        espl_cuda_attribute(cudaDevAttrMultiProcessorCount, &multiprocessors, err);
    if (status == ESPL_OK) {
        status = espl_cuda_can_overlap(&can_overlap, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    struct espl_cuda_nm *nm = static_cast<struct espl_cuda_nm *>(calloc(1, sizeof *nm));
    if (nm == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a product on the device");
    }
    nm->matrix = matrix;
    nm->tokens = tokens;
    nm->multiprocessors = static_cast<unsigned>(multiprocessors);
    nm->can_overlap = can_overlap;
    choose(nm, wanted);
    if (tokens < 1 || tokens > INT_MAX / 2 || !nm_choice_exists(matrix, &nm->choice) ||
        grid_of(nm, tokens).y > MOST_GRID_Y) {
        status = espl_fail(err, ESPL_E_UNSUPPORTED,
                           "no N:M kernel for %u x %u, %zu tokens, tiles of %u x %u, %u splits, %u "
                           "tiles a block",
                           matrix->rows, matrix->cols, tokens, nm->choice.tile_tokens,
                           nm->choice.tile_rows, nm->choice.splits, nm->choice.tiles);
    } else {
        status = find_kernels(nm, err);
    }
    if (status != ESPL_OK) {
        free(nm);
        return status;
    }
    *out = nm;
    return ESPL_OK;
}

extern "C" void espl_cuda_nm_destroy(struct espl_cuda_nm *nm)
{
    free(nm);
}

extern "C" struct espl_cuda_nm_choice espl_cuda_nm_chosen(const struct espl_cuda_nm *nm)
{
    return nm->large != NM_NOT_LARGE ? nm_large_choice(nm->large) : nm->choice;
}

extern "C" enum espl_status espl_cuda_nm_run(const struct espl_cuda_nm *nm,
                                             const struct espl_cuda_nm_matrix *weights,
                                             const struct espl_cuda_nm_operands *operands,
                                             bool overlap, void *stream, struct espl_error *err)
{
    const enum espl_status status = check_operands(nm, operands, err);
    if (status != ESPL_OK) {
        return status;
    }
    const unsigned mode = mode_of(&operands->epilogue);
    const struct espl_cuda_nm_matrix *read = weights != NULL ? weights : nm->matrix;
    struct nm_args args = make_args(nm, read, operands);
    const void *kernel = nm->kernels[mode];
    cudaLaunchConfig_t config = {};
    if (nm->large != NM_NOT_LARGE && fits_wide(operands)) {
        const bool stays = nm->large == NM_LARGE_STAY;
        const size_t tile = nm_large_choice(nm->large).tile_tokens;
        const size_t tiles = (operands->tokens + tile - 1) / tile *
                             ((read->rows + read->wide_rows - 1) / read->wide_rows);
        args.values = read->wide;
        config.gridDim =
            dim3(tiles < nm->multiprocessors ? static_cast<unsigned>(tiles) : nm->multiprocessors);
        config.blockDim = dim3(stays ? unsigned{NM_STAY_THREADS} : unsigned{NM_WIDE_THREADS});
        config.dynamicSmemBytes = large_shared_bytes(nm, read);
        kernel = nm->large_kernels[mode];
    } else {
        config.gridDim = grid_of(nm, operands->tokens);
        config.blockDim = dim3(nm->choice.splits * nm->choice.tiles * NM_WARP);
        config.dynamicSmemBytes = nm_shared_bytes(&nm->choice, mode);
    }
    return espl_cuda_launch(kernel, config, &args, overlap && nm->can_overlap, stream,
                            "cannot launch an N:M kernel", err);
}

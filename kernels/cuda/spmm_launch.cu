/* A matrix made ready for products, and the launch of one. */
#include "espalier/cuda_memory.h"
#include "espalier/cuda_spmm.h"
#include "kernels/cuda/atom_args.cuh"
#include "kernels/cuda/atom_kernels.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/spmm_kernels.cuh"
#include "kernels/cuda/spmm_product.cuh"
#include "kernels/cuda/spmm_rule.cuh"

#include <stdlib.h>

namespace
{

/* Borders so that all parts have about the same bytes. */
void balance(const struct espl_cuda_matrix *matrix, unsigned parts, unsigned *bounds)
{
    const uint64_t *start = matrix->stripe_start;
    const uint64_t total = start[matrix->stripes];
    unsigned stripe = 0;
    bounds[0] = 0;
    for (unsigned p = 1; p < parts; p++) {
        const uint64_t target = total * p / parts;
        while (stripe < matrix->stripes && start[stripe] < target) {
            stripe++;
        }
        if (stripe > bounds[p - 1] && target - start[stripe - 1] < start[stripe] - target) {
            stripe--;
        }
        bounds[p] = stripe;
    }
    bounds[parts] = matrix->stripes;
}

/* Largest part in bytes when all parts have as many stripes, over what its stripes have on average.
 */
double even_imbalance(const struct espl_cuda_matrix *matrix, struct spmm_share even, unsigned parts)
{
    const uint64_t *start = matrix->stripe_start;
    uint64_t most = 0;
    unsigned first = 0;
    for (unsigned p = 0; p < parts; p++) {
        const unsigned end = first + even.each + (p < even.rest ? 1 : 0);
        most = start[end] - start[first] > most ? start[end] - start[first] : most;
        first = end;
    }
    const double average = static_cast<double>(start[matrix->stripes]) / matrix->stripes *
                           (even.each + (even.rest > 0 ? 1 : 0));
    return average > 0.0 ? static_cast<double>(most) / average : 1.0;
}

/* Even shares, unless bytes are spread unevenly over stripes. */
enum espl_status set_bounds(struct espl_cuda_spmm *spmm, struct espl_error *err)
{
    const double tolerated = 1.04;
    const unsigned parts = spmm->choice.parts;
    void *memory = NULL;
    if (even_imbalance(spmm->matrix, spmm->args.part_stripes, parts) <= tolerated) {
        return ESPL_OK;
    }
    unsigned *bounds = static_cast<unsigned *>(malloc((parts + 1) * sizeof *bounds));
    if (bounds == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a product on the device");
    }
    balance(spmm->matrix, parts, bounds);
    enum espl_status status = espl_cuda_alloc((parts + 1) * sizeof *bounds, &memory, err);
    if (status == ESPL_OK) {
        spmm->args.bounds = static_cast<const unsigned *>(memory);
        status = espl_cuda_upload(memory, bounds, (parts + 1) * sizeof *bounds, err);
    }
    free(bounds);
    return status;
}

struct spmm_share share(unsigned total, unsigned n)
{
    const struct spmm_share s = {total / n, total % n};
    return s;
}

void fill_args(struct espl_cuda_spmm *spmm)
{
    const struct espl_cuda_matrix *matrix = spmm->matrix;
    struct spmm_args *args = &spmm->args;
    args->rows = static_cast<unsigned>(matrix->rows);
    args->stripes = matrix->stripes;
    args->depth = matrix->depth;
    args->part_stripes = share(matrix->stripes, spmm->choice.parts);
    args->split_depth = share(matrix->depth, spmm->choice.splits);
    args->window = spmm->choice.window;
    args->window_rows = spmm->choice.warps / spmm->choice.window;
    args->tile_stripes = spmm_tile_stripes(matrix, spmm->tiles, spmm->choice.parts);
    args->stage_bytes = spmm_stage_bytes(matrix);
    args->stages = spmm->choice.stages;
}

/* Sums of splits: of integers one set, to which all add; of floats one a split. */
enum espl_status take_work_space(struct espl_cuda_spmm *spmm, struct espl_error *err)
{
    const size_t group = static_cast<size_t>(spmm->tiles) * SPMM_COLUMNS;
    const size_t groups = (spmm->tokens + group - 1) / group;
    const size_t sets = spmm->matrix->atom != NULL ? spmm->choice.splits : 1;
    const size_t sums = sets * groups * group * spmm->args.stripes * SPMM_STRIPE * sizeof(int32_t);
    const size_t counters = groups * spmm->args.stripes * sizeof(unsigned);
    void *memory = NULL;
    if (spmm->choice.splits == 1) {
        return ESPL_OK;
    }
    enum espl_status status = espl_cuda_alloc(sums + counters, &memory, err);
    if (status == ESPL_OK) {
        spmm->args.partial = static_cast<int32_t *>(memory);
        spmm->args.arrived = reinterpret_cast<unsigned *>(static_cast<uint8_t *>(memory) + sums);
        status = espl_cuda_fill(memory, 0, sums + counters, err);
    }
    return status;
}

/* Kernels compiled for 9.0 or later have bulk copies, those before an INT4 matrix instruction,
 * native or not. The kernel that the device was given says for which architecture it was. */
enum { HOPPER_VERSION = 90 };

enum espl_status look_at_kernel(const void *kernel, cudaFuncAttributes *facts,
                                struct espl_error *err)
{
    return espl_cuda_check(cudaFuncGetAttributes(facts, kernel), "cannot look at an SpMM kernel",
                           err);
}

enum espl_status check_int4(const struct espl_cuda_spmm *spmm, struct espl_error *err)
{
    const struct espl_cuda_matrix *matrix = spmm->matrix;
    cudaFuncAttributes facts;
    const char *what = matrix->atom != NULL               ? "those with scales"
                       : matrix->bits != 4                ? "those of 2 or 3 bits"
                       : matrix->unit == ESPL_IEBME_MIXED ? "those of mixed areas"
                                                          : NULL;
    if (what != NULL) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "the INT4 matrix instruction multiplies plain 4-bit weights, not %s",
                         what);
    }
    const enum espl_status status = look_at_kernel(spmm->kernel, &facts, err);
    if (status == ESPL_OK && facts.ptxVersion >= HOPPER_VERSION) {
        espl_fail(err, ESPL_E_UNSUPPORTED,
                  "no INT4 matrix instruction on a device of compute capability %d.%d",
                  facts.binaryVersion / 10, facts.binaryVersion % 10);
        return espl_hint(err, "compute capability 8.0 to 8.9 has it; choose INT8 or automatic");
    }
    return status;
}

enum espl_status check_producer(const struct espl_cuda_spmm *spmm, struct espl_error *err)
{
    const struct espl_cuda_matrix *matrix = spmm->matrix;
    const bool int4 = spmm->choice.instruction == ESPL_CUDA_INSTRUCTION_INT4;
    cudaFuncAttributes facts;
    const char *what = matrix->atom != NULL               ? "weights with scales"
                       : matrix->unit == ESPL_IEBME_DENSE ? "dense weights"
                       : matrix->unit == ESPL_IEBME_MIXED ? "mixed areas"
                       : int4                             ? "the INT4 matrix instruction"
                                                          : NULL;
    if (what != NULL) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "a producer warp is for plain sparse weights of one form, not for %s",
                         what);
    }
    const enum espl_status status = look_at_kernel(spmm->kernel, &facts, err);
    if (status == ESPL_OK && facts.ptxVersion < HOPPER_VERSION) {
        espl_fail(err, ESPL_E_UNSUPPORTED,
                  "no bulk copies for a producer warp on a device of compute capability %d.%d",
                  facts.binaryVersion / 10, facts.binaryVersion % 10);
        return espl_hint(err, "compute capability 9.0 and later has them; choose own or automatic");
    }
    return status;
}

/* Of 8.0 to 8.9 INT4 is the default: docs/kernels/spmm.md. */
void choose_instruction(struct espl_cuda_spmm *spmm, int major)
{
    enum { NATIVE_INT4_MAJOR = 8 };
    enum espl_cuda_instruction *chosen = &spmm->choice.instruction;
    if (*chosen == ESPL_CUDA_INSTRUCTION_AUTOMATIC) {
        const struct espl_cuda_matrix *matrix = spmm->matrix;
        const bool plain =
            matrix->atom == NULL && matrix->bits == 4 && matrix->unit != ESPL_IEBME_MIXED;
        const bool own = spmm->choice.pipeline == ESPL_CUDA_PIPELINE_OWN;
        *chosen = plain && own && major == NATIVE_INT4_MAJOR ? ESPL_CUDA_INSTRUCTION_INT4
                                                             : ESPL_CUDA_INSTRUCTION_INT8;
    }
}

/* Of what the checks above refuse, any. */
const void *chosen_kernel(const struct espl_cuda_spmm *spmm)
{
    const struct espl_cuda_matrix *matrix = spmm->matrix;
    const struct spmm_atom *atom = matrix->atom;
    const bool dense = matrix->unit == ESPL_IEBME_DENSE;
    const bool fine = atom != NULL && atom->layout.step == ATOM_FINE_STEP;
    const bool whole = spmm_is_whole(&spmm->args, spmm->choice.splits);
    if (spmm->choice.instruction == ESPL_CUDA_INSTRUCTION_INT4) {
        return dense ? spmm_dense_int4_kernel(spmm->tiles)
                     : spmm_sparse_int4_kernel(matrix->unit, spmm->tiles);
    }
    if (spmm->choice.pipeline == ESPL_CUDA_PIPELINE_PRODUCER) {
        return spmm_fed_sparse_kernel(matrix->unit, spmm->tiles, whole);
    }
    if (atom != NULL) {
        return dense ? atom_dense_kernel_of(matrix->bits, spmm->tiles, fine, whole)
                     : atom_sparse_kernel_of(matrix->unit, spmm->tiles, fine, whole);
    }
    return dense ? spmm_dense_kernel(matrix->bits, spmm->tiles, whole)
                 : spmm_sparse_kernel(matrix->unit, spmm->tiles, whole);
}

/* Lets a kernel ask for all there is: what a product needs is set at its launch, and products that
 * need less than others may share their kernel. */
enum espl_status allow_shared_memory(const void *kernel, struct espl_error *err)
{
    cudaFuncAttributes facts;
    int most = 0;
    enum espl_status status =
        espl_cuda_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, &most, err);
    if (status == ESPL_OK) {
        status = look_at_kernel(kernel, &facts, err);
    }
    return status == ESPL_OK
               ? espl_cuda_check(
                     cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          most - static_cast<int>(facts.sharedSizeBytes)),
                     "cannot prepare an SpMM kernel", err)
               : status;
}

enum espl_status prepare_kernel(struct espl_cuda_spmm *spmm, struct espl_error *err)
{
    const struct espl_cuda_spmm_choice *choice = &spmm->choice;
    int major = 0;
    enum espl_status status = espl_cuda_attribute(cudaDevAttrComputeCapabilityMajor, &major, err);
    if (status != ESPL_OK) {
        return status;
    }
    choose_instruction(spmm, major);
    spmm->kernel = chosen_kernel(spmm);
    spmm->warps =
        spmm->matrix->unit == ESPL_IEBME_DENSE ? choice->warps : static_cast<unsigned>(SPMM_WARPS);
    spmm->shared_bytes =
        spmm_shared_bytes(spmm->matrix, &spmm->args, spmm->tiles, choice->warps, choice->pipeline);
    spmm->can_overlap = major >= 9;
    if (choice->pipeline == ESPL_CUDA_PIPELINE_PRODUCER) {
        status = check_producer(spmm, err);
    } else if (choice->instruction == ESPL_CUDA_INSTRUCTION_INT4) {
        status = check_int4(spmm, err);
    }
    return status == ESPL_OK ? allow_shared_memory(spmm->kernel, err) : status;
}

} // namespace

extern "C" enum espl_status espl_cuda_spmm_create(const struct espl_cuda_matrix *matrix,
                                                  size_t tokens,
                                                  const struct espl_cuda_spmm_choice *wanted,
                                                  struct espl_cuda_spmm **out,
                                                  struct espl_error *err)
{
    struct spmm_device device;
    struct espl_cuda_spmm *spmm =
        static_cast<struct espl_cuda_spmm *>(calloc(1, sizeof(struct espl_cuda_spmm)));
    if (spmm == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a product on the device");
    }
    spmm->matrix = matrix;
    spmm->tokens = tokens;
    spmm->tiles = spmm_tiles(matrix, tokens);
    enum espl_status status = spmm_device_get(&device, err);
    if (status == ESPL_OK) {
        status = spmm_choose(matrix, tokens, &device, wanted, &spmm->choice,
                             &spmm->expected_seconds, err);
    }
    if (status == ESPL_OK) {
        spmm->choice.instruction =
            wanted != NULL ? wanted->instruction : ESPL_CUDA_INSTRUCTION_AUTOMATIC;
        spmm->choice.pipeline = wanted != NULL && wanted->pipeline == ESPL_CUDA_PIPELINE_PRODUCER
                                    ? ESPL_CUDA_PIPELINE_PRODUCER
                                    : ESPL_CUDA_PIPELINE_OWN;
        fill_args(spmm);
        status = set_bounds(spmm, err);
    }
    if (status == ESPL_OK) {
        status = prepare_kernel(spmm, err);
    }
    if (status == ESPL_OK) {
        status = take_work_space(spmm, err);
    }
    if (status != ESPL_OK) {
        espl_cuda_spmm_destroy(spmm);
        return status;
    }
    *out = spmm;
    return ESPL_OK;
}

extern "C" void espl_cuda_spmm_destroy(struct espl_cuda_spmm *spmm)
{
    if (spmm == NULL) {
        return;
    }
    espl_cuda_free(spmm->args.partial);
    espl_cuda_free(const_cast<unsigned *>(spmm->args.bounds));
    free(spmm);
}

extern "C" struct espl_cuda_spmm_choice espl_cuda_spmm_chosen(const struct espl_cuda_spmm *spmm)
{
    return spmm->choice;
}

extern "C" double espl_cuda_spmm_expected_seconds(const struct espl_cuda_spmm *spmm)
{
    return spmm->expected_seconds;
}

enum espl_status spmm_operands_check(const struct espl_cuda_spmm *spmm, const void *x,
                                     size_t y_stride, size_t tokens, struct espl_error *err)
{
    const struct espl_cuda_matrix *matrix = spmm->matrix;
    const size_t rows = matrix->atom != NULL ? matrix->atom->rows : matrix->rows;
    if (tokens == 0 || tokens > spmm->tokens || y_stride < rows ||
        reinterpret_cast<uintptr_t>(x) % ESPL_CUDA_SPMM_ALIGN != 0) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "operands of %zu tokens in rows of %zu do not fit a product of %zu x %zu "
                         "for up to %zu tokens",
                         tokens, y_stride, rows, matrix->cols, spmm->tokens);
    }
    return ESPL_OK;
}

enum espl_status spmm_launch(const struct espl_cuda_spmm *spmm, void *args, size_t tokens,
                             bool overlap, void *stream, struct espl_error *err)
{
    const size_t group = static_cast<size_t>(spmm->tiles) * SPMM_COLUMNS;
    const bool overlaps = overlap && spmm->can_overlap;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(spmm->choice.parts, static_cast<unsigned>((tokens + group - 1) / group),
                          spmm->choice.splits);
    config.blockDim = dim3(spmm->warps * SPMM_WARP);
    config.dynamicSmemBytes = spmm->shared_bytes;
    static_cast<struct spmm_args *>(args)->x_ready = overlaps ? 0 : 1;
    return espl_cuda_launch(spmm->kernel, config, args, overlaps, stream,
                            "cannot launch an SpMM kernel", err);
}

extern "C" enum espl_status espl_cuda_spmm_run(const struct espl_cuda_spmm *spmm,
                                               const struct espl_cuda_matrix *weights,
                                               const struct espl_cuda_spmm_operands *operands,
                                               bool overlap, void *stream, struct espl_error *err)
{
    const struct espl_cuda_matrix *matrix = weights != NULL ? weights : spmm->matrix;
    struct spmm_args args = spmm->args;
    const enum espl_status status =
        spmm_operands_check(spmm, operands->x, operands->y_stride, operands->tokens, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (matrix->atom != NULL) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "a layer with scales has no product of plain integers");
    }
    args.data = matrix->data;
    args.index = reinterpret_cast<const uint2 *>(matrix->index);
    args.x = operands->x;
    args.x_tile_bytes =
        static_cast<unsigned>(espl_cuda_activation_bytes(SPMM_COLUMNS, matrix->cols));
    args.y = operands->y;
    args.y_stride = static_cast<unsigned>(operands->y_stride);
    args.tokens = static_cast<unsigned>(operands->tokens);
    return spmm_launch(spmm, &args, operands->tokens, overlap, stream, err);
}

/* N:M products on CUDA devices in a build without CUDA: every call says so. With CUDA:
 * kernels/cuda.
 */
#include "espalier/cuda_nm.h"
#include "kernels/cuda_absent.h"

#ifndef ESPL_WITH_CUDA

enum espl_status espl_cuda_nm_matrix_create(const struct espl_nm_matrix *packed,
                                            struct espl_cuda_nm_matrix **out,
                                            struct espl_error *err)
{
    (void)packed;
    (void)out;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_nm_matrix_clone(const struct espl_cuda_nm_matrix *matrix,
                                           struct espl_cuda_nm_matrix **out, struct espl_error *err)
{
    (void)matrix;
    (void)out;
    return espl_cuda_fail_absent(err);
}

void espl_cuda_nm_matrix_destroy(struct espl_cuda_nm_matrix *matrix)
{
    (void)matrix;
}

uint64_t espl_cuda_nm_matrix_bytes(const struct espl_cuda_nm_matrix *matrix)
{
    (void)matrix;
    return 0;
}

enum espl_cuda_nm_form espl_cuda_nm_matrix_form(const struct espl_cuda_nm_matrix *matrix)
{
    (void)matrix;
    return ESPL_CUDA_NM_DENSE;
}

size_t espl_cuda_nm_choices(const struct espl_cuda_nm_matrix *matrix,
                            struct espl_cuda_nm_choice *choices, size_t most)
{
    (void)matrix;
    (void)choices;
    (void)most;
    return 0;
}

enum espl_status espl_cuda_nm_create(const struct espl_cuda_nm_matrix *matrix, size_t tokens,
                                     const struct espl_cuda_nm_choice *wanted,
                                     struct espl_cuda_nm **out, struct espl_error *err)
{
    (void)matrix;
    (void)tokens;
    (void)wanted;
    (void)out;
    return espl_cuda_fail_absent(err);
}

void espl_cuda_nm_destroy(struct espl_cuda_nm *nm)
{
    (void)nm;
}

struct espl_cuda_nm_choice espl_cuda_nm_chosen(const struct espl_cuda_nm *nm)
{
    const struct espl_cuda_nm_choice nothing = {0, 0, 0, 0};
    (void)nm;
    return nothing;
}

enum espl_status espl_cuda_nm_run(const struct espl_cuda_nm *nm,
                                  const struct espl_cuda_nm_matrix *weights,
                                  const struct espl_cuda_nm_operands *operands, bool overlap,
                                  void *stream, struct espl_error *err)
{
    (void)nm;
    (void)weights;
    (void)operands;
    (void)overlap;
    (void)stream;
    return espl_cuda_fail_absent(err);
}
#endif

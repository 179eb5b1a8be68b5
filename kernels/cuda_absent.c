/* The CUDA products of a build without CUDA: every call says so. With CUDA: kernels/cuda. */
#include "kernels/cuda_absent.h"
#include "espalier/cuda_atom.h"
#include "espalier/cuda_memory.h"
#include "espalier/cuda_spmm.h"
#include "espalier/cuda_timing.h"

#ifndef ESPL_WITH_CUDA

enum espl_status espl_cuda_fail_absent(struct espl_error *err)
{
    espl_fail(err, ESPL_E_UNSUPPORTED, "this program was built without CUDA");
    return espl_hint(err, "build with -DWITH_CUDA=ON on a machine that has nvcc");
}

enum espl_status espl_cuda_alloc(size_t bytes, void **device, struct espl_error *err)
{
    (void)bytes;
    (void)device;
    return espl_cuda_fail_absent(err);
}

void espl_cuda_free(void *device)
{
    (void)device;
}

enum espl_status espl_cuda_upload(void *device, const void *host, size_t bytes,
                                  struct espl_error *err)
{
    (void)device;
    (void)host;
    (void)bytes;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_download(void *host, const void *device, size_t bytes,
                                    struct espl_error *err)
{
    (void)host;
    (void)device;
    (void)bytes;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_copy(void *to, const void *from, size_t bytes, struct espl_error *err)
{
    (void)to;
    (void)from;
    (void)bytes;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_fill(void *device, int value, size_t bytes, struct espl_error *err)
{
    (void)device;
    (void)value;
    (void)bytes;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_synchronize(struct espl_error *err)
{
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_matrix_create_iebme(const struct espl_iebme_device *layout,
                                               struct espl_cuda_matrix **out,
                                               struct espl_error *err)
{
    (void)layout;
    (void)out;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_matrix_create_dense(const struct espl_dense_device *layout,
                                               struct espl_cuda_matrix **out,
                                               struct espl_error *err)
{
    (void)layout;
    (void)out;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_matrix_clone(const struct espl_cuda_matrix *matrix,
                                        struct espl_cuda_matrix **out, struct espl_error *err)
{
    (void)matrix;
    (void)out;
    return espl_cuda_fail_absent(err);
}

void espl_cuda_matrix_destroy(struct espl_cuda_matrix *matrix)
{
    (void)matrix;
}

uint64_t espl_cuda_matrix_bytes(const struct espl_cuda_matrix *matrix)
{
    (void)matrix;
    return 0;
}

enum espl_status espl_cuda_pack_activations(const int8_t *codes, size_t tokens, size_t cols,
                                            uint8_t *x, void *stream, struct espl_error *err)
{
    (void)codes;
    (void)tokens;
    (void)cols;
    (void)x;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_spmm_create(const struct espl_cuda_matrix *matrix, size_t tokens,
                                       const struct espl_cuda_spmm_choice *wanted,
                                       struct espl_cuda_spmm **out, struct espl_error *err)
{
    (void)matrix;
    (void)tokens;
    (void)wanted;
    (void)out;
    return espl_cuda_fail_absent(err);
}

void espl_cuda_spmm_destroy(struct espl_cuda_spmm *spmm)
{
    (void)spmm;
}

struct espl_cuda_spmm_choice espl_cuda_spmm_chosen(const struct espl_cuda_spmm *spmm)
{
    const struct espl_cuda_spmm_choice nothing = {.warps = 0};
    (void)spmm;
    return nothing;
}

double espl_cuda_spmm_expected_seconds(const struct espl_cuda_spmm *spmm)
{
    (void)spmm;
    return 0.0;
}

enum espl_status espl_cuda_spmm_run(const struct espl_cuda_spmm *spmm,
                                    const struct espl_cuda_matrix *weights,
                                    const struct espl_cuda_spmm_operands *operands, bool overlap,
                                    void *stream, struct espl_error *err)
{
    (void)spmm;
    (void)weights;
    (void)operands;
    (void)overlap;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_matrix_create_atom(const struct espl_quant_shape *shape,
                                              const struct espl_quant_weights *w,
                                              const struct espl_cuda_atom_form *form,
                                              struct espl_cuda_matrix **out, struct espl_error *err)
{
    (void)shape;
    (void)w;
    (void)form;
    (void)out;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_matrix_create_atom_iebme(const struct espl_quant_shape *shape,
                                                    const struct espl_iebme_weights *w,
                                                    const struct espl_cuda_atom_form *form,
                                                    struct espl_cuda_matrix **out,
                                                    struct espl_error *err)
{
    (void)shape;
    (void)w;
    (void)form;
    (void)out;
    return espl_cuda_fail_absent(err);
}

size_t espl_cuda_atom_activation_bytes(const struct espl_quant_shape *shape, size_t tokens)
{
    (void)shape;
    (void)tokens;
    return 0;
}

enum espl_status espl_cuda_quantize_activations(const struct espl_quant_shape *shape,
                                                const struct espl_cuda_quantize *operands,
                                                void *stream, struct espl_error *err)
{
    (void)shape;
    (void)operands;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_quantize_check(const struct espl_quant_shape *shape,
                                          const uint64_t *nonfinite, struct espl_error *err)
{
    (void)shape;
    (void)nonfinite;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_atom_run(const struct espl_cuda_spmm *spmm,
                                    const struct espl_cuda_matrix *weights,
                                    const struct espl_cuda_atom_operands *operands, bool overlap,
                                    void *stream, struct espl_error *err)
{
    (void)spmm;
    (void)weights;
    (void)operands;
    (void)overlap;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_time_launches(const struct espl_cuda_subject *subject,
                                         const struct espl_cuda_timing_options *options,
                                         struct espl_cuda_time *time, struct espl_error *err)
{
    (void)subject;
    (void)options;
    (void)time;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_copy_bandwidth(size_t bytes, double *bytes_a_second,
                                          struct espl_error *err)
{
    (void)bytes;
    (void)bytes_a_second;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_cache_bytes(size_t *bytes, struct espl_error *err)
{
    (void)bytes;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_free_bytes(uint64_t *bytes, struct espl_error *err)
{
    (void)bytes;
    return espl_cuda_fail_absent(err);
}

#endif

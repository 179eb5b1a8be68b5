/* What a decoder needs on a CUDA device, in a build without CUDA: every call says so. With CUDA:
 * kernels/cuda.
 */
#include "espalier/cuda_decode.h"
#include "kernels/cuda_absent.h"

#ifndef ESPL_WITH_CUDA

enum espl_status espl_cuda_norm_input(const struct espl_cuda_norm *norm,
                                      const struct espl_cuda_input *input, bool overlap,
                                      void *stream, struct espl_error *err)
{
    (void)norm;
    (void)input;
    (void)overlap;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_activation_input(const struct espl_cuda_activation *activation,
                                            const struct espl_cuda_input *input, bool overlap,
                                            void *stream, struct espl_error *err)
{
    (void)activation;
    (void)input;
    (void)overlap;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_embed(const struct espl_cuda_embed *embed, bool overlap, void *stream,
                                 struct espl_error *err)
{
    (void)embed;
    (void)overlap;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

size_t espl_cuda_attention_bytes(const struct espl_cuda_attention *attention)
{
    (void)attention;
    return 0;
}

enum espl_status espl_cuda_attend(const struct espl_cuda_attention *attention, bool overlap,
                                  void *stream, struct espl_error *err)
{
    (void)attention;
    (void)overlap;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_greedy(const struct espl_cuda_greedy *greedy, bool overlap, void *stream,
                                  struct espl_error *err)
{
    (void)greedy;
    (void)overlap;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

#endif

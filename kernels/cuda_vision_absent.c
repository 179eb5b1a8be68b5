/* Operations of image models in a build without CUDA: every call says so. With CUDA: kernels/cuda.
 */
#include "espalier/cuda_vision.h"
#include "kernels/cuda_absent.h"

#ifndef ESPL_WITH_CUDA

enum espl_status espl_cuda_vision_cut(const struct espl_cuda_vision_patches *patches, void *stream,
                                      struct espl_error *err)
{
    (void)patches;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_vision_join(const struct espl_cuda_vision_tokens *tokens, void *stream,
                                       struct espl_error *err)
{
    (void)tokens;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_vision_normalise(const struct espl_cuda_vision_norm *norm, void *stream,
                                            struct espl_error *err)
{
    (void)norm;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_vision_quantise(const uint16_t *x, size_t rows, size_t width, bool gelu,
                                           const struct espl_cuda_vision_codes *codes, void *stream,
                                           struct espl_error *err)
{
    (void)x;
    (void)rows;
    (void)width;
    (void)gelu;
    (void)codes;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_vision_scale(const struct espl_cuda_vision_sums *sums, void *stream,
                                        struct espl_error *err)
{
    (void)sums;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_vision_finish(uint16_t *x, size_t rows, size_t width, const float *bias,
                                         bool gelu, void *stream, struct espl_error *err)
{
    (void)x;
    (void)rows;
    (void)width;
    (void)bias;
    (void)gelu;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_vision_attend(const struct espl_cuda_vision_attention *attention,
                                         void *stream, struct espl_error *err)
{
    (void)attention;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_vision_pool(const float *x, size_t images, size_t cells, size_t width,
                                       float *pooled, void *stream, struct espl_error *err)
{
    (void)x;
    (void)images;
    (void)cells;
    (void)width;
    (void)pooled;
    (void)stream;
    return espl_cuda_fail_absent(err);
}

enum espl_status espl_cuda_vision_classify(const struct espl_cuda_vision_heads *heads, void *stream,
                                           struct espl_error *err)
{
    (void)heads;
    (void)stream;
    return espl_cuda_fail_absent(err);
}
#endif

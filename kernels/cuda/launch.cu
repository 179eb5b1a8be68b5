#include "kernels/cuda/launch.cuh"

enum espl_status espl_cuda_can_overlap(bool *can, struct espl_error *err)
{
    constexpr int FIRST_MAJOR = 9;
    int major = 0;
    const enum espl_status status =
        espl_cuda_attribute(cudaDevAttrComputeCapabilityMajor, &major, err);
    *can = major >= FIRST_MAJOR;
    return status;
}

enum espl_status espl_cuda_launch(const void *kernel, cudaLaunchConfig_t config, const void *args,
                                  bool overlap, void *stream, const char *what,
                                  struct espl_error *err)
{
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &attribute;
    config.numAttrs = overlap ? 1 : 0;
    void *parameters[] = {const_cast<void *>(args)};
    return espl_cuda_check(cudaLaunchKernelExC(&config, kernel, parameters), what, err);
}

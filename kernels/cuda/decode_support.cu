/* Launches, and checks of where the input of linears goes to. */
#include "kernels/cuda/decode_support.cuh"

#include "kernels/cuda/launch.cuh"

enum espl_status decode_launch(const void *kernel, dim3 grid, unsigned threads, size_t shared_bytes,
                               void *args, bool overlap, void *stream, struct espl_error *err)
{
    constexpr size_t ALWAYS_THERE = 48 << 10;
    bool can_overlap = false;
    enum espl_status status = espl_cuda_can_overlap(&can_overlap, err);
    if (status == ESPL_OK && shared_bytes > ALWAYS_THERE) {
        status = espl_cuda_check(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared_bytes)),
            "a decoder's kernel needs more shared memory than the device has", err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    return espl_cuda_launch(kernel, config, args, overlap && can_overlap, stream,
                            "cannot launch a decoder's kernel", err);
}

enum espl_status decode_sink_of(const struct espl_cuda_input *input, size_t tokens, size_t width,
                                struct decode_sink *sink, struct espl_error *err)
{
    if (tokens == 0 || tokens > QUANTISE_MOST_TOKENS || width == 0 ||
        width > ESPL_QUANT_MOST_COLUMNS) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "cannot make an input of %zu tokens of %zu",
                         tokens, width);
    }
    *sink = {};
    sink->form = input->form;
    sink->values = input->values;
    sink->scales = input->scales;
    if (input->form != ESPL_CUDA_INPUT_ATOM) {
        return ESPL_OK;
    }
    struct espl_quant_shape shape = *input->shape;
    shape.tokens = tokens;
    if (shape.in != width) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "a linear of %zu channels cannot read %zu",
                         shape.in, width);
    }
    return quantise_target_of(&shape, input->order, input->clip, input->values, input->nonfinite,
                              &sink->target, err);
}

bool decode_is_plain(const struct espl_cuda_results *results)
{
    return results->row_scales == NULL && results->bias == NULL;
}

size_t decode_sink_tokens(const struct decode_sink *sink, size_t tokens)
{
    return sink->form == ESPL_CUDA_INPUT_ATOM ? quantise_filled_tokens(tokens) : tokens;
}

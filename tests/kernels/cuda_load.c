/* Stores to memory in a stream that waits for no other. Without CUDA nothing: no test gets there.
 */
#include "kernels/cuda_load.h"

#include "espalier/cuda_memory.h"
#include "kernels/cuda_device.h"

#ifdef ESPL_WITH_CUDA
#include <cuda_runtime_api.h>

void cuda_load_open(struct cuda_load *load)
{
    struct espl_error err;
    cudaStream_t stream = NULL;
    load->bytes = (size_t)96 << 20; /* more than caches hold, some tens of microseconds */
    cuda_check(espl_cuda_alloc(load->bytes, &load->memory, &err), &err);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    load->stream = stream;
}

void cuda_load_store(struct cuda_load *load)
{
    assert_int_equal(cudaMemsetAsync(load->memory, 0xA5, load->bytes, load->stream), cudaSuccess);
}

void cuda_load_close(struct cuda_load *load)
{
    assert_int_equal(cudaStreamSynchronize(load->stream), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(load->stream), cudaSuccess);
    espl_cuda_free(load->memory);
}

#else

void cuda_load_open(struct cuda_load *load)
{
    *load = (struct cuda_load){.memory = NULL};
}

void cuda_load_store(struct cuda_load *load)
{
    (void)load;
}

void cuda_load_close(struct cuda_load *load)
{
    (void)load;
}

#endif

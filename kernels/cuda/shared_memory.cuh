/* Pieces of device code that all kernels share: reading shared memory and waiting for it. */
#ifndef ESPL_CUDA_SHARED_MEMORY_CUH
#define ESPL_CUDA_SHARED_MEMORY_CUH

#ifdef __CUDACC__

/* Sixteen bytes; the address is a multiple of 16. */
__device__ __forceinline__ uint4 load_quad(unsigned shared_address)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(shared_address));
    return v;
}

/* The phase of an mbarrier with this parity has ended. */
__device__ __forceinline__ bool phase_ended(unsigned barrier, unsigned parity)
{
    unsigned ended;
    asm volatile("{\n .reg .pred p;\n"
                 " mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 " selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(ended)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return ended != 0;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
/* Waits until the phase of an mbarrier with this parity has ended. */
__device__ __forceinline__ void wait_parity(unsigned barrier, unsigned parity)
{
    unsigned done = 0;
    while (done == 0) {
        asm volatile("{\n .reg .pred p;\n"
                     " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     " selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    }
}
#endif

#endif

#endif

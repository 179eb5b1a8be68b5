/* Arrays on a CUDA device for tests of its kernels. */
#ifndef ESPL_TESTS_CUDA_ARRAYS_H
#define ESPL_TESTS_CUDA_ARRAYS_H

#include <stddef.h>
#include <stdint.h>

/** Device memory with a copy of host; host NULL: zeros. Freed by espl_cuda_free(). */
void *cuda_array(const void *host, size_t bytes);
/** A copy of device memory, malloc'ed. Waits for the device. */
void *cuda_fetch(const void *device, size_t bytes);
/** The value of an FP16 word. */
float cuda_float_of_half(uint16_t half);

#endif

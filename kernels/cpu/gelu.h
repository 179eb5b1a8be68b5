/* GELU of a run of values, for the op and for the linear layer that ends in it. */
#ifndef ESPL_KERNELS_CPU_GELU_H
#define ESPL_KERNELS_CPU_GELU_H

#include <stddef.h>

/** x <- gelu(x), exact (erf), by the calling thread. */
void espl_gelu_run(float *x, size_t count);

#endif

/* NVIDIA's libraries of products, looked for at run time. */
#ifndef ESPL_KERNELS_CUDA_LIBRARY_H
#define ESPL_KERNELS_CUDA_LIBRARY_H

#include "core/error.h"

#include <stddef.h>

struct espl_cuda_symbol {
    const char *name;
    void *function; /* address of a function pointer of the right type */
};

/** *library <- lib<name> of CUDA 13, 12 or any, for dlclose(), also after an error; the pointers of
 *  `count` symbols are set. title: what messages call it. Errors: UNSUPPORTED (not on this machine,
 *  or without a symbol). */
enum espl_status espl_cuda_library_open(const char *name, const char *title,
                                        const struct espl_cuda_symbol *symbols, size_t count,
                                        void **library, struct espl_error *err);

#endif

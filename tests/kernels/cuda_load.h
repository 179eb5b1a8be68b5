/* Work for a CUDA device beside what a test looks at. */
#ifndef TESTS_CUDA_LOAD_H
#define TESTS_CUDA_LOAD_H

#include <stddef.h>

/* A stream of its own and memory to store to. */
struct cuda_load {
    void *memory;
    void *stream;
    size_t bytes;
};

/* Stops the test when it cannot be had. */
void cuda_load_open(struct cuda_load *load);
/* Fills the memory once more, after what was asked before; does not wait. */
void cuda_load_store(struct cuda_load *load);
void cuda_load_close(struct cuda_load *load);

#endif

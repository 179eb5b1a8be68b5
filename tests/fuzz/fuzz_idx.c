/* libFuzzer target: idx files are untrusted input. */
#include "datasets/image_idx.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct espl_idx idx;
    /* An exact copy, so that a read behind the end is seen. */
    uint8_t *bytes = malloc(size == 0 ? 1 : size);
    if (bytes == NULL) {
        return 0;
    }
    memcpy(bytes, data, size);
    if (espl_idx_parse(bytes, size, &idx, NULL) == ESPL_OK) {
        size_t count = 1;
        for (unsigned d = 0; d < idx.rank; d++) {
            count *= (size_t)idx.shape[d];
        }
        if (idx.values < bytes || count != size - (size_t)(idx.values - bytes)) {
            abort(); /* what was accepted must be all there */
        }
    }
    free(bytes);
    return 0;
}

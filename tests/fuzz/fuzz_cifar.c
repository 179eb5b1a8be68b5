/* libFuzzer target: binary files of CIFAR-10. What is accepted has as many pixels and labels as the
 * file's length says, and no label that a model's ten classes do not have. */
#include "datasets/image_cifar.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t count = 0;
    if (espl_cifar_count(size, &count, NULL) != ESPL_OK) {
        return 0;
    }
    /* Exact sizes, so that an access behind an end is seen. */
    uint8_t *const bytes = malloc(size);
    uint8_t *const pixels = malloc(count * ESPL_CIFAR_PIXELS);
    uint8_t *const labels = malloc(count);
    if (bytes != NULL && pixels != NULL && labels != NULL) {
        memcpy(bytes, data, size);
        const enum espl_status status = espl_cifar_split(bytes, count, pixels, labels, NULL);
        for (size_t i = 0; status == ESPL_OK && i < count; i++) {
            if (labels[i] >= ESPL_CIFAR_CLASSES) {
                abort();
            }
        }
    }
    free(bytes);
    free(pixels);
    free(labels);
    return 0;
}

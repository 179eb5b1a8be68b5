#include "datasets/image_cifar.h"

#include "datasets/text.h"

#include <stdlib.h>

enum espl_status espl_cifar_count(size_t len, size_t *count, struct espl_error *err)
{
    *count = len / ESPL_CIFAR_RECORD;
    if (len == 0 || len % ESPL_CIFAR_RECORD != 0) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "its %zu bytes are not records of %d (a label and 32 x 32 x 3 pixels)",
                         len, (int)ESPL_CIFAR_RECORD);
    }
    return ESPL_OK;
}

enum espl_status espl_cifar_split(const uint8_t *bytes, size_t count, uint8_t *pixels,
                                  uint8_t *labels, struct espl_error *err)
{
    const size_t plane = (size_t)ESPL_CIFAR_SIDE * ESPL_CIFAR_SIDE;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *const record = bytes + i * ESPL_CIFAR_RECORD;
        uint8_t *const to = pixels + i * ESPL_CIFAR_PIXELS;
        if (record[0] >= ESPL_CIFAR_CLASSES) {
            return espl_fail(err, ESPL_E_CORRUPT, "label %u of record %zu is not below %d",
                             record[0], i, (int)ESPL_CIFAR_CLASSES);
        }
        labels[i] = record[0];
        for (size_t p = 0; p < plane; p++) {
            for (size_t c = 0; c < ESPL_CIFAR_CHANNELS; c++) {
                to[p * ESPL_CIFAR_CHANNELS + c] = record[1 + c * plane + p];
            }
        }
    }
    return ESPL_OK;
}

enum espl_status espl_cifar_read(const char *path, size_t limit, uint8_t **pixels, uint8_t **labels,
                                 size_t *count, struct espl_error *err)
{
    char *bytes = NULL;
    size_t len = 0;
    *pixels = NULL;
    *labels = NULL;
    enum espl_status status = espl_text_read(path, limit, &bytes, &len, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_cifar_count(len, count, err);
    if (status == ESPL_OK) {
        *pixels = malloc(*count * ESPL_CIFAR_PIXELS);
        *labels = malloc(*count);
        status = *pixels != NULL && *labels != NULL
                     ? espl_cifar_split((const uint8_t *)bytes, *count, *pixels, *labels, err)
                     : espl_fail(err, ESPL_E_NOMEM, "no memory for %zu pictures", *count);
    }
    free(bytes);
    if (status != ESPL_OK) {
        free(*pixels);
        free(*labels);
        *pixels = NULL;
        *labels = NULL;
        return espl_context(err, "while reading '%s'", path);
    }
    return ESPL_OK;
}

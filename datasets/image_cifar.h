/* The binary files of CIFAR-10: records of a label byte and 32 x 32 pixels, first all of red, then
 * green, then blue. No header. Untrusted input. */
#ifndef ESPL_DATASETS_IMAGE_CIFAR_H
#define ESPL_DATASETS_IMAGE_CIFAR_H

#include "core/error.h"

#include <stddef.h>
#include <stdint.h>

enum {
    ESPL_CIFAR_SIDE = 32,
    ESPL_CIFAR_CHANNELS = 3,
    ESPL_CIFAR_CLASSES = 10,
    ESPL_CIFAR_PIXELS = ESPL_CIFAR_SIDE * ESPL_CIFAR_SIDE * ESPL_CIFAR_CHANNELS, /* bytes */
    ESPL_CIFAR_RECORD = 1 + ESPL_CIFAR_PIXELS
};

/** Records in a file of `len` bytes. Errors: CORRUPT when it is empty or not a whole number of
 *  them. */
enum espl_status espl_cifar_count(size_t len, size_t *count, struct espl_error *err);
/** pixels (count, 32, 32, 3) and labels (count) <- the records. Errors: CORRUPT naming the first
 *  record whose label is not below 10. */
enum espl_status espl_cifar_split(const uint8_t *bytes, size_t count, uint8_t *pixels,
                                  uint8_t *labels, struct espl_error *err);
/** Reads a file (.gz, .xz, .bz2, .zst are decompressed, at most `limit` bytes). *pixels, *labels:
 *  malloc'ed, owned by the caller. Errors name the file. */
enum espl_status espl_cifar_read(const char *path, size_t limit, uint8_t **pixels, uint8_t **labels,
                                 size_t *count, struct espl_error *err);

#endif

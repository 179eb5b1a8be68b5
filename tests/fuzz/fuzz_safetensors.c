/* libFuzzer target: safetensors headers and indexes are untrusted input. The first byte chooses the
 * parser and how much data the file claims to have behind the header. */
#include "core/fs.h"
#include "model/safetensors.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What a header that was accepted promises its users. */
static void check_header(const struct espl_safetensor *tensors, size_t count, uint64_t file_bytes)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const struct espl_safetensor *tensor = &tensors[i];
        uint64_t elements = espl_dtype_size(tensor->dtype);
        for (unsigned d = 0; d < tensor->rank; d++) {
            elements *= tensor->shape[d];
        }
        if (tensor->name[0] == '\0' || tensor->rank > ESPL_MAX_RANK || elements != tensor->bytes ||
            tensor->offset > file_bytes || tensor->bytes > file_bytes - tensor->offset ||
            (i > 0 && strcmp(tensors[i - 1].name, tensor->name) >= 0)) {
            abort();
        }
        bytes += tensor->bytes;
    }
    if (bytes > file_bytes) {
        abort(); /* tensors without overlap cannot hold more than the file */
    }
}

static void check_files(char *const *files, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strchr(files[i], '/') != NULL || files[i][0] == '.' ||
            (i > 0 && strcmp(files[i - 1], files[i]) >= 0)) {
            abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct espl_error err;
    struct espl_safetensor *tensors = NULL;
    json_t *map = NULL;
    char **files = NULL;
    size_t count = 0;

    if (size < 1) {
        return 0;
    }
    const uint8_t choice = data[0];
    const size_t len = size - 1;
    /* An exact copy, so that a read behind the end is seen. */
    uint8_t *text = malloc(len == 0 ? 1 : len);
    if (text == NULL) {
        return 0;
    }
    memcpy(text, data + 1, len);
    if (choice == 'i') {
        if (espl_safetensors_parse_index(text, len, &map, &files, &count, &err) == ESPL_OK) {
            check_files(files, count);
            espl_fs_free_names(files, count);
            json_decref(map);
        }
    } else {
        const uint64_t file_bytes = 8 + (uint64_t)len + choice;
        if (espl_safetensors_parse_header(text, len, file_bytes, &tensors, &count, &err) ==
            ESPL_OK) {
            check_header(tensors, count, file_bytes);
            free(tensors);
        }
    }
    free(text);
    return 0;
}

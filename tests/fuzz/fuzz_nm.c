/* libFuzzer target: a packed N:M matrix whose layout, array sizes and arrays come from the input.
 * What is accepted must decode to codes that share their patterns as it says, and that encode and
 * decode again to themselves. Input: 8 bytes of head, then patterns and values. */
#include "espalier/nm_pack.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An exact copy, so that a step outside is seen. */
static uint8_t *copy_of(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes != 0 ? bytes : 1);
    if (copy == NULL) {
        exit(1);
    }
    memcpy(copy, data, bytes);
    return copy;
}

/* Places that a window does not need may stand anywhere free, so patterns need not be the same; but
 * what they decode to must. */
static void check_accepted(const struct espl_nm_matrix *matrix)
{
    struct espl_error err;
    struct espl_nm_matrix again = {.values = NULL};
    unsigned v = 0;
    const size_t count = matrix->layout.rows * matrix->layout.cols;
    int8_t *codes = malloc(count);
    int8_t *decoded = malloc(count);
    if (codes == NULL || decoded == NULL) {
        exit(1);
    }
    if (espl_nm_decode(matrix, codes, &err) != ESPL_OK ||
        espl_nm_detect(codes, &matrix->layout, &v, &err) != ESPL_OK || v < matrix->layout.v ||
        espl_nm_encode(codes, &matrix->layout, &again, &err) != ESPL_OK ||
        again.value_bytes != matrix->value_bytes || again.pattern_bytes != matrix->pattern_bytes ||
        espl_nm_decode(&again, decoded, &err) != ESPL_OK || memcmp(codes, decoded, count) != 0) {
        abort();
    }
    espl_nm_free(&again);
    free(codes);
    free(decoded);
}

/* head: rows (2), cols (2), N and M in half a byte each, V; then the patterns' size (2) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { HEAD = 8 };
    struct espl_error err;
    if (size < HEAD) {
        return 0;
    }
    const size_t patterns = (size_t)data[6] | (size_t)data[7] << 8;
    struct espl_nm_matrix matrix = {
        .layout = {.rows = (size_t)data[0] | (size_t)(data[1] & 1u) << 8,
                   .cols = (size_t)data[2] | (size_t)(data[3] & 1u) << 8,
                   .n = (data[4] & 15u) + 1,
                   .m = (data[4] >> 4) + 1u,
                   .v = data[5]},
        .pattern_bytes = patterns < size - HEAD ? patterns : size - HEAD};
    matrix.value_bytes = size - HEAD - matrix.pattern_bytes;
    matrix.patterns = copy_of(data + HEAD, matrix.pattern_bytes);
    matrix.values = copy_of(data + HEAD + matrix.pattern_bytes, matrix.value_bytes);
    if (espl_nm_check(&matrix, &err) == ESPL_OK) {
        check_accepted(&matrix);
    }
    espl_nm_free(&matrix);
    return 0;
}

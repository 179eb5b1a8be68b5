/* libFuzzer target: an IE-BME matrix whose layout, array sizes and arrays come from the input. What
 * validates must decode and encode again to the same masks and values; peers' formats must refuse
 * or decode. Input: 12 bytes of head, then the arrays one after the other. */
#include "espalier/formats.h"
#include "espalier/iebme.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *data;
    size_t left;
};

/* An exact copy of the next bytes, fewer when the input ends; *count = whole items. */
static void *take(struct input *input, size_t *count, size_t item)
{
    size_t bytes = *count * item;
    if (bytes > input->left) {
        bytes = input->left / item * item;
        *count = bytes / item;
    }
    void *copy = malloc(bytes != 0 ? bytes : 1);
    if (copy == NULL) {
        exit(1);
    }
    memcpy(copy, input->data, bytes);
    input->data += bytes;
    input->left -= bytes;
    return copy;
}

static void check_accepted(const struct espl_iebme_matrix *matrix)
{
    struct espl_error err;
    struct espl_iebme_plan plan;
    struct espl_iebme_matrix again = {.masks = NULL};
    int8_t *codes = malloc(matrix->layout.rows * matrix->layout.cols);
    if (codes == NULL) {
        return;
    }
    if (espl_iebme_decode(matrix, codes, &err) != ESPL_OK) {
        abort();
    }
    if (matrix->layout.areas != ESPL_IEBME_MIXED) {
        if (espl_iebme_plan(codes, &matrix->layout, matrix->orders, &plan, &err) != ESPL_OK ||
            espl_iebme_encode(codes, matrix->orders, &plan, &again, &err) != ESPL_OK ||
            again.mask_words != matrix->mask_words || again.value_bytes != matrix->value_bytes ||
            memcmp(again.masks, matrix->masks, again.mask_words * sizeof *again.masks) != 0 ||
            memcmp(again.values, matrix->values, again.value_bytes) != 0) {
            abort();
        }
    }
    espl_iebme_matrix_free(&again);
    free(codes);
}

/* head: 'm', rows, cols (2), bits, areas, scope, mask words (2), offsets, orders, tags; the values
 * are what is left of the input */
static void fuzz_matrix(const uint8_t head[12], struct input *input)
{
    struct espl_error err;
    struct espl_iebme_matrix matrix = {
        .layout = {.rows = head[1],
                   .cols = (size_t)head[2] | (size_t)(head[3] & 3u) << 8,
                   .bits = head[4],
                   .areas = (enum espl_iebme_areas)head[5],
                   .scope = (enum espl_iebme_scope)head[6]},
        .mask_words = (size_t)head[7] | (size_t)head[8] << 8,
        .offset_count = head[9],
        .order_count = head[10],
        .tag_count = head[11]};
    matrix.masks = take(input, &matrix.mask_words, sizeof *matrix.masks);
    matrix.offsets = take(input, &matrix.offset_count, sizeof *matrix.offsets);
    matrix.orders = take(input, &matrix.order_count, sizeof *matrix.orders);
    matrix.tags = take(input, &matrix.tag_count, 1);
    matrix.value_bytes = input->left;
    matrix.values = take(input, &matrix.value_bytes, 1);
    if (espl_iebme_validate(&matrix, &err) == ESPL_OK) {
        check_accepted(&matrix);
    }
    espl_iebme_matrix_free(&matrix);
}

/* head: 'p', rows, cols, two more bits of each size, bits, format, three sizes in 4 bytes; the last
 * section is what is left */
static void fuzz_peer(const uint8_t head[12], struct input *input)
{
    struct espl_error err;
    struct espl_peer_matrix matrix = {.format = (enum espl_peer_format)(head[5] % 8),
                                      .rows = head[1],
                                      .cols = head[2],
                                      .bits = head[4]};
    for (size_t i = 0; i < ESPL_PEER_SECTIONS; i++) {
        matrix.section_bytes[i] = i + 1 < ESPL_PEER_SECTIONS
                                      ? (size_t)head[6 + i] * 4 + (head[3] >> (2 * i) & 3u)
                                      : input->left;
        matrix.section[i] = take(input, &matrix.section_bytes[i], 1);
    }
    int8_t *codes = malloc((size_t)head[1] * head[2] + 1);
    if (codes != NULL) {
        (void)espl_peer_decode(&matrix, codes, &err); /* any answer, no step outside */
    }
    free(codes);
    espl_peer_free(&matrix);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { HEAD = 12 };
    if (size < HEAD) {
        return 0;
    }
    struct input input = {.data = data + HEAD, .left = size - HEAD};
    if (data[0] == 'p') {
        fuzz_peer(data, &input);
    } else {
        fuzz_matrix(data, &input);
    }
    return 0;
}

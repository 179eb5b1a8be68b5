/* Writing the canonical form. */
#include "kernels/formats/iebme_internal.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Bits in order, 64 at a time. The buffer has exactly the bytes that the plan counted. */
struct bit_writer {
    uint8_t *out;
    uint64_t hold;
    unsigned held;
};

static inline void write_bits(struct bit_writer *writer, uint64_t bits, unsigned count)
{
    if (count == 0) {
        return;
    }
    writer->hold |= bits << writer->held;
    if (writer->held + count < 64) {
        writer->held += count;
        return;
    }
    memcpy(writer->out, &writer->hold, sizeof writer->hold);
    writer->out += sizeof writer->hold;
    const unsigned taken = 64 - writer->held;
    writer->hold = taken < 64 ? bits >> taken : 0;
    writer->held = count - taken;
}

static void write_end(struct bit_writer *writer)
{
    memcpy(writer->out, &writer->hold, (writer->held + 7) / 8);
}

/* Appends row[c] for every bit c of mask, c < width. */
typedef void append_fn(struct bit_writer *writer, const int8_t *row, uint64_t mask, unsigned width,
                       unsigned bits);

static void append_plain(struct bit_writer *writer, const int8_t *row, uint64_t mask,
                         unsigned width, unsigned bits)
{
    const uint64_t low = (UINT64_C(1) << bits) - 1;
    (void)width; /* mask has no bits beyond it */
    while (mask != 0) {
        const unsigned c = (unsigned)__builtin_ctzll(mask);
        write_bits(writer, (uint64_t)row[c] & low, bits);
        mask &= mask - 1;
    }
}

#if defined(__x86_64__)
/* Eight codes at a time: one extraction drops the bytes without a mask bit, a second one the upper
 * bits of those that stay. */
__attribute__((target("bmi2,popcnt"))) static void append_bmi2(struct bit_writer *writer,
                                                               const int8_t *row, uint64_t mask,
                                                               unsigned width, unsigned bits)
{
    const uint64_t low = UINT64_C(0x0101010101010101) * ((1u << bits) - 1u);
    for (unsigned c = 0; c < width; c += 8) {
        const uint64_t eight = mask >> c & 0xFFu;
        uint64_t word;
        memcpy(&word, row + c, sizeof word);
        const uint64_t bytes = _pdep_u64(eight, UINT64_C(0x0101010101010101)) * 0xFFu;
        const uint64_t packed = _pext_u64(word, bytes & low);
        write_bits(writer, packed, (unsigned)__builtin_popcountll(eight) * bits);
    }
}
#endif

static append_fn *best_append(void)
{
#if defined(__x86_64__)
    /* Zen 1 and 2 have the instructions in microcode, slower than the loop. */
    if (__builtin_cpu_supports("bmi2") && !__builtin_cpu_is("znver1") &&
        !__builtin_cpu_is("znver2")) {
        return append_bmi2;
    }
#endif
    return append_plain;
}

static void write_tile(struct bit_writer *writer, append_fn *append,
                       const int8_t tile[ESPL_IEBME_TILE_VALUES], const uint64_t *words,
                       enum espl_iebme_areas areas, unsigned bits)
{
    const struct espl_iebme_grid grid = espl_iebme_grids[areas];
    if (grid.words == 0) {
        for (unsigned r = 0; r < ESPL_IEBME_TILE_ROWS; r++) {
            append(writer, tile + r * ESPL_IEBME_TILE_COLS, UINT64_MAX, ESPL_IEBME_TILE_COLS, bits);
        }
        return;
    }
    const unsigned mask_rows = ESPL_IEBME_TILE_ROWS / grid.area_rows;
    const unsigned width = ESPL_IEBME_TILE_COLS / grid.area_cols;
    for (unsigned q = 0; q < grid.areas; q++) {
        const int8_t *area = tile + q / grid.area_cols * mask_rows * ESPL_IEBME_TILE_COLS +
                             q % grid.area_cols * width;
        for (unsigned i = 0; i < mask_rows; i++) {
            append(writer, area + i * ESPL_IEBME_TILE_COLS,
                   espl_iebme_mask_row(words, grid.area_cols, i), width, bits);
        }
    }
}

static void *array(size_t count, size_t item)
{
    return calloc(count != 0 ? count : 1, item);
}

static bool allocate(const struct espl_iebme_plan *plan, struct espl_iebme_matrix *matrix)
{
    matrix->layout = plan->layout;
    matrix->mask_words = plan->mask_words;
    matrix->offset_count = plan->offset_count;
    matrix->value_bytes = plan->value_bytes;
    matrix->tag_count = plan->tag_count;
    matrix->order_count = plan->order_count;
    matrix->masks = array(plan->mask_words, sizeof *matrix->masks);
    matrix->offsets = array(plan->offset_count, sizeof *matrix->offsets);
    matrix->values = array(plan->value_bytes, 1);
    matrix->tags = array(plan->tag_count, 1);
    matrix->orders = array(plan->order_count, sizeof *matrix->orders);
    return matrix->masks != NULL && matrix->offsets != NULL && matrix->values != NULL &&
           matrix->tags != NULL && matrix->orders != NULL;
}

/* Fails when the codes need more room than planned, before anything is written past the end. */
static bool fill(const int8_t *codes, const uint64_t *orders, const struct espl_iebme_plan *plan,
                 struct espl_iebme_matrix *matrix)
{
    const struct espl_iebme_layout *layout = &plan->layout;
    const bool mixed = layout->areas == ESPL_IEBME_MIXED;
    append_fn *append = best_append();
    struct bit_writer writer = {.out = matrix->values};
    int8_t tile[ESPL_IEBME_TILE_VALUES];
    uint64_t rows[ESPL_IEBME_TILE_ROWS];
    uint64_t words[ESPL_IEBME_MASK_WORDS_MAX] = {0};
    uint64_t values = 0;
    size_t at = 0;
    for (size_t t = 0; t < plan->tiles; t++) {
        const size_t stripe = t / plan->tile_cols;
        espl_iebme_load_tile(codes, layout, stripe, t % plan->tile_cols,
                             espl_iebme_tile_order(layout, orders, stripe, t), tile);
        espl_iebme_row_masks(tile, rows);
        const enum espl_iebme_areas areas =
            mixed ? espl_iebme_best_areas(rows, layout->bits) : layout->areas;
        const struct espl_iebme_grid grid = espl_iebme_grids[areas];
        const uint64_t count = (uint64_t)grid.areas * espl_iebme_union_mask(rows, areas, words);
        if (count > plan->values - values || grid.words > plan->mask_words - at) {
            return false;
        }
        if (plan->offset_count > 0) {
            matrix->offsets[t] = (uint32_t)values;
        }
        if (mixed) {
            matrix->tags[t] = (uint8_t)areas;
        }
        memcpy(matrix->masks + at, words, grid.words * sizeof *words);
        write_tile(&writer, append, tile, words, areas, layout->bits);
        values += count;
        at += grid.words;
    }
    write_end(&writer);
    return values == plan->values && at == plan->mask_words;
}

enum espl_status espl_iebme_encode(const int8_t *codes, const uint64_t *orders,
                                   const struct espl_iebme_plan *plan,
                                   struct espl_iebme_matrix *matrix, struct espl_error *err)
{
    struct espl_iebme_matrix made = {.masks = NULL};
    enum espl_status status = ESPL_OK;
    if (!allocate(plan, &made)) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for %llu bytes of encoded weights",
                           (unsigned long long)plan->bytes);
        goto cleanup;
    }
    if (plan->order_count > 0) {
        memcpy(made.orders, orders, plan->order_count * sizeof *orders);
    }
    if (!fill(codes, orders, plan, &made)) {
        status = espl_fail(err, ESPL_E_INTERNAL, "the codes are not those that were planned for");
        goto cleanup;
    }
    *matrix = made;
    return ESPL_OK;

cleanup:
    espl_iebme_matrix_free(&made);
    return status;
}

void espl_iebme_matrix_free(struct espl_iebme_matrix *matrix)
{
    if (matrix == NULL) {
        return;
    }
    free(matrix->masks);
    free(matrix->offsets);
    free(matrix->values);
    free(matrix->tags);
    free(matrix->orders);
    *matrix = (struct espl_iebme_matrix){.masks = NULL};
}

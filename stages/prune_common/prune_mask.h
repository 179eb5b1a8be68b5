/* Bit masks of pruned matrices: single bits, counting and combining. A mask row has
 * espl_mask_stride(cols) bytes, bit 0 of a byte first, 1 = kept; unused bits of a row's last byte
 * are 0. */
#ifndef ESPL_STAGES_PRUNE_MASK_H
#define ESPL_STAGES_PRUNE_MASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Is this column of a mask row kept? */
static inline bool espl_mask_bit(const uint8_t *row, size_t column)
{
    return (((uint32_t)row[column / 8] >> (column % 8)) & 1u) != 0;
}

static inline void espl_mask_set(uint8_t *row, size_t column)
{
    row[column / 8] = (uint8_t)(row[column / 8] | (1u << (column % 8)));
}

static inline void espl_mask_clear(uint8_t *row, size_t column)
{
    row[column / 8] = (uint8_t)(row[column / 8] & ~(1u << (column % 8)));
}

/** Set bits (kept weights) in `bytes` bytes of mask. */
uint64_t espl_prune_mask_kept(const uint8_t *mask, size_t bytes);
/** mask <- mask AND other: the union of what two prunings removed. */
void espl_prune_mask_intersect(uint8_t *mask, const uint8_t *other, size_t bytes);

#endif

/* Bit masks of pruned matrices: counting and combining. A mask row has espl_mask_stride(cols)
 * bytes, bit 0 of a byte first, 1 = kept; unused bits of a row's last byte are 0. */
#ifndef ESPL_STAGES_PRUNE_MASK_H
#define ESPL_STAGES_PRUNE_MASK_H

#include <stddef.h>
#include <stdint.h>

/** Set bits (kept weights) in `bytes` bytes of mask. */
uint64_t espl_prune_mask_kept(const uint8_t *mask, size_t bytes);
/** mask <- mask AND other: the union of what two prunings removed. */
void espl_prune_mask_intersect(uint8_t *mask, const uint8_t *other, size_t bytes);

#endif

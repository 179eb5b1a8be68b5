#include "stages/prune_common/prune_mask.h"

#include <string.h>

/* Set bits of a word, by adding neighbouring fields of 1, 2, 4 and then all bytes. */
static uint64_t count_bits(uint64_t word)
{
    word -= (word >> 1) & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) + ((word >> 2) & UINT64_C(0x3333333333333333));
    word = (word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (word * UINT64_C(0x0101010101010101)) >> 56;
}

uint64_t espl_prune_mask_kept(const uint8_t *mask, size_t bytes)
{
    uint64_t kept = 0;
    size_t i = 0;
    for (; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, mask + i, sizeof word);
        kept += count_bits(word);
    }
    for (; i < bytes; i++) {
        kept += count_bits(mask[i]);
    }
    return kept;
}

void espl_prune_mask_intersect(uint8_t *mask, const uint8_t *other, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        mask[i] = (uint8_t)(mask[i] & other[i]);
    }
}

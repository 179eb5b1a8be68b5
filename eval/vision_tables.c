/* Tables of Swin's attention: where the cells of a shifted, cut map stand, the bias of relative
 * positions, and the mask between regions that the shift brought together [Liu et al. 2021]. */
#include "eval/vision_internal.h"

#include <stdlib.h>

/* Score between cells of different regions: e^-100 beside anything is 0 in float32. */
static const float APART = -100.0F;

/* Row or column of the unshifted map that stands at `at` of the shifted one. */
static uint64_t unshifted(const struct espl_vision_place *place, uint64_t at)
{
    return (at + place->shift) % place->side;
}

/* Region of a row or column of the shifted map: what lies before the last window, the part of that
 * window that stayed, and the part that was rolled in. */
static unsigned region(const struct espl_vision_place *place, uint64_t at)
{
    return at < place->side - place->window ? 0 : at < place->side - place->shift ? 1 : 2;
}

/* Row and column, in the shifted map, of token t of window w. */
static void locate(const struct espl_vision_place *place, size_t w, size_t t, uint64_t at[2])
{
    const uint64_t across = place->side / place->window;
    at[0] = w / across * place->window + t / place->window;
    at[1] = w % across * place->window + t % place->window;
}

static void fill_rows(const struct espl_vision_place *place, size_t windows, size_t tokens,
                      int32_t *rows)
{
    for (size_t i = 0; i < windows * tokens; i++) {
        uint64_t at[2];
        locate(place, i / tokens, i % tokens, at);
        rows[i] = (int32_t)(unshifted(place, at[0]) * place->side + unshifted(place, at[1]));
    }
}

/* The row of one query of window w: mask (tokens). */
static void fill_mask_row(const struct espl_vision_place *place, size_t w, size_t query,
                          size_t tokens, float *mask)
{
    uint64_t own[2];
    locate(place, w, query, own);
    for (size_t t = 0; t < tokens; t++) {
        uint64_t key[2];
        locate(place, w, t, key);
        const bool together = region(place, own[0]) == region(place, key[0]) &&
                              region(place, own[1]) == region(place, key[1]);
        mask[t] = together ? 0.0F : APART;
    }
}

static void fill_mask(const struct espl_vision_place *place, size_t windows, size_t tokens,
                      float *mask)
{
    for (size_t w = 0; w < windows; w++) {
        for (size_t query = 0; query < tokens; query++) {
            fill_mask_row(place, w, query, tokens, mask + (w * tokens + query) * tokens);
        }
    }
}

/* table ((2 window - 1)^2, heads): one row for each offset of query and key. */
static void fill_bias(const struct espl_vision_place *place, size_t tokens, const float *table,
                      float *bias)
{
    const size_t window = (size_t)place->window;
    const size_t heads = (size_t)place->heads;
    for (size_t i = 0; i < heads * tokens * tokens; i++) {
        const size_t head = i / (tokens * tokens);
        const size_t query = i / tokens % tokens;
        const size_t key = i % tokens;
        const size_t down = query / window + window - 1 - key / window;
        const size_t across = query % window + window - 1 - key % window;
        bias[i] = table[(down * (2 * window - 1) + across) * heads + head];
    }
}

enum espl_status espl_vision_make_tables(const struct espl_model_config *config,
                                         struct espl_vision_block_weights *block,
                                         struct espl_error *err)
{
    const struct espl_vision_place *place = &block->place;
    size_t windows = 0;
    size_t tokens = 0;
    if (place->window == 0) {
        return ESPL_OK;
    }
    espl_vision_get_windows(config, place, &windows, &tokens);
    block->bias = espl_eval_allocate((size_t)place->heads * tokens, tokens, sizeof *block->bias);
    block->rows = espl_eval_allocate(windows, tokens, sizeof *block->rows);
    if (place->shift != 0) {
        block->mask = espl_eval_allocate(windows * tokens, tokens, sizeof *block->mask);
    }
    if (block->bias == NULL || block->rows == NULL || (place->shift != 0 && block->mask == NULL)) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the attention tables of a block");
    }
    fill_bias(place, tokens, block->parts[ESPL_ROLE_ATTENTION_BIAS].weight, block->bias);
    fill_rows(place, windows, tokens, block->rows);
    if (place->shift != 0) {
        fill_mask(place, windows, tokens, block->mask);
    }
    return ESPL_OK;
}

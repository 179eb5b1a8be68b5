/* Tokens that stand beside the model's vocabulary ("<s>", "<|im_start|>") and are cut out of the
 * text before anything else sees it. Two sets: those that match the text as written and those that
 * match the normalised text. The longest token wins at each place, left to right. */
#ifndef ESPL_DATASETS_ADDED_TOKENS_H
#define ESPL_DATASETS_ADDED_TOKENS_H

#include "core/error.h"
#include "datasets/normalizer.h"
#include "datasets/token_map.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct espl_added_tokens;

/** value: field "added_tokens" (NULL = none). vocab: the model's; a token that it holds must have
 * the same id. Errors: CORRUPT, UNSUPPORTED. */
enum espl_status espl_added_tokens_parse(const json_t *value, const struct espl_token_map *vocab,
                                         const struct espl_normalizer *normalizer,
                                         struct espl_added_tokens **out, struct espl_error *err);
void espl_added_tokens_destroy(struct espl_added_tokens *added);
/** -1 when there is no such token. */
int32_t espl_added_tokens_find(const struct espl_added_tokens *added, const char *text, size_t len);
/** Largest id, -1 when there are none. */
int32_t espl_added_tokens_max_id(const struct espl_added_tokens *added);

/** Receives a part of the text: a token (id >= 0) or what lies between (id = -1). */
typedef enum espl_status (*espl_part_fn)(void *user, size_t start, size_t end, int32_t id,
                                         struct espl_error *err);

/** Cuts a text; normalized: with the set that matches normalised text. */
enum espl_status espl_added_tokens_split(const struct espl_added_tokens *added, bool normalized,
                                         const char *text, size_t len, espl_part_fn part,
                                         void *user, struct espl_error *err);

#endif

/* Normalisers of tokenizer.json: NFC, NFD, NFKC, NFKD, Lowercase, Replace, Prepend, Strip and
 * Sequences of them. All others are refused by name. */
#ifndef ESPL_DATASETS_NORMALIZER_H
#define ESPL_DATASETS_NORMALIZER_H

#include "core/buf.h"
#include "core/error.h"
#include "datasets/token_regex.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct espl_normalizer;

/** value: field "normalizer" (NULL = none, gives *out = NULL). */
enum espl_status espl_normalizer_parse(const json_t *value, struct espl_normalizer **out,
                                       struct espl_error *err);
void espl_normalizer_destroy(struct espl_normalizer *normalizer);
/** Can it move the start of a text (Prepend, Replace, Strip)? */
bool espl_normalizer_moves_start(const struct espl_normalizer *normalizer);
/** Normalises one section. The result is in *out (its old content is dropped); spare is working
 * memory. Both must have been initialised with limits; a text that grows over the limit of `out` is
 * CORRUPT. */
enum espl_status espl_normalizer_apply(const struct espl_normalizer *normalizer,
                                       struct espl_regex_matcher *matcher, const char *text,
                                       size_t len, struct espl_buf *out, struct espl_buf *spare,
                                       struct espl_error *err);

#endif

/* What goes before and after a text: the post_processor of tokenizer.json and the add_bos_token /
 * add_eos_token rules of tokenizer_config.json. */
#ifndef ESPL_DATASETS_TOKEN_TEMPLATE_H
#define ESPL_DATASETS_TOKEN_TEMPLATE_H

#include "core/error.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { ESPL_TEMPLATE_IDS = 64 };

struct espl_token_template {
    int32_t before[ESPL_TEMPLATE_IDS];
    size_t before_count;
    int32_t after[ESPL_TEMPLATE_IDS];
    size_t after_count;
};

/** Id of a token text, -1 = none. */
typedef int32_t (*espl_token_find_fn)(const void *user, const char *text, size_t len);

/** value: field "post_processor" (NULL = none). Done: TemplateProcessing (for a single text),
 * ByteLevel and Sequences of them; all others are refused by name. */
enum espl_status espl_token_template_parse(const json_t *value, struct espl_token_template *out,
                                           struct espl_error *err);
/** Applies tokenizer_config.json (an object). add_bos_token puts bos_token in front unless the
 * post-processor already puts something there; add_eos_token likewise at the end. An explicit
 * "add_bos_token": false takes the BOS away for the classes whose post-processor is made from that
 * flag (LLaMA, Gemma). */
enum espl_status espl_token_template_configure(const json_t *config, espl_token_find_fn find,
                                               const void *user, struct espl_token_template *out,
                                               struct espl_error *err);

#endif

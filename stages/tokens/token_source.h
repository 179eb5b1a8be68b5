/* Texts and tokenizers that the job names as fetched sets instead of paths. */
#ifndef ESPL_TOKENS_TOKEN_SOURCE_H
#define ESPL_TOKENS_TOKEN_SOURCE_H

#include "core/error.h"
#include "datasets/source.h"
#include "engine/param.h"

/** What stands behind the names; owns the paths that replaced them. */
struct espl_token_source {
    const char *text_name; /* as the job has it; NULL = paths were given */
    const char *tokenizer_name;
    struct espl_source text;
    struct espl_source tokenizer;
};

/** Replaces *text (a list of paths) by the files of the set `text_name`, and *tokenizer by the
 * folder of the set `tokenizer_name`, where these are not NULL. The paths live as long as *out;
 * free it with espl_token_source_free(), also after a failure. Errors: JOB when a path is given
 * too, those of espl_source_find(); each blames its parameter. */
enum espl_status espl_token_source_find(const char *text_name, struct espl_list *text,
                                        const char *tokenizer_name, const char **tokenizer,
                                        struct espl_token_source *out, struct espl_error *err);
/** An error about a path that came from a set is found at the parameter that the job has. */
void espl_token_source_blame(const struct espl_token_source *source, enum espl_status status,
                             struct espl_error *err);
void espl_token_source_free(struct espl_token_source *source);

#endif

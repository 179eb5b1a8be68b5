#include "stages/tokens/token_source.h"

#include <string.h>

static enum espl_status fail_both(struct espl_error *err, const char *path, const char *name)
{
    (void)espl_fail(err, ESPL_E_JOB, "tokens takes '%s' or '%s', not both", path, name);
    (void)espl_blame(err, strcmp(path, "text") == 0 ? "param:source" : "param:tokenizer_source");
    return ESPL_E_JOB;
}

enum espl_status espl_token_source_find(const char *text_name, struct espl_list *text,
                                        const char *tokenizer_name, const char **tokenizer,
                                        struct espl_token_source *out, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    *out = (struct espl_token_source){.text_name = text_name, .tokenizer_name = tokenizer_name};
    if (text_name != NULL && text->count > 0) {
        return fail_both(err, "text", "source");
    }
    if (tokenizer_name != NULL && *tokenizer != NULL) {
        return fail_both(err, "tokenizer", "tokenizer_source");
    }
    if (text_name != NULL) {
        status = espl_source_find(text_name, &out->text, err);
        *text = (struct espl_list){.count = out->text.count, .items = out->text.paths};
        if (status != ESPL_OK) {
            (void)espl_blame(err, "param:source");
        }
    }
    if (status == ESPL_OK && tokenizer_name != NULL) {
        status = espl_source_find(tokenizer_name, &out->tokenizer, err);
        *tokenizer = out->tokenizer.folder;
        if (status != ESPL_OK) {
            (void)espl_blame(err, "param:tokenizer_source");
        }
    }
    return status;
}

void espl_token_source_blame(const struct espl_token_source *source, enum espl_status status,
                             struct espl_error *err)
{
    if (status == ESPL_OK) {
        return;
    }
    if (source->text_name != NULL && strcmp(err->blame, "param:text") == 0) {
        (void)espl_blame(err, "param:source");
    } else if (source->tokenizer_name != NULL && strcmp(err->blame, "param:tokenizer") == 0) {
        (void)espl_blame(err, "param:tokenizer_source");
    }
}

void espl_token_source_free(struct espl_token_source *source)
{
    espl_source_free(&source->text);
    espl_source_free(&source->tokenizer);
}

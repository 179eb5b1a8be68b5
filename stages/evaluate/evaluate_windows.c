#include "stages/evaluate/evaluate_windows.h"

/* Perplexities of models with very long contexts are published at this length. */
enum { USUAL_LENGTH = 2048 };

static uint64_t member(const json_t *description, const char *name)
{
    const json_int_t value = json_integer_value(json_object_get(description, name));
    return value > 0 ? (uint64_t)value : 0;
}

void espl_evaluate_read_tokens(const json_t *description, struct espl_evaluate_tokens *tokens)
{
    tokens->count = member(description, "count");
    tokens->windows = member(description, "windows");
    tokens->sequence_length = member(description, "sequence_length");
    tokens->vocab_size = member(description, "vocab_size");
}

static enum espl_status choose_length(const struct espl_model_config *config,
                                      const struct espl_evaluate_tokens *tokens, uint64_t asked,
                                      uint64_t *length, struct espl_error *err)
{
    if (tokens->windows > 0) {
        if (asked != 0 && asked != tokens->sequence_length) {
            espl_fail(err, ESPL_E_KIND,
                      "'sequence_length' is %llu, but the tokens are windows of %llu",
                      (unsigned long long)asked, (unsigned long long)tokens->sequence_length);
            espl_hint(err, "leave 'sequence_length' out, or draw windows of this length in the "
                           "tokens stage");
            return espl_blame(err, "param:sequence_length");
        }
        *length = tokens->sequence_length;
    } else {
        *length = asked != 0 ? asked : tokens->sequence_length;
    }
    if (*length == 0) {
        *length = config->max_positions < USUAL_LENGTH ? config->max_positions : USUAL_LENGTH;
    }
    if (config->rope.type == ESPL_ROPE_NONE && *length > config->max_positions) {
        espl_fail(err, ESPL_E_KIND,
                  "'sequence_length' is %llu, but the model has %llu learned positions",
                  (unsigned long long)*length, (unsigned long long)config->max_positions);
        espl_hint(err, "use at most %llu", (unsigned long long)config->max_positions);
        return espl_blame(err, "param:sequence_length");
    }
    if (*length < 2) {
        espl_fail(err, ESPL_E_KIND, "windows of %llu tokens have no token to predict",
                  (unsigned long long)*length);
        return espl_blame(err, "param:sequence_length");
    }
    return ESPL_OK;
}

enum espl_status espl_evaluate_choose_windows(const struct espl_model_config *config,
                                              const struct espl_evaluate_tokens *tokens,
                                              uint64_t asked_length, uint64_t asked_windows,
                                              struct espl_evaluate_windows *windows,
                                              struct espl_error *err)
{
    uint64_t length = 0;
    if (tokens->vocab_size > config->vocab) {
        espl_fail(err, ESPL_E_KIND,
                  "the tokenizer knows %llu ids, but the model's vocabulary is %llu",
                  (unsigned long long)tokens->vocab_size, (unsigned long long)config->vocab);
        espl_hint(err, "tokenise with the tokenizer.json that belongs to the model");
        return espl_blame(err, "input:tokens");
    }
    const enum espl_status status = choose_length(config, tokens, asked_length, &length, err);
    if (status != ESPL_OK) {
        return status;
    }
    uint64_t available = tokens->windows > 0 ? tokens->windows : tokens->count / length;
    if (tokens->count > 0 && available == 0) {
        espl_fail(err, ESPL_E_KIND, "the text has %llu tokens, fewer than one window of %llu",
                  (unsigned long long)tokens->count, (unsigned long long)length);
        espl_hint(err, "use a longer text or a smaller 'sequence_length'");
        return espl_blame(err, "input:tokens");
    }
    if (available > 0 && asked_windows > available) {
        espl_fail(err, ESPL_E_KIND, "'windows' is %llu, but the tokens give %llu windows of %llu",
                  (unsigned long long)asked_windows, (unsigned long long)available,
                  (unsigned long long)length);
        espl_hint(err, "use at most %llu, or 0 for all", (unsigned long long)available);
        return espl_blame(err, "param:windows");
    }
    windows->sequence_length = length;
    windows->windows = asked_windows != 0 ? asked_windows : available;
    return ESPL_OK;
}

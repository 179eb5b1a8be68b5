#include "stages/wanda_prune/wanda_setup.h"

#include "eval/forward.h"
#include "stages/prune_common/prune_store.h"
#include "stages/wanda_prune/wanda_calibrate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *const espl_wanda_rule_choices[] = {"fixed", "cumulative", NULL};
const char *const espl_wanda_propagate_choices[] = {"pruned", "dense", NULL};

static uint64_t json_count(const json_t *object, const char *name)
{
    const json_int_t value = json_integer_value(json_object_get(object, name));
    return value > 0 ? (uint64_t)value : 0;
}

struct espl_wanda_windows espl_wanda_windows_from_json(const json_t *description)
{
    return (struct espl_wanda_windows){json_count(description, "windows"),
                                       json_count(description, "sequence_length"),
                                       json_count(description, "vocab_size")};
}

enum espl_status espl_wanda_check_windows(const struct espl_model_config *config,
                                          const struct espl_wanda_windows *info,
                                          struct espl_error *err)
{
    if (info->windows == 0) {
        espl_fail(err, ESPL_E_JOB,
                  "input 'tokens' is one long text, but calibration needs windows");
        espl_hint(err,
                  "set 'samples' and 'sequence_length' of the tokens stage, for example "
                  "{samples: 128, sequence_length: %" PRIu64 "}",
                  config->max_positions < 2048 ? config->max_positions : 2048);
        return espl_blame(err, "input:tokens");
    }
    if (info->tokens < 2) {
        espl_fail(err, ESPL_E_JOB, "calibration windows of %" PRIu64 " tokens are too short",
                  info->tokens);
        espl_hint(err, "'sequence_length' of the tokens stage must be at least 2");
        return espl_blame(err, "input:tokens");
    }
    if (info->tokens > config->max_positions && config->rope.type == ESPL_ROPE_NONE) {
        espl_fail(err, ESPL_E_KIND,
                  "calibration windows have %" PRIu64 " tokens, but the model has %" PRIu64
                  " positions",
                  info->tokens, config->max_positions);
        espl_hint(err, "set 'sequence_length' of the tokens stage to at most %" PRIu64,
                  config->max_positions);
        return espl_blame(err, "input:tokens");
    }
    if (info->vocab > config->vocab) {
        espl_fail(err, ESPL_E_KIND,
                  "the tokenizer of input 'tokens' has %" PRIu64
                  " entries, but the model's vocabulary has %" PRIu64,
                  info->vocab, config->vocab);
        espl_hint(err, "take the tokenizer from the model's own checkpoint folder");
        return espl_blame(err, "input:tokens");
    }
    return ESPL_OK;
}

enum espl_status espl_wanda_check_rule(const struct espl_wanda_params *params,
                                       struct espl_error *err)
{
    if (params->rule == ESPL_WANDA_CUMULATIVE && params->common.pattern.m > 0) {
        espl_fail(err, ESPL_E_JOB, "rule 'cumulative' cannot be combined with pattern %u:%u",
                  (unsigned)params->common.pattern.n, (unsigned)params->common.pattern.m);
        espl_hint(err, "N:M fixes the count of every window; leave 'rule' or 'pattern' out");
        return espl_blame(err, "param:rule");
    }
    return ESPL_OK;
}

json_t *espl_wanda_describe(const struct espl_wanda_params *params,
                            const struct espl_prune_selection *selection,
                            const struct espl_wanda_windows *info)
{
    json_t *pruning = espl_prune_describe("wanda", &params->common, selection);
    if (pruning == NULL ||
        json_object_set_new(pruning, "rule", json_string(espl_wanda_rule_choices[params->rule])) !=
            0 ||
        json_object_set_new(pruning, "propagate",
                            json_string(espl_wanda_propagate_choices[params->propagate])) != 0 ||
        json_object_set_new(pruning, "calibration_windows",
                            json_integer((json_int_t)info->windows)) != 0 ||
        json_object_set_new(pruning, "sequence_length", json_integer((json_int_t)info->tokens)) !=
            0) {
        json_decref(pruning);
        return NULL;
    }
    return pruning;
}

/* The cumulative rule keeps the scores of a whole matrix, as they are and sorted. */
static uint64_t score_bytes(const struct espl_wanda_params *params,
                            const struct espl_prune_selection *selection)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < selection->count; i++) {
        const uint64_t *shape = selection->linears[i].spec.shape;
        largest = shape[0] * shape[1] > largest ? shape[0] * shape[1] : largest;
    }
    return params->rule == ESPL_WANDA_CUMULATIVE ? 2 * largest * sizeof(float) : 0;
}

void espl_wanda_estimate(const struct espl_model_config *config,
                         const struct espl_wanda_params *params,
                         const struct espl_prune_selection *selection,
                         const struct espl_wanda_windows *info, struct espl_estimate *est)
{
    const size_t tokens = (size_t)info->tokens;
    size_t values = 0;
    est->units = selection->selected_layers;
    est->output_bytes = selection->selected_mask_bytes + 65536;
    est->scratch_bytes = selection->selected_mask_bytes + 65536 * selection->selected_layers;
    est->host_bytes =
        espl_forward_bytes(config, espl_calibration_batch(info->windows, tokens), tokens) +
        selection->selected_mask_bytes / (selection->selected_layers + 1) +
        info->windows * info->tokens * sizeof(int32_t) + score_bytes(params, selection);
    const char *where = "";
    if (espl_calibration_values(info->windows, tokens, config->hidden, &values)) {
        const uint64_t bytes = (uint64_t)values * sizeof(float);
        if (bytes > ESPL_HIDDEN_IN_MEMORY) {
            est->scratch_bytes += bytes;
            where = "; hidden states in a mapped file";
        } else {
            est->host_bytes += bytes;
        }
    }
    est->flop = espl_forward_flop(config, tokens) *
                (2.0 * (double)info->windows + (double)ESPL_WANDA_CHECK_WINDOWS);
    (void)snprintf(est->note, sizeof est->note, "%zu of %zu linear layers%s", selection->selected,
                   selection->all_linears, where);
}

#include "stages/prune_common/layer_select.h"

#include "core/buf.h"
#include "core/pattern.h"
#include "core/suggest.h"
#include "espalier/kernels.h"

#include <stdlib.h>
#include <string.h>

enum { MESSAGE_LIMIT = 400 };

static bool is_weight_of(const struct espl_tensor_spec *spec, enum espl_role role)
{
    return spec->role == role && !spec->is_bias;
}

/* Linear layers outside blocks; a tied head is one although it has no tensor of its own. */
static size_t count_outside(const struct espl_model_config *config,
                            const struct espl_tensor_spec *specs, size_t count)
{
    size_t outside = config->tied_embeddings ? 1 : 0;
    for (size_t i = 0; i < count; i++) {
        if (is_weight_of(&specs[i], ESPL_ROLE_HEAD) ||
            is_weight_of(&specs[i], ESPL_ROLE_PROJECT_IN) ||
            is_weight_of(&specs[i], ESPL_ROLE_PROJECT_OUT)) {
            outside++;
        }
    }
    return outside;
}

static const char *list_item(const struct espl_list *list, size_t index)
{
    return ((const char *const *)list->items)[index];
}

static bool list_matches(const struct espl_list *list, const char *module)
{
    for (size_t i = 0; i < list->count; i++) {
        if (espl_pattern_match(list_item(list, i), module)) {
            return true;
        }
    }
    return false;
}

/* Name of a module inside its block: "self_attn.q_proj" of "layers.0.self_attn.q_proj". */
static const char *kind_of_module(const char *module)
{
    const char *dot = strchr(module, '.');
    dot = dot != NULL ? strchr(dot + 1, '.') : NULL;
    return dot != NULL ? dot + 1 : module;
}

static const char *last_word(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot != NULL ? dot + 1 : name;
}

/* Says that a pattern fits nothing and which kinds of module there are. */
static enum espl_status fail_no_match(const struct espl_prune_selection *selection,
                                      const char *list_name, const char *pattern, bool outside,
                                      struct espl_error *err)
{
    const char *words[ESPL_ROLE_COUNT];
    size_t count = 0;
    struct espl_buf kinds;
    espl_buf_init(&kinds, MESSAGE_LIMIT);
    for (size_t i = 0; i < selection->count && count < ESPL_ROLE_COUNT; i++) {
        const struct espl_tensor_spec *spec = &selection->linears[i].spec;
        if (spec->layer != 0) {
            break;
        }
        (void)espl_buf_printf(&kinds, "%s%s", count > 0 ? ", " : "", kind_of_module(spec->module));
        words[count++] = last_word(spec->module);
    }
    espl_fail(err, ESPL_E_JOB, "pattern '%s' of '%s' matches no linear layer of a block", pattern,
              list_name);
    const char *near = espl_suggest(last_word(pattern), words, count);
    if (outside) {
        espl_hint(err,
                  "it names a module outside the blocks, which is never pruned; the linear "
                  "layers of a block are: %s",
                  espl_buf_text(&kinds));
    } else if (near != NULL) {
        espl_hint(err, "did you mean '*.%s'? the linear layers of a block are: %s", near,
                  espl_buf_text(&kinds));
    } else {
        espl_hint(err, "the linear layers of a block are: %s", espl_buf_text(&kinds));
    }
    espl_buf_free(&kinds);
    return espl_blame(err, strcmp(list_name, "ignore") == 0 ? "param:ignore" : "param:targets");
}

static bool matches_outside(const char *pattern, const struct espl_tensor_spec *specs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (specs[i].layer < 0 && espl_pattern_match(pattern, specs[i].module)) {
            return true;
        }
    }
    return espl_pattern_match(pattern, "lm_head"); /* a tied head has no tensor */
}

/* Every pattern must fit something. `ignore` may also name what is never pruned: that is no
 * mistake, only needless. */
static enum espl_status check_patterns(const struct espl_prune_selection *selection,
                                       const struct espl_list *list, const char *list_name,
                                       const struct espl_tensor_spec *specs, size_t spec_count,
                                       struct espl_error *err)
{
    const bool outside_allowed = strcmp(list_name, "ignore") == 0;
    for (size_t i = 0; i < list->count; i++) {
        const char *pattern = list_item(list, i);
        bool found = false;
        for (size_t j = 0; j < selection->count && !found; j++) {
            found = espl_pattern_match(pattern, selection->linears[j].spec.module);
        }
        const bool outside = !found && matches_outside(pattern, specs, spec_count);
        if (!found && !(outside && outside_allowed)) {
            return fail_no_match(selection, list_name, pattern, outside, err);
        }
    }
    return ESPL_OK;
}

static enum espl_status check_range(const struct espl_layer_choice *choice, uint64_t layers,
                                    uint64_t *last, struct espl_error *err)
{
    *last = choice->last_layer < 0 ? layers - 1 : (uint64_t)choice->last_layer;
    if (*last >= layers) {
        espl_fail(err, ESPL_E_JOB, "last_layer %lld is past the end: the model has %llu blocks",
                  (long long)choice->last_layer, (unsigned long long)layers);
        espl_hint(err, "blocks count from 0; -1 is the last one");
        return espl_blame(err, "param:last_layer");
    }
    if (choice->first_layer < 0 || (uint64_t)choice->first_layer > *last) {
        espl_fail(err, ESPL_E_JOB, "first_layer %lld is past last_layer %llu",
                  (long long)choice->first_layer, (unsigned long long)*last);
        return espl_blame(err, "param:first_layer");
    }
    return ESPL_OK;
}

static enum espl_status collect_linears(const struct espl_model_config *config,
                                        const struct espl_tensor_spec *specs, size_t spec_count,
                                        struct espl_prune_selection *selection,
                                        struct espl_error *err)
{
    size_t count = 0;
    for (size_t i = 0; i < spec_count; i++) {
        count +=
            specs[i].layer >= 0 && !specs[i].is_bias && espl_role_is_block_linear(specs[i].role);
    }
    selection->linears = calloc(count > 0 ? count : 1, sizeof *selection->linears);
    if (selection->linears == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a list of %zu layers", count);
    }
    for (size_t i = 0; i < spec_count; i++) {
        if (specs[i].layer >= 0 && !specs[i].is_bias && espl_role_is_block_linear(specs[i].role)) {
            selection->linears[selection->count++].spec = specs[i];
            selection->block_elements += specs[i].shape[0] * specs[i].shape[1];
        }
    }
    selection->layers = config->layers;
    selection->parameters = espl_arch_parameters(config);
    selection->all_linears = selection->count + count_outside(config, specs, spec_count);
    return ESPL_OK;
}

static void mark_selected(const struct espl_layer_choice *choice, uint64_t last,
                          struct espl_prune_selection *selection)
{
    int64_t previous_layer = -1;
    for (size_t i = 0; i < selection->count; i++) {
        struct espl_prune_linear *linear = &selection->linears[i];
        const struct espl_tensor_spec *spec = &linear->spec;
        linear->selected = spec->layer >= choice->first_layer && (uint64_t)spec->layer <= last &&
                           list_matches(&choice->targets, spec->module) &&
                           !list_matches(&choice->ignore, spec->module);
        if (!linear->selected) {
            continue;
        }
        selection->selected++;
        selection->selected_elements += spec->shape[0] * spec->shape[1];
        selection->selected_mask_bytes += spec->shape[0] * espl_mask_stride(spec->shape[1]);
        selection->selected_layers += spec->layer != previous_layer;
        previous_layer = spec->layer;
    }
}

enum espl_status espl_layers_select(const struct espl_model_config *config,
                                    const struct espl_layer_choice *choice,
                                    struct espl_prune_selection *selection, struct espl_error *err)
{
    struct espl_tensor_spec *specs = NULL;
    size_t spec_count = 0;
    uint64_t last = 0;
    memset(selection, 0, sizeof *selection);
    enum espl_status status = espl_arch_tensors(config, &specs, &spec_count, err);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    status = collect_linears(config, specs, spec_count, selection, err);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    status = check_range(choice, config->layers, &last, err);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    status = check_patterns(selection, &choice->targets, "targets", specs, spec_count, err);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    status = check_patterns(selection, &choice->ignore, "ignore", specs, spec_count, err);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    mark_selected(choice, last, selection);
    if (selection->selected == 0) {
        espl_fail(err, ESPL_E_JOB, "no linear layer is left in blocks %lld to %llu",
                  (long long)choice->first_layer, (unsigned long long)last);
        espl_hint(err, choice->targets.count == 0
                           ? "'targets' is an empty list; leave it out to prune every linear layer"
                       : choice->ignore.count > 0
                           ? "'ignore' takes away all that 'targets' and the block range select"
                           : "'targets' selects nothing in this block range");
        status = espl_blame(err, choice->ignore.count > 0 ? "param:ignore" : "param:targets");
    }

cleanup:
    free(specs);
    return status;
}

void espl_prune_selection_free(struct espl_prune_selection *selection)
{
    if (selection != NULL) {
        free(selection->linears);
        memset(selection, 0, sizeof *selection);
    }
}

const struct espl_prune_linear *
espl_prune_selection_find(const struct espl_prune_selection *selection, uint64_t layer,
                          enum espl_role role)
{
    for (size_t i = 0; i < selection->count; i++) {
        const struct espl_prune_linear *linear = &selection->linears[i];
        if (linear->selected && (uint64_t)linear->spec.layer == layer &&
            linear->spec.role == role) {
            return linear;
        }
    }
    return NULL;
}

bool espl_prune_selection_has_layer(const struct espl_prune_selection *selection, uint64_t layer)
{
    for (size_t i = 0; i < selection->count; i++) {
        if (selection->linears[i].selected && (uint64_t)selection->linears[i].spec.layer == layer) {
            return true;
        }
    }
    return false;
}

enum espl_status espl_prune_for_block(const struct espl_prune_selection *selection, uint64_t layer,
                                      espl_prune_linear_fn work, void *user,
                                      struct espl_artifact *unit, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < selection->count && status == ESPL_OK; i++) {
        const struct espl_prune_linear *linear = &selection->linears[i];
        if (linear->selected && (uint64_t)linear->spec.layer == layer) {
            status = work(user, linear, unit, err);
        }
    }
    return status;
}

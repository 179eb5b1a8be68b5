#include "stages/nm_supernet/nm_layers.h"

#include "model/arch_vision.h"
#include "stages/nm_supernet/nm_rank.h"
#include "stages/prune_common/prune_select.h"

#include <stdlib.h>
#include <string.h>

static enum espl_status take_selected(const struct espl_model_config *config,
                                      const struct espl_prune_selection *selection,
                                      struct espl_nm_layers *layers, struct espl_error *err)
{
    layers->items = calloc(selection->selected, sizeof *layers->items);
    if (layers->items == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu layers", selection->selected);
    }
    for (size_t i = 0; i < selection->count; i++) {
        if (!selection->linears[i].selected) {
            continue;
        }
        struct espl_nm_layer *layer = &layers->items[layers->count++];
        struct espl_vision_place place;
        layer->spec = selection->linears[i].spec;
        espl_vision_get_place(config, (uint64_t)layer->spec.layer, &place);
        layer->tokens = (size_t)espl_vision_place_tokens(config, &place);
    }
    return ESPL_OK;
}

enum espl_status espl_nm_layers_select(const struct espl_model_config *config, unsigned m,
                                       const struct espl_list *targets,
                                       const struct espl_list *ignore,
                                       struct espl_nm_layers *layers, struct espl_error *err)
{
    const struct espl_prune_params asked = {
        .sparsity = 0.5,
        .pattern = {m, m}, /* checks that m divides */
        .tail = ESPL_PRUNE_TAIL_REFUSE,
        .layers = {.targets = *targets, .ignore = *ignore, .first_layer = 0, .last_layer = -1}};
    struct espl_prune_selection selection = {0};
    memset(layers, 0, sizeof *layers);
    if (!espl_model_config_is_vision(config)) {
        espl_fail(err, ESPL_E_KIND, "layer-wise N:M search works on image models, got '%s'",
                  config->architecture);
        return espl_blame(err, "input:model");
    }
    enum espl_status status = espl_prune_select(config, &asked, &selection, err);
    if (status == ESPL_OK) {
        status = take_selected(config, &selection, layers, err);
    }
    espl_prune_selection_free(&selection);
    return status;
}

enum espl_status espl_nm_layers_all(const struct espl_model_config *config, unsigned m,
                                    struct espl_nm_layers *layers, struct espl_error *err)
{
    static const char *const everything = "*";
    const struct espl_list targets = {1, &everything};
    const struct espl_list nothing = {0, NULL};
    return espl_nm_layers_select(config, m, &targets, &nothing, layers, err);
}

void espl_nm_layers_free(struct espl_nm_layers *layers)
{
    free(layers->items);
    memset(layers, 0, sizeof *layers);
}

struct espl_latency_shape espl_nm_layer_shape(const struct espl_nm_layer *layer, size_t batch)
{
    return (struct espl_latency_shape){.tokens = layer->tokens * batch,
                                       .in = (size_t)layer->spec.shape[1],
                                       .out = (size_t)layer->spec.shape[0]};
}

enum espl_status espl_nm_check_m(int64_t m, struct espl_error *err)
{
    if (m < 1 || m > 16 || espl_nm_rank_bits((unsigned)m) == 0) {
        espl_fail(err, ESPL_E_JOB, "m must be 4, 8 or 16, got %lld", (long long)m);
        return espl_blame(err, "param:m");
    }
    return ESPL_OK;
}

#include "stages/nm_pack/pack_setup.h"

#include "espalier/nm_pack.h"
#include "stages/prune_common/model_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const espl_pack_vector_choices[] = {"auto", "1", "8", "16", "32", "64", NULL};

enum { MOST_SHARED = 64 };

/* M of the pruning that made the masks: budget-search says "m", the pruning stages "pattern". */
static enum espl_status read_m(const json_t *description, unsigned *m, struct espl_error *err)
{
    const json_t *pruning = json_object_get(description, "pruning");
    const char *pattern = json_string_value(json_object_get(pruning, "pattern"));
    json_int_t found = json_integer_value(json_object_get(pruning, "m"));
    if (found == 0 && pattern != NULL && strchr(pattern, ':') != NULL) {
        found = (json_int_t)strtol(strchr(pattern, ':') + 1, NULL, 10);
    }
    if (found == 0) {
        espl_fail(err, ESPL_E_JOB, "the model has no N:M pattern to pack");
        espl_hint(err, "give the model of a budget-search, or of a pruning stage with `pattern: "
                       "\"2:8\"`");
        return espl_blame(err, "input:model");
    }
    if (found != 4 && found != 8 && found != 16) {
        espl_fail(err, ESPL_E_JOB, "patterns are packed in windows of 4, 8 or 16, not of %d",
                  (int)found);
        espl_hint(err, "prune with one of these M");
        return espl_blame(err, "input:model");
    }
    *m = (unsigned)found;
    return ESPL_OK;
}

static enum espl_status add_width(struct espl_quant_scheme *scheme, size_t columns,
                                  struct espl_error *err)
{
    if (espl_quant_scheme_width(scheme, columns) != NULL) {
        return ESPL_OK;
    }
    if (scheme->width_count == ESPL_QUANT_MAX_WIDTHS) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "the model's linears have more than %d different widths",
                         (int)ESPL_QUANT_MAX_WIDTHS);
    }
    scheme->widths[scheme->width_count++] = (struct espl_quant_width){columns, 0, 0};
    return ESPL_OK;
}

enum espl_status espl_pack_setup_make(const struct espl_model_config *config,
                                      const struct espl_pack_params *params,
                                      const json_t *description, struct espl_pack_setup *setup,
                                      struct espl_error *err)
{
    const char *vector = espl_pack_vector_choices[params->vector];
    memset(setup, 0, sizeof *setup);
    setup->most_v = params->vector == 0 ? MOST_SHARED : (unsigned)strtoul(vector, NULL, 10);
    setup->scheme = (struct espl_quant_scheme){.weight_bits = 8,
                                               .activation_bits = 8,
                                               .kv_bits = ESPL_QUANT_FLOAT_BITS,
                                               .rows_per_scale = 1,
                                               .weight_clip = 1.0,
                                               .activation_clip = 1.0,
                                               .kv_clip = 1.0};
    enum espl_status status = read_m(description, &setup->m, err);
    if (status == ESPL_OK) {
        status = espl_layers_select(config, &params->layers, &setup->selection, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < setup->selection.count; i++) {
        const struct espl_prune_linear *linear = &setup->selection.linears[i];
        if (linear->selected) {
            status = add_width(&setup->scheme, (size_t)linear->spec.shape[1], err);
        }
    }
    return status;
}

void espl_pack_setup_free(struct espl_pack_setup *setup)
{
    espl_prune_selection_free(&setup->selection);
}

json_t *espl_pack_quantisation(const struct espl_pack_setup *setup)
{
    return espl_json_join(espl_quant_scheme_to_json(&setup->scheme),
                          json_pack("{s:I}", "linears", (json_int_t)setup->selection.selected));
}

json_t *espl_pack_encoding(const struct espl_pack_setup *setup)
{
    return json_pack("{s:s, s:i, s:i}", "format", "nm-pack/1", "m", (int)setup->m, "most_shared",
                     (int)setup->most_v);
}

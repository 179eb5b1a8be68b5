/* nm-pack: reads a model with an N:M pattern, writes a model of its own whose linears are INT8
 * codes in the order of matrix fragments. */
#include "engine/stage.h"
#include "espalier/nm_pack.h"
#include "stages/nm_pack/pack_run.h"
#include "stages/prune_common/prune_params.h"

#include <inttypes.h>
#include <stdio.h>

static const struct espl_param params_table[] = {
    {.name = "vector",
     .help =
         "the most neighbouring output channels that may share a stored pattern; auto = as many "
         "as do; patterns that differ are never shared",
     .unit = "channels",
     .type = ESPL_PARAM_ENUM,
     .default_text = "auto",
     .choices = espl_pack_vector_choices,
     .offset = offsetof(struct espl_pack_params, vector)},
    {.name = "verify",
     .help = "decode every packed linear and compare it with its codes, bit by bit",
     .unit = "",
     .type = ESPL_PARAM_BOOL,
     .default_text = "true",
     .offset = offsetof(struct espl_pack_params, verify)},
    {ESPL_PARAM_TARGETS("pack"), .offset = offsetof(struct espl_pack_params, layers.targets)},
    {ESPL_PARAM_IGNORE("in float"), .offset = offsetof(struct espl_pack_params, layers.ignore)},
    {ESPL_PARAM_FIRST_LAYER("pack"),
     .offset = offsetof(struct espl_pack_params, layers.first_layer)},
    {ESPL_PARAM_LAST_LAYER("pack"), .offset = offsetof(struct espl_pack_params, layers.last_layer)},
    {.name = NULL},
};

static const struct espl_port inputs[] = {
    {"model", "model.masked/1|model.updated/1", 0, "a model with an N:M pattern"},
    {NULL, NULL, 0, NULL},
};

static const struct espl_port outputs[] = {
    {"model", "model.nm/1", 0, "the packed model, complete in one file"},
    {NULL, NULL, 0, NULL},
};

static void estimate(const struct espl_pack_setup *setup, struct espl_estimate *est)
{
    const uint64_t header_bytes = 4096; /* of a dataset */
    uint64_t largest = 0;
    uint64_t packed = 0;
    for (size_t i = 0; i < setup->selection.count; i++) {
        const struct espl_prune_linear *linear = &setup->selection.linears[i];
        struct espl_nm_sizes sizes;
        struct espl_nm_layout layout = {.rows = (size_t)linear->spec.shape[0],
                                        .cols = (size_t)linear->spec.shape[1],
                                        .n = setup->m,
                                        .m = setup->m,
                                        .v = 1};
        /* One that cannot be packed is refused by the run, with its name. */
        if (linear->selected && espl_nm_sizes_of(&layout, &sizes, NULL) == ESPL_OK) {
            largest = sizes.value_bytes > largest ? sizes.value_bytes : largest;
            packed += sizes.value_bytes + sizes.value_bytes / 8; /* no more than all and masks */
        }
    }
    const uint64_t others = setup->selection.parameters - setup->selection.selected_elements;
    est->units = setup->selection.layers;
    est->output_bytes =
        packed + others * sizeof(float) + 8 * header_bytes * setup->selection.count + 65536;
    est->scratch_bytes = est->output_bytes + 65536 * est->units;
    /* Floats, codes, packed ones and decoded ones of one linear; pieces of other tensors. */
    est->host_bytes = 8 * largest + ((uint64_t)16 << 20);
    (void)snprintf(est->note, sizeof est->note, "%zu linear layers, N of %u",
                   setup->selection.selected, setup->m);
}

/* Description of the output, for stages downstream. NULL when out of memory. */
static json_t *predict(const json_t *model, const struct espl_pack_setup *setup)
{
    json_t *encoding = espl_pack_encoding(setup);
    json_t *quantisation = espl_pack_quantisation(setup);
    json_t *predicted = encoding == NULL || quantisation == NULL
                            ? NULL
                            : json_pack("{s:O*, s:O*, s:O*, s:O, s:O}", "architecture",
                                        json_object_get(model, "architecture"), "config",
                                        json_object_get(model, "config"), "pruning",
                                        json_object_get(model, "pruning"), "quantisation",
                                        quantisation, "encoding", encoding);
    json_decref(encoding);
    json_decref(quantisation);
    return predicted;
}

static enum espl_status plan(struct espl_plan_ctx *ctx, const void *stage_params,
                             struct espl_estimate *est, struct espl_error *err)
{
    const json_t *description = espl_plan_input(ctx, "model");
    struct espl_pack_setup setup;
    struct espl_model_config config;
    if (description == NULL) {
        return ESPL_OK;
    }
    enum espl_status status = espl_model_config_from_description(description, &config, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_pack_setup_make(&config, stage_params, description, &setup, err);
    if (status == ESPL_OK) {
        estimate(&setup, est);
        json_t *predicted = predict(description, &setup);
        if (predicted != NULL) {
            espl_plan_set_output(ctx, "model", predicted);
        } else {
            status = espl_fail(err, ESPL_E_NOMEM, "no memory for the description of the output");
        }
    }
    espl_pack_setup_free(&setup);
    return status;
}

static enum espl_status run(struct espl_stage_ctx *ctx, const void *params, struct espl_error *err)
{
    return espl_pack_run(ctx, params, err);
}

const struct espl_stage espl_stage_nm_pack = {
    .name = "nm-pack",
    .summary = "N:M weights as INT8 codes in the order of matrix fragments, sharing patterns",
    .cache_version = 1,
    .flags = ESPL_STAGE_RESUMABLE,
    .params = params_table,
    .params_size = sizeof(struct espl_pack_params),
    .inputs = inputs,
    .outputs = outputs,
    .plan = plan,
    .run = run,
};

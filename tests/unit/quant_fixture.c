#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "quant_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const all[] = {"*"};

static void check(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s [%s] (%s)", err->message, err->context, err->hint);
    }
}

struct espl_atom_params quant_atom_params(void)
{
    return (struct espl_atom_params){
        .weight_bits = 4,
        .activation_bits = 4,
        .group_size = 4,
        .outlier_channels = 8,
        .rows_per_scale = 2,
        .kv_bits = 4,
        .method = ESPL_ATOM_GPTQ,
        .weight_clip = 0.85,
        .activation_clip = 0.9,
        .kv_clip = 1.0,
        .damping = 0.01,
        .max_perplexity_ratio = 100.0,
        .layers = {.targets = {1, all}, .last_layer = -1},
    };
}

struct espl_atom_params quant_atom_defaults(void)
{
    struct espl_atom_params params = quant_atom_params();
    params.group_size = -1;
    params.outlier_channels = -1;
    return params;
}

struct espl_sparsegpt_params quant_sparsegpt_params(void)
{
    return (struct espl_sparsegpt_params){
        .common = {.sparsity = 0.5, .layers = {.targets = {1, all}, .last_layer = -1}},
        .group_size = -1,
        .damping = 0.01,
        .max_perplexity_ratio = 100.0,
    };
}

struct espl_wanda_params quant_wanda_params(void)
{
    return (struct espl_wanda_params){
        .common = {.sparsity = 0.5, .layers = {.targets = {1, all}, .last_layer = -1}},
        .max_perplexity_ratio = 100.0};
}

void quant_run(struct prune_fixture *fixture, const struct espl_stage *stage, const void *params,
               char key, char model, struct prune_result *result)
{
    struct espl_error err;
    check(prune_run(fixture, stage, params, key, model, 'b', NULL, result, &err), &err);
}

double quant_mean_layer(const struct prune_result *result, const char *series)
{
    double sum = 0.0;
    size_t count = 0, index;
    const json_t *item;
    json_array_foreach(result->layers, index, item)
    {
        if (strcmp(json_string_value(json_object_get(item, "series")), series) == 0) {
            sum += json_real_value(json_object_get(item, "value"));
            count++;
        }
    }
    assert_true(count > 0);
    return sum / (double)count;
}

float *quant_logits(struct prune_fixture *fixture, char key, size_t windows, size_t tokens,
                    quant_block_fn edit, void *user, size_t *count)
{
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    struct espl_backend *backend = NULL;
    struct espl_forward *forward = NULL;
    struct espl_block *block = NULL;
    struct espl_error err;
    prune_open(fixture, key, &artifact, &model);
    const struct espl_model_config *config = espl_model_get_config(model);
    const size_t rows = windows * tokens;
    *count = rows * (size_t)config->vocab;
    int32_t *ids = malloc(rows * sizeof *ids);
    float *hidden = malloc(rows * (size_t)config->hidden * sizeof *hidden);
    float *logits = malloc(*count * sizeof *logits);
    assert_true(ids != NULL && hidden != NULL && logits != NULL);
    for (size_t i = 0; i < rows; i++) {
        ids[i] = (int32_t)((i * 7 + i * i * 3) % 50);
    }
    check(espl_backend_open("cpu", 0, &backend, &err), &err);
    check(espl_forward_create(model, backend, windows, tokens, &forward, &err), &err);
    check(espl_forward_embed(forward, ids, windows, hidden, &err), &err);
    for (uint64_t layer = 0; layer < config->layers; layer++) {
        check(espl_block_load(forward, layer, &block, &err), &err);
        if (edit != NULL) {
            edit(user, forward, block, layer);
        }
        check(espl_forward_block(forward, block, windows, hidden, NULL, NULL, &err), &err);
    }
    check(espl_forward_logits(forward, hidden, rows, logits, &err), &err);
    espl_block_destroy(block);
    espl_forward_destroy(forward);
    espl_backend_close(backend);
    espl_model_close(model);
    espl_artifact_close(artifact);
    free(ids);
    free(hidden);
    return logits;
}

double quant_difference(const float *a, const float *b, size_t count)
{
    double difference = 0.0;
    double size = 0.0;
    for (size_t i = 0; i < count; i++) {
        difference = fmax(difference, fabs((double)a[i] - (double)b[i]));
        size = fmax(size, fabs((double)a[i]));
    }
    return difference / size;
}

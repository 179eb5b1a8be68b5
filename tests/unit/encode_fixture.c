#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "encode_fixture.h"

#include "core/rng.h"

#include <string.h>

static struct espl_model_config widen(struct espl_model_config config)
{
    config.layers = 2;
    config.hidden = 96;
    config.embed_dim = 96;
    config.heads = 3;
    config.head_dim = 32;
    config.ffn = 148;
    return config;
}

struct espl_model_config encode_llama_config(void)
{
    return widen(prune_llama_config());
}

struct espl_model_config encode_opt_config(void)
{
    struct espl_model_config config = widen(prune_opt_config());
    config.kv_heads = 3;
    return config;
}

/* 60 % of the weights of blocks are 0: atom-quantize keeps them so. */
static void make_sparse(const struct espl_tensor_spec *spec, float *values)
{
    struct espl_rng rng = espl_rng_stream(21, spec->name, 0);
    if (spec->is_bias || !espl_role_is_block_linear(spec->role)) {
        return;
    }
    for (uint64_t i = 0; i < spec->shape[0] * spec->shape[1]; i++) {
        values[i] = espl_rng_unit(&rng) < 0.6 ? 0.0f : values[i];
    }
}

void encode_open(struct prune_fixture *fixture, const struct espl_model_config *config,
                 const struct espl_atom_params *params)
{
    prune_fixture_open(fixture);
    prune_make_model(fixture, 'a', config, ESPL_DTYPE_BF16, make_sparse);
    prune_make_random_tokens(fixture, 'b', 9, 16);
    quant_run(fixture, &espl_stage_atom_quantize, params, 'e', 'a', NULL);
}

void encode_reorder(struct prune_fixture *fixture, int64_t rows, int64_t cols, int scope, char key,
                    struct prune_result *result)
{
    const struct espl_reorder_params params = {rows, cols, scope};
    struct espl_error err;
    if (prune_run(fixture, &espl_stage_row_reorder, &params, key, 'e', 0, NULL, result, &err) !=
        ESPL_OK) {
        fail_msg("%s [%s]", err.message, err.context);
    }
}

enum espl_status encode_try(struct prune_fixture *fixture, const char *areas, char model,
                            char order, char key, const volatile int *stopped,
                            struct prune_result *result, struct espl_error *err)
{
    struct espl_encode_params params = {0};
    const struct prune_port ports[2] = {{"model", model}, {"order", order}};
    while (strcmp(espl_encode_area_choices[params.areas], areas) != 0) {
        params.areas++;
        assert_non_null(espl_encode_area_choices[params.areas]);
    }
    return prune_run_ports(fixture, &espl_stage_iebme_encode, &params, key, ports,
                           order != 0 ? 2 : 1, stopped, result, err);
}

void encode_model(struct prune_fixture *fixture, const char *areas, char order, char key,
                  struct prune_result *result)
{
    struct espl_error err;
    if (encode_try(fixture, areas, 'e', order, key, NULL, result, &err) != ESPL_OK) {
        fail_msg("%s [%s]", err.message, err.context);
    }
}

double encode_layer(const struct prune_result *result, const char *series, const char *module)
{
    size_t index;
    const json_t *row;
    json_array_foreach(result->layers, index, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "series")), series) == 0 &&
            strcmp(json_string_value(json_object_get(row, "module")), module) == 0) {
            return json_real_value(json_object_get(row, "value"));
        }
    }
    fail_msg("no '%s' of '%s'", series, module);
    return 0.0;
}

void encode_check_resume(const struct espl_model_config *config, encode_run_fn run)
{
    struct prune_fixture whole, resumed;
    struct prune_result a, b;
    const struct espl_atom_params params = quant_atom_params();
    encode_open(&whole, config, &params);
    encode_open(&resumed, config, &params);
    run(&whole, &a);
    prune_copy_units(&whole, &resumed, 1);
    run(&resumed, &b);
    assert_int_equal(b.resumed, 1);
    prune_assert_same(&whole, &resumed, &a, &b);
    prune_result_free(&a);
    prune_result_free(&b);
    prune_fixture_close(&whole);
    prune_fixture_close(&resumed);
}

/* Tensor lists against what HF transformers builds for the published shapes: numbers of tensors and
 * parameters were taken from its model classes (version 5.24, weights not allocated). */
#include "model/arch.h"
#include "model/synth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

struct published {
    const char *shape;
    uint64_t parameters;
    size_t tensors;
};

static const struct published published[] = {
    {"opt-125m", 125239296, 196},      {"opt-350m", 331196416, 388},
    {"opt-1.3b", 1315758080, 388},     {"opt-13b", 12853473280, 644},
    {"opt-66b", 65719701504, 1028},    {"llama-2-7b", 6738415616, 291},
    {"llama-2-70b", 68976648192, 723}, {"llama-3-8b", 8030261248, 291},
    {"llama-3.2-1b", 1235814400, 146}, {"qwen2-0.5b", 494032768, 290},
    {"qwen2-7b", 7615616512, 339},
};

static struct espl_model_config config_of(const char *shape)
{
    const struct espl_synth_options options = {.shape = shape, .dtype = ESPL_DTYPE_F16};
    struct espl_model_config config;
    struct espl_error err = {0};
    if (espl_synth_config(&options, &config, &err) != ESPL_OK) {
        fail_msg("%s: %s", shape, err.message);
    }
    return config;
}

static void test_arch__published_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        const struct espl_model_config config = config_of(published[i].shape);
        struct espl_error err = {0};
        struct espl_tensor_spec *specs = NULL;
        size_t count = 0;
        assert_int_equal(espl_arch_tensors(&config, &specs, &count, &err), ESPL_OK);
        assert_int_equal(count, published[i].tensors);
        assert_int_equal(espl_arch_parameters(&config), published[i].parameters);
        free(specs);
    }
}

static const struct espl_tensor_spec *find(const struct espl_tensor_spec *specs, size_t count,
                                           const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(specs[i].name, name) == 0) {
            return &specs[i];
        }
    }
    fail_msg("no tensor '%s'", name);
    return NULL;
}

static void check_spec(const struct espl_tensor_spec *spec, const char *module, const char *path,
                       enum espl_role role, uint64_t rows, uint64_t cols)
{
    assert_string_equal(spec->module, module);
    assert_string_equal(spec->path, path);
    assert_int_equal(spec->role, role);
    assert_int_equal(spec->shape[0], rows);
    assert_int_equal(spec->shape[1], cols);
    assert_int_equal(spec->rank, cols == 1 ? 1 : 2);
}

static void test_arch__names_paths_and_shapes(void **state)
{
    struct espl_tensor_spec *specs = NULL;
    size_t count = 0;
    struct espl_error err = {0};
    (void)state;

    struct espl_model_config config = config_of("llama-3-8b");
    assert_int_equal(espl_arch_tensors(&config, &specs, &count, &err), ESPL_OK);
    check_spec(find(specs, count, "model.layers.31.self_attn.k_proj.weight"),
               "layers.31.self_attn.k_proj", "/layers/031/self_attn.k_proj/weight", ESPL_ROLE_K,
               1024, 4096);
    check_spec(find(specs, count, "lm_head.weight"), "lm_head", "/lm_head/weight", ESPL_ROLE_HEAD,
               128256, 4096);
    check_spec(find(specs, count, "model.norm.weight"), "norm", "/norm/weight",
               ESPL_ROLE_FINAL_NORM, 4096, 1);
    free(specs);

    config = config_of("opt-350m");
    assert_int_equal(espl_arch_tensors(&config, &specs, &count, &err), ESPL_OK);
    check_spec(find(specs, count, "model.decoder.project_in.weight"), "project_in",
               "/project_in/weight", ESPL_ROLE_PROJECT_IN, 1024, 512);
    check_spec(find(specs, count, "model.decoder.embed_positions.weight"), "embed_positions",
               "/embed_positions/weight", ESPL_ROLE_POSITION, 2050, 1024);
    check_spec(find(specs, count, "model.decoder.layers.23.fc2.bias"), "layers.23.fc2",
               "/layers/023/fc2/bias", ESPL_ROLE_FC2, 1024, 1);
    for (size_t i = 0; i < count; i++) {
        assert_string_not_equal(specs[i].name, "model.decoder.final_layer_norm.weight");
    }
    free(specs);

    config = config_of("qwen2-7b");
    assert_int_equal(espl_arch_tensors(&config, &specs, &count, &err), ESPL_OK);
    check_spec(find(specs, count, "model.layers.0.self_attn.v_proj.bias"),
               "layers.0.self_attn.v_proj", "/layers/000/self_attn.v_proj/bias", ESPL_ROLE_V, 512,
               1);
    for (size_t i = 0; i < count; i++) {
        assert_null(strstr(specs[i].name, "o_proj.bias"));
    }
    free(specs);
}

static void test_arch_find__by_name_and_model_type(void **state)
{
    (void)state;
    for (size_t i = 0; espl_archs[i] != NULL; i++) {
        assert_ptr_equal(espl_arch_find(espl_archs[i]->name), espl_archs[i]);
    }
    assert_null(espl_arch_find("mistral"));
    assert_null(espl_arch_find(NULL));
    assert_string_equal(espl_role_name(ESPL_ROLE_GATE), "gate");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arch__published_shapes),
        cmocka_unit_test(test_arch__names_paths_and_shapes),
        cmocka_unit_test(test_arch_find__by_name_and_model_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

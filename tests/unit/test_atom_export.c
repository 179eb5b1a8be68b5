/* Exporting models whose weights a stage has changed: one type in all of the folder, and the values
 * of the model view in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "quant_fixture.h"

#include "core/fs.h"
#include "model/safetensors.h"
#include "stages/export/export_write.h"

#include <stdlib.h>
#include <string.h>

static void check(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s [%s] (%s)", err->message, err->context, err->hint);
    }
}

static void export_model(struct espl_model *model, const char *folder)
{
    const struct espl_export_options options = {
        .folder = folder, .masks = true, .content_sha256 = "0"};
    const struct espl_export_hooks hooks = {0};
    struct espl_error err;
    json_t *manifest = NULL;
    check(espl_export_write(model, &options, &hooks, &manifest, &err), &err);
    json_decref(manifest);
}

static void assert_config_dtype(const char *folder, const char *expected)
{
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    check(espl_fs_join(path, folder, "config.json", &err), &err);
    json_t *config = json_load_file(path, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(config, "torch_dtype")), expected);
    json_decref(config);
}

static void assert_values(struct espl_model *model, struct espl_safetensors *files)
{
    struct espl_error err;
    for (size_t i = 0; i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        const struct espl_safetensor *stored = espl_safetensors_find(files, spec->name);
        assert_non_null(stored);
        assert_int_equal(stored->dtype, ESPL_DTYPE_F32);
        float *expected = malloc((size_t)stored->bytes);
        float *values = malloc((size_t)stored->bytes);
        check(espl_model_read_f32(model, spec, 0, spec->shape[0], expected, &err), &err);
        check(espl_safetensors_read(files, stored, 0, values, (size_t)stored->bytes, &err), &err);
        assert_memory_equal(values, expected, (size_t)stored->bytes);
        free(values);
        free(expected);
    }
}

/* key: of the model to export. */
static void check_export(struct prune_fixture *fixture, char key, enum espl_dtype base)
{
    char folder[ESPL_PATH_MAX];
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    struct espl_safetensors *files = NULL;
    struct espl_error err;
    const char name[] = {'o', 'u', 't', '-', key, '\0'};
    check(espl_fs_join(folder, fixture->folder, name, &err), &err);
    prune_open(fixture, key, &artifact, &model);
    /* The model itself has two types: changed weights, and norms and embeddings as they were. */
    assert_int_equal(espl_model_dtype(model, espl_model_tensor(model, 0)), base);
    assert_int_equal(espl_model_dtype(model, espl_model_find(model, 0, ESPL_ROLE_Q, false)),
                     ESPL_DTYPE_F32);
    export_model(model, folder);
    assert_config_dtype(folder, "float32");
    check(espl_safetensors_open(folder, &files, &err), &err);
    assert_values(model, files);
    espl_safetensors_close(files);
    espl_model_close(model);
    espl_artifact_close(artifact);
}

static void test_export__one_type_for_all_tensors(void **state)
{
    (void)state;
    const struct espl_model_config configs[] = {prune_llama_config(), prune_opt_config()};
    static const enum espl_dtype bases[] = {ESPL_DTYPE_BF16, ESPL_DTYPE_F16};
    const struct espl_atom_params quantise = quant_atom_params();
    const struct espl_sparsegpt_params prune = quant_sparsegpt_params();
    for (size_t i = 0; i < 2; i++) {
        struct prune_fixture fixture;
        prune_fixture_open(&fixture);
        prune_make_model(&fixture, 'a', &configs[i], bases[i], NULL);
        prune_make_random_tokens(&fixture, 'b', 11, 16);
        quant_run(&fixture, &espl_stage_atom_quantize, &quantise, 'c', 'a', NULL);
        quant_run(&fixture, &espl_stage_sparsegpt_prune, &prune, 'd', 'a', NULL);
        quant_run(&fixture, &espl_stage_atom_quantize, &quantise, 'e', 'd', NULL);
        for (char key = 'c'; key <= 'e'; key++) {
            check_export(&fixture, key, bases[i]);
        }
        prune_fixture_close(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_export__one_type_for_all_tensors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

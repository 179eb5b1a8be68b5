/* Importing a checkpoint: values, types, storage. */
#include "core/fs.h"
#include "stages/import/import_checkpoint.h"
#include "unit/import_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/element.h"
#include "model/safetensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void test_import__every_architecture_keeps_its_values(void **state)
{
    static const char *const names[] = {"llama", "llama-tied", "opt", "opt-post", "qwen2"};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct espl_model_config config = fixture_config(names[i]);
        (void)espl_fs_remove_tree(f->folder, NULL);
        fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_BF16, 0);
        if (fixture_import(f, "a.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_AUTO, NULL,
                           NULL) != ESPL_OK) {
            fail_msg("%s: %s (%s)", names[i], f->err.message, f->err.context);
        }
        fixture_check_import(f, "a.h5", &config, ESPL_DTYPE_BF16);
    }
}

static void test_import__content_depends_on_neither_shards_nor_storage(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("llama");
    char one[ESPL_SHA256_HEX];
    char many[ESPL_SHA256_HEX];
    char referred[ESPL_SHA256_HEX];

    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    assert_int_equal(
        fixture_import(f, "a.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_COPY, NULL, one),
        ESPL_OK);
    (void)espl_fs_remove_tree(f->folder, NULL);
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 20000);
    char shard[ESPL_PATH_MAX];
    fixture_join(shard, f->folder, "model.safetensors.index.json");
    assert_true(espl_fs_exists(shard));
    assert_int_equal(
        fixture_import(f, "b.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_COPY, NULL, many),
        ESPL_OK);
    assert_int_equal(fixture_import(f, "c.h5", ESPL_IMPORT_DTYPE_KEEP,
                                    ESPL_IMPORT_STORAGE_REFERENCE, NULL, referred),
                     ESPL_OK);
    assert_string_equal(one, many);
    assert_string_equal(one, referred);
    fixture_check_import(f, "c.h5", &config, ESPL_DTYPE_F16);
}

static void test_import__reference_is_small_and_notices_a_changed_file(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("llama");
    struct espl_artifact *artifact = NULL;
    char path[ESPL_PATH_MAX];
    char bad[ESPL_TENSOR_PATH];
    bool ok = false;

    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F32, 0);
    assert_int_equal(fixture_import(f, "c.h5", ESPL_IMPORT_DTYPE_KEEP,
                                    ESPL_IMPORT_STORAGE_REFERENCE, NULL, NULL),
                     ESPL_OK);
    fixture_join(path, f->dir, "c.h5");
    assert_int_equal(espl_artifact_open(path, &artifact, &f->err), ESPL_OK);
    for (size_t i = 0; i < espl_artifact_tensor_count(artifact); i++) {
        assert_true(espl_artifact_tensor(artifact, i)->external);
    }
    assert_int_equal(espl_artifact_verify(artifact, &ok, bad, &f->err), ESPL_OK);
    assert_true(ok);
    espl_artifact_close(artifact);

    /* One bit of the last tensor. */
    fixture_join(path, f->folder, "model.safetensors");
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    const int last = fgetc(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    assert_int_not_equal(fputc(last ^ 1, file), EOF);
    assert_int_equal(fclose(file), 0);
    fixture_join(path, f->dir, "c.h5");
    assert_int_equal(espl_artifact_open(path, &artifact, &f->err), ESPL_OK);
    assert_int_equal(espl_artifact_verify(artifact, &ok, bad, &f->err), ESPL_OK);
    assert_false(ok);
    espl_artifact_close(artifact);
}

static void test_import__reference_is_stale_when_the_files_are_gone(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("llama");
    struct espl_artifact *artifact = NULL;
    char path[ESPL_PATH_MAX];
    char stale[160] = "";
    bool valid = false;

    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    assert_int_equal(fixture_import(f, "c.h5", ESPL_IMPORT_DTYPE_KEEP,
                                    ESPL_IMPORT_STORAGE_REFERENCE, NULL, NULL),
                     ESPL_OK);
    fixture_join(path, f->dir, "c.h5");
    assert_int_equal(espl_artifact_open(path, &artifact, &f->err), ESPL_OK);
    assert_int_equal(espl_import_still_valid(artifact, &valid, stale, &f->err), ESPL_OK);
    assert_true(valid);
    /* Another checkpoint of the same sizes in its place. */
    struct timespec pause = {0, 20000000}; /* time stamps may have the step of a clock tick */
    (void)nanosleep(&pause, NULL);
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    assert_int_equal(espl_import_still_valid(artifact, &valid, stale, &f->err), ESPL_OK);
    assert_false(valid);
    assert_int_equal(espl_fs_remove_tree(f->folder, &f->err), ESPL_OK);
    assert_int_equal(espl_import_still_valid(artifact, &valid, stale, &f->err), ESPL_OK);
    assert_false(valid);
    assert_string_equal(stale, "the checkpoint files it refers to have moved or changed");
    espl_artifact_close(artifact);
}

static void test_import__converts_and_refuses_overflow(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("opt");
    struct fixture_log lines = {""};

    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    assert_int_equal(
        fixture_import(f, "a.h5", ESPL_IMPORT_DTYPE_F32, ESPL_IMPORT_STORAGE_AUTO, &lines, NULL),
        ESPL_OK);
    fixture_check_import(f, "a.h5", &config, ESPL_DTYPE_F32);
    assert_int_equal(
        fixture_import(f, "b.h5", ESPL_IMPORT_DTYPE_BF16, ESPL_IMPORT_STORAGE_AUTO, &lines, NULL),
        ESPL_OK);
    fixture_check_import(f, "b.h5", &config, ESPL_DTYPE_BF16);
    assert_string_equal(lines.text, "");
    assert_int_equal(
        fixture_import(f, "c.h5", ESPL_IMPORT_DTYPE_F32, ESPL_IMPORT_STORAGE_REFERENCE, NULL, NULL),
        ESPL_E_KIND);
    assert_string_equal(f->err.blame, "param:storage");
}

/* Overwrites the first elements of a stored f32 tensor. */
static void poke(const struct fixture *f, const char *tensor, const float *values, size_t count)
{
    struct espl_safetensors *set = NULL;
    struct espl_error err = {0};
    assert_int_equal(espl_safetensors_open(f->folder, &set, &err), ESPL_OK);
    const struct espl_safetensor *found = espl_safetensors_find(set, tensor);
    assert_non_null(found);
    FILE *file = fopen(espl_safetensors_file(set, found->file), "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)found->offset, SEEK_SET), 0);
    assert_int_equal(fwrite(values, sizeof *values, count, file), count);
    assert_int_equal(fclose(file), 0);
    espl_safetensors_close(set);
}

static void test_import__names_tensors_with_odd_values(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("llama");
    const float odd[] = {NAN, INFINITY, -INFINITY, 1.0f};
    const float large[] = {70000.0f};
    const float tiny[] = {1e-9f};
    struct fixture_log lines = {""};

    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F32, 0);
    poke(f, "model.layers.1.mlp.up_proj.weight", odd, 4);
    assert_int_equal(
        fixture_import(f, "a.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_COPY, &lines, NULL),
        ESPL_OK);
    assert_string_equal(
        lines.text,
        "tensor 'model.layers.1.mlp.up_proj.weight' holds 1 NaN and 2 infinite values\n");
    lines.text[0] = '\0';
    poke(f, "model.layers.1.mlp.up_proj.weight", tiny, 1);
    assert_int_equal(
        fixture_import(f, "b.h5", ESPL_IMPORT_DTYPE_F16, ESPL_IMPORT_STORAGE_COPY, &lines, NULL),
        ESPL_OK);
    assert_non_null(strstr(lines.text, "1 values are too small for f16"));
    poke(f, "model.layers.0.self_attn.o_proj.weight", large, 1);
    assert_int_equal(
        fixture_import(f, "c.h5", ESPL_IMPORT_DTYPE_F16, ESPL_IMPORT_STORAGE_COPY, NULL, NULL),
        ESPL_E_NUMERIC);
    assert_non_null(strstr(f->err.message, "'model.layers.0.self_attn.o_proj.weight'"));
    assert_string_equal(f->err.blame, "param:dtype");
}

/* ---- the shipped sample ---- */

static void test_import__sample_has_the_parameters_it_should(void **state)
{
    struct fixture *f = *state;
    struct espl_import_checkpoint *checkpoint = NULL;
    const enum espl_status status = espl_import_checkpoint_open(
        ESPL_SOURCE_DIR "/datasets/samples/llama-6m", NULL, &checkpoint, &f->err);
    if (status != ESPL_OK) {
        fail_msg("%s", f->err.message);
    }
    assert_string_equal(checkpoint->config.architecture, "llama");
    assert_string_equal(checkpoint->config.dtype, "bf16");
    /* 4096 x 256 embedding + 6 x (256 x (256 + 128 + 128 + 256) + 3 x 256 x 768 + 2 x 256) + 256 */
    assert_int_equal(espl_arch_parameters(&checkpoint->config), 5770496);
    assert_string_equal(espl_buf_text(&checkpoint->notes), "");
    espl_import_checkpoint_close(checkpoint);
}

static bool stop_at_once(void *user)
{
    (void)user;
    return true;
}

static void test_import__stops_when_asked(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("llama");
    struct espl_import_checkpoint *checkpoint = NULL;
    struct espl_import_choice choice;
    struct espl_artifact *artifact = NULL;
    char path[ESPL_PATH_MAX];
    const struct espl_import_hooks hooks = {.cancelled = stop_at_once};
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    assert_int_equal(espl_import_checkpoint_open(f->folder, NULL, &checkpoint, &f->err), ESPL_OK);
    assert_int_equal(espl_import_choose(checkpoint, ESPL_IMPORT_DTYPE_KEEP,
                                        ESPL_IMPORT_STORAGE_AUTO, &choice, &f->err),
                     ESPL_OK);
    fixture_join(path, f->dir, "a.h5");
    assert_int_equal(espl_artifact_create(path, "model.dense/1", &artifact, &f->err), ESPL_OK);
    assert_int_equal(espl_import_transfer(checkpoint, &choice, artifact, &hooks, &f->err),
                     ESPL_E_CANCELLED);
    espl_artifact_abandon(artifact);
    espl_import_checkpoint_close(checkpoint);
}

int main(void)
{
    espl_artifact_library_init();
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
        T(test_import__every_architecture_keeps_its_values),
        T(test_import__content_depends_on_neither_shards_nor_storage),
        T(test_import__reference_is_small_and_notices_a_changed_file),
        T(test_import__reference_is_stale_when_the_files_are_gone),
        T(test_import__converts_and_refuses_overflow),
        T(test_import__names_tensors_with_odd_values),
        T(test_import__sample_has_the_parameters_it_should),
        T(test_import__stops_when_asked),
#undef T
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

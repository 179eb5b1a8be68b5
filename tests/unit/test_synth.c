#include "core/fs.h"
#include "core/hash.h"
#include "model/element.h"
#include "model/safetensors.h"
#include "model/synth.h"
#include "stages/import/import_checkpoint.h"
#include "unit/model_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void test_synth__every_architecture_is_importable(void **state)
{
    static const char *const shapes[] = {"llama", "opt", "qwen2"};
    struct fixture *f = *state;
    for (size_t i = 0; i < 3; i++) {
        struct espl_import_checkpoint *checkpoint = NULL;
        const struct espl_synth_options options = {.folder = f->folder,
                                                   .shape = shapes[i],
                                                   .layers = 2,
                                                   .vocab = 99,
                                                   .dtype = ESPL_DTYPE_BF16,
                                                   .shard_size = 300000};
        uint64_t bytes = 0;
        if (espl_synth_write(&options, &bytes, &f->err) != ESPL_OK ||
            espl_import_checkpoint_open(f->folder, NULL, &checkpoint, &f->err) != ESPL_OK) {
            fail_msg("%s: %s", shapes[i], f->err.message);
        }
        assert_int_equal(bytes, 2 * espl_arch_parameters(&checkpoint->config));
        assert_true(espl_safetensors_file_count(checkpoint->files) > 3);
        assert_int_equal(checkpoint->config.vocab, 99);
        espl_import_checkpoint_close(checkpoint);
        assert_int_equal(espl_fs_remove_tree(f->folder, &f->err), ESPL_OK);
    }
}

/* Mean, spread and tail of a matrix; gains of a norm. */
static void test_synth__weights_are_normal(void **state)
{
    static const enum espl_dtype dtypes[] = {ESPL_DTYPE_F16, ESPL_DTYPE_BF16, ESPL_DTYPE_F32};
    struct fixture *f = *state;
    for (size_t i = 0; i < 3; i++) {
        const struct espl_synth_options options = {
            .folder = f->folder, .shape = "llama", .layers = 1, .dtype = dtypes[i], .seed = 7};
        struct espl_safetensors *set = NULL;
        assert_int_equal(espl_synth_write(&options, NULL, &f->err), ESPL_OK);
        assert_int_equal(espl_safetensors_open(f->folder, &set, &f->err), ESPL_OK);
        const struct espl_safetensor *tensor =
            espl_safetensors_find(set, "model.layers.0.mlp.up_proj.weight");
        const size_t count = 768 * 256;
        void *raw = malloc(tensor->bytes);
        float *values = malloc(count * sizeof *values);
        assert_int_equal(espl_safetensors_read(set, tensor, 0, raw, tensor->bytes, &f->err),
                         ESPL_OK);
        espl_element_to_f32(dtypes[i], raw, count, values);
        double sum = 0.0;
        double squares = 0.0;
        size_t beyond = 0;
        for (size_t j = 0; j < count; j++) {
            sum += (double)values[j];
            squares += (double)values[j] * (double)values[j];
            beyond += fabs((double)values[j]) > 0.04;
        }
        const double n = (double)count;
        /* four standard errors of each figure; 4.55 % of a normal lie beyond two sigma */
        assert_true(fabs(sum / n) < 4 * 0.02 / sqrt(n));
        assert_true(fabs(sqrt(squares / n) - 0.02) < 4 * 0.02 / sqrt(2 * n));
        assert_true(fabs((double)beyond / n - 0.0455) < 4 * sqrt(0.0455 / n) + 0.0015);
        tensor = espl_safetensors_find(set, "model.norm.weight");
        assert_int_equal(espl_safetensors_read(set, tensor, 0, raw, tensor->bytes, &f->err),
                         ESPL_OK);
        espl_element_to_f32(dtypes[i], raw, 256, values);
        for (size_t j = 0; j < 256; j++) {
            assert_true(values[j] == 1.0f);
        }
        free(values);
        free(raw);
        espl_safetensors_close(set);
        assert_int_equal(espl_fs_remove_tree(f->folder, &f->err), ESPL_OK);
    }
}

static void hash_of(struct fixture *f, uint64_t seed, uint64_t shard_size,
                    char hex[ESPL_SHA256_HEX])
{
    const struct espl_synth_options options = {.folder = f->folder,
                                               .shape = "opt",
                                               .layers = 1,
                                               .hidden = 36,
                                               .heads = 3,
                                               .ffn = 61,
                                               .vocab = 77,
                                               .dtype = ESPL_DTYPE_F16,
                                               .seed = seed,
                                               .shard_size = shard_size};
    char path[ESPL_PATH_MAX];
    if (espl_synth_write(&options, NULL, &f->err) != ESPL_OK) {
        fail_msg("%s", f->err.message);
    }
    fixture_join(path, f->folder, "model.safetensors");
    assert_int_equal(espl_sha256_file(path, hex, &f->err), ESPL_OK);
    assert_int_equal(espl_fs_remove_tree(f->folder, &f->err), ESPL_OK);
}

static void test_synth__equal_seeds_give_equal_bytes(void **state)
{
    struct fixture *f = *state;
    char one[ESPL_SHA256_HEX];
    char two[ESPL_SHA256_HEX];
    hash_of(f, 1, 0, one);
    hash_of(f, 1, 0, two);
    assert_string_equal(one, two);
    hash_of(f, 2, 0, two);
    assert_string_not_equal(one, two);
}

static void test_synth__target_size_sets_the_layers(void **state)
{
    struct espl_synth_options options = {
        .shape = "llama-2-7b", .dtype = ESPL_DTYPE_F16, .target_bytes = 4000000000u};
    struct espl_model_config config;
    struct espl_error err = {0};
    (void)state;
    assert_int_equal(espl_synth_config(&options, &config, &err), ESPL_OK);
    /* embeddings and head 524.3 MB, 404.8 MB a layer: 8 layers are 3.76 GB, 9 are 4.17 */
    assert_int_equal(config.layers, 8);
    options.target_bytes = 1;
    assert_int_equal(espl_synth_config(&options, &config, &err), ESPL_OK);
    assert_int_equal(config.layers, 1);
    options.target_bytes = UINT64_MAX;
    assert_int_equal(espl_synth_config(&options, &config, &err), ESPL_OK);
    assert_int_equal(config.layers, 32);
}

static void expect_usage(struct espl_synth_options options, const char *message, const char *hint)
{
    struct espl_model_config config;
    struct espl_error err = {0};
    assert_int_equal(espl_synth_config(&options, &config, &err), ESPL_E_USAGE);
    if (strstr(err.message, message) == NULL || strstr(err.hint, hint) == NULL) {
        fail_msg("'%s' (%s)", err.message, err.hint);
    }
}

/* Left out, the weights take no room, but files and headers are those of the whole checkpoint. */
static void test_synth__sparse_files_have_the_right_size(void **state)
{
    struct fixture *f = *state;
    struct espl_synth_options options = {
        .folder = f->folder, .shape = "llama", .layers = 2, .dtype = ESPL_DTYPE_BF16};
    char dense[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    uint64_t dense_bytes = 0;
    uint64_t sparse_bytes = 0;
    struct stat info;
    struct espl_safetensors *set = NULL;
    options.folder = fixture_join(dense, f->dir, "dense");
    assert_int_equal(espl_synth_write(&options, &dense_bytes, &f->err), ESPL_OK);
    options.folder = f->folder;
    options.sparse = true;
    assert_int_equal(espl_synth_write(&options, &sparse_bytes, &f->err), ESPL_OK);
    assert_int_equal(sparse_bytes, dense_bytes);
    assert_int_equal(stat(fixture_join(path, f->folder, "model.safetensors"), &info), 0);
    assert_true((uint64_t)info.st_blocks * 512 < dense_bytes / 4);
    uint64_t size = 0;
    assert_int_equal(
        espl_fs_file_size(fixture_join(path, dense, "model.safetensors"), &size, &f->err), ESPL_OK);
    assert_int_equal(info.st_size, size);
    assert_int_equal(espl_safetensors_open(f->folder, &set, &f->err), ESPL_OK);
    assert_non_null(espl_safetensors_find(set, "model.layers.1.mlp.up_proj.weight"));
    espl_safetensors_close(set);
}

static void test_synth__wrong_options_are_named(void **state)
{
    (void)state;
    expect_usage((struct espl_synth_options){.shape = "lama-2-7b", .dtype = ESPL_DTYPE_F16},
                 "unknown model shape 'lama-2-7b'", "did you mean 'llama-2-7b'?");
    expect_usage((struct espl_synth_options){.shape = "llama", .dtype = ESPL_DTYPE_I32}, "'i32'",
                 "");
    expect_usage((struct espl_synth_options){.shape = "llama", .heads = 3, .dtype = ESPL_DTYPE_F16},
                 "256 is not a multiple of 3", "");
    expect_usage(
        (struct espl_synth_options){.shape = "opt", .kv_heads = 2, .dtype = ESPL_DTYPE_F16},
        "no grouped key/value heads", "");
    expect_usage(
        (struct espl_synth_options){.shape = "llama", .layers = 5000, .dtype = ESPL_DTYPE_F16},
        "'layers'", "");
}

static bool stop_later(void *user, uint64_t done, uint64_t total)
{
    unsigned *calls = user;
    assert_true(done > 0 && done <= total);
    return ++*calls < 3;
}

static void test_synth__stops_and_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    unsigned calls = 0;
    const struct espl_synth_options options = {.folder = f->folder,
                                               .shape = "llama",
                                               .layers = 1,
                                               .dtype = ESPL_DTYPE_F16,
                                               .progress = stop_later,
                                               .progress_user = &calls};
    char **names = NULL;
    size_t count = 0;
    assert_int_equal(espl_synth_write(&options, NULL, &f->err), ESPL_E_CANCELLED);
    assert_int_equal(calls, 3);
    assert_int_equal(espl_fs_list(f->dir, 10, &names, &count, &f->err), ESPL_OK);
    assert_int_equal(count, 0);
    espl_fs_free_names(names, count);
    fixture_write_text(f->dir, "checkpoint", "mine");
    assert_int_equal(espl_synth_write(&options, NULL, &f->err), ESPL_E_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
        T(test_synth__every_architecture_is_importable),
        T(test_synth__weights_are_normal),
        T(test_synth__equal_seeds_give_equal_bytes),
        T(test_synth__sparse_files_have_the_right_size),
        cmocka_unit_test(test_synth__target_size_sets_the_layers),
        cmocka_unit_test(test_synth__wrong_options_are_named),
        T(test_synth__stops_and_leaves_nothing),
#undef T
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

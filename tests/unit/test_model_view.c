#include "core/fs.h"
#include "unit/model_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEY_BASE   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define KEY_MASKED "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define KEY_TWICE  "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"

struct viewed {
    char dir[ESPL_PATH_MAX];
    char base[ESPL_PATH_MAX];
    char masked[ESPL_PATH_MAX];
    char twice[ESPL_PATH_MAX];
    struct espl_artifact *artifact;
    struct espl_model *model;
    struct espl_error err;
};

static int setup(void **state)
{
    struct viewed *f = calloc(1, sizeof *f);
    fixture_make_dir(f->dir);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct viewed *f = *state;
    espl_model_close(f->model);
    espl_artifact_close(f->artifact);
    (void)espl_fs_remove_tree(f->dir, NULL);
    free(f);
    return 0;
}

static void open_model(struct viewed *f, const char *path)
{
    espl_model_close(f->model);
    espl_artifact_close(f->artifact);
    f->model = NULL;
    f->artifact = NULL;
    assert_int_equal(espl_artifact_open(path, &f->artifact, &f->err), ESPL_OK);
    if (espl_model_open(f->artifact, NULL, &f->model, &f->err) != ESPL_OK) {
        fail_msg("%s", f->err.message);
    }
}

static enum espl_status try_model(struct viewed *f, const char *path)
{
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    espl_error_clear(&f->err);
    assert_int_equal(espl_artifact_open(path, &artifact, &f->err), ESPL_OK);
    const enum espl_status status = espl_model_open(artifact, NULL, &model, &f->err);
    espl_model_close(model);
    espl_artifact_close(artifact);
    return status;
}

static size_t index_of(const struct viewed *f, const struct espl_tensor_spec *spec)
{
    return (size_t)(spec - espl_model_tensor(f->model, 0));
}

/* Is this weight kept when masks number 1 and, above it, number 2 (but for layer 0) apply? */
static bool is_kept(const struct espl_tensor_spec *spec, int levels, uint64_t r, uint64_t c)
{
    if (!espl_role_is_block_linear(spec->role) || spec->is_bias) {
        return true;
    }
    return (levels < 1 || fixture_mask_bit(1, r, c)) &&
           (levels < 2 || spec->layer == 0 || fixture_mask_bit(2, r, c));
}

/* Every tensor through all three readers. */
static void check_model(struct viewed *f, enum espl_dtype dtype, int levels)
{
    for (size_t i = 0; i < espl_model_tensor_count(f->model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(f->model, i);
        const size_t rows = (size_t)spec->shape[0];
        const size_t cols = (size_t)spec->shape[1];
        const size_t stride = (cols + 7) / 8;
        const size_t size = espl_dtype_size(dtype);
        float *values = malloc(rows * cols * sizeof *values);
        uint8_t *mask = malloc(rows * stride);
        uint8_t *raw = malloc(rows * cols * size);
        assert_int_equal(espl_model_dtype(f->model, spec), dtype);
        assert_int_equal(espl_model_has_mask(f->model, spec),
                         levels > 0 && espl_role_is_block_linear(spec->role) && !spec->is_bias);
        assert_int_equal(espl_model_read_f32(f->model, spec, 0, rows, values, &f->err), ESPL_OK);
        assert_int_equal(espl_model_read_mask(f->model, spec, 0, rows, mask, &f->err), ESPL_OK);
        assert_int_equal(
            espl_model_read_raw(f->model, spec, 0, rows, raw, rows * cols * size, &f->err),
            ESPL_OK);
        for (size_t r = 0; r < rows; r++) {
            for (size_t c = 0; c < cols; c++) {
                const bool kept = is_kept(spec, levels, r, c);
                const float expected = kept ? fixture_value(i, r * cols + c) : 0.0f;
                assert_true(values[r * cols + c] == expected);
                assert_int_equal(mask[r * stride + c / 8] >> (c % 8) & 1, kept);
                uint32_t zero = 0;
                if (!kept) { /* +0, not -0 */
                    assert_memory_equal(raw + (r * cols + c) * size, &zero, size);
                }
            }
            for (size_t c = cols; c < stride * 8; c++) {
                assert_int_equal(mask[r * stride + c / 8] >> (c % 8) & 1, 0);
            }
        }
        free(raw);
        free(mask);
        free(values);
    }
}

static void test_model__dense_in_every_type(void **state)
{
    static const enum espl_dtype dtypes[] = {ESPL_DTYPE_F16, ESPL_DTYPE_BF16, ESPL_DTYPE_F32};
    struct viewed *f = *state;
    const struct espl_model_config config = fixture_config("opt-post");
    for (size_t i = 0; i < 3; i++) {
        fixture_write_artifact(f->dir, KEY_BASE, &config, dtypes[i], f->base, NULL);
        open_model(f, f->base);
        check_model(f, dtypes[i], 0);
    }
}

static void write_chain(struct viewed *f, const char *config_name, enum espl_dtype dtype)
{
    const struct espl_model_config config = fixture_config(config_name);
    fixture_write_artifact(f->dir, KEY_BASE, &config, dtype, f->base, NULL);
    fixture_write_masked(f->dir, KEY_MASKED, f->base, 1, -1, f->masked);
    fixture_write_masked(f->dir, KEY_TWICE, f->masked, 2, 0, f->twice);
}

static void test_model__masks_apply_in_every_type(void **state)
{
    static const enum espl_dtype dtypes[] = {ESPL_DTYPE_F16, ESPL_DTYPE_BF16, ESPL_DTYPE_F32};
    struct viewed *f = *state;
    for (size_t i = 0; i < 3; i++) {
        write_chain(f, "llama", dtypes[i]);
        open_model(f, f->masked);
        check_model(f, dtypes[i], 1);
    }
}

static void test_model__masks_over_masks_are_anded(void **state)
{
    struct viewed *f = *state;
    write_chain(f, "qwen2", ESPL_DTYPE_BF16);
    open_model(f, f->twice);
    check_model(f, ESPL_DTYPE_BF16, 2);
}

static void test_model__found_through_a_link(void **state)
{
    struct viewed *f = *state;
    char folder[ESPL_PATH_MAX];
    char link[ESPL_PATH_MAX];
    write_chain(f, "llama", ESPL_DTYPE_F16);
    fixture_join(folder, f->dir, "by-name");
    assert_int_equal(espl_fs_make_dirs(folder, &f->err), ESPL_OK);
    fixture_join(link, folder, "prune.h5");
    assert_int_equal(symlink(f->masked, link), 0);
    open_model(f, link);
    check_model(f, ESPL_DTYPE_F16, 1);
}

static void test_model__rows_in_the_middle(void **state)
{
    struct viewed *f = *state;
    write_chain(f, "llama", ESPL_DTYPE_BF16);
    open_model(f, f->masked);
    const struct espl_tensor_spec *spec = espl_model_find(f->model, 1, ESPL_ROLE_DOWN, false);
    assert_non_null(spec);
    float rows[3 * 51];
    assert_int_equal(espl_model_read_f32(f->model, spec, 34, 3, rows, &f->err), ESPL_OK);
    for (uint64_t r = 0; r < 3; r++) {
        for (uint64_t c = 0; c < 51; c++) {
            const float expected = fixture_mask_bit(1, 34 + r, c)
                                       ? fixture_value(index_of(f, spec), (34 + r) * 51 + c)
                                       : 0.0f;
            assert_true(rows[r * 51 + c] == expected);
        }
    }
    assert_int_equal(espl_model_read_f32(f->model, spec, 35, 3, rows, &f->err), ESPL_E_INTERNAL);
    assert_int_equal(espl_model_read_raw(f->model, spec, 0, 1, rows, 101, &f->err),
                     ESPL_E_INTERNAL);
}

static void test_model_find__by_place(void **state)
{
    struct viewed *f = *state;
    const struct espl_model_config config = fixture_config("opt");
    fixture_write_artifact(f->dir, KEY_BASE, &config, ESPL_DTYPE_F16, f->base, NULL);
    open_model(f, f->base);
    assert_string_equal(espl_model_find(f->model, 1, ESPL_ROLE_FC1, true)->name,
                        "model.decoder.layers.1.fc1.bias");
    assert_string_equal(espl_model_find(f->model, -1, ESPL_ROLE_FINAL_NORM, false)->name,
                        "model.decoder.final_layer_norm.weight");
    assert_null(espl_model_find(f->model, -1, ESPL_ROLE_HEAD, false));
    assert_null(espl_model_find(f->model, 2, ESPL_ROLE_FC1, false));
}

static void test_model_open__base_is_gone(void **state)
{
    struct viewed *f = *state;
    write_chain(f, "llama", ESPL_DTYPE_F16);
    assert_int_equal(unlink(f->base), 0);
    assert_int_equal(try_model(f, f->twice), ESPL_E_NOTFOUND);
    assert_non_null(strstr(f->err.message, "is gone (key aaaaaaaaaaaa)"));
    assert_non_null(strstr(f->err.hint, KEY_BASE ".h5"));
}

/* Both files in a results folder of their own, which is not the caller's. */
static void test_model_open__base_in_the_store_of_the_file(void **state)
{
    struct viewed *f = *state;
    struct espl_store own, other;
    char folder[ESPL_PATH_MAX], private_path[ESPL_PATH_MAX];
    char masked[ESPL_PATH_MAX];
    const char *files[] = {f->base, f->masked};
    const char *keys[] = {KEY_BASE, KEY_MASKED};
    write_chain(f, "llama", ESPL_DTYPE_F16);
    fixture_join(folder, f->dir, "own");
    assert_int_equal(espl_store_open(folder, &own, &f->err), ESPL_OK);
    fixture_join(folder, f->dir, "other");
    assert_int_equal(espl_store_open(folder, &other, &f->err), ESPL_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(espl_store_private_path(&own, keys[i], "out", private_path, &f->err),
                         ESPL_OK);
        assert_int_equal(rename(files[i], private_path), 0);
        assert_int_equal(espl_store_publish(&own, private_path, keys[i], NULL, &f->err), ESPL_OK);
    }
    assert_int_equal(espl_store_artifact_path(&own, KEY_MASKED, NULL, masked, &f->err), ESPL_OK);
    assert_int_equal(espl_artifact_open(masked, &f->artifact, &f->err), ESPL_OK);
    assert_int_equal(espl_model_open(f->artifact, &other, &f->model, &f->err), ESPL_OK);
}

static void test_model_open__base_has_other_content(void **state)
{
    struct viewed *f = *state;
    write_chain(f, "llama", ESPL_DTYPE_F16);
    struct espl_model_config config = fixture_config("llama");
    config.norm_eps = 1e-6;
    fixture_write_artifact(f->dir, KEY_BASE, &config, ESPL_DTYPE_F16, f->base, NULL);
    assert_int_equal(try_model(f, f->masked), ESPL_E_CORRUPT);
    assert_non_null(strstr(f->err.message, "but the masks were made for"));
}

static void test_model_open__not_a_model(void **state)
{
    struct viewed *f = *state;
    struct espl_artifact *artifact = NULL;
    char path[ESPL_PATH_MAX];
    fixture_join(path, f->dir, "unit.h5");
    assert_int_equal(espl_artifact_create(path, "unit/1", &artifact, &f->err), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &f->err), ESPL_OK);
    assert_int_equal(try_model(f, path), ESPL_E_KIND);

    /* The right kind and description, but no tensors. */
    const struct espl_model_config config = fixture_config("llama");
    json_t *description = espl_model_description(&config);
    char *text = json_dumps(description, JSON_SORT_KEYS);
    fixture_join(path, f->dir, "hollow.h5");
    assert_int_equal(espl_artifact_create(path, "model.dense/1", &artifact, &f->err), ESPL_OK);
    assert_int_equal(espl_artifact_set_description(artifact, text, &f->err), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &f->err), ESPL_OK);
    assert_int_equal(try_model(f, path), ESPL_E_CORRUPT);
    assert_non_null(strstr(f->err.message, "has no tensor '/embed_tokens/weight'"));
    free(text);
    json_decref(description);
}

static void test_model_write_mask__bits_behind_the_last_column(void **state)
{
    struct viewed *f = *state;
    struct espl_artifact *output = NULL;
    char path[ESPL_PATH_MAX];
    write_chain(f, "llama", ESPL_DTYPE_F16);
    open_model(f, f->base);
    const struct espl_tensor_spec *spec = espl_model_find(f->model, 0, ESPL_ROLE_Q, false);
    uint8_t *mask = fixture_mask(1, spec);
    mask[4] |= 0x20; /* 37 columns: bits 5 to 7 of byte 4 are unused */
    fixture_join(path, f->dir, "x.h5");
    assert_int_equal(espl_artifact_create(path, "unit/1", &output, &f->err), ESPL_OK);
    assert_int_equal(espl_model_write_mask(output, spec, mask, &f->err), ESPL_E_INTERNAL);
    mask[4] &= 0x1f;
    assert_int_equal(espl_model_write_mask(output, spec, mask, &f->err), ESPL_OK);
    espl_artifact_abandon(output);
    free(mask);
}

static void test_model_begin_masked__needs_a_key(void **state)
{
    struct viewed *f = *state;
    struct espl_artifact *output = NULL;
    const struct espl_model_config config = fixture_config("llama");
    char path[ESPL_PATH_MAX];
    fixture_write_artifact(f->dir, "", &config, ESPL_DTYPE_F16, f->base, NULL);
    open_model(f, f->base);
    fixture_join(path, f->dir, "x.h5");
    json_t *pruning = json_object();
    assert_int_equal(espl_artifact_create(path, "model.masked/1", &output, &f->err), ESPL_OK);
    assert_int_equal(espl_model_begin_masked(output, f->model, pruning, &f->err), ESPL_E_KIND);
    espl_artifact_abandon(output);
    json_decref(pruning);
}

int main(void)
{
    espl_artifact_library_init();
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_model__dense_in_every_type),
        T(test_model__masks_apply_in_every_type),
        T(test_model__masks_over_masks_are_anded),
        T(test_model__found_through_a_link),
        T(test_model__rows_in_the_middle),
        T(test_model_find__by_place),
        T(test_model_open__base_is_gone),
        T(test_model_open__base_in_the_store_of_the_file),
        T(test_model_open__base_has_other_content),
        T(test_model_open__not_a_model),
        T(test_model_write_mask__bits_behind_the_last_column),
        T(test_model_begin_masked__needs_a_key),
#undef T
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

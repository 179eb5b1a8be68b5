#include "core/fs.h"
#include "stages/import/import_checkpoint.h"
#include "stages/import/import_transfer.h"
#include "unit/model_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/checkpoint_writer.h"
#include "model/element.h"
#include "model/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fixture {
    char dir[ESPL_PATH_MAX];
    char folder[ESPL_PATH_MAX];
    struct espl_error err;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    fixture_make_dir(f->dir);
    fixture_join(f->folder, f->dir, "checkpoint");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    (void)espl_fs_remove_tree(f->dir, NULL);
    free(f);
    return 0;
}

struct log_lines {
    char text[4096];
};

static void keep_line(void *user, enum espl_log_level level, const char *line)
{
    struct log_lines *lines = user;
    const size_t len = strlen(lines->text);
    (void)level;
    (void)snprintf(lines->text + len, sizeof lines->text - len, "%s\n", line);
}

/* Imports f->folder to dir/name and returns the status; content: of the artifact. */
static enum espl_status import(struct fixture *f, const char *name, enum espl_import_dtype dtype,
                               enum espl_import_storage storage, struct log_lines *lines,
                               char content[ESPL_SHA256_HEX])
{
    struct espl_import_checkpoint *checkpoint = NULL;
    struct espl_import_choice choice;
    struct espl_artifact *artifact = NULL;
    char path[ESPL_PATH_MAX];
    const struct espl_log log = {keep_line, lines, ESPL_LOG_DEBUG};
    const struct espl_import_hooks hooks = {.log = lines != NULL ? &log : NULL};

    espl_error_clear(&f->err);
    enum espl_status status = espl_import_checkpoint_open(f->folder, NULL, &checkpoint, &f->err);
    if (status == ESPL_OK) {
        status = espl_import_choose(checkpoint, dtype, storage, &choice, &f->err);
    }
    if (status == ESPL_OK) {
        fixture_join(path, f->dir, name);
        assert_int_equal(espl_artifact_create(path, "model.dense/1", &artifact, &f->err), ESPL_OK);
        status = espl_import_transfer(checkpoint, &choice, artifact, &hooks, &f->err);
        if (status == ESPL_OK) {
            assert_int_equal(espl_artifact_finish(&artifact, content, &f->err), ESPL_OK);
        } else {
            espl_artifact_abandon(artifact);
        }
    }
    espl_import_checkpoint_close(checkpoint);
    return status;
}

static void expect_error(struct fixture *f, enum espl_status status, const char *message,
                         const char *hint)
{
    struct espl_import_checkpoint *checkpoint = NULL;
    espl_error_clear(&f->err);
    const enum espl_status got = espl_import_checkpoint_open(f->folder, NULL, &checkpoint, &f->err);
    espl_import_checkpoint_close(checkpoint);
    assert_int_equal(got, status);
    if (strstr(f->err.message, message) == NULL) {
        fail_msg("message '%s' does not say '%s'", f->err.message, message);
    }
    if (strstr(f->err.hint, hint) == NULL) {
        fail_msg("hint '%s' does not say '%s'", f->err.hint, hint);
    }
}

/* ---- content ---- */

static void check_values(const struct fixture *f, const char *name,
                         const struct espl_model_config *config, enum espl_dtype dtype)
{
    struct espl_error err = {0};
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    char path[ESPL_PATH_MAX];
    fixture_join(path, f->dir, name);
    assert_int_equal(espl_artifact_open(path, &artifact, &err), ESPL_OK);
    if (espl_model_open(artifact, NULL, &model, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    assert_string_equal(espl_model_get_config(model)->dtype, espl_dtype_name(dtype));
    assert_int_equal(espl_model_get_config(model)->ffn, config->ffn);
    for (size_t i = 0; i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        const size_t count = (size_t)(spec->shape[0] * spec->shape[1]);
        float *values = malloc(count * sizeof *values);
        assert_int_equal(espl_model_dtype(model, spec), dtype);
        assert_int_equal(espl_model_read_f32(model, spec, 0, spec->shape[0], values, &err),
                         ESPL_OK);
        for (size_t j = 0; j < count; j++) {
            if (values[j] != fixture_value(i, j)) {
                fail_msg("%s[%zu] = %g", spec->name, j, (double)values[j]);
            }
        }
        free(values);
    }
    espl_model_close(model);
    espl_artifact_close(artifact);
}

static void test_import__every_architecture_keeps_its_values(void **state)
{
    static const char *const names[] = {"llama", "llama-tied", "opt", "opt-post", "qwen2"};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct espl_model_config config = fixture_config(names[i]);
        (void)espl_fs_remove_tree(f->folder, NULL);
        fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_BF16, 0);
        if (import(f, "a.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_AUTO, NULL, NULL) !=
            ESPL_OK) {
            fail_msg("%s: %s (%s)", names[i], f->err.message, f->err.context);
        }
        check_values(f, "a.h5", &config, ESPL_DTYPE_BF16);
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
    assert_int_equal(import(f, "a.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_COPY, NULL, one),
                     ESPL_OK);
    (void)espl_fs_remove_tree(f->folder, NULL);
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 20000);
    char shard[ESPL_PATH_MAX];
    fixture_join(shard, f->folder, "model.safetensors.index.json");
    assert_true(espl_fs_exists(shard));
    assert_int_equal(
        import(f, "b.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_COPY, NULL, many), ESPL_OK);
    assert_int_equal(
        import(f, "c.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_REFERENCE, NULL, referred),
        ESPL_OK);
    assert_string_equal(one, many);
    assert_string_equal(one, referred);
    check_values(f, "c.h5", &config, ESPL_DTYPE_F16);
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
    assert_int_equal(
        import(f, "c.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_REFERENCE, NULL, NULL),
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
    assert_int_equal(
        import(f, "c.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_REFERENCE, NULL, NULL),
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
    struct log_lines lines = {""};

    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    assert_int_equal(
        import(f, "a.h5", ESPL_IMPORT_DTYPE_F32, ESPL_IMPORT_STORAGE_AUTO, &lines, NULL), ESPL_OK);
    check_values(f, "a.h5", &config, ESPL_DTYPE_F32);
    assert_int_equal(
        import(f, "b.h5", ESPL_IMPORT_DTYPE_BF16, ESPL_IMPORT_STORAGE_AUTO, &lines, NULL), ESPL_OK);
    check_values(f, "b.h5", &config, ESPL_DTYPE_BF16);
    assert_string_equal(lines.text, "");
    assert_int_equal(
        import(f, "c.h5", ESPL_IMPORT_DTYPE_F32, ESPL_IMPORT_STORAGE_REFERENCE, NULL, NULL),
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
    struct log_lines lines = {""};

    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F32, 0);
    poke(f, "model.layers.1.mlp.up_proj.weight", odd, 4);
    assert_int_equal(
        import(f, "a.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_COPY, &lines, NULL), ESPL_OK);
    assert_string_equal(
        lines.text,
        "tensor 'model.layers.1.mlp.up_proj.weight' holds 1 NaN and 2 infinite values\n");
    lines.text[0] = '\0';
    poke(f, "model.layers.1.mlp.up_proj.weight", tiny, 1);
    assert_int_equal(
        import(f, "b.h5", ESPL_IMPORT_DTYPE_F16, ESPL_IMPORT_STORAGE_COPY, &lines, NULL), ESPL_OK);
    assert_non_null(strstr(lines.text, "1 values are too small for f16"));
    poke(f, "model.layers.0.self_attn.o_proj.weight", large, 1);
    assert_int_equal(import(f, "c.h5", ESPL_IMPORT_DTYPE_F16, ESPL_IMPORT_STORAGE_COPY, NULL, NULL),
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

/* ---- what does not fit ---- */

/* Writes config.json of `config` over the folder's files. */
static void change_config(const struct fixture *f, const struct espl_model_config *config)
{
    struct espl_error err = {0};
    assert_int_equal(
        espl_checkpoint_write_json(f->folder, "config.json", espl_model_config_to_hf(config), &err),
        ESPL_OK);
}

static void test_import__grouped_heads_are_recognised(void **state)
{
    struct fixture *f = *state;
    struct espl_model_config config = fixture_config("llama");
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    config.kv_heads = 4;
    change_config(f, &config);
    expect_error(f, ESPL_E_KIND,
                 "tensor 'model.layers.0.self_attn.k_proj.weight' has shape 160 x 37, expected 320 "
                 "x 37",
                 "160 = 2 key/value heads x 80: this looks like a grouped-query model, but "
                 "config.json says num_key_value_heads = 4");
    assert_string_equal(f->err.context, "in file model.safetensors; 4 tensors differ the same way");
}

static void test_import__padded_vocabulary_is_recognised(void **state)
{
    struct fixture *f = *state;
    struct espl_model_config config = fixture_config("llama");
    config.vocab = 32;
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    config.vocab = 29;
    change_config(f, &config);
    expect_error(f, ESPL_E_KIND, "tensor 'model.embed_tokens.weight' has shape 32 x 37",
                 "the vocabulary looks padded to a multiple of 32");
}

static void test_import__missing_head_means_tied(void **state)
{
    struct fixture *f = *state;
    struct espl_model_config config = fixture_config("llama-tied");
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    config.tied_embeddings = false;
    change_config(f, &config);
    expect_error(f, ESPL_E_KIND, "1 missing ('lm_head.weight')",
                 "the embeddings are probably tied");
}

static void test_import__other_layer_counts(void **state)
{
    struct fixture *f = *state;
    struct espl_model_config config = fixture_config("llama");
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    config.layers = 3;
    change_config(f, &config);
    expect_error(f, ESPL_E_KIND, "9 missing ('model.layers.2.input_layernorm.weight', ",
                 "the files hold 2 layers, config.json says num_hidden_layers = 3");
    config.layers = 1;
    change_config(f, &config);
    expect_error(f, ESPL_E_KIND, "9 unexpected ('model.layers.1.input_layernorm.weight', ",
                 "the files hold 2 layers, but config.json says num_hidden_layers = 1");
}

static void test_import__unannounced_biases(void **state)
{
    struct fixture *f = *state;
    struct espl_model_config config = fixture_config("llama");
    config.attention_bias = true;
    config.output_bias = true;
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    config.attention_bias = false;
    config.output_bias = false;
    change_config(f, &config);
    expect_error(f, ESPL_E_KIND, "8 unexpected ('model.layers.0.self_attn.k_proj.bias', ",
                 "the files hold biases, but config.json says attention_bias = false");
    config = fixture_config("opt");
    (void)espl_fs_remove_tree(f->folder, NULL);
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    config.norm_affine = false;
    change_config(f, &config);
    expect_error(f, ESPL_E_KIND, "unexpected", "layer_norm_elementwise_affine = false");
}

static void test_import__names_of_another_architecture(void **state)
{
    struct fixture *f = *state;
    struct espl_model_config config = fixture_config("opt");
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    const struct espl_model_config other = fixture_config("llama");
    change_config(f, &other);
    expect_error(f, ESPL_E_KIND, "missing", "the names are not those of llama");
}

static void test_import__missing_folder_says_what_is_there(void **state)
{
    struct fixture *f = *state;
    char path[ESPL_PATH_MAX];
    char expected[ESPL_PATH_MAX + 64];
    struct espl_error err = {0};
    fixture_join(path, f->dir, "llama-2-7b-hf");
    assert_int_equal(espl_fs_make_dirs(path, &err), ESPL_OK);
    fixture_join(path, f->dir, "tiny-llama");
    assert_int_equal(espl_fs_make_dirs(path, &err), ESPL_OK);
    (void)snprintf(expected, sizeof expected, "'%s' holds: llama-2-7b-hf, tiny-llama", f->dir);
    expect_error(f, ESPL_E_NOTFOUND, "cannot find checkpoint '", expected);
    fixture_join(f->folder, f->dir, "no/such/place");
    expect_error(f, ESPL_E_NOTFOUND, "cannot find checkpoint '", expected);
}

static void test_import__folders_that_are_no_checkpoints(void **state)
{
    struct fixture *f = *state;
    struct espl_error err = {0};
    const struct espl_model_config config = fixture_config("llama");

    assert_int_equal(espl_fs_make_dirs(f->folder, &err), ESPL_OK);
    expect_error(f, ESPL_E_NOTFOUND, "no config.json", "");
    fixture_write_text(f->folder, "config.json", "{\"model_type\": \"llama\", ");
    expect_error(f, ESPL_E_CORRUPT, "is not valid JSON", "");
    fixture_write_text(f->folder, "config.json", "{\"model_type\": \"mistral\"}");
    expect_error(f, ESPL_E_UNSUPPORTED, "model_type 'mistral'", "supported: llama, opt, qwen2");
    change_config(f, &config);
    expect_error(f, ESPL_E_NOTFOUND, "no .safetensors files", "");
    fixture_write_text(f->folder, "pytorch_model.bin", "PK");
    expect_error(f, ESPL_E_UNSUPPORTED, "'pytorch_model.bin' is a pickle", "save_pretrained");
    fixture_join(f->folder, f->dir, "checkpoint/config.json");
    expect_error(f, ESPL_E_KIND, "is a file, expected a folder", "");
}

static void test_import__arch_that_contradicts_the_config(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("llama");
    struct espl_import_checkpoint *checkpoint = NULL;
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    assert_int_equal(espl_import_checkpoint_open(f->folder, "opt", &checkpoint, &f->err),
                     ESPL_E_KIND);
    assert_string_equal(f->err.blame, "param:arch");
    assert_int_equal(espl_import_checkpoint_open(f->folder, "llama", &checkpoint, &f->err),
                     ESPL_OK);
    espl_import_checkpoint_close(checkpoint);
}

/* ---- names and tied heads in the wild: files written tensor by tensor ---- */

/* Rewrites model.safetensors with renamed tensors; extra: one more copy of `extra_of`, with its
 * first element changed when `different`. */
static void rewrite(const struct fixture *f, const char *from, const char *to, const char *extra,
                    const char *extra_of, bool different)
{
    struct espl_safetensors *set = NULL;
    struct espl_safetensors_writer *writer = NULL;
    struct espl_error err = {0};
    char path[ESPL_PATH_MAX];
    assert_int_equal(espl_safetensors_open(f->folder, &set, &err), ESPL_OK);
    const size_t count = espl_safetensors_count(set);
    struct espl_safetensor *list = calloc(count + 1, sizeof *list);
    for (size_t i = 0; i < count; i++) {
        list[i] = *espl_safetensors_tensor(set, i);
        if (strncmp(list[i].name, from, strlen(from)) == 0) {
            (void)snprintf(list[i].name, sizeof list[i].name, "%s%s", to,
                           espl_safetensors_tensor(set, i)->name + strlen(from));
        }
    }
    const struct espl_safetensor *twin = NULL;
    if (extra != NULL) {
        twin = espl_safetensors_find(set, extra_of);
        assert_non_null(twin);
        list[count] = *twin;
        (void)snprintf(list[count].name, sizeof list[count].name, "%s", extra);
    }
    fixture_join(path, f->folder, "model.safetensors");
    assert_int_equal(
        espl_safetensors_writer_open(path, list, count + (twin != NULL), NULL, &writer, &err),
        ESPL_OK);
    for (size_t i = 0; i < count + (twin != NULL); i++) {
        const struct espl_safetensor *tensor = i < count ? espl_safetensors_tensor(set, i) : twin;
        char *data = malloc(tensor->bytes);
        assert_int_equal(espl_safetensors_read(set, tensor, 0, data, tensor->bytes, &err), ESPL_OK);
        if (i == count && different) {
            data[0] ^= 1;
        }
        assert_int_equal(espl_safetensors_writer_append(writer, data, tensor->bytes, &err),
                         ESPL_OK);
        free(data);
    }
    assert_int_equal(espl_safetensors_writer_finish(&writer, &err), ESPL_OK);
    free(list);
    espl_safetensors_close(set);
}

static void test_import__prefixes_may_be_missing(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("opt");
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    rewrite(f, "model.decoder.", "decoder.", NULL, NULL, false);
    assert_int_equal(
        import(f, "a.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_COPY, NULL, NULL), ESPL_OK);
    check_values(f, "a.h5", &config, ESPL_DTYPE_F16);
}

static void test_import__tied_head_stored_under_either_name(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("llama-tied");
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    rewrite(f, "model.embed_tokens.weight", "lm_head.weight", NULL, NULL, false);
    assert_int_equal(
        import(f, "a.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_COPY, NULL, NULL), ESPL_OK);
    check_values(f, "a.h5", &config, ESPL_DTYPE_F16);
}

static void test_import__tied_head_stored_twice(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("llama-tied");
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    rewrite(f, "-", "-", "lm_head.weight", "model.embed_tokens.weight", false);
    assert_int_equal(
        import(f, "a.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_COPY, NULL, NULL), ESPL_OK);
    check_values(f, "a.h5", &config, ESPL_DTYPE_F16);

    (void)espl_fs_remove_tree(f->folder, NULL);
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    rewrite(f, "-", "-", "lm_head.weight", "model.embed_tokens.weight", true);
    assert_int_equal(
        import(f, "b.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_COPY, NULL, NULL),
        ESPL_E_KIND);
    assert_non_null(strstr(f->err.message, "differs from 'model.embed_tokens.weight'"));
    assert_non_null(strstr(f->err.hint, "tie_word_embeddings"));
}

static void test_import__harmless_tensors_are_ignored(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("llama");
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    rewrite(f, "-", "-", "model.layers.0.self_attn.rotary_emb.inv_freq", "model.norm.weight",
            false);
    assert_int_equal(
        import(f, "a.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_COPY, NULL, NULL), ESPL_OK);
    rewrite(f, "-", "-", "model.layers.0.self_attn.q_norm.weight", "model.norm.weight", false);
    expect_error(f, ESPL_E_KIND, "1 unexpected ('model.layers.0.self_attn.q_norm.weight')", "");
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
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_import__every_architecture_keeps_its_values),
        T(test_import__content_depends_on_neither_shards_nor_storage),
        T(test_import__reference_is_small_and_notices_a_changed_file),
        T(test_import__reference_is_stale_when_the_files_are_gone),
        T(test_import__converts_and_refuses_overflow),
        T(test_import__names_tensors_with_odd_values),
        T(test_import__sample_has_the_parameters_it_should),
        T(test_import__grouped_heads_are_recognised),
        T(test_import__padded_vocabulary_is_recognised),
        T(test_import__missing_head_means_tied),
        T(test_import__other_layer_counts),
        T(test_import__unannounced_biases),
        T(test_import__names_of_another_architecture),
        T(test_import__missing_folder_says_what_is_there),
        T(test_import__folders_that_are_no_checkpoints),
        T(test_import__arch_that_contradicts_the_config),
        T(test_import__prefixes_may_be_missing),
        T(test_import__tied_head_stored_under_either_name),
        T(test_import__tied_head_stored_twice),
        T(test_import__harmless_tensors_are_ignored),
        T(test_import__stops_when_asked),
#undef T
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

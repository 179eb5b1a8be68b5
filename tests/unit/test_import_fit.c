/* Checkpoints whose tensors and config.json do not quite belong together: what is recognised, what
 * is accepted and what is refused. */
#include "core/fs.h"
#include "stages/import/import_checkpoint.h"
#include "unit/import_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/checkpoint_writer.h"
#include "model/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    fixture_import_fails(
        f, ESPL_E_KIND,
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
    fixture_import_fails(f, ESPL_E_KIND, "tensor 'model.embed_tokens.weight' has shape 32 x 37",
                         "the vocabulary looks padded to a multiple of 32");
}

static void test_import__missing_head_means_tied(void **state)
{
    struct fixture *f = *state;
    struct espl_model_config config = fixture_config("llama-tied");
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    config.tied_embeddings = false;
    change_config(f, &config);
    fixture_import_fails(f, ESPL_E_KIND, "1 missing ('lm_head.weight')",
                         "the embeddings are probably tied");
}

static void test_import__other_layer_counts(void **state)
{
    struct fixture *f = *state;
    struct espl_model_config config = fixture_config("llama");
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    config.layers = 3;
    change_config(f, &config);
    fixture_import_fails(f, ESPL_E_KIND, "9 missing ('model.layers.2.input_layernorm.weight', ",
                         "the files hold 2 layers, config.json says num_hidden_layers = 3");
    config.layers = 1;
    change_config(f, &config);
    fixture_import_fails(f, ESPL_E_KIND, "9 unexpected ('model.layers.1.input_layernorm.weight', ",
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
    fixture_import_fails(f, ESPL_E_KIND, "8 unexpected ('model.layers.0.self_attn.k_proj.bias', ",
                         "the files hold biases, but config.json says attention_bias = false");
    config = fixture_config("opt");
    (void)espl_fs_remove_tree(f->folder, NULL);
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    config.norm_affine = false;
    change_config(f, &config);
    fixture_import_fails(f, ESPL_E_KIND, "unexpected", "layer_norm_elementwise_affine = false");
}

static void test_import__names_of_another_architecture(void **state)
{
    struct fixture *f = *state;
    struct espl_model_config config = fixture_config("opt");
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    const struct espl_model_config other = fixture_config("llama");
    change_config(f, &other);
    fixture_import_fails(f, ESPL_E_KIND, "missing", "the names are not those of llama");
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
    fixture_import_fails(f, ESPL_E_NOTFOUND, "cannot find checkpoint '", expected);
    fixture_join(f->folder, f->dir, "no/such/place");
    fixture_import_fails(f, ESPL_E_NOTFOUND, "cannot find checkpoint '", expected);
}

static void test_import__folders_that_are_no_checkpoints(void **state)
{
    struct fixture *f = *state;
    struct espl_error err = {0};
    const struct espl_model_config config = fixture_config("llama");

    assert_int_equal(espl_fs_make_dirs(f->folder, &err), ESPL_OK);
    fixture_import_fails(f, ESPL_E_NOTFOUND, "no config.json", "");
    fixture_write_text(f->folder, "config.json", "{\"model_type\": \"llama\", ");
    fixture_import_fails(f, ESPL_E_CORRUPT, "is not valid JSON", "");
    fixture_write_text(f->folder, "config.json", "{\"model_type\": \"mistral\"}");
    fixture_import_fails(f, ESPL_E_UNSUPPORTED, "model_type 'mistral'",
                         "supported: llama, opt, qwen2");
    change_config(f, &config);
    fixture_import_fails(f, ESPL_E_NOTFOUND, "no .safetensors files", "");
    fixture_write_text(f->folder, "pytorch_model.bin", "PK");
    fixture_import_fails(f, ESPL_E_UNSUPPORTED, "'pytorch_model.bin' is a pickle",
                         "save_pretrained");
    fixture_join(f->folder, f->dir, "checkpoint/config.json");
    fixture_import_fails(f, ESPL_E_KIND, "is a file, expected a folder", "");
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
        fixture_import(f, "a.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_COPY, NULL, NULL),
        ESPL_OK);
    fixture_check_import(f, "a.h5", &config, ESPL_DTYPE_F16);
}

static void test_import__tied_head_stored_under_either_name(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("llama-tied");
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    rewrite(f, "model.embed_tokens.weight", "lm_head.weight", NULL, NULL, false);
    assert_int_equal(
        fixture_import(f, "a.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_COPY, NULL, NULL),
        ESPL_OK);
    fixture_check_import(f, "a.h5", &config, ESPL_DTYPE_F16);
}

static void test_import__tied_head_stored_twice(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("llama-tied");
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    rewrite(f, "-", "-", "lm_head.weight", "model.embed_tokens.weight", false);
    assert_int_equal(
        fixture_import(f, "a.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_COPY, NULL, NULL),
        ESPL_OK);
    fixture_check_import(f, "a.h5", &config, ESPL_DTYPE_F16);

    (void)espl_fs_remove_tree(f->folder, NULL);
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F16, 0);
    rewrite(f, "-", "-", "lm_head.weight", "model.embed_tokens.weight", true);
    assert_int_equal(
        fixture_import(f, "b.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_COPY, NULL, NULL),
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
        fixture_import(f, "a.h5", ESPL_IMPORT_DTYPE_KEEP, ESPL_IMPORT_STORAGE_COPY, NULL, NULL),
        ESPL_OK);
    rewrite(f, "-", "-", "model.layers.0.self_attn.q_norm.weight", "model.norm.weight", false);
    fixture_import_fails(f, ESPL_E_KIND, "1 unexpected ('model.layers.0.self_attn.q_norm.weight')",
                         "");
}

int main(void)
{
    espl_artifact_library_init();
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
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
#undef T
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

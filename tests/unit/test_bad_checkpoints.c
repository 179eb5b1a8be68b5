/* Checkpoints as careless or hostile hands leave them: one thing wrong in each. Every one must be
 * refused with a status and a message that names what is wrong; none may be read in part. */
#include "unit/checkpoint_damage.h"
#include "unit/model_fixture.h"

#include "stages/import/import_checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHARD_BYTES = 20000 };

/* docs/cli.md: the input is at fault, or this build does not know a feature of it. */
enum { EXIT_INPUT = 4, EXIT_UNKNOWN = 5 };

/* ---- the table ---- */

enum edit { EDIT_CONFIG, EDIT_HEADER, EDIT_FILE, EDIT_INDEX, EDIT_SHARD };

struct bad {
    enum edit edit;
    const char *key;              /* member of config.json, of the header, tensor of the index */
    const char *value;            /* its JSON; NULL = taken away */
    void (*change)(const char *); /* EDIT_FILE, EDIT_SHARD */
    enum espl_status status;
    const char *phrase;
};

static const struct bad cases[] = {
    {EDIT_CONFIG, "hidden_size", NULL, NULL, ESPL_E_KIND, "config.json has no 'hidden_size'"},
    {EDIT_CONFIG, "hidden_size", "-8", NULL, ESPL_E_KIND, "'hidden_size' of config.json must be"},
    {EDIT_CONFIG, "hidden_size", "37.0", NULL, ESPL_E_KIND, "must be a whole number"},
    {EDIT_CONFIG, "hidden_size", "\"37\"", NULL, ESPL_E_KIND, "must be a whole number"},
    {EDIT_CONFIG, "hidden_size", "1000000000000000000", NULL, ESPL_E_KIND, "must be from 1 to"},
    {EDIT_CONFIG, "num_hidden_layers", "1000000", NULL, ESPL_E_KIND, "'num_hidden_layers'"},
    {EDIT_CONFIG, "num_hidden_layers", "3", NULL, ESPL_E_KIND, "9 missing"},
    {EDIT_CONFIG, "num_attention_heads", "3", NULL, ESPL_E_KIND, "is not a multiple of"},
    {EDIT_CONFIG, "num_key_value_heads", "8", NULL, ESPL_E_KIND, "num_key_value_heads 8"},
    {EDIT_CONFIG, "num_key_value_heads", "0", NULL, ESPL_E_KIND, "'num_key_value_heads'"},
    {EDIT_CONFIG, "head_dim", "79", NULL, ESPL_E_KIND, "head dimension 79 is odd"},
    {EDIT_CONFIG, "model_type", NULL, NULL, ESPL_E_KIND, "config.json has no 'model_type'"},
    {EDIT_CONFIG, "model_type", "3", NULL, ESPL_E_KIND, "'model_type' of config.json must be"},
    {EDIT_CONFIG, "model_type", "\"bert\"", NULL, ESPL_E_UNSUPPORTED, "model_type 'bert'"},
    {EDIT_CONFIG, "rope_scaling", "{\"type\":\"su\",\"factor\":2}", NULL, ESPL_E_UNSUPPORTED,
     "rope type 'su'"},
    {EDIT_CONFIG, "rope_scaling", "{\"type\":\"linear\"}", NULL, ESPL_E_KIND, "no 'factor'"},
    {EDIT_CONFIG, "rope_scaling", "\"linear\"", NULL, ESPL_E_KIND, "must be an object"},
    {EDIT_CONFIG, "rope_theta", "0", NULL, ESPL_E_KIND, "'rope_theta'"},
    {EDIT_CONFIG, "sliding_window", "64", NULL, ESPL_E_UNSUPPORTED, "sliding_window"},
    {EDIT_CONFIG, "hidden_act", "\"gelu\"", NULL, ESPL_E_UNSUPPORTED, "hidden_act 'gelu'"},
    {EDIT_CONFIG, "quantization_config", "{}", NULL, ESPL_E_UNSUPPORTED, "quantization_config"},
    {EDIT_CONFIG, "rms_norm_eps", "-1", NULL, ESPL_E_KIND, "'rms_norm_eps'"},
    {EDIT_CONFIG, "tie_word_embeddings", "\"yes\"", NULL, ESPL_E_KIND, "must be true or false"},
    {EDIT_CONFIG, "bos_token_id", "\"x\"", NULL, ESPL_E_KIND, "'bos_token_id'"},
    {EDIT_CONFIG, "vocab_size", "30", NULL, ESPL_E_KIND, "has shape 29 x 37, expected 30 x 37"},
    {EDIT_CONFIG, "max_position_embeddings", "0", NULL, ESPL_E_KIND, "'max_position_embeddings'"},
    {EDIT_CONFIG, "attention_bias", "true", NULL, ESPL_E_KIND, "8 missing"},
    {EDIT_HEADER, "dtype", "\"I32\"", NULL, ESPL_E_UNSUPPORTED, "has elements of type i32"},
    {EDIT_HEADER, "dtype", "\"WHAT\"", NULL, ESPL_E_UNSUPPORTED, "element type 'WHAT'"},
    {EDIT_HEADER, "dtype", "\"F16\"", NULL, ESPL_E_CORRUPT, "its shape and type need 2146"},
    {EDIT_HEADER, "shape", "[1099511627776, 1099511627776]", NULL, ESPL_E_CORRUPT, "overflows"},
    {EDIT_HEADER, "shape", "[0, 37]", NULL, ESPL_E_CORRUPT, "its shape and type need 0"},
    {EDIT_HEADER, "shape", "[29.0, 37]", NULL, ESPL_E_CORRUPT, "not a whole number"},
    {EDIT_HEADER, "shape", "[29, 1, 1, 1, 37]", NULL, ESPL_E_UNSUPPORTED, "5 dimensions"},
    {EDIT_HEADER, "shape", "[37, 29]", NULL, ESPL_E_KIND, "has shape 37 x 29, expected 29 x 37"},
    {EDIT_HEADER, "data_offsets", "[4611686018427387904, 4611686018427392196]", NULL,
     ESPL_E_CORRUPT, "are not inside"},
    {EDIT_HEADER, "data_offsets", "[4292, 0]", NULL, ESPL_E_CORRUPT, "are not inside"},
    {EDIT_HEADER, "data_offsets", "[-4, 4288]", NULL, ESPL_E_CORRUPT, "are not inside"},
    {EDIT_HEADER, NULL, NULL, NULL, ESPL_E_CORRUPT, "hole"},
    {EDIT_FILE, NULL, NULL, damage_overlap, ESPL_E_CORRUPT, "overlap"},
    {EDIT_FILE, NULL, NULL, damage_name_with_a_newline, ESPL_E_CORRUPT, "control character (0x0a)"},
    {EDIT_FILE, NULL, NULL, damage_header_has_a_name_twice, ESPL_E_CORRUPT, "duplicate object key"},
    {EDIT_FILE, NULL, NULL, damage_header_is_garbage, ESPL_E_CORRUPT,
     "the header is not valid JSON"},
    {EDIT_FILE, NULL, NULL, damage_header_is_a_list, ESPL_E_CORRUPT, "does not start with '{'"},
    {EDIT_FILE, NULL, NULL, damage_length_zero, ESPL_E_CORRUPT, "header of 0 bytes"},
    {EDIT_FILE, NULL, NULL, damage_length_beyond_the_file, ESPL_E_CORRUPT,
     "does not fit a file of"},
    {EDIT_FILE, NULL, NULL, damage_weights_cut, ESPL_E_CORRUPT, "are not inside"},
    {EDIT_FILE, NULL, NULL, damage_weights_longer, ESPL_E_CORRUPT,
     "1 bytes at the end of the file"},
    {EDIT_FILE, NULL, NULL, damage_weights_empty, ESPL_E_CORRUPT, "0 bytes, too few"},
    {EDIT_FILE, NULL, NULL, damage_weights_folder, ESPL_E_KIND, "is not a regular file"},
    {EDIT_FILE, NULL, NULL, damage_weights_pipe, ESPL_E_KIND, "is not a regular file"},
    {EDIT_FILE, NULL, NULL, damage_weights_dangling, ESPL_E_NOTFOUND,
     "is a link to a file that is not"},
    {EDIT_FILE, NULL, NULL, damage_weights_pickled, ESPL_E_UNSUPPORTED, "is a pickle checkpoint"},
    {EDIT_FILE, NULL, NULL, damage_weights_missing, ESPL_E_NOTFOUND, "no .safetensors files"},
    {EDIT_FILE, NULL, NULL, damage_config_missing, ESPL_E_NOTFOUND, "no config.json"},
    {EDIT_FILE, NULL, NULL, damage_config_empty, ESPL_E_CORRUPT, "is not valid JSON"},
    {EDIT_FILE, NULL, NULL, damage_config_list, ESPL_E_KIND, "one JSON object"},
    {EDIT_FILE, NULL, NULL, damage_config_folder, ESPL_E_KIND, "not a regular file"},
    {EDIT_FILE, NULL, NULL, damage_config_pipe, ESPL_E_KIND, "not a regular file"},
    {EDIT_FILE, NULL, NULL, damage_config_huge, ESPL_E_CORRUPT, "the limit is 16777216"},
    {EDIT_FILE, NULL, NULL, damage_config_key_twice, ESPL_E_CORRUPT, "duplicate object key"},
    {EDIT_INDEX, DAMAGE_HEAD, "\"../x.safetensors\"", NULL, ESPL_E_CORRUPT,
     "'../x.safetensors', which"},
    {EDIT_INDEX, DAMAGE_HEAD, "\"/etc/x.safetensors\"", NULL, ESPL_E_CORRUPT,
     "'/etc/x.safetensors'"},
    {EDIT_INDEX, DAMAGE_HEAD, "3", NULL, ESPL_E_CORRUPT, "(not a text)"},
    {EDIT_INDEX, DAMAGE_HEAD, "\"gone.safetensors\"", NULL, ESPL_E_NOTFOUND, "'gone.safetensors'"},
    {EDIT_INDEX, "new.weight", "\"model-00001-of-00013.safetensors\"", NULL, ESPL_E_CORRUPT,
     "which does not hold it"},
    {EDIT_SHARD, NULL, NULL, damage_index_folder, ESPL_E_KIND, "not a regular file"},
    {EDIT_SHARD, NULL, NULL, damage_index_without_map, ESPL_E_CORRUPT, "no weight_map"},
    {EDIT_SHARD, NULL, NULL, damage_shard_missing, ESPL_E_NOTFOUND, "names are missing"},
    {EDIT_SHARD, NULL, NULL, damage_shard_dangling, ESPL_E_NOTFOUND,
     "is a link to a file that is not"},
    {EDIT_SHARD, NULL, NULL, damage_shard_cut, ESPL_E_CORRUPT, "are not inside"},
    {EDIT_SHARD, NULL, NULL, damage_single_file_beside, ESPL_E_CORRUPT, "which one is meant?"},
};

static enum espl_status open_checkpoint(const char *folder, struct espl_error *err)
{
    struct espl_import_checkpoint *checkpoint = NULL;
    espl_error_clear(err);
    const enum espl_status status = espl_import_checkpoint_open(folder, NULL, &checkpoint, err);
    assert_true((status == ESPL_OK) == (checkpoint != NULL));
    espl_import_checkpoint_close(checkpoint);
    return status;
}

static void make_bad(const char *folder, const struct bad *bad)
{
    switch (bad->edit) {
    case EDIT_CONFIG:
        damage_change_config(folder, bad->key, bad->value);
        break;
    case EDIT_HEADER:
        damage_change_header(folder, bad->key, bad->value);
        break;
    case EDIT_INDEX:
        damage_change_index(folder, bad->key, bad->value);
        break;
    case EDIT_FILE:
    case EDIT_SHARD:
        bad->change(folder);
        break;
    }
}

static void test_bad_checkpoints__are_refused_by_name(void **state)
{
    const struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("llama");
    struct espl_error err;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct bad *bad = &cases[i];
        const bool sharded = bad->edit == EDIT_INDEX || bad->edit == EDIT_SHARD;
        (void)espl_fs_remove_tree(f->folder, NULL);
        fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F32, sharded ? SHARD_BYTES : 0);
        assert_int_equal(open_checkpoint(f->folder, &err), ESPL_OK);
        make_bad(f->folder, bad);
        const enum espl_status status = open_checkpoint(f->folder, &err);
        assert_int_equal(espl_status_exit_code(status),
                         bad->status == ESPL_E_UNSUPPORTED ? EXIT_UNKNOWN : EXIT_INPUT);
        if (status != bad->status || strstr(err.message, bad->phrase) == NULL) {
            fail_msg("case %zu (%s): status %d, message '%s', expected %d, '%s'", i, bad->phrase,
                     (int)status, err.message, (int)bad->status, bad->phrase);
        }
    }
}

/* What to do stands beside the most frequent mishap, a download that broke off. */
static void test_bad_checkpoints__a_cut_file_comes_with_advice(void **state)
{
    const struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("llama");
    struct espl_error err;
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F32, 0);
    damage_weights_cut(f->folder);
    assert_int_equal(open_checkpoint(f->folder, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.hint, "download or copy it again"));
    assert_non_null(strstr(err.context, DAMAGE_WEIGHTS));
}

/* Download caches keep the files elsewhere and link to them: that is no mistake. */
static void test_bad_checkpoints__links_to_files_are_followed(void **state)
{
    const struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("llama");
    struct espl_error err;
    char name[64];
    char from[ESPL_PATH_MAX];
    char to[ESPL_PATH_MAX];
    fixture_write_checkpoint(f->folder, &config, ESPL_DTYPE_F32, SHARD_BYTES);
    damage_last_shard(f->folder, name);
    fixture_join(from, f->folder, name);
    fixture_join(to, f->dir, "blob");
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(symlink("../blob", from), 0);
    assert_int_equal(open_checkpoint(f->folder, &err), ESPL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bad_checkpoints__are_refused_by_name, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_bad_checkpoints__a_cut_file_comes_with_advice,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_bad_checkpoints__links_to_files_are_followed,
                                        fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

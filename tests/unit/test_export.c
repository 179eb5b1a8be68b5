#include "core/fs.h"
#include "model/element.h"
#include "model/safetensors.h"
#include "stages/export/export_manifest.h"
#include "stages/export/export_write.h"
#include "stages/import/import_checkpoint.h"
#include "stages/import/import_transfer.h"
#include "unit/model_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_BASE   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define KEY_MASKED "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static int setup(void **state)
{
    const int status = fixture_setup(state);
    struct fixture *f = *state;
    fixture_join(f->folder, f->dir, "out/model");
    return status;
}

static enum espl_status export_with(struct fixture *f, const char *path,
                                    struct espl_export_options options,
                                    const struct espl_export_hooks *hooks, json_t **manifest)
{
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    json_t *made = NULL;
    espl_error_clear(&f->err);
    assert_int_equal(espl_artifact_open(path, &artifact, &f->err), ESPL_OK);
    assert_int_equal(espl_model_open(artifact, NULL, &model, &f->err), ESPL_OK);
    options.folder = f->folder;
    options.masks = true;
    options.content_sha256 = espl_artifact_content_sha256(artifact);
    const enum espl_status status = espl_export_write(model, &options, hooks, &made, &f->err);
    espl_model_close(model);
    espl_artifact_close(artifact);
    if (manifest != NULL && status == ESPL_OK) {
        *manifest = made;
    } else {
        json_decref(made);
    }
    return status;
}

static enum espl_status export(struct fixture *f, const char *path, uint64_t shard_size,
                               json_t **manifest) {
    const struct espl_export_hooks hooks = {0};
    const struct espl_export_options options = {.shard_size = shard_size};
    return export_with(f, path, options, &hooks, manifest);
}

static void import_back(struct fixture *f, char path[ESPL_PATH_MAX], char content[ESPL_SHA256_HEX])
{
    struct espl_import_checkpoint *checkpoint = NULL;
    struct espl_import_choice choice;
    struct espl_artifact *artifact = NULL;
    const struct espl_import_hooks hooks = {0};
    if (espl_import_checkpoint_open(f->folder, NULL, &checkpoint, &f->err) != ESPL_OK) {
        fail_msg("%s", f->err.message);
    }
    assert_int_equal(espl_import_choose(checkpoint, ESPL_IMPORT_DTYPE_KEEP,
                                        ESPL_IMPORT_STORAGE_COPY, &choice, &f->err),
                     ESPL_OK);
    fixture_join(path, f->dir, "again.h5");
    assert_int_equal(espl_artifact_create(path, "model.dense/1", &artifact, &f->err), ESPL_OK);
    assert_int_equal(espl_import_transfer(checkpoint, &choice, artifact, &hooks, &f->err), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, content, &f->err), ESPL_OK);
    espl_import_checkpoint_close(checkpoint);
}

static void test_export__imports_back_to_the_same_content(void **state)
{
    static const char *const names[] = {"llama", "llama-tied", "opt", "opt-post", "qwen2"};
    static const enum espl_dtype dtypes[] = {ESPL_DTYPE_BF16, ESPL_DTYPE_F16, ESPL_DTYPE_F32};
    struct fixture *f = *state;
    for (size_t i = 0; i < 5; i++) {
        const struct espl_model_config config = fixture_config(names[i]);
        char content[ESPL_SHA256_HEX];
        char again[ESPL_SHA256_HEX];
        char path[ESPL_PATH_MAX];
        fixture_write_artifact(f->dir, KEY_BASE, &config, dtypes[i % 3], f->base, content);
        /* the second and later times an older export is replaced */
        if (export(f, f->base, i % 2 == 0 ? 0 : 9000, NULL) != ESPL_OK) {
            fail_msg("%s: %s", names[i], f->err.message);
        }
        import_back(f, path, again);
        assert_string_equal(content, again);
    }
}

static void test_export__shards_keep_their_size(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("llama");
    json_t *manifest = NULL;
    size_t shards = 0;
    fixture_write_artifact(f->dir, KEY_BASE, &config, ESPL_DTYPE_F16, f->base, NULL);
    assert_int_equal(export(f, f->base, 40000, &manifest), ESPL_OK);
    const json_t *files = json_object_get(manifest, "files");
    for (size_t i = 0; i < json_array_size(files); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(files, i), "name"));
        if (strncmp(name, "model-", 6) == 0) {
            shards++;
            /* data, and a header of less than 2 KiB */
            assert_true(json_integer_value(json_object_get(json_array_get(files, i), "bytes")) <
                        42048);
        }
    }
    /* 2 x 4 x (2 x (2 x 320 + 2 x 160 + 3 x 51) x 37 ...) = about 169 kB */
    assert_in_range(shards, 5, 6);
    json_decref(manifest);
}

static void test_export__masks_and_masked_weights_survive(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("llama");
    char masked[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    struct espl_safetensors *set = NULL;

    fixture_write_artifact(f->dir, KEY_BASE, &config, ESPL_DTYPE_BF16, f->base, NULL);
    fixture_write_masked(f->dir, KEY_MASKED, f->base, 1, 0, masked);
    assert_int_equal(export(f, masked, 0, NULL), ESPL_OK);
    import_back(f, path, NULL);
    assert_int_equal(espl_artifact_open(path, &artifact, &f->err), ESPL_OK);
    assert_int_equal(espl_model_open(artifact, NULL, &model, &f->err), ESPL_OK);
    fixture_join(path, f->folder, ESPL_EXPORT_MASKS);
    assert_int_equal(espl_safetensors_open(path, &set, &f->err), ESPL_OK);
    assert_int_equal(espl_safetensors_count(set), 7);
    for (size_t i = 0; i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        const bool has_mask =
            espl_role_is_block_linear(spec->role) && !spec->is_bias && spec->layer == 1;
        const size_t count = (size_t)(spec->shape[0] * spec->shape[1]);
        float *values = malloc(count * sizeof *values);
        assert_int_equal(espl_model_read_f32(model, spec, 0, spec->shape[0], values, &f->err),
                         ESPL_OK);
        for (size_t j = 0; j < count; j++) {
            const bool kept =
                !has_mask || fixture_mask_bit(1, j / spec->shape[1], j % spec->shape[1]);
            assert_true(values[j] == (kept ? fixture_value(i, j) : 0.0f));
        }
        free(values);
        if (!has_mask) {
            continue;
        }
        char name[160];
        (void)snprintf(name, sizeof name, "model.%s.mask", spec->module);
        const struct espl_safetensor *stored = espl_safetensors_find(set, name);
        assert_non_null(stored);
        uint8_t *expected = fixture_mask(1, spec);
        uint8_t *mask = malloc(stored->bytes);
        assert_int_equal(stored->bytes, spec->shape[0] * ((spec->shape[1] + 7) / 8));
        assert_int_equal(espl_safetensors_read(set, stored, 0, mask, stored->bytes, &f->err),
                         ESPL_OK);
        assert_memory_equal(mask, expected, stored->bytes);
        free(mask);
        free(expected);
    }
    espl_safetensors_close(set);
    espl_model_close(model);
    espl_artifact_close(artifact);
}

static void expect_refusal(struct fixture *f, const char *message)
{
    assert_int_equal(export(f, f->base, 0, NULL), ESPL_E_KIND);
    if (strstr(f->err.message, message) == NULL) {
        fail_msg("'%s' does not say '%s'", f->err.message, message);
    }
    assert_string_equal(f->err.blame, "param:folder");
}

static void test_export__never_replaces_what_is_not_its_own(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("opt");
    char path[ESPL_PATH_MAX];
    fixture_write_artifact(f->dir, KEY_BASE, &config, ESPL_DTYPE_F16, f->base, NULL);

    assert_int_equal(espl_fs_make_dirs(f->folder, &f->err), ESPL_OK);
    assert_int_equal(export(f, f->base, 0, NULL), ESPL_OK); /* an empty folder */
    assert_int_equal(export(f, f->base, 0, NULL), ESPL_OK); /* its own */
    fixture_write_text(f->folder, "notes.txt", "mine");
    expect_refusal(f, "'notes.txt' in it was not written by export");
    fixture_join(path, f->folder, "notes.txt");
    assert_int_equal(unlink(path), 0);
    fixture_write_text(f->folder, ESPL_EXPORT_MANIFEST, "{\"schema\":\"something else\"}");
    expect_refusal(f, "was not written by export");
    fixture_join(path, f->folder, "config.json");
    assert_true(espl_fs_exists(path)); /* nothing was touched */

    fixture_join(f->folder, f->dir, "file");
    fixture_write_text(f->dir, "file", "mine");
    expect_refusal(f, "is not a folder");
}

static bool stop_at_once(void *user)
{
    (void)user;
    return true;
}

static void test_export__stopping_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("opt");
    const struct espl_export_hooks hooks = {.cancelled = stop_at_once};
    const struct espl_export_options options = {.shard_size = 0};
    char parent[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    fixture_write_artifact(f->dir, KEY_BASE, &config, ESPL_DTYPE_F16, f->base, NULL);
    assert_int_equal(export_with(f, f->base, options, &hooks, NULL), ESPL_E_CANCELLED);
    fixture_join(parent, f->dir, "out");
    assert_int_equal(espl_fs_list(parent, 10, &names, &count, &f->err), ESPL_OK);
    assert_int_equal(count, 0);
    espl_fs_free_names(names, count);
}

static void test_export__leftovers_of_dead_processes_are_removed(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("opt");
    char leftover[ESPL_PATH_MAX];
    char living[ESPL_PATH_MAX];
    fixture_write_artifact(f->dir, KEY_BASE, &config, ESPL_DTYPE_F16, f->base, NULL);
    /* This process lives; a pid above every one that a kernel gives does not. */
    assert_int_equal(espl_fs_make_dirs(f->folder, &f->err), ESPL_OK);
    assert_int_equal(espl_fs_temporary_name(living, f->folder, &f->err), ESPL_OK);
    (void)snprintf(leftover, sizeof leftover, "%.*s-999999999.tmp",
                   (int)(strrchr(living, '-') - living), living);
    (void)snprintf(strrchr(living, '-'), 32, "-%ld.tmp", (long)getppid());
    assert_int_equal(espl_fs_make_dirs(leftover, &f->err), ESPL_OK);
    assert_int_equal(espl_fs_make_dirs(living, &f->err), ESPL_OK);
    assert_int_equal(export(f, f->base, 0, NULL), ESPL_OK);
    assert_false(espl_fs_exists(leftover));
    assert_true(espl_fs_exists(living));
}

static void check_with(const struct espl_store *store, bool rehash, struct fixture *f,
                       const json_t *manifest, const char *stale)
{
    bool valid = false;
    char reason[160] = "";
    assert_int_equal(
        espl_export_manifest_check(store, rehash, f->folder, manifest, &valid, reason, &f->err),
        ESPL_OK);
    assert_int_equal(valid, stale == NULL);
    assert_string_equal(reason, stale == NULL ? "" : stale);
}

static void check_manifest(struct fixture *f, const json_t *manifest, const char *stale)
{
    check_with(NULL, false, f, manifest, stale);
}

/* Puts a byte and an old time stamp into a file. */
static void age(const char *path, int byte)
{
    const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const unsigned char value = (unsigned char)byte;
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &value, 1, 200), 1);
    assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(close(fd), 0);
}

/* A file whose size and time stamp are those of the last look is not read again. */
static void test_export_manifest__remembers_hashes(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("opt");
    struct espl_store store;
    json_t *manifest = NULL;
    char path[ESPL_PATH_MAX];
    char *data = NULL;
    size_t len = 0;
    fixture_join(path, f->dir, "results");
    assert_int_equal(espl_store_open(path, &store, &f->err), ESPL_OK);
    fixture_write_artifact(f->dir, KEY_BASE, &config, ESPL_DTYPE_F16, f->base, NULL);
    assert_int_equal(export(f, f->base, 0, &manifest), ESPL_OK);
    fixture_join(path, f->folder, "model.safetensors");
    assert_int_equal(espl_fs_read_file(path, 1 << 20, &data, &len, &f->err), ESPL_OK);
    age(path, data[200]);
    check_with(&store, false, f, manifest, NULL);
    age(path, data[200] ^ 1);
    check_with(&store, false, f, manifest, NULL);
    check_with(&store, true, f, manifest, "'model.safetensors' has other content");
    check_with(&store, false, f, manifest, "'model.safetensors' has other content");
    free(data);
    json_decref(manifest);
}

static void test_export_manifest__notices_every_change(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("opt");
    json_t *manifest = NULL;
    char path[ESPL_PATH_MAX];
    char *data = NULL;
    size_t len = 0;
    fixture_write_artifact(f->dir, KEY_BASE, &config, ESPL_DTYPE_F16, f->base, NULL);
    assert_int_equal(export(f, f->base, 0, &manifest), ESPL_OK);
    check_manifest(f, manifest, NULL);
    fixture_join(path, f->folder, "model.safetensors");
    assert_int_equal(espl_fs_read_file(path, 1 << 20, &data, &len, &f->err), ESPL_OK);
    data[len - 1] ^= 1;
    assert_int_equal(espl_fs_write_file(path, data, len, &f->err), ESPL_OK);
    check_manifest(f, manifest, "'model.safetensors' has other content");
    assert_int_equal(espl_fs_write_file(path, data, len - 1, &f->err), ESPL_OK);
    check_manifest(f, manifest, "'model.safetensors' has another size");
    assert_int_equal(unlink(path), 0);
    check_manifest(f, manifest, "'model.safetensors' is gone");
    fixture_join(path, f->folder, ESPL_EXPORT_MANIFEST);
    assert_int_equal(unlink(path), 0);
    check_manifest(f, manifest, "the folder is no longer this export");
    assert_int_equal(espl_fs_remove_tree(f->folder, &f->err), ESPL_OK);
    check_manifest(f, manifest, "the folder is gone");
    free(data);
    json_decref(manifest);
}

/* Two recipes that write to one folder: the first one's manifest knows that it lost its place. */
static void test_export_manifest__tells_a_later_export_from_damage(void **state)
{
    struct fixture *f = *state;
    json_t *first = NULL;
    json_t *second = NULL;
    struct espl_model_config config = fixture_config("opt");
    assert_false(espl_export_is_there(f->folder));
    fixture_write_artifact(f->dir, KEY_BASE, &config, ESPL_DTYPE_F16, f->base, NULL);
    assert_int_equal(export(f, f->base, 0, &first), ESPL_OK);
    assert_true(espl_export_is_there(f->folder));
    config = fixture_config("llama");
    fixture_write_artifact(f->dir, KEY_BASE, &config, ESPL_DTYPE_F16, f->base, NULL);
    assert_int_equal(export(f, f->base, 0, &second), ESPL_OK);
    check_manifest(f, first, "another export has replaced this one in its folder");
    check_manifest(f, second, NULL);
    json_decref(first);
    json_decref(second);
}

static void test_export__copies_tokenizer_files(void **state)
{
    struct fixture *f = *state;
    const struct espl_model_config config = fixture_config("opt");
    char *files[ESPL_EXPORT_TOKENIZER_FILES];
    const struct espl_export_hooks hooks = {0};
    char source[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    size_t count = 0;
    fixture_write_artifact(f->dir, KEY_BASE, &config, ESPL_DTYPE_F16, f->base, NULL);
    fixture_join(source, f->dir, "tokenizer");
    assert_int_equal(espl_export_find_tokenizer(source, files, &count, &f->err), ESPL_E_NOTFOUND);
    assert_int_equal(espl_fs_make_dirs(source, &f->err), ESPL_OK);
    fixture_write_text(source, "tokenizer_config.json", "{}");
    assert_int_equal(espl_export_find_tokenizer(source, files, &count, &f->err), ESPL_E_NOTFOUND);
    assert_string_equal(f->err.blame, "param:tokenizer");
    fixture_write_text(source, "tokenizer.json", "{\"version\": 1}");
    fixture_write_text(source, "secret.txt", "not a tokenizer file");
    (void)snprintf(path, sizeof path, "%.2000s/tokenizer.json", source); /* the file works too */
    assert_int_equal(espl_export_find_tokenizer(path, files, &count, &f->err), ESPL_OK);
    assert_int_equal(count, 2);
    const struct espl_export_options options = {.tokenizer = (const char *const *)files,
                                                .tokenizer_count = count};
    assert_int_equal(export_with(f, f->base, options, &hooks, NULL), ESPL_OK);
    for (size_t i = 0; i < count; i++) {
        free(files[i]);
    }
    char *data = NULL;
    size_t len = 0;
    fixture_join(path, f->folder, "tokenizer.json");
    assert_int_equal(espl_fs_read_file(path, 100, &data, &len, &f->err), ESPL_OK);
    assert_string_equal(data, "{\"version\": 1}");
    free(data);
    fixture_join(path, f->folder, "secret.txt");
    assert_false(espl_fs_exists(path));
}

int main(void)
{
    espl_artifact_library_init();
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)
        T(test_export__imports_back_to_the_same_content),
        T(test_export__shards_keep_their_size),
        T(test_export__masks_and_masked_weights_survive),
        T(test_export__never_replaces_what_is_not_its_own),
        T(test_export__stopping_leaves_nothing),
        T(test_export__leftovers_of_dead_processes_are_removed),
        T(test_export_manifest__notices_every_change),
        T(test_export_manifest__tells_a_later_export_from_damage),
        T(test_export_manifest__remembers_hashes),
        T(test_export__copies_tokenizer_files),
#undef T
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

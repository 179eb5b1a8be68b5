/* Importing image models: names of timm old and new and of HF transformers give the same model;
 * what does not fit is named. */
#include "core/fs.h"
#include "model/safetensors.h"
#include "model/synth.h"
#include "stages/export/export_write.h"
#include "stages/import/import_checkpoint.h"
#include "unit/golden_data.h"
#include "unit/model_fixture.h"
#include "unit/vision_fixture.h"

#include "support/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct world {
    char dir[ESPL_PATH_MAX];
    char timm[ESPL_PATH_MAX]; /* exported checkpoint */
    char content[ESPL_SHA256_HEX];
};

/* Imports a tiny HF model and exports it, which writes timm's names. */
static void open_world(struct world *world, const char *name)
{
    char folder[GOLDEN_PATH];
    char member[64];
    char path[ESPL_PATH_MAX];
    struct vision_fixture fixture;
    struct espl_error err = {0};
    json_t *manifest = NULL;
    fixture_make_dir(world->dir);
    (void)snprintf(member, sizeof member, "models/%s", name);
    golden_path(member, folder);
    vision_fixture_open(folder, fixture_join(path, world->dir, "hf.h5"), &fixture, world->content);
    fixture_join(world->timm, world->dir, "timm");
    const struct espl_export_options options = {.folder = world->timm,
                                                .content_sha256 = world->content};
    const struct espl_export_hooks hooks = {.user = NULL};
    if (espl_export_write(fixture.model, &options, &hooks, &manifest, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    json_decref(manifest);
    vision_fixture_close(&fixture);
}

static void close_world(struct world *world)
{
    (void)espl_fs_remove_tree(world->dir, NULL);
}

/* ---- rewriting a checkpoint ---- */

/* New name of a tensor into out; false leaves it out. */
typedef bool (*rename_fn)(const char *name, char out[160]);

static void rewrite(const struct world *world, const char *name, rename_fn rename,
                    const char *extra, char folder[ESPL_PATH_MAX])
{
    struct espl_safetensors *files = NULL;
    struct espl_safetensors_writer *writer = NULL;
    struct espl_safetensor tensors[256];
    const struct espl_safetensor *sources[256];
    size_t count = 0;
    char path[ESPL_PATH_MAX];
    char *config = NULL;
    size_t len = 0;
    const uint16_t zeros[4] = {0};
    fixture_join(folder, world->dir, name);
    assert_int_equal(espl_fs_make_dirs(folder, NULL), ESPL_OK);
    assert_int_equal(espl_fs_read_file(fixture_join(path, world->timm, "config.json"), 1 << 20,
                                       &config, &len, NULL),
                     ESPL_OK);
    fixture_write_text(folder, "config.json", config);
    free(config);
    assert_int_equal(espl_safetensors_open(world->timm, &files, NULL), ESPL_OK);
    for (size_t i = 0; i < espl_safetensors_count(files); i++) {
        const struct espl_safetensor *source = espl_safetensors_tensor(files, i);
        tensors[count] = *source;
        sources[count] = source;
        count += rename(source->name, tensors[count].name);
    }
    if (extra != NULL) {
        tensors[count] = (struct espl_safetensor){.dtype = ESPL_DTYPE_F16, .rank = 1, .shape = {4}};
        (void)snprintf(tensors[count].name, sizeof tensors[count].name, "%s", extra);
        sources[count++] = NULL;
    }
    assert_int_equal(espl_safetensors_writer_open(fixture_join(path, folder, "model.safetensors"),
                                                  tensors, count, "{\"format\":\"pt\"}", &writer,
                                                  NULL),
                     ESPL_OK);
    for (size_t i = 0; i < count; i++) {
        void *data = sources[i] != NULL ? malloc((size_t)sources[i]->bytes) : NULL;
        if (data != NULL) {
            assert_int_equal(
                espl_safetensors_read(files, sources[i], 0, data, (size_t)sources[i]->bytes, NULL),
                ESPL_OK);
        }
        assert_int_equal(espl_safetensors_writer_append(
                             writer, data != NULL ? data : (const void *)zeros,
                             data != NULL ? (size_t)sources[i]->bytes : sizeof zeros, NULL),
                         ESPL_OK);
        free(data);
    }
    assert_int_equal(espl_safetensors_writer_finish(&writer, NULL), ESPL_OK);
    espl_safetensors_close(files);
}

static bool keep_name(const char *name, char out[160])
{
    (void)snprintf(out, 160, "%s", name);
    return true;
}

/* Swin files before timm moved patch merging, and those of the authors. */
static bool old_swin_name(const char *name, char out[160])
{
    unsigned stage = 0;
    int behind = 0;
    if (sscanf(name, "layers.%u.downsample.%n", &stage, &behind) == 1 && behind > 0) {
        (void)snprintf(out, 160, "layers.%u.downsample.%s", stage - 1, name + behind);
    } else if (strncmp(name, "head.fc.", 8) == 0) {
        (void)snprintf(out, 160, "head.%s", name + 8);
    } else {
        (void)snprintf(out, 160, "%s", name);
    }
    return true;
}

static bool parallel_name(const char *name, char out[160])
{
    const int len = snprintf(out, 160, "module.%s", name);
    return len > 0 && len < 160;
}

static bool without_fc2(const char *name, char out[160])
{
    return keep_name(name, out) && strcmp(name, "blocks.1.mlp.fc2.weight") != 0;
}

static void expect_same(const struct world *world, const char *folder)
{
    struct vision_fixture fixture;
    char path[ESPL_PATH_MAX];
    char content[ESPL_SHA256_HEX];
    vision_fixture_open(folder, fixture_join(path, world->dir, "again.h5"), &fixture, content);
    assert_string_equal(content, world->content);
    vision_fixture_close(&fixture);
}

static void expect_error(const char *folder, const char *arch, enum espl_status code,
                         const char *message, const char *hint)
{
    struct espl_import_checkpoint *checkpoint = NULL;
    struct espl_error err = {0};
    assert_int_equal(espl_import_checkpoint_open(folder, arch, &checkpoint, &err), code);
    assert_string_equal(err.message, message);
    if (strstr(err.hint, hint) == NULL) {
        fail_msg("hint '%s' does not say '%s'", err.hint, hint);
    }
}

/* ---- tests ---- */

static void test_round_trip(void **state)
{
    (void)state;
    const char *const names[] = {"vit-hf", "deit-distilled-hf", "swin-hf"};
    for (size_t i = 0; i < 3; i++) {
        struct world world;
        open_world(&world, names[i]);
        expect_same(&world, world.timm);
        close_world(&world);
    }
}

/* What timm would look for. */
static void test_exported_files(void **state)
{
    (void)state;
    struct world world;
    struct espl_safetensors *files = NULL;
    char path[ESPL_PATH_MAX];
    open_world(&world, "deit-distilled-hf");
    assert_int_equal(espl_safetensors_open(world.timm, &files, NULL), ESPL_OK);
    const struct espl_safetensor *patch = espl_safetensors_find(files, "patch_embed.proj.weight");
    const struct espl_safetensor *token = espl_safetensors_find(files, "dist_token");
    const struct espl_safetensor *qkv = espl_safetensors_find(files, "blocks.1.attn.qkv.weight");
    assert_non_null(patch);
    assert_non_null(token);
    assert_non_null(qkv);
    assert_null(espl_safetensors_find(files, "blocks.1.attn.qkv.bias"));
    assert_int_equal(patch->rank, 4);
    assert_int_equal(patch->shape[3], 5);
    assert_int_equal(token->rank, 3);
    assert_int_equal(qkv->shape[0], 48);
    espl_safetensors_close(files);

    json_t *config = json_load_file(fixture_join(path, world.timm, "config.json"), 0, NULL);
    const json_t *args = json_object_get(config, "model_args");
    assert_string_equal(json_string_value(json_object_get(config, "architecture")),
                        "deit_base_distilled_patch16_224");
    assert_int_equal(json_integer_value(json_object_get(args, "depth")), 2);
    assert_true(json_is_false(json_object_get(args, "qkv_bias")));
    json_decref(config);
    close_world(&world);
}

static void test_other_names(void **state)
{
    (void)state;
    struct world world;
    char folder[ESPL_PATH_MAX];
    open_world(&world, "swin-hf");
    rewrite(&world, "old", old_swin_name, "layers.0.blocks.1.attn_mask", folder);
    expect_same(&world, folder);
    rewrite(&world, "index", keep_name, "layers.0.blocks.0.attn.relative_position_index", folder);
    expect_same(&world, folder);
    rewrite(&world, "parallel", parallel_name, NULL, folder);
    expect_same(&world, folder);
    close_world(&world);
}

static void test_problems(void **state)
{
    (void)state;
    struct world world;
    char folder[ESPL_PATH_MAX];
    open_world(&world, "vit-hf");
    rewrite(&world, "missing", without_fc2, NULL, folder);
    expect_error(folder, NULL, ESPL_E_KIND,
                 "tensors do not fit config.json: 1 missing ('blocks.1.mlp.fc2.weight')",
                 "must be of the same model");
    rewrite(&world, "extra", keep_name, "blocks.0.ls1.gamma", folder);
    expect_error(folder, NULL, ESPL_E_KIND,
                 "tensors do not fit config.json: 1 unexpected ('blocks.0.ls1.gamma')",
                 "must be of the same model");
    expect_error(world.timm, "swin", ESPL_E_KIND,
                 "arch is 'swin', but config.json says architecture 'vit_base_patch16_224'",
                 "leave arch out");
    close_world(&world);
}

/* A configuration of another width, over files with one qkv matrix and over files with three. */
static void test_wrong_shapes(void **state)
{
    (void)state;
    struct world world;
    char hf[GOLDEN_PATH];
    char folder[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    char source[ESPL_PATH_MAX];
    char *data = NULL;
    size_t len = 0;
    open_world(&world, "vit-hf");
    rewrite(&world, "narrow", keep_name, NULL, folder);
    fixture_write_text(folder, "config.json",
                       "{\"architecture\":\"vit\",\"model_args\":{\"img_size\":12,\"patch_size\":4,"
                       "\"embed_dim\":24,\"depth\":2,\"num_heads\":3,\"mlp_ratio\":2.0,"
                       "\"num_classes\":7}}");
    expect_error(folder, NULL, ESPL_E_KIND,
                 "tensor 'blocks.0.mlp.fc1.weight' has shape 40 x 24, expected 48 x 24",
                 "must be of the same model");
    golden_path("models/vit-hf", hf);
    assert_int_equal(espl_fs_read_file(fixture_join(source, hf, "model.safetensors"), 1 << 20,
                                       &data, &len, NULL),
                     ESPL_OK);
    assert_int_equal(
        espl_fs_write_file(fixture_join(path, folder, "model.safetensors"), data, len, NULL),
        ESPL_OK);
    free(data);
    fixture_write_text(folder, "config.json",
                       "{\"model_type\":\"vit\",\"hidden_size\":30,\"num_hidden_layers\":2,"
                       "\"num_attention_heads\":3,\"intermediate_size\":40,\"image_size\":12,"
                       "\"patch_size\":4,\"num_labels\":7}");
    struct espl_import_checkpoint *checkpoint = NULL;
    struct espl_error err = {0};
    assert_int_equal(espl_import_checkpoint_open(folder, NULL, &checkpoint, &err), ESPL_E_KIND);
    assert_string_equal(err.message,
                        "tensor 'vit.embeddings.cls_token' has shape 1 x 1 x 24, expected 1 x 1 x "
                        "30");
    close_world(&world);
}

/* Random checkpoints are what the import expects, at every published size's configuration. */
static void test_synth(void **state)
{
    (void)state;
    static const char *const names[] = {"vit", "swin"};
    char dir[ESPL_PATH_MAX];
    char folder[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    struct espl_error err = {0};
    struct espl_model_config config;
    struct espl_synth_options options = {.folder = folder, .dtype = ESPL_DTYPE_F16, .seed = 1};
    fixture_make_dir(dir);
    for (size_t i = 0; i < 2; i++) {
        struct vision_fixture fixture;
        options.shape = names[i];
        fixture_join(folder, dir, names[i]);
        assert_int_equal(espl_synth_write(&options, NULL, &err), ESPL_OK);
        vision_fixture_open(folder, fixture_join(path, dir, "m.h5"), &fixture, NULL);
        assert_int_equal(espl_model_get_config(fixture.model)->vocab, 10);
        vision_fixture_close(&fixture);
    }
    for (const struct espl_synth_image_shape *shape = espl_synth_image_shapes; shape->name != NULL;
         shape++) {
        options.shape = shape->name;
        assert_int_equal(espl_synth_config(&options, &config, &err), ESPL_OK);
        assert_true(espl_model_config_is_vision(&config));
    }
    options.shape = "deit-small";
    options.layers = 3;
    assert_int_equal(espl_synth_config(&options, &config, &err), ESPL_E_USAGE);
    assert_string_equal(err.message, "the sizes of image model 'deit-small' cannot be changed");
    (void)espl_fs_remove_tree(dir, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_exported_files),
        cmocka_unit_test(test_other_names),  cmocka_unit_test(test_problems),
        cmocka_unit_test(test_wrong_shapes), cmocka_unit_test(test_synth),
    };
    return cmocka_run_group_tests_name("vision_import", tests, NULL, NULL);
}

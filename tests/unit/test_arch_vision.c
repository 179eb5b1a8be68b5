/* Image models: configurations from timm's and HF's config.json, tensor lists, canonical JSON. */
#include "model/arch_vision.h"
#include "model/config.h"

#include "support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum espl_status read_config(const char *text, struct espl_model_config *config,
                                    struct espl_error *err)
{
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    espl_error_clear(err);
    const enum espl_status status = espl_model_config_from_hf(json, config, err);
    json_decref(json);
    return status;
}

static struct espl_model_config must_read(const char *text)
{
    struct espl_model_config config;
    struct espl_error err = {0};
    if (read_config(text, &config, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return config;
}

static void expect_refusal(const char *text, enum espl_status code, const char *message)
{
    struct espl_model_config config;
    struct espl_error err = {0};
    assert_int_equal(read_config(text, &config, &err), code);
    assert_string_equal(err.message, message);
}

/* ---- names of timm ---- */

static void test_timm_names(void **state)
{
    (void)state;
    const struct espl_model_config deit =
        must_read("{\"architecture\":\"deit_small_distilled_patch16_224.fb_in1k\"}");
    assert_string_equal(deit.architecture, "vit");
    assert_int_equal(deit.hidden, 384);
    assert_int_equal(deit.ffn, 1536);
    assert_int_equal(deit.layers, 12);
    assert_int_equal(deit.heads, 6);
    assert_int_equal(deit.vocab, 1000);
    assert_int_equal(deit.max_positions, 14 * 14 + 2);
    assert_true(deit.vision.distilled);
    assert_true(fabs(deit.norm_eps - 1e-6) < 1e-12);

    const struct espl_model_config large = must_read(
        "{\"architecture\":\"vit_large_patch32_384\",\"num_classes\":21843,\"pretrained_cfg\":"
        "{\"input_size\":[3,384,384],\"mean\":[0.5,0.5,0.5],\"std\":[0.5,0.5,0.5],\"crop_pct\":1.0,"
        "\"interpolation\":\"bilinear\"}}");
    assert_int_equal(large.layers, 24);
    assert_int_equal(large.vocab, 21843);
    assert_int_equal(large.max_positions, 12 * 12 + 1);
    assert_true(fabs(large.vision.mean[2] - 0.5) < 1e-12);
    assert_string_equal(large.vision.interpolation, "bilinear");

    const struct espl_model_config swin =
        must_read("{\"architecture\":\"swin_small_patch4_window7_224.ms_in1k\",\"pretrained_cfg\":"
                  "{\"crop_pct\":0.9,\"interpolation\":\"bicubic\"}}");
    assert_string_equal(swin.architecture, "swin");
    assert_int_equal(swin.layers, 24);
    assert_int_equal(swin.vision.depths[2], 18);
    assert_int_equal(swin.vision.stage_heads[3], 24);
    assert_int_equal(swin.vision.window_size, 7);
    assert_true(fabs(swin.norm_eps - 1e-5) < 1e-12);
    assert_true(fabs(swin.vision.crop_pct - 0.9) < 1e-12);
    assert_true(fabs(swin.vision.mean[0] - 0.485) < 1e-12); /* ImageNet's, not said */
}

/* model_args stand above the name. */
static void test_model_args(void **state)
{
    (void)state;
    const struct espl_model_config config =
        must_read("{\"architecture\":\"vit_base_patch16_224\",\"model_args\":{\"img_size\":[28,28],"
                  "\"patch_size\":7,\"in_chans\":1,\"embed_dim\":60,\"depth\":3,\"num_heads\":5,"
                  "\"mlp_ratio\":2.5,\"qkv_bias\":false,\"num_classes\":10,\"drop_path_rate\":0.1,"
                  "\"init_values\":null,\"qk_norm\":false}}");
    assert_int_equal(config.hidden, 60);
    assert_int_equal(config.ffn, 150);
    assert_int_equal(config.layers, 3);
    assert_int_equal(config.vocab, 10);
    assert_int_equal(config.max_positions, 17);
    assert_int_equal(config.vision.channels, 1);
    assert_false(config.attention_bias);
}

static void test_refusals(void **state)
{
    (void)state;
    expect_refusal("{\"architecture\":\"deit3_small_patch16_224\"}", ESPL_E_UNSUPPORTED,
                   "architecture 'deit3_small_patch16_224' of config.json is not supported");
    expect_refusal(
        "{\"architecture\":\"vit_base_patch16_clip_224\"}", ESPL_E_UNSUPPORTED,
        "architecture 'vit_base_patch16_clip_224' of config.json is not a ViT that can be "
        "read");
    expect_refusal("{\"architecture\":\"swinv2_tiny_window8_256\"}", ESPL_E_UNSUPPORTED,
                   "architecture 'swinv2_tiny_window8_256' of config.json is not supported");
    expect_refusal("{\"architecture\":\"swin_tiny_patch4_224\"}", ESPL_E_UNSUPPORTED,
                   "architecture 'swin_tiny_patch4_224' of config.json is not a Swin that can be "
                   "read");
    expect_refusal("{\"architecture\":\"vit\"}", ESPL_E_KIND,
                   "config.json does not say 'img_size'");
    expect_refusal(
        "{\"architecture\":\"vit_base_patch16_224\",\"model_args\":{\"init_values\":1e-5}}",
        ESPL_E_UNSUPPORTED,
        "'init_values' of model_args in config.json is 1.0000000000000001e-5, which is not "
        "supported");
    expect_refusal(
        "{\"architecture\":\"vit_base_patch16_224\",\"model_args\":{\"global_pool\":\"avg\"}}",
        ESPL_E_UNSUPPORTED,
        "'global_pool' of model_args in config.json is \"avg\", which is not supported");
    expect_refusal(
        "{\"architecture\":\"vit_base_patch16_224\",\"model_args\":{\"img_size\":[224,192]}}",
        ESPL_E_UNSUPPORTED, "'img_size' of config.json is not a square");
    expect_refusal("{\"architecture\":\"vit_base_patch16_224\",\"model_args\":{\"img_size\":230}}",
                   ESPL_E_UNSUPPORTED,
                   "pictures of 230 pixels a side cannot be cut into patches of 16");
    expect_refusal("{\"architecture\":\"vit_base_patch16_224\",\"model_args\":{\"num_heads\":7}}",
                   ESPL_E_KIND, "width 768 of stage 0 is not a multiple of its 7 heads");
    expect_refusal("{\"architecture\":\"swin_tiny_patch4_window7_224\",\"model_args\":"
                   "{\"img_size\":256}}",
                   ESPL_E_UNSUPPORTED,
                   "the 64 x 64 map of stage 0 cannot be cut into windows of 7 and halved");
    expect_refusal("{\"architecture\":\"vit_base_patch16_224\",\"pretrained_cfg\":"
                   "{\"std\":[0.5,0,0.5]}}",
                   ESPL_E_KIND, "channel 1 cannot be scaled with mean 0.456 and std 0");
    expect_refusal(
        "{\"architecture\":\"vit_base_patch16_224\",\"pretrained_cfg\":{\"mean\":[0.5]}}",
        ESPL_E_KIND,
        "'mean' of pretrained_cfg in config.json must be a list of 3 numbers, one a "
        "channel");
    expect_refusal("{\"architecture\":\"vit_base_patch16_224\",\"pretrained_cfg\":"
                   "{\"interpolation\":\"random\"}}",
                   ESPL_E_UNSUPPORTED, "interpolation 'random' is not supported");
    expect_refusal("{\"model_type\":\"swin\",\"embed_dim\":8,\"depths\":[2,2],\"num_heads\":[1],"
                   "\"window_size\":7}",
                   ESPL_E_KIND, "config.json has 2 depths and 1 num_heads");
    expect_refusal("{\"architecture\":\"swin\",\"model_args\":{\"img_size\":16,\"patch_size\":2,"
                   "\"embed_dim\":9,\"depths\":[2,2],\"num_heads\":[3,3],\"window_size\":4,"
                   "\"mlp_ratio\":2.5}}",
                   ESPL_E_UNSUPPORTED,
                   "mlp_ratio 2.5 of config.json gives no whole inner width for 9 channels");
    expect_refusal("{}", ESPL_E_KIND, "config.json has no 'model_type'");
}

/* ---- tensors ---- */

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

/* Parameters as timm counts them (of the published models). */
static void test_parameters(void **state)
{
    (void)state;
    const struct {
        const char *text;
        uint64_t parameters;
    } known[] = {
        {"{\"architecture\":\"deit_tiny_patch16_224\"}", 5717416},
        {"{\"architecture\":\"deit_small_patch16_224\"}", 22050664},
        {"{\"architecture\":\"deit_base_patch16_224\"}", 86567656},
        {"{\"architecture\":\"deit_small_distilled_patch16_224\"}", 22436432},
        {"{\"architecture\":\"swin_tiny_patch4_window7_224\"}", 28288354},
        {"{\"architecture\":\"swin_small_patch4_window7_224\"}", 49606258},
        {"{\"architecture\":\"swin_base_patch4_window7_224\"}", 87768224},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const struct espl_model_config config = must_read(known[i].text);
        assert_int_equal(espl_arch_parameters(&config), known[i].parameters);
    }
}

static void test_tensors__vit(void **state)
{
    (void)state;
    struct espl_tensor_spec *specs = NULL;
    size_t count = 0;
    const struct espl_model_config config =
        must_read("{\"architecture\":\"deit_tiny_distilled_patch16_224\"}");
    assert_int_equal(espl_arch_tensors(&config, &specs, &count, NULL), ESPL_OK);
    assert_int_equal(count, 11 + 12 * 12);
    const struct espl_tensor_spec *patch = find(specs, count, "patch_embed.proj.weight");
    const uint64_t patch_shape[] = {192, 3, 16, 16};
    assert_int_equal(patch->file_rank, 4);
    assert_memory_equal(patch->file_shape, patch_shape, sizeof patch_shape);
    assert_int_equal(patch->shape[1], 768);
    const struct espl_tensor_spec *position = find(specs, count, "pos_embed");
    const uint64_t position_shape[] = {1, 198, 192};
    assert_int_equal(position->file_rank, 3);
    assert_memory_equal(position->file_shape, position_shape, sizeof position_shape);
    assert_string_equal(position->path, "/pos_embed/weight");
    assert_int_equal(find(specs, count, "head_dist.bias")->role, ESPL_ROLE_DISTILL_HEAD);
    const struct espl_tensor_spec *qkv = find(specs, count, "blocks.11.attn.qkv.weight");
    assert_string_equal(qkv->module, "blocks.11.attn.qkv");
    assert_string_equal(qkv->path, "/layers/011/attn.qkv/weight");
    assert_int_equal(qkv->layer, 11);
    assert_int_equal(qkv->shape[0], 576);
    assert_true(espl_role_is_block_linear(qkv->role));
    assert_false(espl_role_is_block_linear(patch->role));
    free(specs);
}

static void test_tensors__swin(void **state)
{
    (void)state;
    struct espl_tensor_spec *specs = NULL;
    size_t count = 0;
    const struct espl_model_config config =
        must_read("{\"architecture\":\"swin_tiny_patch4_window7_224\"}");
    assert_int_equal(espl_arch_tensors(&config, &specs, &count, NULL), ESPL_OK);
    assert_int_equal(count, 8 + 12 * 13 + 3 * 3);
    const struct espl_tensor_spec *merge =
        find(specs, count, "layers.2.downsample.reduction.weight");
    assert_int_equal(merge->layer, 4);
    assert_int_equal(merge->shape[0], 384);
    assert_int_equal(merge->shape[1], 768);
    assert_false(espl_role_is_block_linear(merge->role));
    const struct espl_tensor_spec *table =
        find(specs, count, "layers.3.blocks.1.attn.relative_position_bias_table");
    assert_int_equal(table->shape[0], 169);
    assert_int_equal(table->shape[1], 24);
    const struct espl_tensor_spec *fc2 = find(specs, count, "layers.2.blocks.5.mlp.fc2.weight");
    assert_int_equal(fc2->layer, 9);
    assert_string_equal(fc2->path, "/layers/009/mlp.fc2/weight");
    assert_int_equal(fc2->shape[1], 1536);
    free(specs);
}

/* Window, shift and size of each block as the paper draws them. */
static void test_places(void **state)
{
    (void)state;
    const struct espl_model_config config =
        must_read("{\"architecture\":\"swin_tiny_patch4_window7_224\"}");
    const struct {
        uint64_t block, stage, side, width, window, shift;
        bool merges;
    } expected[] = {
        {0, 0, 56, 96, 7, 0, false},  {1, 0, 56, 96, 7, 3, false}, {2, 1, 28, 192, 7, 0, true},
        {9, 2, 14, 384, 7, 3, false}, {10, 3, 7, 768, 7, 0, true}, {11, 3, 7, 768, 7, 0, false},
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        struct espl_vision_place place;
        espl_vision_get_place(&config, expected[i].block, &place);
        assert_int_equal(place.stage, expected[i].stage);
        assert_int_equal(place.side, expected[i].side);
        assert_int_equal(place.width, expected[i].width);
        assert_int_equal(place.window, expected[i].window);
        assert_int_equal(place.shift, expected[i].shift);
        assert_int_equal(place.merges, expected[i].merges);
        assert_int_equal(espl_vision_place_tokens(&config, &place),
                         expected[i].side * expected[i].side);
    }
}

/* ---- there and back ---- */

static void check_same(const struct espl_model_config *a, const struct espl_model_config *b)
{
    json_t *first = espl_model_config_to_json(a);
    json_t *second = espl_model_config_to_json(b);
    char *text = json_dumps(second, JSON_SORT_KEYS);
    if (!json_equal(first, second)) {
        fail_msg("not the same configuration: %s", text);
    }
    free(text);
    json_decref(first);
    json_decref(second);
}

static void test_round_trips(void **state)
{
    (void)state;
    const char *const texts[] = {
        "{\"architecture\":\"deit_small_distilled_patch16_224\",\"num_classes\":7}",
        "{\"architecture\":\"vit_tiny_patch16_384\",\"model_args\":{\"qkv_bias\":false}}",
        "{\"model_type\":\"vit\",\"hidden_size\":49,\"num_attention_heads\":7,"
        "\"num_hidden_layers\":2,\"intermediate_size\":1}", /* 49 * (1 / 49) is below 1 */
        "{\"architecture\":\"swin\",\"model_args\":{\"img_size\":32,\"patch_size\":2,\"in_chans\":"
        "1,"
        "\"embed_dim\":8,\"depths\":[2,4],\"num_heads\":[2,4],\"window_size\":4,\"mlp_ratio\":2.5},"
        "\"pretrained_cfg\":{\"mean\":[0.25],\"std\":[0.75],\"crop_pct\":0.95}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct espl_error err = {0};
        struct espl_model_config read;
        const struct espl_model_config config = must_read(texts[i]);
        json_t *own = espl_model_config_to_json(&config);
        assert_int_equal(espl_model_config_from_json(own, &read, &err), ESPL_OK);
        check_same(&config, &read);
        json_decref(own);

        json_t *timm = espl_model_config_to_hf(&config);
        assert_int_equal(espl_model_config_from_hf(timm, &read, &err), ESPL_OK);
        check_same(&config, &read);
        json_decref(timm);
    }
}

/* Every member of "vision" is needed, of its type. */
static void test_from_json__damaged(void **state)
{
    (void)state;
    static const char *const members[] = {"image_size", "patch_size", "channels",     "window_size",
                                          "depths",     "heads",      "distilled",    "mean",
                                          "std",        "crop_pct",   "interpolation"};
    const struct espl_model_config config =
        must_read("{\"architecture\":\"swin_tiny_patch4_window7_224\"}");
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        struct espl_error err = {0};
        struct espl_model_config read;
        char expected[128];
        json_t *json = espl_model_config_to_json(&config);
        (void)json_object_set_new(json_object_get(json, "vision"), members[i], json_array());
        (void)snprintf(expected, sizeof expected,
                       "model configuration: member 'vision.%s' is missing or of the wrong type",
                       members[i]);
        assert_int_equal(espl_model_config_from_json(json, &read, &err), ESPL_E_CORRUPT);
        assert_string_equal(err.message, expected);
        json_decref(json);
    }
    struct espl_error err = {0};
    struct espl_model_config read;
    json_t *json = espl_model_config_to_json(&config);
    (void)json_object_del(json, "vision");
    assert_int_equal(espl_model_config_from_json(json, &read, &err), ESPL_E_KIND);
    json_decref(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timm_names),
        cmocka_unit_test(test_model_args),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_tensors__vit),
        cmocka_unit_test(test_tensors__swin),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_from_json__damaged),
    };
    return cmocka_run_group_tests_name("arch_vision", tests, NULL, NULL);
}

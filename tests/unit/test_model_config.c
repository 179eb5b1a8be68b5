#include "model/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LLAMA                                                                \
    "{\"model_type\":\"llama\",\"hidden_size\":256,\"num_hidden_layers\":6," \
    "\"num_attention_heads\":4,\"intermediate_size\":768,\"vocab_size\":4096"
#define OPT                                                                  \
    "{\"model_type\":\"opt\",\"hidden_size\":1024,\"num_hidden_layers\":24," \
    "\"num_attention_heads\":16,\"ffn_dim\":4096,\"vocab_size\":50272,"      \
    "\"max_position_embeddings\":2048"
#define QWEN2                                                                          \
    "{\"model_type\":\"qwen2\",\"hidden_size\":896,\"num_hidden_layers\":2,"           \
    "\"num_attention_heads\":14,\"num_key_value_heads\":2,\"intermediate_size\":4864," \
    "\"vocab_size\":151936"

static enum espl_status read_text(const char *text, struct espl_model_config *config,
                                  struct espl_error *err)
{
    json_error_t json_err;
    json_t *hf = json_loads(text, 0, &json_err);
    if (hf == NULL) {
        fail_msg("test's own JSON: %s", json_err.text);
    }
    espl_error_clear(err);
    const enum espl_status status = espl_model_config_from_hf(hf, config, err);
    json_decref(hf);
    return status;
}

static struct espl_model_config good(const char *text)
{
    struct espl_model_config config;
    struct espl_error err;
    if (read_text(text, &config, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return config;
}

static void bad(const char *text, enum espl_status status, const char *message)
{
    struct espl_model_config config;
    struct espl_error err;
    const enum espl_status got = read_text(text, &config, &err);
    if (got != status || strstr(err.message, message) == NULL) {
        fail_msg("%s\ngives %d '%s', expected %d '%s'", text, (int)got, err.message, (int)status,
                 message);
    }
}

static void test_config_from_hf__llama_defaults(void **state)
{
    (void)state;
    const struct espl_model_config config = good(LLAMA "}");
    assert_string_equal(config.architecture, "llama");
    assert_int_equal(config.kv_heads, 4);
    assert_int_equal(config.head_dim, 64);
    assert_int_equal(config.embed_dim, 256);
    assert_int_equal(config.max_positions, 2048);
    assert_true(config.norm_eps == 1e-6);
    assert_int_equal(config.norm, ESPL_NORM_RMS);
    assert_int_equal(config.rope.type, ESPL_ROPE_DEFAULT);
    assert_true(config.rope.theta == 10000.0);
    assert_false(config.tied_embeddings);
    assert_false(config.attention_bias || config.output_bias || config.mlp_bias);
    assert_int_equal(config.bos_id, -1);
    assert_string_equal(config.dtype, "");
}

static void test_config_from_hf__old_and_new_keys_agree(void **state)
{
    (void)state;
    const struct espl_model_config old =
        good(LLAMA ",\"torch_dtype\":\"bfloat16\",\"rope_theta\":500000.0,\"rope_scaling\":{"
                   "\"type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
                   "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}");
    const struct espl_model_config new =
        good(LLAMA ",\"dtype\":\"bfloat16\",\"rope_parameters\":{\"rope_theta\":500000.0,"
                   "\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
                   "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}");
    json_t *a = espl_model_config_to_json(&old);
    json_t *b = espl_model_config_to_json(&new);
    assert_true(json_equal(a, b));
    json_decref(a);
    json_decref(b);
    assert_string_equal(old.dtype, "bf16");
    assert_int_equal(old.rope.type, ESPL_ROPE_LLAMA3);
    assert_true(old.rope.theta == 500000.0);
    assert_true(old.rope.factor == 8.0);
    assert_true(old.rope.low_freq_factor == 1.0);
    assert_true(old.rope.high_freq_factor == 4.0);
    assert_int_equal(old.rope.original_max_positions, 8192);
}

static void test_config_from_hf__rope_types(void **state)
{
    (void)state;
    struct espl_model_config config =
        good(LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}}");
    assert_int_equal(config.rope.type, ESPL_ROPE_LINEAR);
    assert_true(config.rope.factor == 2.5);
    config = good(LLAMA ",\"max_position_embeddings\":4096,\"rope_scaling\":{\"rope_type\":"
                        "\"dynamic\",\"factor\":2}}");
    assert_int_equal(config.rope.type, ESPL_ROPE_DYNAMIC);
    assert_int_equal(config.rope.original_max_positions, 4096);
    config = good(LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
                        "\"original_max_position_embeddings\":512}}");
    assert_int_equal(config.rope.type, ESPL_ROPE_YARN);
    assert_true(config.rope.beta_fast == 32.0);
    assert_true(config.rope.beta_slow == 1.0);
    assert_true(config.rope.attention_factor == 0.0);
    assert_int_equal(config.rope.original_max_positions, 512);
    config = good(LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
                        "\"mscale\":1.0,\"mscale_all_dim\":0.5}}");
    /* (0.1 ln 4 + 1) / (0.05 ln 4 + 1) */
    assert_true(fabs(config.rope.attention_factor - 1.13862943611 / 1.06931471806) < 1e-9);
    config = good(LLAMA ",\"rope_scaling\":null,\"rope_parameters\":null}");
    assert_int_equal(config.rope.type, ESPL_ROPE_DEFAULT);
}

static void test_config_from_hf__opt_350m(void **state)
{
    (void)state;
    struct espl_model_config config =
        good(OPT ",\"do_layer_norm_before\":false,\"word_embed_proj_dim\":512,\"bos_token_id\":2,"
                 "\"torch_dtype\":\"float16\"}");
    assert_false(config.pre_norm);
    assert_false(config.final_norm);
    assert_int_equal(config.embed_dim, 512);
    assert_true(config.tied_embeddings);
    assert_int_equal(config.position_offset, 2);
    assert_int_equal(config.norm, ESPL_NORM_LAYER);
    assert_int_equal(config.activation, ESPL_ACT_RELU);
    assert_int_equal(config.rope.type, ESPL_ROPE_NONE);
    assert_true(config.attention_bias && config.output_bias && config.mlp_bias);
    assert_int_equal(config.bos_id, 2);
    assert_string_equal(config.dtype, "f16");
    config = good(OPT ",\"_remove_final_layer_norm\":true,\"enable_bias\":false,"
                      "\"layer_norm_elementwise_affine\":false,\"activation_function\":\"gelu\","
                      "\"tie_word_embeddings\":false}");
    assert_true(config.pre_norm);
    assert_false(config.final_norm || config.norm_affine || config.mlp_bias);
    assert_false(config.tied_embeddings);
    assert_int_equal(config.activation, ESPL_ACT_GELU);
}

static void test_config_from_hf__qwen2(void **state)
{
    (void)state;
    const struct espl_model_config config =
        good(QWEN2 ",\"rope_theta\":1000000.0,\"use_sliding_window\":false,"
                   "\"sliding_window\":131072,\"tie_word_embeddings\":true,"
                   "\"layer_types\":[\"full_attention\",\"full_attention\"]}");
    assert_true(config.attention_bias);
    assert_false(config.output_bias || config.mlp_bias);
    assert_int_equal(config.head_dim, 64);
    assert_true(config.tied_embeddings);
    bad(QWEN2 ",\"use_sliding_window\":true}", ESPL_E_UNSUPPORTED, "use_sliding_window");
    bad(QWEN2 ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]}", ESPL_E_UNSUPPORTED,
        "'sliding_attention' in layer 1");
}

static void test_config_from_hf__grouped_heads_and_own_head_dim(void **state)
{
    (void)state;
    const struct espl_model_config config =
        good(LLAMA ",\"num_key_value_heads\":2,\"head_dim\":80,\"attention_bias\":true,"
                   "\"mlp_bias\":true,\"bos_token_id\":1,\"eos_token_id\":[2,7]}");
    assert_int_equal(config.kv_heads, 2);
    assert_int_equal(config.head_dim, 80);
    assert_true(config.attention_bias && config.output_bias && config.mlp_bias);
    assert_int_equal(config.eos_id, 2);
}

static void test_config_from_hf__bad_numbers_name_their_key(void **state)
{
    (void)state;
    bad("[]", ESPL_E_KIND, "one JSON object");
    bad("{\"hidden_size\":1}", ESPL_E_KIND, "no 'model_type'");
    bad("{\"model_type\":7}", ESPL_E_KIND, "'model_type' of config.json must be a text");
    bad("{\"model_type\":\"gpt2\"}", ESPL_E_UNSUPPORTED, "model_type 'gpt2'");
    bad("{\"model_type\":\"llama\"}", ESPL_E_KIND, "no 'hidden_size'");
    bad(LLAMA ",\"num_key_value_heads\":0}", ESPL_E_KIND, "'num_key_value_heads'");
    bad(LLAMA ",\"num_key_value_heads\":3}", ESPL_E_KIND, "num_key_value_heads 3");
    bad(LLAMA ",\"max_position_embeddings\":99999999999}", ESPL_E_KIND,
        "'max_position_embeddings'");
    bad(LLAMA ",\"max_position_embeddings\":2.5}", ESPL_E_KIND, "must be a whole number");
    bad(LLAMA ",\"head_dim\":-64}", ESPL_E_KIND, "'head_dim'");
    bad(LLAMA ",\"head_dim\":65}", ESPL_E_KIND, "head dimension 65 is odd");
    bad(LLAMA ",\"rms_norm_eps\":-1}", ESPL_E_KIND, "'rms_norm_eps'");
    bad(LLAMA ",\"rms_norm_eps\":\"1e-5\"}", ESPL_E_KIND, "'rms_norm_eps'");
    bad(LLAMA ",\"tie_word_embeddings\":1}", ESPL_E_KIND, "'tie_word_embeddings'");
    bad(LLAMA ",\"bos_token_id\":\"x\"}", ESPL_E_KIND, "'bos_token_id'");
    bad(LLAMA ",\"hidden_act\":\"gelu\"}", ESPL_E_UNSUPPORTED, "hidden_act 'gelu'");
    bad(LLAMA ",\"rope_theta\":0}", ESPL_E_KIND, "'rope_theta'");
    bad(LLAMA ",\"rope_scaling\":3}", ESPL_E_KIND, "'rope_scaling'");
    bad(LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}", ESPL_E_KIND, "'factor'");
    bad(LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"factor\":2}}", ESPL_E_UNSUPPORTED,
        "rope type 'longrope'");
    bad(LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}", ESPL_E_KIND,
        "low_freq_factor");
    bad(LLAMA ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}}",
        ESPL_E_UNSUPPORTED, "full_attention");
    bad(LLAMA ",\"partial_rotary_factor\":0.5}", ESPL_E_UNSUPPORTED, "partial_rotary_factor");
    bad(LLAMA ",\"sliding_window\":4096}", ESPL_E_UNSUPPORTED, "sliding_window");
    bad(LLAMA ",\"quantization_config\":{\"bits\":4}}", ESPL_E_UNSUPPORTED, "quantization_config");
    bad("{\"model_type\":\"llama\",\"hidden_size\":255,\"num_hidden_layers\":6,"
        "\"num_attention_heads\":4,\"intermediate_size\":768,\"vocab_size\":4096}",
        ESPL_E_KIND, "hidden_size 255");
    bad("{\"model_type\":\"opt\",\"hidden_size\":255,\"num_hidden_layers\":6,"
        "\"num_attention_heads\":4,\"ffn_dim\":768,\"vocab_size\":4096}",
        ESPL_E_KIND, "hidden_size 255");
    bad(OPT ",\"activation_function\":\"gelu_new\"}", ESPL_E_UNSUPPORTED, "'gelu_new'");
    bad(OPT ",\"word_embed_proj_dim\":0}", ESPL_E_KIND, "'word_embed_proj_dim'");
}

static const char *const round_trips[] = {
    LLAMA ",\"dtype\":\"float16\",\"bos_token_id\":1,\"eos_token_id\":2}",
    LLAMA ",\"num_key_value_heads\":2,\"head_dim\":80,\"attention_bias\":true,\"mlp_bias\":true,"
          "\"rms_norm_eps\":1.0000000000000001e-05}",
    LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}}",
    LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.5}}",
    LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,\"beta_fast\":16,"
          "\"attention_factor\":1.25,\"original_max_position_embeddings\":512}}",
    LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32.0,\"low_freq_factor\":1.0,"
          "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192},"
          "\"tie_word_embeddings\":true}",
    OPT ",\"dtype\":\"float32\"}",
    OPT ",\"do_layer_norm_before\":false,\"word_embed_proj_dim\":512}",
    OPT ",\"_remove_final_layer_norm\":true,\"enable_bias\":false,\"tie_word_embeddings\":false,"
        "\"layer_norm_elementwise_affine\":false,\"activation_function\":\"gelu\"}",
    QWEN2 ",\"head_dim\":128,\"rope_theta\":1e6,\"dtype\":\"bfloat16\"}",
};

static void test_config__survives_both_forms(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof round_trips / sizeof round_trips[0]; i++) {
        const struct espl_model_config config = good(round_trips[i]);
        struct espl_model_config back;
        struct espl_error err = {0};
        json_t *canonical = espl_model_config_to_json(&config);
        json_t *hf = espl_model_config_to_hf(&config);

        assert_int_equal(espl_model_config_from_json(canonical, &back, &err), ESPL_OK);
        json_t *again = espl_model_config_to_json(&back);
        assert_true(json_equal(canonical, again));
        json_decref(again);

        if (espl_model_config_from_hf(hf, &back, &err) != ESPL_OK) {
            fail_msg("%s", err.message);
        }
        again = espl_model_config_to_json(&back);
        if (!json_equal(canonical, again)) {
            fail_msg("%s\n%s\n%s", round_trips[i], json_dumps(canonical, JSON_SORT_KEYS),
                     json_dumps(again, JSON_SORT_KEYS));
        }
        json_decref(again);
        json_decref(hf);
        json_decref(canonical);
    }
}

/* Takes each member away, and gives each a value of a wrong type: never accepted. */
static void test_config_from_json__needs_every_member(void **state)
{
    const struct espl_model_config config = good(LLAMA "}");
    json_t *canonical = espl_model_config_to_json(&config);
    const char *key = NULL;
    json_t *value = NULL;
    (void)state;

    json_object_foreach(canonical, key, value)
    {
        struct espl_model_config back;
        struct espl_error err = {0};
        json_t *copy = json_copy(canonical);
        assert_int_equal(json_object_del(copy, key), 0);
        assert_int_equal(espl_model_config_from_json(copy, &back, &err), ESPL_E_CORRUPT);
        assert_int_equal(json_object_set_new(copy, key, json_array()), 0);
        assert_int_equal(espl_model_config_from_json(copy, &back, &err), ESPL_E_CORRUPT);
        json_decref(copy);
    }
    json_decref(canonical);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_from_hf__llama_defaults),
        cmocka_unit_test(test_config_from_hf__old_and_new_keys_agree),
        cmocka_unit_test(test_config_from_hf__rope_types),
        cmocka_unit_test(test_config_from_hf__opt_350m),
        cmocka_unit_test(test_config_from_hf__qwen2),
        cmocka_unit_test(test_config_from_hf__grouped_heads_and_own_head_dim),
        cmocka_unit_test(test_config_from_hf__bad_numbers_name_their_key),
        cmocka_unit_test(test_config__survives_both_forms),
        cmocka_unit_test(test_config_from_json__needs_every_member),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

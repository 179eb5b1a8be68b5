/* Perplexity of whole texts, from the text file on: token ids by hash, perplexity within 0.1
 * percent of golden.json. Label slow: about a million tokens through three models. */
#include "core/hash.h"
#include "datasets/text.h"
#include "datasets/tokenizer.h"
#include "eval/perplexity.h"
#include "unit/checkpoint_model.h"
#include "unit/golden_data.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { TOKENS = 512, TEXT_LIMIT = 64 * 1024 * 1024 };

static void require_ok(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s [%s]", err->message, err->context);
    }
}

static int32_t *tokenise(const char *model_dir, const char *text_path, size_t *count)
{
    struct espl_error err;
    struct espl_tokenizer *tokenizer = NULL;
    char *text = NULL;
    size_t len = 0;
    int32_t *ids = NULL;
    require_ok(espl_tokenizer_load(model_dir, &tokenizer, &err), &err);
    require_ok(espl_text_read(text_path, TEXT_LIMIT, &text, &len, &err), &err);
    require_ok(espl_tokenizer_encode(tokenizer, text, len, true, &ids, count, &err), &err);
    espl_tokenizer_destroy(tokenizer);
    free(text);
    return ids;
}

static void check_text(struct espl_model *model, const char *model_dir, const json_t *golden,
                       const char *text_name)
{
    char file[64];
    char path[GOLDEN_PATH];
    char sha256[ESPL_SHA256_HEX];
    struct espl_error err;
    struct espl_backend *backend = NULL;
    struct espl_perplexity result;
    size_t count = 0;
    const json_t *expected = json_object_get(golden, text_name);
    (void)snprintf(file, sizeof file, "%s.txt.xz", text_name);
    if (!golden_text_path(file, path)) {
        print_message("skipped: text '%s' is not on this machine\n", file);
        skip();
    }
    int32_t *ids = tokenise(model_dir, path, &count);
    assert_int_equal(count, json_integer_value(json_object_get(expected, "tokens")));
    require_ok(espl_sha256_bytes(ids, count * sizeof *ids, sha256, &err), &err);
    assert_string_equal(sha256, json_string_value(json_object_get(expected, "ids_sha256_int32le")));
    require_ok(espl_backend_open("cpu", 0, &backend, &err), &err);
    require_ok(espl_perplexity_measure(model, NULL, backend, ids, count / TOKENS, TOKENS, NULL,
                                       NULL, &result, &err),
               &err);
    const double golden_value = json_number_value(json_object_get(expected, "perplexity"));
    print_message("%s: perplexity %.5f, golden %.5f (%.1f s, %.1f GFLOP/s)\n", text_name,
                  result.perplexity, golden_value, result.seconds,
                  result.flop / result.seconds * 1e-9);
    assert_int_equal(result.windows, json_integer_value(json_object_get(expected, "windows")));
    assert_true(fabs(result.perplexity / golden_value - 1.0) < 1e-3);
    espl_backend_close(backend);
    free(ids);
}

static void check_model(const char *name)
{
    char dir[GOLDEN_PATH];
    char path[GOLDEN_PATH + 32];
    struct espl_error err;
    struct espl_model *model = NULL;
    if (!golden_model_dir(name, dir)) {
        print_message("skipped: reference model '%s' is not on this machine\n", name);
        skip();
    }
    (void)snprintf(path, sizeof path, "%s/golden.json", dir);
    json_t *golden = json_load_file(path, 0, NULL);
    assert_non_null(golden);
    require_ok(checkpoint_model_open(dir, dir, &model, &err), &err);
    check_text(model, dir, golden, "novels-test");
    check_text(model, dir, golden, "wikitext2-test");
    checkpoint_model_close(model);
    json_decref(golden);
}

static void test_perplexity__whole_texts_llama_6m(void **state)
{
    (void)state;
    check_model("llama-6m");
}

static void test_perplexity__whole_texts_llama_18m(void **state)
{
    (void)state;
    check_model("llama-18m");
}

static void test_perplexity__whole_texts_opt_6m(void **state)
{
    (void)state;
    check_model("opt-6m");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_perplexity__whole_texts_llama_6m),
        cmocka_unit_test(test_perplexity__whole_texts_llama_18m),
        cmocka_unit_test(test_perplexity__whole_texts_opt_6m),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

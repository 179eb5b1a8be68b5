/* What quantisation costs llama-18m on novels-test, dense and with half of its weights removed: the
 * order of quality must hold. Prints the table. Minutes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "golden_data.h"
#include "quant_fixture.h"

#include "core/log.h"
#include "datasets/text.h"
#include "datasets/tokenizer.h"
#include "datasets/windows.h"
#include "eval/perplexity.h"
#include "stages/quant_common/gptq.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CALIBRATION = 128, TOKENS = 512, EVALUATED = 256, TEXT_LIMIT = 64 << 20 };

/* Two perplexities closer than this are called equal: W8A8 moves single tokens both ways. */
static const double NOISE = 0.001;

struct quality {
    struct prune_fixture fixture;
    char model_dir[GOLDEN_PATH];
    int32_t *test; /* ids of the test text */
};

static void check(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s [%s] (%s)", err->message, err->context, err->hint);
    }
}

static int32_t *tokenise(const struct quality *quality, const char *name, size_t *count,
                         size_t *vocab)
{
    char path[GOLDEN_PATH];
    struct espl_tokenizer *tokenizer = NULL;
    struct espl_error err;
    char *text = NULL;
    size_t len = 0;
    int32_t *ids = NULL;
    if (!golden_text_path(name, path)) {
        print_message("no text %s\n", name);
        skip();
    }
    check(espl_tokenizer_load(quality->model_dir, &tokenizer, &err), &err);
    check(espl_text_read(path, TEXT_LIMIT, &text, &len, &err), &err);
    check(espl_tokenizer_encode(tokenizer, text, len, true, &ids, count, &err), &err);
    *vocab = espl_tokenizer_vocab_size(tokenizer);
    free(text);
    espl_tokenizer_destroy(tokenizer);
    return ids;
}

static void open_quality(struct quality *quality)
{
    size_t count = 0, vocab = 0;
    uint64_t starts[CALIBRATION];
    struct espl_error err;
    if (!golden_model_dir("llama-18m", quality->model_dir)) {
        print_message("no model llama-18m\n");
        skip();
    }
    int32_t *ids = tokenise(quality, "novels-calib.txt.xz", &count, &vocab);
    int32_t *windows = malloc((size_t)CALIBRATION * TOKENS * sizeof *windows);
    const uint64_t offsets[2] = {0, count};
    const struct espl_documents documents = {ids, offsets, 1};
    assert_non_null(windows);
    check(espl_windows_draw(&documents, 0, CALIBRATION, TOKENS, 100, windows, starts, &err), &err);
    prune_fixture_open(&quality->fixture);
    prune_import(&quality->fixture, 'a', quality->model_dir);
    prune_make_tokens(&quality->fixture, 'b', windows, CALIBRATION, TOKENS, vocab);
    quality->test = tokenise(quality, "novels-test.txt.xz", &count, &vocab);
    assert_true(count >= (size_t)EVALUATED * TOKENS);
    free(windows);
    free(ids);
}

static void close_quality(struct quality *quality)
{
    free(quality->test);
    prune_fixture_close(&quality->fixture);
}

static double perplexity(struct quality *quality, char key, const char *name)
{
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    struct espl_backend *backend = NULL;
    struct espl_perplexity result;
    struct espl_error err;
    prune_open(&quality->fixture, key, &artifact, &model);
    check(espl_backend_open("cpu", 0, &backend, &err), &err);
    check(espl_perplexity_measure(model, NULL, backend, quality->test, EVALUATED, TOKENS, NULL,
                                  NULL, &result, &err),
          &err);
    print_message("%-24s perplexity %8.4f   evaluated in %6.1f s\n", name, result.perplexity,
                  result.seconds);
    espl_backend_close(backend);
    espl_model_close(model);
    espl_artifact_close(artifact);
    return result.perplexity;
}

/* Mean relative output error of all linears. */
static double mean_error(const struct prune_result *result)
{
    double sum = 0.0;
    size_t count = 0, index;
    const json_t *item;
    json_array_foreach(result->layers, index, item)
    {
        if (strcmp(json_string_value(json_object_get(item, "series")), "quant_error") == 0) {
            sum += json_real_value(json_object_get(item, "value"));
            count++;
        }
    }
    assert_true(count > 0);
    return sum / (double)count;
}

static double quantise(struct quality *quality, char model, char key, const char *name,
                       const struct espl_atom_params *params, double *error)
{
    struct prune_result result;
    const double start = espl_clock_monotonic();
    quant_run(&quality->fixture, &espl_stage_atom_quantize, params, key, model, &result);
    const double seconds = espl_clock_monotonic() - start;
    *error = mean_error(&result);
    print_message("%-24s layer error %.5f, quantised in %.1f s\n", name, *error, seconds);
    prune_result_free(&result);
    return perplexity(quality, key, name);
}

static struct espl_atom_params defaults(void)
{
    struct espl_atom_params params = quant_atom_params();
    params.group_size = -1;
    params.outlier_channels = -1;
    return params;
}

/* dense <= W8A8 <= W4A16 <= W4A4 <= W4A4 by rounding, all made from `model`. Returns the mean layer
 * error of W4A4. */
static double check_order(struct quality *quality, char model, const char *name, const char keys[4])
{
    struct espl_atom_params params[4] = {defaults(), defaults(), defaults(), defaults()};
    static const char *const names[] = {"W8A8 gptq", "W4A16 gptq", "W4A4 gptq", "W4A4 rtn"};
    double before = perplexity(quality, model, name);
    double errors[4] = {0.0};
    params[0].weight_bits = 8;
    params[0].activation_bits = 8;
    params[0].kv_bits = 8;
    params[0].weight_clip = 1.0;
    params[0].activation_clip = 1.0;
    params[1].activation_bits = 16;
    params[1].kv_bits = 16;
    params[3].method = ESPL_ATOM_RTN;
    for (size_t i = 0; i < 4; i++) {
        const double now = quantise(quality, model, keys[i], names[i], &params[i], &errors[i]);
        assert_true(now > before * (1.0 - NOISE));
        before = now;
    }
    return errors[2];
}

static void test_dense__order_of_quality(void **state)
{
    (void)state;
    struct quality quality;
    open_quality(&quality);
    (void)check_order(&quality, 'a', "dense", "cdef");
    close_quality(&quality);
}

static void test_pruned__order_of_quality_and_remask(void **state)
{
    (void)state;
    struct quality quality;
    const struct espl_wanda_params half = quant_wanda_params();
    struct espl_atom_params freeze = defaults();
    double freeze_error = 0.0;
    open_quality(&quality);
    quant_run(&quality.fixture, &espl_stage_wanda_prune, &half, 'd', 'a', NULL);
    const double remask_error = check_order(&quality, 'd', "50 % pruned", "cef0");
    freeze.removed = ESPL_REMOVED_FREEZE;
    (void)quantise(&quality, 'd', '2', "W4A4 gptq, freeze", &freeze, &freeze_error);
    assert_true(remask_error < freeze_error);
    close_quality(&quality);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense__order_of_quality),
        cmocka_unit_test(test_pruned__order_of_quality_and_remask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

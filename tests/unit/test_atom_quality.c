/* What quantisation costs llama-18m on novels-test, dense and with half of its weights removed: the
 * order of quality must hold, and remask must beat freeze. Prints the table. Minutes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "quant_fixture.h"
#include "text_fixture.h"

#include "core/log.h"
#include "stages/quant_common/gptq.h"

#include <stdlib.h>

enum { CALIBRATION = 128, TOKENS = 512, EVALUATED = 256 };

/* Two perplexities closer than this are called equal: W8A8 moves single tokens both ways. */
static const double NOISE = 0.001;

struct quality {
    struct prune_fixture fixture;
    int32_t *test; /* ids of the test text */
};

static void open_quality(struct quality *quality)
{
    char model_dir[GOLDEN_PATH], calibration[GOLDEN_PATH], test[GOLDEN_PATH];
    size_t count = 0;
    if (!golden_model_dir("llama-18m", model_dir) ||
        !golden_text_path("novels-calib.txt.xz", calibration) ||
        !golden_text_path("novels-test.txt.xz", test)) {
        print_message("SKIPPED: llama-18m or its texts are not there\n");
        skip();
    }
    prune_fixture_open(&quality->fixture);
    prune_import(&quality->fixture, 'a', model_dir);
    (void)text_calibration(&quality->fixture, 'b', model_dir, calibration, 0, CALIBRATION, TOKENS,
                           NULL);
    quality->test = text_tokenise(model_dir, test, &count, NULL);
    assert_true(count >= (size_t)EVALUATED * TOKENS);
}

static void close_quality(struct quality *quality)
{
    free(quality->test);
    prune_fixture_close(&quality->fixture);
}

static double perplexity(struct quality *quality, char key, const char *name)
{
    const double value = text_perplexity(&quality->fixture, key, quality->test, EVALUATED, TOKENS);
    print_message("%-24s perplexity %8.4f\n", name, value);
    return value;
}

static double quantise(struct quality *quality, char model, char key, const char *name,
                       const struct espl_atom_params *params, double *error)
{
    struct prune_result result;
    const double start = espl_clock_monotonic();
    quant_run(&quality->fixture, &espl_stage_atom_quantize, params, key, model, &result);
    const double seconds = espl_clock_monotonic() - start;
    *error = quant_mean_layer(&result, "quant_error");
    print_message("%-24s layer error %.5f, quantised in %.1f s\n", name, *error, seconds);
    prune_result_free(&result);
    return perplexity(quality, key, name);
}

/* dense <= W8A8 <= W4A16 <= W4A4 <= W4A4 by rounding, all made from `model`. */
static void check_order(struct quality *quality, char model, const char *name, const char keys[4])
{
    struct espl_atom_params params[4] = {quant_atom_defaults(), quant_atom_defaults(),
                                         quant_atom_defaults(), quant_atom_defaults()};
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
}

static void test_dense__order_of_quality(void **state)
{
    (void)state;
    struct quality quality;
    open_quality(&quality);
    check_order(&quality, 'a', "dense", "cdef");
    close_quality(&quality);
}

static void test_pruned__order_of_quality(void **state)
{
    (void)state;
    struct quality quality;
    const struct espl_wanda_params half = quant_wanda_params();
    open_quality(&quality);
    quant_run(&quality.fixture, &espl_stage_wanda_prune, &half, 'd', 'a', NULL);
    check_order(&quality, 'd', "50 % pruned", "cef0");
    close_quality(&quality);
}

/* In the default scheme. A single run of another one can go the other way (3 bits and float
 * activations do here): test_atom_remask has means over sparsities, widths and seeds. */
static void test_pruned__remask_beats_freeze(void **state)
{
    (void)state;
    struct quality quality;
    const struct espl_wanda_params half = quant_wanda_params();
    struct espl_atom_params params = quant_atom_defaults();
    double errors[3];
    double perplexities[3];
    open_quality(&quality);
    quant_run(&quality.fixture, &espl_stage_wanda_prune, &half, 'd', 'a', NULL);
    perplexities[0] = quantise(&quality, 'd', 'c', "W4A4 remask", &params, &errors[0]);
    params.removed = ESPL_REMOVED_FREEZE;
    perplexities[1] = quantise(&quality, 'd', 'e', "W4A4 freeze", &params, &errors[1]);
    params.method = ESPL_ATOM_RTN;
    perplexities[2] = quantise(&quality, 'd', 'f', "W4A4 rtn", &params, &errors[2]);
    for (size_t i = 0; i < 2; i++) {
        assert_true(errors[i] < errors[i + 1]);
        assert_true(perplexities[i] < perplexities[i + 1]);
    }
    close_quality(&quality);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense__order_of_quality),
        cmocka_unit_test(test_pruned__order_of_quality),
        cmocka_unit_test(test_pruned__remask_beats_freeze),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

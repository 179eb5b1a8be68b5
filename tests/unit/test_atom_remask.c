/* Remask against freeze, and both against round to nearest, on llama-6m pruned by Wanda: what each
 * rule does to the output error of the linear layers and to perplexity, over sparsities, widths and
 * calibration seeds. Prints the table. Minutes.
 *
 * Scales span the whole range here (weight_clip 1): what clipping cuts off is most of a layer's
 * error otherwise, and the same for all three rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "quant_fixture.h"
#include "text_fixture.h"

#include "stages/quant_common/gptq.h"

#include <math.h>
#include <stdlib.h>

enum { CALIBRATION = 16, TOKENS = 512, EVALUATED = 32, SEEDS = 3, RULES = 3 };

/* Activations of 4 bits add noise of their own, which is larger than what is compared: their
 * perplexity is only printed. */
static const struct scheme {
    const char *name;
    int64_t weight_bits, activation_bits;
} schemes[] = {{"W4A16", 4, 16}, {"W3A16", 3, 16}, {"W4A4", 4, 4}};
enum { SCHEMES = sizeof schemes / sizeof schemes[0] };

static const double sparsities[] = {0.5, 0.7};

/* Of remask, freeze and round to nearest. */
struct figures {
    double error[RULES];      /* mean of the linears' output errors */
    double perplexity[RULES]; /* on text that is not in the calibration */
};

/* Sums over everything that is asserted on. */
struct totals {
    double log_perplexity[RULES];
    size_t rows, better; /* rows in which remask has the lower perplexity of the two */
};

static struct figures measure(struct prune_fixture *fixture, const struct scheme *scheme,
                              const char keys[RULES], const int32_t *test)
{
    struct figures figures;
    struct espl_atom_params params[RULES];
    for (size_t i = 0; i < RULES; i++) {
        struct prune_result result;
        params[i] = quant_atom_defaults();
        params[i].weight_bits = scheme->weight_bits;
        params[i].activation_bits = scheme->activation_bits;
        params[i].kv_bits = scheme->activation_bits;
        params[i].weight_clip = 1.0;
        params[i].removed = i == 1 ? ESPL_REMOVED_FREEZE : ESPL_REMOVED_REMASK;
        params[i].method = i == 2 ? ESPL_ATOM_RTN : ESPL_ATOM_GPTQ;
        quant_run(fixture, &espl_stage_atom_quantize, &params[i], keys[i], 'c', &result);
        figures.error[i] = quant_mean_layer(&result, "quant_error");
        figures.perplexity[i] = text_perplexity(fixture, keys[i], test, EVALUATED, TOKENS);
        prune_result_free(&result);
    }
    return figures;
}

static void check_row(const struct scheme *scheme, const struct figures *figures,
                      struct totals *totals)
{
    print_message("  %-6s error %.5f %.5f %.5f   perplexity %9.4f %9.4f %9.4f\n", scheme->name,
                  figures->error[0], figures->error[1], figures->error[2], figures->perplexity[0],
                  figures->perplexity[1], figures->perplexity[2]);
    assert_true(figures->error[0] < figures->error[1]);
    assert_true(figures->error[1] < figures->error[2]);
    if (scheme->activation_bits != ESPL_QUANT_FLOAT_BITS) {
        return;
    }
    for (size_t i = 0; i < RULES; i++) {
        totals->log_perplexity[i] += log(figures->perplexity[i]);
    }
    totals->rows++;
    totals->better += figures->perplexity[0] < figures->perplexity[1];
}

static void measure_pruned(const char *model_dir, const char *calibration, const int32_t *test,
                           double sparsity, uint64_t seed, struct totals *totals)
{
    static const char keys[SCHEMES * RULES + 1] = "012345678";
    struct prune_fixture fixture;
    struct espl_wanda_params wanda = quant_wanda_params();
    wanda.common.sparsity = sparsity;
    prune_fixture_open(&fixture);
    prune_import(&fixture, 'a', model_dir);
    (void)text_calibration(&fixture, 'b', model_dir, calibration, seed, CALIBRATION, TOKENS, NULL);
    quant_run(&fixture, &espl_stage_wanda_prune, &wanda, 'c', 'a', NULL);
    print_message("sparsity %.1f, seed %d, float perplexity %.4f; remask, freeze, round to "
                  "nearest:\n",
                  sparsity, (int)seed, text_perplexity(&fixture, 'c', test, EVALUATED, TOKENS));
    for (size_t s = 0; s < SCHEMES; s++) {
        const struct figures figures = measure(&fixture, &schemes[s], keys + s * RULES, test);
        check_row(&schemes[s], &figures, totals);
    }
    prune_fixture_close(&fixture);
}

static void test_remask__beats_freeze(void **state)
{
    (void)state;
    char model_dir[GOLDEN_PATH], calibration[GOLDEN_PATH], test_text[GOLDEN_PATH];
    struct totals totals = {{0.0}, 0, 0};
    double mean[RULES];
    size_t count = 0;
    if (!golden_model_dir("llama-6m", model_dir) ||
        !text_find("novels-calib-sample.txt.xz", calibration) ||
        !text_find("novels-test-sample.txt.xz", test_text)) {
        print_message("SKIPPED: the sample model or its texts are not there\n");
        skip();
    }
    int32_t *test = text_tokenise(model_dir, test_text, &count, NULL);
    assert_true(count >= (size_t)EVALUATED * TOKENS);
    for (size_t p = 0; p < sizeof sparsities / sizeof sparsities[0]; p++) {
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            measure_pruned(model_dir, calibration, test, sparsities[p], seed, &totals);
        }
    }
    for (size_t i = 0; i < RULES; i++) {
        mean[i] = exp(totals.log_perplexity[i] / (double)totals.rows);
    }
    print_message("float activations, geometric mean of %zu rows: remask %.4f, freeze %.4f, round "
                  "to nearest %.4f; remask ahead of freeze in %zu\n",
                  totals.rows, mean[0], mean[1], mean[2], totals.better);
    assert_true(mean[0] < mean[1] && mean[1] < mean[2]);
    assert_true(2 * totals.better > totals.rows);
    free(test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_remask__beats_freeze)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

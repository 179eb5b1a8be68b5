/* The CUDA runtime of language models against the CPU's evaluation of the same artifact. Random
 * models of all architectures are made here; for trained ones ESPL_TEST_MODELS names encoded or
 * quantised artifacts, separated by ':', and ESPL_TEST_TOKENS a tokens/1 artifact of their
 * tokenizer. ESPL_TEST_REFERENCE, a folder, keeps what the CPU computed. Skipped without a CUDA
 * device. */
#include "unit/device_reference.h"

#include "core/fs.h"
#include "core/rng.h"
#include "eval/device_decode.h"
#include "kernels/cuda_device.h"
#include "stages/iebme_encode/random_model.h"
#include "support/temp_folder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* An artifact and its model. */
struct opened {
    struct espl_artifact *artifact;
    struct espl_model *model;
};

static struct opened open_model(const char *path)
{
    struct opened opened = {NULL, NULL};
    struct espl_error err;
    cuda_check(espl_artifact_open(path, &opened.artifact, &err), &err);
    cuda_check(espl_model_open(opened.artifact, NULL, &opened.model, &err), &err);
    return opened;
}

static void close_model(struct opened *opened)
{
    espl_model_close(opened->model);
    espl_artifact_close(opened->artifact);
}

static struct espl_device_weights *put_weights(struct espl_model *model, enum espl_device_form form,
                                               bool automatic, enum espl_iebme_areas areas)
{
    const struct espl_device_weights_options options = {form, automatic, areas, 8};
    struct espl_device_weights *weights = NULL;
    struct espl_error err;
    cuda_check(espl_device_weights_create(model, &options, &weights, &err), &err);
    return weights;
}

static struct espl_device_decoder *make_decoder(struct espl_device_weights *weights,
                                                size_t sequences, size_t prompt, size_t tokens,
                                                bool overlap)
{
    const struct espl_device_decoder_options options = {sequences, prompt, tokens, overlap};
    struct espl_device_decoder *decoder = NULL;
    struct espl_error err;
    cuda_check(espl_device_decoder_create(weights, &options, &decoder, &err), &err);
    return decoder;
}

/* Largest difference, and what root mean square the difference and the values have. */
struct distance {
    double most, difference, values;
};

static struct distance distance_of(const float *got, const float *wanted, size_t count)
{
    struct distance d = {0.0, 0.0, 0.0};
    for (size_t i = 0; i < count; i++) {
        const double difference = (double)got[i] - (double)wanted[i];
        assert_true(isfinite(got[i]));
        d.most = fmax(d.most, fabs(difference));
        d.difference += difference * difference / (double)count;
        d.values += (double)wanted[i] * (double)wanted[i] / (double)count;
    }
    d.difference = sqrt(d.difference);
    d.values = sqrt(d.values);
    return d;
}

/* Rows of which nothing is further away than rounding of sums: no code fell on the other side. */
static size_t count_clean(const float *got, const float *wanted, size_t rows, size_t vocabulary)
{
    size_t clean = 0;
    for (size_t r = 0; r < rows; r++) {
        const struct distance d =
            distance_of(got + r * vocabulary, wanted + r * vocabulary, vocabulary);
        clean += d.difference <= 1e-4 * d.values ? 1 : 0;
    }
    return clean;
}

/* ---- random models ---- */

enum { SEQUENCES = 3, PROMPT = 19, NEW = 12 };

static void random_ids(int32_t *ids, size_t count, size_t vocabulary)
{
    struct espl_rng rng = espl_rng_stream(31, "ids", 0);
    for (size_t i = 0; i < count; i++) {
        ids[i] = (int32_t)espl_rng_below(&rng, vocabulary);
    }
}

/* Prompt and steps by the cache give what a pass over all tokens at once gives, again and again. */
static void expect_steps(struct espl_device_weights *weights, const int32_t *ids, size_t vocabulary,
                         bool overlap)
{
    enum { TOKENS = PROMPT + NEW };
    struct espl_error err;
    int32_t made[2][SEQUENCES * NEW];
    int32_t all[SEQUENCES * TOKENS];
    float *logits = malloc(sizeof all / sizeof all[0] * vocabulary * sizeof *logits);
    assert_non_null(logits);
    struct espl_device_decoder *decoder = make_decoder(weights, SEQUENCES, PROMPT, TOKENS, overlap);
    for (size_t round = 0; round < 2; round++) {
        cuda_check(espl_device_read_prompt(decoder, ids, &err), &err);
        cuda_check(espl_device_decode(decoder, NEW - 1, NULL, &err), &err);
        cuda_check(espl_device_get_tokens(decoder, made[round], NEW, &err), &err);
    }
    assert_memory_equal(made[0], made[1], sizeof made[0]);
    assert_int_equal(espl_device_decode(decoder, 2, NULL, &err), ESPL_E_UNSUPPORTED);
    espl_device_decoder_destroy(decoder);
    for (size_t s = 0; s < SEQUENCES; s++) {
        memcpy(all + s * TOKENS, ids + s * PROMPT, PROMPT * sizeof *all);
        memcpy(all + s * TOKENS + PROMPT, made[0] + s * NEW, NEW * sizeof *all);
    }
    decoder = make_decoder(weights, SEQUENCES, TOKENS, TOKENS, overlap);
    cuda_check(espl_device_logits(decoder, all, logits, &err), &err);
    espl_device_decoder_destroy(decoder);
    for (size_t i = 0; i < SEQUENCES * NEW; i++) {
        const size_t row = i / NEW * TOKENS + PROMPT + i % NEW - 1;
        const float *of_row = logits + row * vocabulary;
        float most = of_row[0];
        for (size_t v = 1; v < vocabulary; v++) {
            most = fmaxf(most, of_row[v]);
        }
        /* Products of other numbers of tokens add in other orders: near ties may turn. */
        assert_true(of_row[made[0][i]] >= most - 0.02F * fabsf(most));
    }
    free(logits);
}

static void try_random(const char *path, const char *shape)
{
    static const enum espl_iebme_areas areas[] = {ESPL_IEBME_DENSE, ESPL_IEBME_1X1, ESPL_IEBME_1X2,
                                                  ESPL_IEBME_2X1, ESPL_IEBME_2X2};
    struct opened opened = open_model(path);
    const size_t vocabulary = (size_t)espl_model_get_config(opened.model)->vocab;
    const size_t count = SEQUENCES * PROMPT * vocabulary;
    struct espl_backend *backend = NULL;
    struct espl_error err;
    int32_t ids[SEQUENCES * PROMPT];
    float *wanted = malloc(count * sizeof *wanted);
    float *got = malloc(count * sizeof *got);
    assert_non_null(wanted);
    assert_non_null(got);
    random_ids(ids, SEQUENCES * PROMPT, vocabulary);
    cuda_check(espl_backend_open("cpu", 0, &backend, &err), &err);
    reference_logits(opened.model, backend, ids, SEQUENCES, PROMPT, false, wanted);
    espl_backend_close(backend);
    for (size_t i = 0; i < sizeof areas / sizeof areas[0]; i++) {
        struct espl_device_weights *weights =
            put_weights(opened.model, ESPL_DEVICE_ENCODED, false, areas[i]);
        struct espl_device_decoder *decoder =
            make_decoder(weights, SEQUENCES, PROMPT, PROMPT, i % 2 != 0);
        cuda_check(espl_device_logits(decoder, ids, got, &err), &err);
        const struct distance d = distance_of(got, wanted, count);
        const size_t clean = count_clean(got, wanted, SEQUENCES * PROMPT, vocabulary);
        print_message("%s %s: logits differ by %.2g of %.2g, at most %.2g; %zu of %d rows by "
                      "rounding alone\n",
                      shape, espl_iebme_areas_name(areas[i]), d.difference, d.values, d.most, clean,
                      (int)(SEQUENCES * PROMPT));
        /* A code on the other side moves the rest of its sequence. */
        assert_true(clean >= SEQUENCES * PROMPT / 4);
        assert_true(d.difference <= 0.15 * d.values);
        espl_device_decoder_destroy(decoder);
        expect_steps(weights, ids, vocabulary, i % 2 != 0);
        espl_device_weights_destroy(weights);
    }
    free(wanted);
    free(got);
    close_model(&opened);
}

static void with_random(const char *shape, uint64_t layers,
                        void (*try_model)(const char *path, const char *shape))
{
    char folder[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    temp_folder_make(folder);
    (void)snprintf(path, sizeof path, "%.*s/model.h5", (int)sizeof path - 16, folder);
    const struct espl_random_model_options options = {
        .checkpoint = {.shape = shape, .layers = layers, .vocab = 600, .dtype = ESPL_DTYPE_F16},
        .path = path,
        .sparsity = 0.5,
        .bits = 4,
        .areas = ESPL_IEBME_1X1};
    cuda_check(espl_random_model_write(&options, NULL, &err), &err);
    try_model(path, shape);
    temp_folder_remove(folder);
}

static void test_random_models__agree_with_the_cpu(void **state)
{
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    with_random("opt", 3, try_random);
    with_random("llama", 3, try_random);
    with_random("qwen2", 3, try_random);
}

/* The dense forms among themselves: INT8 is near FP16, INT4 is the encoded codes. One block:
 * several equal ones would be taken for a model whose dense weights may be random. */
static void try_forms(const char *path, const char *shape)
{
    struct opened opened = open_model(path);
    const size_t vocabulary = (size_t)espl_model_get_config(opened.model)->vocab;
    const size_t count = SEQUENCES * PROMPT * vocabulary;
    struct espl_error err;
    int32_t ids[SEQUENCES * PROMPT];
    float *logits[ESPL_DEVICE_FORMS];
    random_ids(ids, SEQUENCES * PROMPT, vocabulary);
    for (int form = 0; form < ESPL_DEVICE_FORMS; form++) {
        struct espl_device_step_times times;
        double seconds[NEW - 2];
        logits[form] = malloc(count * sizeof(float));
        assert_non_null(logits[form]);
        struct espl_device_weights *weights =
            put_weights(opened.model, (enum espl_device_form)form, true, ESPL_IEBME_DENSE);
        struct espl_device_decoder *decoder =
            make_decoder(weights, SEQUENCES, PROMPT, PROMPT + NEW, true);
        cuda_check(espl_device_logits(decoder, ids, logits[form], &err), &err);
        cuda_check(espl_device_read_prompt(decoder, ids, &err), &err);
        cuda_check(espl_device_decode(decoder, NEW - 2, seconds, &err), &err);
        cuda_check(espl_device_time_step(decoder, 3, &times, &err), &err);
        assert_true(times.step > 0.0 && times.products > 0.0 && times.products < times.step);
        espl_device_decoder_destroy(decoder);
        espl_device_weights_destroy(weights);
    }
    const struct distance bytes =
        distance_of(logits[ESPL_DEVICE_DENSE_INT8], logits[ESPL_DEVICE_DENSE_FP16], count);
    const struct distance codes =
        distance_of(logits[ESPL_DEVICE_ENCODED], logits[ESPL_DEVICE_DENSE_INT4], count);
    const struct distance quantised =
        distance_of(logits[ESPL_DEVICE_ENCODED], logits[ESPL_DEVICE_DENSE_FP16], count);
    print_message("%s: INT8 differs from FP16 by %.2g of %.2g, W4A4 by %.2g; encoded from INT4 by "
                  "%.2g\n",
                  shape, bytes.difference, bytes.values, quantised.difference, codes.difference);
    assert_true(bytes.difference <= 0.1 * bytes.values);
    assert_true(codes.difference <= 0.01 * codes.values);
    assert_true(quantised.difference <= 0.9 * quantised.values);
    for (int form = 0; form < ESPL_DEVICE_FORMS; form++) {
        free(logits[form]);
    }
    close_model(&opened);
}

static void test_dense_forms__are_the_same_model(void **state)
{
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    with_random("opt", 1, try_forms);
    with_random("llama", 1, try_forms);
}

/* One sequence fills little of the memory that inputs of all linears share. */
static void try_timing(const char *path, const char *shape)
{
    struct opened opened = open_model(path);
    struct espl_error err;
    int32_t ids[PROMPT];
    random_ids(ids, PROMPT, (size_t)espl_model_get_config(opened.model)->vocab);
    for (int form = 0; form < ESPL_DEVICE_FORMS; form++) {
        struct espl_device_step_times times;
        int32_t made[2][NEW];
        struct espl_device_weights *weights =
            put_weights(opened.model, (enum espl_device_form)form, true, ESPL_IEBME_DENSE);
        struct espl_device_decoder *decoder = make_decoder(weights, 1, PROMPT, PROMPT + NEW, true);
        print_message("%s: %s\n", shape, espl_device_form_name((enum espl_device_form)form));
        for (int timed = 0; timed < 2; timed++) {
            cuda_check(espl_device_read_prompt(decoder, ids, &err), &err);
            cuda_check(espl_device_decode(decoder, 2, NULL, &err), &err);
            if (timed != 0) {
                cuda_check(espl_device_time_step(decoder, 3, &times, &err), &err);
            }
            cuda_check(espl_device_decode(decoder, NEW - 3, NULL, &err), &err);
            cuda_check(espl_device_get_tokens(decoder, made[timed], NEW, &err), &err);
        }
        assert_memory_equal(made[0], made[1], sizeof made[0]);
        espl_device_decoder_destroy(decoder);
        espl_device_weights_destroy(weights);
    }
    close_model(&opened);
}

static void test_timing_a_step__leaves_what_was_decoded(void **state)
{
    (void)state;
    if (!cuda_has_device()) {
        skip();
    }
    with_random("opt", 2, try_timing);
    with_random("llama", 2, try_timing);
}

/* ---- trained models ---- */

/* Sum of the negative log-likelihoods of a window's targets. */
static double window_nll(const float *logits, const int32_t *ids, size_t vocabulary)
{
    double nll = 0.0;
    for (size_t r = 0; r + 1 < REFERENCE_WINDOW; r++) {
        const float *row = logits + r * vocabulary;
        double sum = 0.0;
        float most = row[0];
        for (size_t v = 1; v < vocabulary; v++) {
            most = fmaxf(most, row[v]);
        }
        for (size_t v = 0; v < vocabulary; v++) {
            sum += exp((double)row[v] - (double)most);
        }
        nll += (double)most + log(sum) - (double)row[ids[r + 1]];
    }
    return nll;
}

static double device_perplexity(struct espl_device_weights *weights, const int32_t *ids,
                                size_t vocabulary)
{
    enum { AT_ONCE = 8, IDS = AT_ONCE * REFERENCE_WINDOW };
    struct espl_error err;
    double mean = 0.0;
    float *logits = malloc(IDS * vocabulary * sizeof *logits);
    assert_non_null(logits);
    struct espl_device_decoder *decoder =
        make_decoder(weights, AT_ONCE, REFERENCE_WINDOW, REFERENCE_WINDOW, true);
    for (size_t first = 0; first < REFERENCE_WINDOWS; first += AT_ONCE) {
        const int32_t *now = ids + first * REFERENCE_WINDOW;
        cuda_check(espl_device_logits(decoder, now, logits, &err), &err);
        for (size_t w = 0; w < AT_ONCE; w++) {
            mean += window_nll(logits + w * REFERENCE_WINDOW * vocabulary,
                               now + w * REFERENCE_WINDOW, vocabulary) /
                    (REFERENCE_WINDOWS * (REFERENCE_WINDOW - 1));
        }
    }
    espl_device_decoder_destroy(decoder);
    free(logits);
    return exp(mean);
}

static size_t count_equal(const int32_t *made, const int32_t *wanted)
{
    size_t equal = 0;
    for (size_t i = 0; i < REFERENCE_PROMPTS; i++) {
        equal += memcmp(made + i * REFERENCE_NEW, wanted + i * REFERENCE_NEW,
                        REFERENCE_NEW * sizeof *made) == 0
                     ? 1
                     : 0;
    }
    return equal;
}

/* How many of the prompts the device, so many at a time, continues as the CPU does. */
static size_t continue_prompts(struct espl_device_weights *weights, const int32_t *ids,
                               const struct device_reference *reference, size_t sequences)
{
    enum { TOKENS = REFERENCE_PROMPT + REFERENCE_NEW };
    struct espl_error err;
    int32_t made[REFERENCE_PROMPTS * REFERENCE_NEW];
    struct espl_device_decoder *decoder =
        make_decoder(weights, sequences, REFERENCE_PROMPT, TOKENS, true);
    for (size_t first = 0; first + sequences <= REFERENCE_PROMPTS; first += sequences) {
        cuda_check(espl_device_read_prompt(decoder, ids + first * REFERENCE_PROMPT, &err), &err);
        cuda_check(espl_device_decode(decoder, REFERENCE_NEW - 1, NULL, &err), &err);
        cuda_check(
            espl_device_get_tokens(decoder, made + first * REFERENCE_NEW, REFERENCE_NEW, &err),
            &err);
    }
    espl_device_decoder_destroy(decoder);
    return count_equal(made, reference->greedy);
}

/* The device is as near to the CPU as the CPU is to itself when disturbed. */
static void compare_trained(struct espl_model *model, const char *name, const int32_t *ids,
                            const struct device_reference *reference)
{
    enum { MARGIN = 8 }; /* prompts; some 2.5 standard deviations of such a count */
    const size_t vocabulary = (size_t)espl_model_get_config(model)->vocab;
    const size_t count = REFERENCE_LOGIT_ROWS * vocabulary;
    struct espl_error err;
    float *logits = malloc(count * sizeof *logits);
    assert_non_null(logits);
    struct espl_device_weights *weights =
        put_weights(model, ESPL_DEVICE_ENCODED, true, ESPL_IEBME_DENSE);
    struct espl_device_decoder *decoder =
        make_decoder(weights, 1, REFERENCE_LOGIT_ROWS, REFERENCE_LOGIT_ROWS, true);
    cuda_check(espl_device_logits(decoder, ids, logits, &err), &err);
    espl_device_decoder_destroy(decoder);
    const struct distance d = distance_of(logits, reference->logits, count);
    const struct distance self = distance_of(reference->disturbed_logits, reference->logits, count);
    const double perplexity = device_perplexity(weights, ids, vocabulary);
    const size_t tens = continue_prompts(weights, ids, reference, 10);
    const size_t ones = continue_prompts(weights, ids, reference, 1);
    const size_t own = count_equal(reference->disturbed_greedy, reference->greedy);
    print_message("%s: logits differ by %.3g of %.3g (CPU disturbed: %.3g); perplexity %.6f, CPU "
                  "%.6f; of %d continuations equal %zu in tens, %zu one by one (CPU disturbed: "
                  "%zu)\n",
                  name, d.difference, d.values, self.difference, perplexity, reference->perplexity,
                  (int)REFERENCE_PROMPTS, tens, ones, own);
    assert_true(d.difference <= 2.0 * self.difference + 1e-3 * d.values);
    assert_true(fabs(perplexity / reference->perplexity - 1.0) <= 0.002);
    assert_true(tens + MARGIN >= own && ones + MARGIN >= own);
    espl_device_weights_destroy(weights);
    free(logits);
}

static void try_trained(const char *path, const int32_t *ids, const char *kept)
{
    char file[ESPL_PATH_MAX];
    struct device_reference reference;
    const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    struct opened opened = open_model(path);
    if (kept != NULL) {
        (void)snprintf(file, sizeof file, "%s/%s.reference", kept, name);
    }
    reference_get(opened.model, ids, kept != NULL ? file : NULL, &reference);
    if (cuda_has_device()) {
        compare_trained(opened.model, name, ids, &reference);
    }
    reference_free(&reference);
    close_model(&opened);
}

static void test_trained_models__agree_with_the_cpu(void **state)
{
    const char *models = getenv("ESPL_TEST_MODELS");
    const char *tokens = getenv("ESPL_TEST_TOKENS");
    struct espl_artifact *artifact = NULL;
    struct espl_error err;
    void *ids = NULL;
    size_t bytes = 0;
    (void)state;
    if (models == NULL || tokens == NULL) {
        print_message("SKIPPED, NOT TESTED: no ESPL_TEST_MODELS and ESPL_TEST_TOKENS\n");
        skip();
    }
    cuda_check(espl_artifact_open(tokens, &artifact, &err), &err);
    cuda_check(espl_artifact_read(artifact, "/tokens/ids", (size_t)1 << 30, &ids, &bytes, &err),
               &err);
    assert_true(bytes >= REFERENCE_WINDOWS * REFERENCE_WINDOW * sizeof(int32_t));
    char *list = strdup(models);
    assert_non_null(list);
    char *rest = list;
    for (char *path = strsep(&rest, ":"); path != NULL; path = strsep(&rest, ":")) {
        try_trained(path, ids, getenv("ESPL_TEST_REFERENCE"));
    }
    free(list);
    free(ids);
    espl_artifact_close(artifact);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_models__agree_with_the_cpu),
        cmocka_unit_test(test_dense_forms__are_the_same_model),
        cmocka_unit_test(test_timing_a_step__leaves_what_was_decoded),
        cmocka_unit_test(test_trained_models__agree_with_the_cpu),
    };
    espl_artifact_library_init();
    cuda_filter_tests();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

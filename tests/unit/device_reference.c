#include "unit/device_reference.h"

#include "eval/perplexity.h"
#include "support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s", err->message);
    }
}

static void disturb(float *hidden, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        hidden[i] = nextafterf(hidden[i], i % 2 == 0 ? INFINITY : -INFINITY);
    }
}

/* hidden (windows * tokens, hidden) after all blocks. */
static struct espl_forward *run_blocks(struct espl_model *model, struct espl_backend *backend,
                                       const int32_t *ids, size_t windows, size_t tokens,
                                       bool disturbed, float *hidden)
{
    const struct espl_model_config *config = espl_model_get_config(model);
    const uint64_t layers = config->layers;
    struct espl_forward *forward = NULL;
    struct espl_block *block = NULL;
    struct espl_error err;
    check(espl_forward_create(model, backend, windows, tokens, &forward, &err), &err);
    check(espl_forward_embed(forward, ids, windows, hidden, &err), &err);
    if (disturbed) {
        disturb(hidden, windows * tokens * (size_t)config->hidden);
    }
    for (uint64_t layer = 0; layer < layers; layer++) {
        check(espl_block_load(forward, layer, &block, &err), &err);
        check(espl_forward_block(forward, block, windows, hidden, NULL, NULL, &err), &err);
    }
    espl_block_destroy(block);
    return forward;
}

static int32_t best_of(const float *logits, size_t vocabulary)
{
    size_t best = 0;
    for (size_t v = 1; v < vocabulary; v++) {
        best = logits[v] > logits[best] ? v : best;
    }
    return (int32_t)best;
}

void reference_greedy(struct espl_model *model, struct espl_backend *backend, const int32_t *ids,
                      size_t windows, size_t prompt, size_t count, bool disturbed, int32_t *new_ids)
{
    const struct espl_model_config *config = espl_model_get_config(model);
    const size_t width = (size_t)config->hidden;
    const size_t vocabulary = (size_t)config->vocab;
    const size_t most = prompt + count;
    int32_t *now = malloc(windows * most * sizeof *now);
    float *hidden = malloc(windows * most * width * sizeof *hidden);
    float *logits = malloc(windows * vocabulary * sizeof *logits);
    struct espl_error err;
    assert_non_null(now);
    assert_non_null(hidden);
    assert_non_null(logits);
    for (size_t made = 0; made < count; made++) {
        const size_t tokens = prompt + made;
        for (size_t w = 0; w < windows; w++) {
            memcpy(now + w * tokens, ids + w * prompt, prompt * sizeof *now);
            memcpy(now + w * tokens + prompt, new_ids + w * count, made * sizeof *now);
        }
        struct espl_forward *forward =
            run_blocks(model, backend, now, windows, tokens, disturbed, hidden);
        for (size_t w = 0; w < windows; w++) {
            memmove(hidden + w * width, hidden + (w * tokens + tokens - 1) * width,
                    width * sizeof *hidden);
        }
        check(espl_forward_logits(forward, hidden, windows, logits, &err), &err);
        for (size_t w = 0; w < windows; w++) {
            new_ids[w * count + made] = best_of(logits + w * vocabulary, vocabulary);
        }
        espl_forward_destroy(forward);
    }
    free(now);
    free(hidden);
    free(logits);
}

void reference_logits(struct espl_model *model, struct espl_backend *backend, const int32_t *ids,
                      size_t windows, size_t tokens, bool disturbed, float *logits)
{
    const size_t rows = windows * tokens;
    float *hidden = malloc(rows * (size_t)espl_model_get_config(model)->hidden * sizeof *hidden);
    struct espl_error err;
    assert_non_null(hidden);
    struct espl_forward *forward =
        run_blocks(model, backend, ids, windows, tokens, disturbed, hidden);
    check(espl_forward_logits(forward, hidden, rows, logits, &err), &err);
    espl_forward_destroy(forward);
    free(hidden);
}

/* The arrays of a reference, in the order of a file. */
struct span {
    void *data;
    size_t bytes;
};
enum { SPANS = 5 };

static void spans_of(struct device_reference *reference, size_t logits, struct span spans[SPANS])
{
    spans[0] = (struct span){reference->greedy, sizeof reference->greedy};
    spans[1] = (struct span){reference->disturbed_greedy, sizeof reference->disturbed_greedy};
    spans[2] = (struct span){&reference->perplexity, sizeof reference->perplexity};
    spans[3] = (struct span){reference->logits, logits * sizeof(float)};
    spans[4] = (struct span){reference->disturbed_logits, logits * sizeof(float)};
}

static bool read_all(const char *file, const struct span spans[SPANS])
{
    FILE *stream = file != NULL ? fopen(file, "rb") : NULL;
    if (stream == NULL) {
        return false;
    }
    for (size_t i = 0; i < SPANS; i++) {
        assert_int_equal(fread(spans[i].data, 1, spans[i].bytes, stream), spans[i].bytes);
    }
    (void)fclose(stream);
    return true;
}

static void write_all(const char *file, const struct span spans[SPANS])
{
    FILE *stream = fopen(file, "wb");
    assert_non_null(stream);
    for (size_t i = 0; i < SPANS; i++) {
        assert_int_equal(fwrite(spans[i].data, 1, spans[i].bytes, stream), spans[i].bytes);
    }
    assert_int_equal(fclose(stream), 0);
}

void reference_get(struct espl_model *model, const int32_t *ids, const char *file,
                   struct device_reference *reference)
{
    const size_t vocabulary = (size_t)espl_model_get_config(model)->vocab;
    const size_t logits = REFERENCE_LOGIT_ROWS * vocabulary;
    struct espl_backend *backend = NULL;
    struct espl_perplexity result;
    struct espl_error err;
    struct span spans[SPANS];
    reference->logits = malloc(logits * sizeof(float));
    reference->disturbed_logits = malloc(logits * sizeof(float));
    assert_non_null(reference->logits);
    assert_non_null(reference->disturbed_logits);
    spans_of(reference, logits, spans);
    if (read_all(file, spans)) {
        return;
    }
    check(espl_backend_open("cpu", 0, &backend, &err), &err);
    check(espl_perplexity_measure(model, NULL, backend, ids, REFERENCE_WINDOWS, REFERENCE_WINDOW,
                                  NULL, NULL, &result, &err),
          &err);
    reference->perplexity = result.perplexity;
    for (int disturbed = 0; disturbed < 2; disturbed++) {
        reference_logits(model, backend, ids, 1, REFERENCE_LOGIT_ROWS, disturbed != 0,
                         disturbed != 0 ? reference->disturbed_logits : reference->logits);
        reference_greedy(model, backend, ids, REFERENCE_PROMPTS, REFERENCE_PROMPT, REFERENCE_NEW,
                         disturbed != 0,
                         disturbed != 0 ? reference->disturbed_greedy : reference->greedy);
    }
    espl_backend_close(backend);
    if (file != NULL) {
        write_all(file, spans);
    }
}

void reference_free(struct device_reference *reference)
{
    free(reference->logits);
    free(reference->disturbed_logits);
}

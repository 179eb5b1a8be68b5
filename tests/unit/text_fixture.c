#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "text_fixture.h"

#include "core/fs.h"
#include "datasets/text.h"
#include "datasets/tokenizer.h"
#include "datasets/windows.h"
#include "eval/perplexity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_LIMIT = 64 << 20, MOST_REJECTED = 100, STARTS = 4 };

static void check(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s [%s] (%s)", err->message, err->context, err->hint);
    }
}

bool text_find(const char *name, char path[GOLDEN_PATH])
{
    (void)snprintf(path, GOLDEN_PATH, "%s/datasets/samples/%s", ESPL_SOURCE_DIR, name);
    return espl_fs_exists(path) || golden_text_path(name, path);
}

int32_t *text_tokenise(const char *model_dir, const char *path, size_t *count, size_t *vocab)
{
    struct espl_tokenizer *tokenizer = NULL;
    struct espl_error err;
    char *text = NULL;
    size_t len = 0;
    int32_t *ids = NULL;
    check(espl_tokenizer_load(model_dir, &tokenizer, &err), &err);
    check(espl_text_read(path, TEXT_LIMIT, &text, &len, &err), &err);
    check(espl_tokenizer_encode(tokenizer, text, len, true, &ids, count, &err), &err);
    if (vocab != NULL) {
        *vocab = espl_tokenizer_vocab_size(tokenizer);
    }
    free(text);
    espl_tokenizer_destroy(tokenizer);
    return ids;
}

size_t text_calibration(struct prune_fixture *fixture, char key, const char *model_dir,
                        const char *path, uint64_t seed, uint64_t windows, size_t tokens,
                        uint64_t *first_starts)
{
    size_t count = 0, vocab = 0;
    struct espl_error err;
    int32_t *ids = text_tokenise(model_dir, path, &count, &vocab);
    int32_t *drawn = malloc((size_t)windows * tokens * sizeof *drawn);
    uint64_t *starts = malloc((size_t)windows * sizeof *starts);
    const uint64_t offsets[2] = {0, count};
    const struct espl_documents documents = {ids, offsets, 1};
    assert_true(drawn != NULL && starts != NULL);
    check(espl_windows_draw(&documents, seed, (size_t)windows, tokens, MOST_REJECTED, drawn, starts,
                            &err),
          &err);
    if (first_starts != NULL) {
        memcpy(first_starts, starts, STARTS * sizeof *starts);
    }
    prune_make_tokens(fixture, key, drawn, windows, tokens, vocab);
    free(starts);
    free(drawn);
    free(ids);
    return count;
}

double text_perplexity(struct prune_fixture *fixture, char key, const int32_t *ids,
                       uint64_t windows, size_t tokens)
{
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    struct espl_backend *backend = NULL;
    struct espl_perplexity result;
    struct espl_error err;
    prune_open(fixture, key, &artifact, &model);
    check(espl_backend_open("cpu", 0, &backend, &err), &err);
    check(espl_perplexity_measure(model, NULL, backend, ids, windows, tokens, NULL, NULL, &result,
                                  &err),
          &err);
    espl_backend_close(backend);
    espl_model_close(model);
    espl_artifact_close(artifact);
    return result.perplexity;
}

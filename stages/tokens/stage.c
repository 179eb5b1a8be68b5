/* tokens: a text as token ids, or calibration windows drawn from it. */
#include "engine/stage.h"
#include "core/checked.h"
#include "core/fs.h"
#include "datasets/text.h"
#include "datasets/tokenizer.h"
#include "datasets/windows.h"
#include "stages/tokens/token_source.h"
#include "stages/tokens/token_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_IDS = 8, MAX_SAMPLES = 1 << 20, MAX_SEQUENCE = 1 << 20 };

struct params {
    const char *tokenizer;
    const char *tokenizer_source; /* instead of tokenizer */
    struct espl_list text;
    const char *source; /* instead of text */
    const char *ids;
    int documents;
    int64_t samples;
    int64_t sequence_length;
    int64_t seed;
    int64_t max_rejected;
    bool add_bos;
};

static const char *const document_choices[] = {"whole", "lines", "paragraphs", "jsonl", NULL};

static const struct espl_param param_table[] = {
    {.name = "tokenizer",
     .help = "folder with tokenizer.json (a checkpoint folder), or that file",
     .unit = "",
     .type = ESPL_PARAM_PATH,
     .flags = ESPL_PARAM_OPTIONAL | ESPL_PARAM_INPUT_PATH,
     .offset = offsetof(struct params, tokenizer)},
    {.name = "tokenizer_source",
     .help = "a model that `espalier fetch` brought, for its tokenizer: qwen2-0.5b",
     .unit = "",
     .type = ESPL_PARAM_STRING,
     .flags = ESPL_PARAM_OPTIONAL | ESPL_PARAM_NO_HASH, /* its files enter the key */
     .offset = offsetof(struct params, tokenizer_source)},
    {.name = "text",
     .help = "UTF-8 text files, plain or .xz, .gz, .bz2, .zst; several are joined with nothing "
             "between",
     .unit = "",
     .type = ESPL_PARAM_PATH,
     .flags = ESPL_PARAM_LIST | ESPL_PARAM_OPTIONAL | ESPL_PARAM_INPUT_PATH,
     .offset = offsetof(struct params, text)},
    {.name = "source",
     .help = "a text that `espalier fetch` brought, instead of files: wikitext2, or "
             "wikitext2/wiki.valid.raw",
     .unit = "",
     .type = ESPL_PARAM_STRING,
     .flags = ESPL_PARAM_OPTIONAL | ESPL_PARAM_NO_HASH, /* its files enter the key */
     .offset = offsetof(struct params, source)},
    {.name = "ids",
     .help = "ready-made ids instead of a text: a raw file of little-endian int32",
     .unit = "",
     .type = ESPL_PARAM_PATH,
     .flags = ESPL_PARAM_OPTIONAL | ESPL_PARAM_INPUT_PATH,
     .offset = offsetof(struct params, ids)},
    {.name = "documents",
     .help = "what one document is; jsonl takes the \"text\" field of each line",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "whole",
     .choices = document_choices,
     .offset = offsetof(struct params, documents)},
    {.name = "samples",
     .help = "calibration windows to draw; 0 keeps the whole text",
     .unit = "windows",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0,
     .max = MAX_SAMPLES,
     .offset = offsetof(struct params, samples)},
    {.name = "sequence_length",
     .help = "length of a window; 0 leaves it to the stages that read the tokens",
     .unit = "tokens",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0,
     .max = MAX_SEQUENCE,
     .offset = offsetof(struct params, sequence_length)},
    {.name = "seed",
     .help = "seed of the window sampler, the same windows as the published Wanda code draws",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0,
     .max = 4294967295.0,
     .offset = offsetof(struct params, seed)},
    {.name = "max_rejected",
     .help = "documents that may be too short in a row before the stage gives up",
     .unit = "documents",
     .type = ESPL_PARAM_INT,
     .default_text = "10000",
     .min = 0,
     .max = 1e9,
     .offset = offsetof(struct params, max_rejected)},
    {.name = "add_bos",
     .help = "put the special tokens of the tokenizer files (BOS) around each document",
     .unit = "",
     .type = ESPL_PARAM_BOOL,
     .default_text = "true",
     .offset = offsetof(struct params, add_bos)},
    {.name = NULL},
};

static const struct espl_port no_inputs[] = {{.name = NULL}};

static const struct espl_port outputs[] = {
    {.name = "tokens", .kind = "tokens/1", .help = "token ids, whole text or windows"},
    {.name = NULL},
};

/* ---- plan ---- */

static enum espl_status blame(struct espl_error *err, enum espl_status status, const char *what)
{
    if (status != ESPL_OK) {
        (void)espl_blame(err, what);
    }
    return status;
}

/* Puts the paths of fetched sets in the place of their names. */
static enum espl_status resolve(struct params *params, struct espl_token_source *source,
                                struct espl_error *err)
{
    return espl_token_source_find(params->source, &params->text, params->tokenizer_source,
                                  &params->tokenizer, source, err);
}

static enum espl_status check_combination(const struct params *params, struct espl_error *err)
{
    const bool text = params->text.count > 0;
    if (text == (params->ids != NULL)) {
        (void)espl_fail(err, ESPL_E_JOB,
                        text ? "tokens takes 'text' or 'ids', not both"
                             : "tokens needs 'text' or 'ids'");
        (void)espl_hint(err, "text: [file.txt] with tokenizer: folder, or ids: file.bin");
        return espl_blame(err, text ? "param:ids" : "param:text");
    }
    if (text && params->tokenizer == NULL) {
        (void)espl_fail(err, ESPL_E_JOB, "'text' needs a 'tokenizer'");
        (void)espl_hint(err, "give the checkpoint folder that holds tokenizer.json");
        return espl_blame(err, "param:text");
    }
    if (params->ids != NULL && params->tokenizer != NULL) {
        (void)espl_fail(err, ESPL_E_JOB, "'ids' are used as they are: leave 'tokenizer' out");
        return espl_blame(err, "param:tokenizer");
    }
    if (params->ids != NULL && params->documents != ESPL_DOCUMENTS_WHOLE) {
        (void)espl_fail(err, ESPL_E_JOB, "'ids' are one document: 'documents' must be whole");
        return espl_blame(err, "param:documents");
    }
    if (params->samples > 0 && params->sequence_length == 0) {
        (void)espl_fail(err, ESPL_E_JOB, "'samples' needs a 'sequence_length'");
        (void)espl_hint(err, "the published setting is 128 samples of 2048 tokens");
        return espl_blame(err, "param:samples");
    }
    return ESPL_OK;
}

/* Names the files that decide the ids, and sums up the size of the texts. */
static enum espl_status plan_files(struct espl_plan_ctx *ctx, const struct params *params,
                                   uint64_t *text_bytes, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    if (params->tokenizer != NULL) {
        char json_path[ESPL_PATH_MAX];
        char config_path[ESPL_PATH_MAX];
        status = espl_tokenizer_files(params->tokenizer, json_path, config_path, err);
        if (status == ESPL_OK) {
            status = espl_plan_add_file(ctx, "tokenizer", json_path, err);
        }
        if (status == ESPL_OK && config_path[0] != '\0') {
            status = espl_plan_add_file(ctx, "tokenizer-config", config_path, err);
        }
        if (status == ESPL_E_NOTFOUND) {
            espl_source_hint(params->tokenizer, "tokenizer_source", err);
        }
        if (status != ESPL_OK) {
            return blame(err, status, "param:tokenizer");
        }
    }
    const bool text = params->ids == NULL;
    const char *const *const paths = text ? params->text.items : (const void *)&params->ids;
    const size_t count = text ? params->text.count : 1;
    for (size_t i = 0; i < count && status == ESPL_OK; i++) {
        uint64_t size = 0;
        status = espl_plan_add_file(ctx, text ? "text" : "ids", paths[i], err);
        if (status == ESPL_OK) {
            status = espl_fs_file_size(paths[i], &size, err);
        }
        *text_bytes += size;
        if (status == ESPL_E_NOTFOUND && text) {
            espl_source_hint(paths[i], "source", err);
        }
    }
    return blame(err, status, text ? "param:text" : "param:ids");
}

/* Adds what the tokenizer files say; an unsupported one is found here, before anything runs. */
static enum espl_status describe_tokenizer(const struct params *params, json_t *description,
                                           struct espl_error *err)
{
    struct espl_tokenizer *tokenizer = NULL;
    const enum espl_status status = espl_tokenizer_load(params->tokenizer, &tokenizer, err);
    if (status != ESPL_OK) {
        return blame(err, status, "param:tokenizer");
    }
    const json_int_t bos = params->add_bos ? espl_tokenizer_bos(tokenizer) : -1;
    const bool ok =
        json_object_set_new(description, "tokenizer_sha256",
                            json_string(espl_tokenizer_sha256(tokenizer))) == 0 &&
        json_object_set_new(description, "bos_id", json_integer(bos)) == 0 &&
        json_object_set_new(description, "vocab_size",
                            json_integer((json_int_t)espl_tokenizer_vocab_size(tokenizer))) == 0;
    espl_tokenizer_destroy(tokenizer);
    return ok ? ESPL_OK : espl_fail(err, ESPL_E_NOMEM, "out of memory for the plan");
}

/* Are `count` ids in one document enough for what is asked? */
static enum espl_status check_count(const struct params *params, size_t count,
                                    struct espl_error *err)
{
    const char *what = params->ids != NULL ? "param:ids" : "param:text";
    if (count == 0 || count < (size_t)params->sequence_length) {
        (void)espl_fail(err, ESPL_E_CORRUPT,
                        "the text has %zu tokens, fewer than one window of sequence_length %lld",
                        count, (long long)params->sequence_length);
        return espl_blame(err, what);
    }
    return ESPL_OK;
}

/* An ids file that is not compressed tells its count by its size: too few are known before anything
 * runs. *count: 0 = not known. */
static enum espl_status plan_count(const struct params *params, uint64_t bytes, uint64_t *count,
                                   struct espl_error *err)
{
    const bool plain = params->ids != NULL && !espl_text_is_compressed(params->ids);
    *count = plain ? bytes / sizeof(int32_t) : 0;
    if (params->samples == 0 || !plain) {
        return plain ? check_count(params, (size_t)*count, err) : ESPL_OK;
    }
    if (*count <= (uint64_t)params->sequence_length) {
        (void)espl_fail(err, ESPL_E_CORRUPT,
                        "'%s' has %llu ids, too few to draw a window of sequence_length %lld",
                        params->ids, (unsigned long long)*count,
                        (long long)params->sequence_length);
        (void)espl_hint(err, "a document must be longer than a window");
        return espl_blame(err, "param:sequence_length");
    }
    return ESPL_OK;
}

static enum espl_status plan_resolved(struct espl_plan_ctx *ctx, const struct params *params,
                                      struct espl_estimate *est, struct espl_error *err)
{
    uint64_t text_bytes = 0;
    uint64_t count = 0;
    enum espl_status status = check_combination(params, err);
    if (status == ESPL_OK) {
        status = plan_files(ctx, params, &text_bytes, err);
    }
    if (status == ESPL_OK) {
        status = plan_count(params, text_bytes, &count, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    json_t *const description = json_pack("{s:I, s:I}", "windows", (json_int_t)params->samples,
                                          "sequence_length", (json_int_t)params->sequence_length);
    if (description == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the plan");
    }
    const uint64_t window_ids = (uint64_t)params->samples * (uint64_t)params->sequence_length;
    count = params->samples > 0 ? window_ids : count;
    if (count > 0 &&
        json_object_set_new(description, "count", json_integer((json_int_t)count)) != 0) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for the plan");
    }
    if (status == ESPL_OK && params->tokenizer != NULL) {
        status = describe_tokenizer(params, description, err);
    }
    if (status != ESPL_OK) {
        json_decref(description);
        return status;
    }
    espl_plan_set_output(ctx, "tokens", description);
    /* Text compresses about threefold and has three to four bytes a token; an id takes four bytes.
     */
    est->host_bytes = 8 * text_bytes + 4 * window_ids;
    est->output_bytes = params->samples > 0 ? 4 * window_ids : 4 * text_bytes;
    if (params->ids != NULL) {
        (void)snprintf(est->note, sizeof est->note, "ids of an unknown tokenizer");
    }
    return ESPL_OK;
}

static enum espl_status plan_tokens(struct espl_plan_ctx *ctx, const void *raw_params,
                                    struct espl_estimate *est, struct espl_error *err)
{
    struct params params = *(const struct params *)raw_params;
    struct espl_token_source source;
    enum espl_status status = resolve(&params, &source, err);
    if (status == ESPL_OK) {
        status = plan_resolved(ctx, &params, est, err);
    }
    espl_token_source_blame(&source, status, err);
    espl_token_source_free(&source);
    return status;
}

/* ---- run ---- */

/* What one run makes. */
struct result {
    struct espl_token_stream *stream;
    const struct espl_tokenizer *tokenizer; /* NULL for an ids file */
    int32_t *ids;
    size_t count;
    struct espl_window_place *places; /* NULL for a whole text */
};

/* Every document, one after the other. */
static enum espl_status gather_all(struct espl_stage_ctx *ctx, const struct params *params,
                                   struct result *result, struct espl_error *err)
{
    const size_t documents = espl_token_stream_documents(result->stream);
    size_t capacity = 0;
    for (size_t i = 0; i < documents; i++) {
        if (espl_ctx_cancelled(ctx)) {
            return espl_ctx_stop(ctx, err);
        }
        const int32_t *ids = NULL;
        size_t count = 0;
        const enum espl_status status =
            espl_token_stream_load(result->stream, i, &ids, &count, err);
        if (status != ESPL_OK) {
            return status;
        }
        if (count > capacity - result->count) {
            size_t bytes = 0;
            capacity = documents == 1 ? count : 2 * (result->count + count);
            int32_t *const grown = espl_mul_size(capacity + 1, sizeof *grown, &bytes)
                                       ? realloc(result->ids, bytes)
                                       : NULL;
            if (grown == NULL) {
                return espl_fail(err, ESPL_E_NOMEM, "out of memory for token ids");
            }
            result->ids = grown;
        }
        memcpy(result->ids + result->count, ids, count * sizeof *ids);
        result->count += count;
        espl_ctx_progress(ctx, i + 1, documents, "document");
    }
    return check_count(params, result->count, err);
}

static enum espl_status draw_windows(struct espl_stage_ctx *ctx, const struct params *params,
                                     struct result *result, struct espl_error *err)
{
    const size_t samples = (size_t)params->samples;
    const size_t length = (size_t)params->sequence_length;
    if (!espl_mul_size(samples, length, &result->count)) {
        return espl_fail(err, ESPL_E_NOMEM, "%zu windows of %zu tokens do not fit in memory",
                         samples, length);
    }
    result->ids = calloc(result->count + 1, sizeof *result->ids);
    result->places = calloc(samples, sizeof *result->places);
    if (result->ids == NULL || result->places == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu windows", samples);
    }
    const struct espl_document_source source = espl_token_stream_source(result->stream);
    const enum espl_status status =
        espl_windows_draw_from(&source, (uint64_t)params->seed, samples, length,
                               (size_t)params->max_rejected, result->ids, result->places, err);
    espl_ctx_progress(ctx, status == ESPL_OK ? samples : 0, samples, "window");
    return blame(err, status, "param:sequence_length");
}

static enum espl_status write_datasets(struct espl_artifact *artifact, const struct params *params,
                                       const struct result *result, struct espl_error *err)
{
    const uint64_t samples = (uint64_t)params->samples;
    const uint64_t whole[] = {result->count};
    const uint64_t windows[] = {samples, (uint64_t)params->sequence_length};
    const struct espl_tensor_info ids =
        samples > 0 ? espl_tensor_info_make("/tokens/ids", ESPL_DTYPE_I32, 2, windows)
                    : espl_tensor_info_make("/tokens/ids", ESPL_DTYPE_I32, 1, whole);
    enum espl_status status = espl_artifact_write(artifact, &ids, result->ids, err);
    if (status != ESPL_OK || samples == 0) {
        return status;
    }
    uint64_t *const column = calloc(samples, sizeof *column);
    if (column == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu windows", (size_t)samples);
    }
    static const char *const paths[] = {"/tokens/documents", "/tokens/starts"};
    for (size_t p = 0; p < 2 && status == ESPL_OK; p++) {
        for (size_t i = 0; i < samples; i++) {
            column[i] = p == 0 ? result->places[i].document : result->places[i].start;
        }
        const struct espl_tensor_info info =
            espl_tensor_info_make(paths[p], ESPL_DTYPE_U64, 1, &samples);
        status = espl_artifact_write(artifact, &info, column, err);
    }
    free(column);
    return status;
}

static json_t *first_ids(const struct result *result)
{
    json_t *const list = json_array();
    for (size_t i = 0; i < FIRST_IDS && i < result->count; i++) {
        if (json_array_append_new(list, json_integer(result->ids[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static enum espl_status describe(struct espl_stage_ctx *ctx, const struct params *params,
                                 const struct result *result, struct espl_error *err)
{
    const struct espl_tokenizer *const tokenizer = result->tokenizer;
    const json_int_t bos =
        tokenizer != NULL && params->add_bos ? espl_tokenizer_bos(tokenizer) : -1;
    const json_int_t vocabulary = tokenizer != NULL
                                      ? (json_int_t)espl_tokenizer_vocab_size(tokenizer)
                                      : (json_int_t)espl_token_stream_id_end(result->stream);
    json_t *const description =
        json_pack("{s:I, s:I, s:I, s:s, s:s, s:I, s:I, s:o, s:I}", "count",
                  (json_int_t)result->count, "windows", (json_int_t)params->samples,
                  "sequence_length", (json_int_t)params->sequence_length, "tokenizer_sha256",
                  tokenizer != NULL ? espl_tokenizer_sha256(tokenizer) : "", "text_sha256",
                  espl_token_stream_sha256(result->stream), "bos_id", bos, "vocab_size", vocabulary,
                  "first_ids", first_ids(result), "documents",
                  (json_int_t)espl_token_stream_documents(result->stream));
    char *const text =
        description != NULL ? json_dumps(description, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    const enum espl_status status =
        text != NULL ? espl_artifact_set_description(espl_ctx_output(ctx, "tokens"), text, err)
                     : espl_fail(err, ESPL_E_NOMEM, "out of memory for the description");
    free(text);
    json_decref(description);
    return status;
}

static void log_result(struct espl_stage_ctx *ctx, const struct params *params,
                       const struct result *result)
{
    char first[FIRST_IDS * 12 + 1] = "";
    size_t used = 0;
    for (size_t i = 0; i < FIRST_IDS && i < result->count; i++) {
        used += (size_t)snprintf(first + used, sizeof first - used, " %d", (int)result->ids[i]);
    }
    const struct espl_log *const log = espl_ctx_log(ctx);
    espl_log(log, ESPL_LOG_INFO, "%zu ids from %zu documents; the first ids are%s", result->count,
             espl_token_stream_documents(result->stream), first);
    if (espl_token_stream_had_bos(result->stream)) {
        espl_log(
            log, ESPL_LOG_WARN,
            "a document begins with the written-out BOS token, so none was put in front of it");
    }
    if (params->ids != NULL) {
        espl_log(log, ESPL_LOG_WARN,
                 "ids were given ready-made: perplexity will be per token of an unknown tokenizer");
    }
}

static enum espl_status run_resolved(struct espl_stage_ctx *ctx, const struct params *params,
                                     struct espl_error *err)
{
    struct espl_tokenizer *tokenizer = NULL;
    struct result result = {0};
    enum espl_status status = check_combination(params, err);
    if (status == ESPL_OK && params->ids != NULL) {
        status =
            blame(err, espl_token_stream_open_ids(params->ids, &result.stream, err), "param:ids");
    } else if (status == ESPL_OK) {
        status =
            blame(err, espl_tokenizer_load(params->tokenizer, &tokenizer, err), "param:tokenizer");
        if (status == ESPL_OK) {
            status = blame(err,
                           espl_token_stream_open_text(tokenizer, &params->text,
                                                       (enum espl_document_mode)params->documents,
                                                       params->add_bos, &result.stream, err),
                           "param:text");
        }
    }
    result.tokenizer = tokenizer;
    if (status == ESPL_OK) {
        status = params->samples > 0 ? draw_windows(ctx, params, &result, err)
                                     : gather_all(ctx, params, &result, err);
    }
    if (status == ESPL_OK) {
        status = describe(ctx, params, &result, err);
    }
    if (status == ESPL_OK) {
        status = write_datasets(espl_ctx_output(ctx, "tokens"), params, &result, err);
    }
    if (status == ESPL_OK) {
        log_result(ctx, params, &result);
    }
    free(result.places);
    free(result.ids);
    espl_token_stream_close(result.stream);
    espl_tokenizer_destroy(tokenizer);
    return status;
}

static enum espl_status run_tokens(struct espl_stage_ctx *ctx, const void *raw_params,
                                   struct espl_error *err)
{
    struct params params = *(const struct params *)raw_params;
    struct espl_token_source source;
    enum espl_status status = resolve(&params, &source, err);
    if (status == ESPL_OK) {
        status = run_resolved(ctx, &params, err);
    }
    espl_token_source_blame(&source, status, err);
    espl_token_source_free(&source);
    return status;
}

const struct espl_stage espl_stage_tokens = {
    .name = "tokens",
    .summary = "a text as token ids, whole or as calibration windows",
    .cache_version = 1,
    .flags = 0,
    .params = param_table,
    .params_size = sizeof(struct params),
    .inputs = no_inputs,
    .outputs = outputs,
    .plan = plan_tokens,
    .run = run_tokens,
};
